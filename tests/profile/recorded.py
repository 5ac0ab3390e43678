"""What was recorded on one H200, unpacked."""

from __future__ import annotations

import gzip
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "profile"


def text(name: str) -> str:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()


def metrics_of(chip: str) -> frozenset[str]:
    """All that ncu names for a chip."""
    from ridgeline.profile.ncu import metric_names

    return frozenset(metric_names(text(f"metrics-{chip}.txt")))

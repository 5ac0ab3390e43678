"""What was recorded on one H200, unpacked."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from ridgeline.store import Run, to_run

DATA = Path(__file__).parents[1] / "data" / "profile"


def text(name: str) -> str:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()


def metrics_of(chip: str) -> frozenset[str]:
    """All that ncu names for a chip."""
    from ridgeline.profile.counting import metric_names

    return frozenset(metric_names(text(f"metrics-{chip}.txt")))


def run_of_an_h200() -> Run:
    """A step of VGG-16, measured."""
    content = json.loads((DATA.parent / "run-h200-vgg16.json").read_text())
    return to_run(Path("r1"), content)

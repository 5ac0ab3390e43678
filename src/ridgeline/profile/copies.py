"""What a step copies and fills outside of kernels: the driver does it, and no counter sees it.

A copy of a tensor in the same order and type is such a one. Bytes are those of the device's memory:
a copy within it reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

COPY, FILL = "gpu_memcpy", "gpu_memset"  # categories of events
WITHIN = "DtoD"  # in the name of a copy that stays on the device
TYPES = {"kind": str, "time_s": float, "start_s": float, "moved_bytes": float, "index": int}
BY = ("kind", "layer", "phase", "op")
AMOUNTS = ("launches", "time_s", "moved_bytes")


def is_copy(event: Mapping[str, Any]) -> bool:
    """Whether an event of a trace is one."""
    return event.get("cat") in (COPY, FILL)


def copies_in(events: Iterable[tuple[Mapping[str, Any], int]]) -> pd.DataFrame:
    """A row per event, each of which comes with the number of its operator."""
    import pandas as pd

    rows = [_row(event, index) for event, index in events]
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


def _row(event: Mapping[str, Any], index: int) -> dict[str, Any]:
    name = str(event.get("name", ""))
    sides = 2 if event.get("cat") == COPY and WITHIN in name else 1
    return {
        "kind": name,
        "time_s": 1e-6 * float(event.get("dur", 0.0)),
        "start_s": 1e-6 * float(event["ts"]),
        "moved_bytes": sides * int((event.get("args") or {}).get("bytes") or 0),
        "index": index,
    }


def by_operator(copies: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Those of one step, on average over several; what is alike in an operator is one row."""
    table = copies.assign(launches=1.0).astype(dict.fromkeys(BY, str))
    return (table.groupby(list(BY), sort=False)[list(AMOUNTS)].sum() / steps).reset_index()


def in_all(copies: pd.DataFrame) -> dict[str, float]:
    """`{"launches", "time_s", "moved_bytes"}` of a step."""
    return {name: float(copies[name].sum()) for name in AMOUNTS}

"""What a step copies and fills outside of kernels: the driver does it, and no counter sees it.

A copy of a tensor in the same order and type is such a one. Bytes are those of the device's memory:
a copy within it reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

COPY, FILL = "gpu_memcpy", "gpu_memset"  # categories of events
WITHIN = "DtoD"  # in the name of a copy that stays on the device
BY = ("kind", "layer", "phase", "op")
AMOUNTS = ("launches", "time_s", "moved_bytes")


def is_copy(event: Mapping[str, Any]) -> bool:
    """Whether an event of a trace is one."""
    return event.get("cat") in (COPY, FILL)


def copy_row(event: Mapping[str, Any], index: int) -> dict[str, Any]:
    """A row of a table of copies; `index` is the number of the operator it belongs to."""
    name = str(event.get("name", ""))
    sides = 2 if event.get("cat") == COPY and WITHIN in name else 1
    return {
        "kind": name,
        "time_s": 1e-6 * float(event.get("dur", 0.0)),
        "start_s": 1e-6 * float(event["ts"]),
        "moved_bytes": sides * int((event.get("args") or {}).get("bytes") or 0),
        "index": index,
    }


def by_operator(told: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The copies of one step, on average over several: those alike of an operator are one row."""
    table = told.assign(launches=1).groupby(list(BY), sort=False)[list(AMOUNTS)].sum()
    return (table / steps).reset_index()


def total(copies: pd.DataFrame) -> dict[str, float]:
    """`{"launches", "time_s", "moved_bytes"}` of a step."""
    return {name: float(copies[name].sum()) for name in AMOUNTS}


def empty_copies(columns: Sequence[str] = (*BY, *AMOUNTS)) -> pd.DataFrame:
    """A step without any."""
    import pandas as pd

    return pd.DataFrame({name: pd.Series(dtype=float if name in AMOUNTS else str)
                         for name in columns})  # fmt: skip

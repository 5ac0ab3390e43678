"""Whether a GPU can have done what a capture says: by its datasheet, or by any that there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.machine.datasheets import Datasheet, datasheet_for, list_datasheets
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd

MOST_TIMES = 2.0  # what a datasheet says: sparse products, a higher clock
CAUSE = "times or counters are in another unit than the file says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Kernels of one device that are faster than it can be."""

    what: str  # "FLOP/s", "B/s"
    device: str
    rate: float  # of the fastest
    most: float
    count: int
    of: int
    is_of_all: bool  # the whole capture is, not only some short kernels
    is_known: bool  # by the device's own datasheet

    def __str__(self) -> str:
        by = f"{self.device} has" if self.is_known else "the fastest GPU with a datasheet has"
        return (
            f"{self.count:,} of {self.of:,} kernels are faster than possible: up to"
            f" {si(self.rate, self.what)} where {by} {si(self.most, self.what)}; {CAUSE}"
        )


def excesses(kernels: pd.DataFrame) -> list[Excess]:
    """What cannot be, for each device, of FLOPs and of bytes from DRAM."""
    import numpy as np

    with np.errstate(over="ignore"):  # a sum beyond all numbers is above any roof
        return [*_excesses(kernels)]


def _excesses(kernels: pd.DataFrame) -> Iterator[Excess]:
    flops = [name for name in kernels.columns if str(name).startswith("flops_")]
    amounts = {"FLOP/s": kernels[flops].sum(axis=1, min_count=1)} if flops else {}
    if "dram_bytes" in kernels:
        amounts["B/s"] = kernels["dram_bytes"]
    for device, rows in kernels.groupby("device", sort=False):
        sheet = datasheet_for(str(device)) if device else None
        for what, amount in amounts.items():
            both = rows["time_s"].gt(0) & amount[rows.index].notna()
            timed, done = rows.loc[both, "time_s"], amount[rows.index][both]
            most = _most(what, [sheet] if sheet is not None else list_datasheets())
            rates = done / timed
            is_above = rates > MOST_TIMES * most
            if is_above.any():
                yield Excess(
                    what=what,
                    device=str(device),
                    rate=float(rates.max()),
                    most=most,
                    count=int(is_above.sum()),
                    of=len(rows),
                    is_of_all=float(done.sum()) > MOST_TIMES * most * float(timed.sum()),
                    is_known=sheet is not None,
                )


def _most(what: str, sheets: list[Datasheet]) -> float:
    if what == "B/s":
        return max(sheet.dram_bytes_per_s for sheet in sheets)
    return max(peak.flops_per_s for sheet in sheets for peak in sheet.peaks)

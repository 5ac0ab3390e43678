"""From the base counters of Nsight Compute to FLOPs, bytes and seconds.

A table of metrics has a row per kernel and a column per metric, in base units: seconds, bytes,
hertz and plain counts. Each quantity of a row is made by the first formula of metric_formulas.py
whose metrics have a value there; one without any is absent, never 0. What is made from rates is
rounded: it is a count. Conventions:

    a multiply-add is 2 FLOPs
    fp16 outside tensor cores is packed: 2 lanes an instruction (older tools count 1)
    tensor-core counters already count 2 per multiply-add
    sm__ and smsp__ counters of one thing are equal sums: one of them is used
    L2 and L1 bytes are lts__t_bytes and l1tex__t_bytes; where only what Nsight Compute's own chart
    uses was collected, that is taken, and a remark says so
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ridgeline.captures.capture import in_words
from ridgeline.captures.metric_formulas import (
    CACHES,
    CYCLES,
    CYCLES_OVER_RATE,
    DRAM_BOTH,
    DRAM_READ,
    DRAM_WRITE,
    INSTRUCTIONS,
    PER_CYCLE,
    PER_SECOND,
    PIPE_TENSOR,
    TENSOR_INSTRUCTIONS,
    TIMES,
    VECTOR_FLOPS,
    MetricFormula,
    find_overlapping,
    flop_formulas,
    group_by_type,
    is_covered,
    is_of_bytes,
    is_of_flops,
    is_of_tensor_instructions,
    note_tensor_counters,
    remove_overlaps,
)

if TYPE_CHECKING:
    import pandas as pd

FLOPS_PER_TENSOR_INSTRUCTION = 512  # of compute capability 7.0 and 7.2, adding up in fp32
FIRST_WITH_TENSOR_COUNTERS = (7, 5)
FIRST_WITH_BULK_COPIES = (9, 0)
BULK_COPIES = "L1 bytes leave out the bulk tensor copies of this chip"
NO_TIME, NO_FLOPS, NO_BYTES = "no time", "no FLOPs", "no bytes"  # how such a remark begins
NO_TENSORS = "tensor cores were not counted"
LOWER_BOUND = "FLOPs are a lower bound"
NOT_COLLECTED = "no counter of them was collected"
UNUSABLE = "there is no counter that can be used"
_GUESS = (
    "tensor fp16 FLOPs are a guess: this chip has no counter for them, so each tensor"
    f" instruction is taken as {FLOPS_PER_TENSOR_INSTRUCTION} FLOPs"
)
_UNTOLD = "tensor-core FLOPs are not told: tensor instructions were counted"
_UNTOLD_BY = {  # whether the chip is before the first with tensor counters
    False: f"{_UNTOLD}, which no factor turns into FLOPs; collect sm__ops_path_tensor_src_*",
    True: f"{_UNTOLD} in part; collect {PIPE_TENSOR}, from which they are guessed on this chip",
    None: f"{_UNTOLD}, and the chip is not known; collect sm__ops_path_tensor_src_*, or, before"
    f" compute capability 7.5 (V100), {PIPE_TENSOR} and export it with its column CC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Quantities by column, and notes on how they were derived."""

    table: pd.DataFrame
    metrics: tuple[str, ...]  # those that took part
    remarks: tuple[str, ...]


def derive_quantities(
    metrics: pd.DataFrame, *, compute_capability: str | pd.Series[str] | None = None
) -> Quantities:
    """FLOPs, bytes and `counter_time_s` of every row; columns only for what was collected.

    The compute capability is that of all rows, or of each.
    """
    import pandas as pd

    finder = _Finder(metrics, compute_capability)
    finder.time()
    finder.vector_flops()
    finder.tensor_flops()
    finder.tensor_instructions()
    finder.bytes()
    finder.cautions()
    table = pd.DataFrame(finder.columns, index=metrics.index, copy=False)
    return Quantities(table=table, metrics=tuple(finder.used), remarks=tuple(finder.remarks))


@dataclass(slots=True)
class _Amount:
    """Values by row, what they are made of, and notes on that."""

    values: pd.Series[float] | None = None
    metrics: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return self.values is not None and bool(self.values.notna().all())

    def fill(self, more: pd.Series[float], metrics: Iterable[str], remark: str = "") -> None:
        """Take the values of rows that have none so far."""
        values = self.values
        is_new = more.notna() if values is None else more.notna() & values.isna()
        if not is_new.any():
            return
        self.metrics += metrics
        of_some = "" if values is None else f", of {int(is_new.sum()):,} of {len(more):,} kernels"
        self.remarks += [remark + of_some] * bool(remark)
        self.values = more if values is None else values.fillna(more)


class _Finder:
    """Collects columns, one kind of quantity after the other; time comes first: rates need it."""

    def __init__(
        self, metrics: pd.DataFrame, capability: str | pd.Series[str] | None = None
    ) -> None:
        self.metrics, self.capability = metrics, capability
        self.names: frozenset[str] = frozenset(map(str, metrics.columns[metrics.notna().any()]))
        self.columns: dict[str, pd.Series[float]] = {}
        self.used: list[str] = []
        self.remarks: list[str] = []

    # ------------------------------------------------------------ formulas of one quantity

    def scale(self, per: str) -> pd.Series[float] | float | None:
        """What makes an amount of a rate: seconds, cycles; None where these are not known."""
        if per == PER_SECOND:
            return self.columns.get("counter_time_s")
        return self._cycles.values if per == PER_CYCLE else 1.0

    @cached_property
    def _cycles(self) -> _Amount:
        found = _Amount()
        time_s = self.columns.get("counter_time_s")
        for unit in CYCLES:
            for name in (f"{unit}.avg", f"{unit}.max"):
                if name in self.names:
                    found.fill(self._floats(name), [name])
            rate = f"{unit}.avg.per_second"
            if rate in self.names and time_s is not None:
                found.fill(self._floats(rate) * time_s, [rate])
        return found

    def apply(self, formulas: Iterable[MetricFormula], amount: _Amount | None = None) -> _Amount:
        """Of each row by the first formula whose metric has a value there."""
        amount = amount or _Amount()
        for formula in formulas:
            scale = self.scale(formula.per) if formula.metric in self.names else None
            if scale is None or amount.is_whole:
                continue
            values = self._floats(formula.metric) * formula.factor * scale
            clocks = self._cycles.metrics if formula.per == PER_CYCLE else []
            if formula.per:  # less than one cannot be: the rate is in another unit than it says
                values = values.round().mask((values > 0) & (values < 0.5))
            amount.fill(values, [formula.metric, *clocks], formula.remark)
        return amount

    def _take(self, amount: _Amount) -> pd.Series[float] | None:
        """Its values; its metrics and notes are kept."""
        for kept, new in ((self.used, amount.metrics), (self.remarks, amount.remarks)):
            kept += [text for text in dict.fromkeys(new) if text not in kept]
        return amount.values

    def _add_column(self, column: str, values: pd.Series[float], parts: str) -> None:
        """A column that some row has a value in, or why there is none."""
        if values.notna().any():
            self.columns[column] = values
        else:
            self.remarks.append(f"{in_words(column)} are not told: no kernel has {parts}")

    def _floats(self, name: str) -> pd.Series[float]:
        return self.metrics[name].astype(float)

    # ------------------------------------------------------------ quantities

    def time(self) -> None:
        found = _Amount()
        for name in TIMES:
            if name in self.names:
                found.fill(self._floats(name), [name])
        for amount, rate in CYCLES_OVER_RATE:
            if {amount, rate} <= self.names and not found.is_whole:
                per_second = self._floats(rate).where(self.metrics[rate] > 0)
                said = f"time is cycles over their rate: {amount} / {rate}"
                found.fill(self._floats(amount) / per_second, [amount, rate], said)
        values = self._take(found)
        if values is not None:
            self.columns["counter_time_s"] = values

    def vector_flops(self) -> None:
        for kind, flops in VECTOR_FLOPS.items():
            collected = [op for op in flops if self._has_any(INSTRUCTIONS[op])]
            missing = [op for op in flops if op not in collected and not op.endswith("2")]
            if not collected:
                continue
            if any(op.endswith("fma") for op in missing):
                lacking = ", ".join(missing)
                self.remarks.append(f"{kind} FLOPs are not told: {lacking} not collected")
                continue
            amounts = {op: self.apply(INSTRUCTIONS[op]) for op in collected}
            if any(amount.values is None for amount in amounts.values()):
                self._note_rates(kind, [INSTRUCTIONS[op] for op in collected])
                continue
            if missing:
                self.remarks.append(f"{kind} FLOPs are a lower bound: no {', '.join(missing)}")
            parts = {op: self._take(amount) for op, amount in amounts.items()}
            total = _add([values * flops[op] for op, values in parts.items() if values is not None])
            self._add_column(f"flops_{kind}_vector", total, f"all of {', '.join(collected)}")

    def tensor_flops(self) -> None:
        kinds = group_by_type(map(str, self.metrics.columns))
        formulas = {
            name: flop_formulas(f"tensor {kind}", name) for kind in kinds for name in kinds[kind]
        }
        amounts = {name: self.apply(of_name) for name, of_name in formulas.items()}
        known = [name for name in amounts if amounts[name].values is not None]
        taken = remove_overlaps(known)
        notes: list[str] = []
        for kind, names in kinds.items():
            own = [name for name in names if name in known]
            if not own:
                self._note_rates(f"tensor {kind}", [formulas[name] for name in names])
                continue
            added = [name for name in taken if name in own]
            wider = [name for one in own for name in find_overlapping(one, taken)]
            others = [name for name in wider if name not in own]
            if others:
                self.remarks.append(
                    f"tensor {kind} is not told by itself: {others[0]} counts it, too"
                )
            if added:
                self._add_tensor_flops(kind, names, added, amounts)
                notes += note_tensor_counters(kind, added)
                notes += self._note_left_out(kind, own, taken, amounts)
        self.remarks += notes

    def _add_tensor_flops(
        self, kind: str, names: Sequence[str], added: Sequence[str], amounts: dict[str, _Amount]
    ) -> None:
        """The sum of those that overlap with none; a part that no kernel has makes it unknown."""
        parts = [self._take(amounts[name]) for name in added]
        total = _add([values for values in parts if values is not None])
        absent = [name for name in names if amounts[name].values is None]
        if any(not find_overlapping(name, added) for name in absent):
            total = total * float("nan")
        every = ", ".join(remove_overlaps([*added, *absent]))
        self._add_column(f"flops_{kind}_matrix", total, f"all of {every}")

    def _note_left_out(
        self, kind: str, own: Sequence[str], taken: Sequence[str], amounts: dict[str, _Amount]
    ) -> list[str]:
        """A note on counters of which some work is in none of those that were taken."""
        values = {name: amounts[name].values for name in own if not is_covered(name, taken)}
        left_out = [
            name for name, one in values.items() if one is not None and bool((one > 0).any())
        ]
        if not left_out:
            return []
        return [
            f"tensor {kind} is a lower bound: {', '.join(left_out)} left out, with some of"
            " the same work and other work"
        ]

    def tensor_instructions(self) -> None:
        """A guess for kernels of chips that have no other counter, and only for these."""
        names = sorted(filter(is_of_tensor_instructions, self.names))
        if not names:
            return
        is_old = self._is_version(lambda version: version < FIRST_WITH_TENSOR_COUNTERS)
        is_new = self._is_version(lambda version: version >= FIRST_WITH_TENSOR_COUNTERS)
        is_untold = ~self._has_tensor_flops()
        guessed = self.apply(TENSOR_INSTRUCTIONS)
        if guessed.values is not None:
            guess = guessed.values.where(is_old & is_untold) * FLOPS_PER_TENSOR_INSTRUCTION
            if guess.notna().any():
                self._take(guessed)
                column = self.columns.get("flops_fp16_matrix")
                self.columns["flops_fp16_matrix"] = (
                    guess if column is None else column.fillna(guess)
                )
                self.remarks.append(_GUESS)
                is_untold &= guess.isna()
        is_counted = is_untold & (self.metrics[names] > 0).any(axis=1)
        for is_before, rows in ((False, is_new), (True, is_old), (None, ~is_new & ~is_old)):
            if bool((is_counted & rows).any()):
                self.remarks.append(_UNTOLD_BY[is_before])

    def bytes(self) -> None:
        read, written = (self._take(self.apply(one)) for one in (DRAM_READ, DRAM_WRITE))
        for column, values in (("dram_read_bytes", read), ("dram_write_bytes", written)):
            if values is not None:
                self.columns[column] = values
        both = _Amount()
        if read is not None and written is not None:
            both.fill(read + written, [])
        total = self._take(self.apply(DRAM_BOTH, both))
        if total is not None:
            self.columns["dram_bytes"] = total
        elif read is not None or written is not None:
            only = "no kernel has both reads and writes"
            if read is None or written is None:
                only = f"only {'writes' if read is None else 'reads'} were collected"
            self.remarks.append(f"DRAM bytes are not told: {only}")
        for column, formulas in CACHES.items():
            values = self._take(self.apply(formulas))
            if values is not None:
                self.columns[column] = values

    def cautions(self) -> None:
        if "counter_time_s" not in self.columns:
            self.remarks.append(f"{NO_TIME}: collect gpu__time_duration.sum")
        if not any(name.startswith("flops_") for name in self.columns):
            is_there = any(map(is_of_flops, map(str, self.metrics.columns)))
            self.remarks.append(f"{NO_FLOPS}: {UNUSABLE if is_there else NOT_COLLECTED}")
        if not any(name.endswith("_bytes") for name in self.columns):
            is_there = any(map(is_of_bytes, map(str, self.metrics.columns)))
            self.remarks.append(f"{NO_BYTES}: {UNUSABLE if is_there else NOT_COLLECTED}")
        has_bulk_copies = self._is_version(lambda version: version >= FIRST_WITH_BULK_COPIES)
        if "l1_bytes" in self.columns and bool(has_bulk_copies.any()):
            self.remarks.append(BULK_COPIES)

    # ------------------------------------------------------------ what is there

    def _has_any(self, formulas: Iterable[MetricFormula]) -> bool:
        return any(formula.metric in self.names for formula in formulas)

    def _has_tensor_flops(self) -> pd.Series[bool]:
        """By row, whether any are known."""
        import pandas as pd

        known = pd.Series(False, index=self.metrics.index)
        for name, values in self.columns.items():
            if name.endswith("_matrix"):
                known |= values.notna()
        return known

    def _note_rates(self, what: str, formulas: Iterable[Collection[MetricFormula]]) -> None:
        """Counters make no FLOPs if they are rates without time or cycles."""
        rates = {one.per for those in formulas for one in those if one.metric in self.names}
        clocks = {PER_SECOND: "time", PER_CYCLE: "cycles"}
        lacking = [word for per, word in clocks.items() if per in rates and self.scale(per) is None]
        if lacking:
            without = " or ".join(lacking)
            self.remarks.append(f"{what} FLOPs are not told: rates without {without}")

    def _is_version(self, holds: Callable[[tuple[int, int]], bool]) -> pd.Series[bool]:
        """By row, whether something holds of its compute capability; not where that is unknown."""
        import pandas as pd

        if self.capability is None or isinstance(self.capability, str):
            version = _version(self.capability)
            return pd.Series(version is not None and holds(version), index=self.metrics.index)
        found = {text: _version(str(text)) for text in self.capability.unique()}
        those = [text for text, version in found.items() if version is not None and holds(version)]
        return self.capability.isin(those)


def _add(parts: Sequence[pd.Series[float]]) -> pd.Series[float]:
    """Their sum; a row with no value in one of them has no sum."""
    total = parts[0]
    for other in parts[1:]:
        total = total + other
    return total


def _version(compute_capability: str | None) -> tuple[int, int] | None:
    """ "9.0" as (9, 0)."""
    found = re.fullmatch(r"(\d+)\.(\d+)", compute_capability or "")
    return (int(found[1]), int(found[2])) if found else None

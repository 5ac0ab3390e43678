"""From the base counters of Nsight Compute to FLOPs, bytes and seconds.

A table of metrics has a row per kernel and a column per metric, in base units: seconds, bytes,
hertz and plain counts. Each quantity of a row is made by the first way of counter_ways.py whose
metrics have a value there; one without any is absent, never 0. What is made from rates is rounded:
it is a count; a rate above 0 that makes less than one is in another unit than it says, and tells
nothing. Conventions:

    a multiply-add is 2 FLOPs
    fp16 outside tensor cores is packed: 2 lanes an instruction (older tools count 1)
    tensor-core counters already count 2 per multiply-add
    sm__ and smsp__ counters of one thing are equal sums: one of them is used
    L2 and L1 bytes are lts__t_bytes and l1tex__t_bytes; where only what Nsight Compute's own chart
    uses was collected, that is taken, and a remark says so
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ridgeline.captures import tensor_counters
from ridgeline.captures.capture import in_words
from ridgeline.captures.counter_ways import (
    CACHES,
    CYCLES,
    CYCLES_OVER_RATE,
    DRAM_BOTH,
    DRAM_READ,
    DRAM_WRITE,
    INSTRUCTIONS,
    PIPE_TENSOR,
    TENSOR_INSTRUCTIONS,
    TIMES,
    VECTOR_FLOPS,
    Way,
    flop_ways,
    is_of_bytes,
    is_of_flops,
    is_of_tensor_instructions,
    ways_of,
)
from ridgeline.captures.tensor_counters import PER_CYCLE, PER_SECOND

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
    """Quantities by column, and what is to be said about how they were found."""

    table: pd.DataFrame
    metrics: tuple[str, ...]  # those that took part
    remarks: tuple[str, ...]


def find(
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


def settled(metrics: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rates as the amounts that they are with the time and cycles beside them, and remarks.

    Those that make none, or of which the amount is there, stay as they are.
    """
    finder = _Finder(metrics)
    finder.time()
    rates: dict[str, list[str]] = defaultdict(list)  # by the counter that they are of
    for name in sorted(finder.names):
        counter = name.removesuffix(PER_SECOND).removesuffix(PER_CYCLE)
        if counter != name and counter.endswith(".sum"):
            rates[counter].append(name)
    found = {counter: finder.by_ways(ways_of(counter)) for counter in rates}
    made = {counter: one for counter, one in found.items() if {*one.metrics} & {*rates[counter]}}
    used = [rate for counter, one in made.items() for rate in rates[counter] if rate in one.metrics]
    said = [f"from rates: {', '.join(used)}"] if used else []
    said += [text for one in made.values() for text in one.too_small]
    others = metrics.drop(columns=[rate for counter in made for rate in rates[counter]])
    return others.assign(**{counter: one.values for counter, one in made.items()}), said


@dataclass(slots=True)
class _Found:
    """Values by row, what they are made of, and what is to be said about it."""

    values: pd.Series[float] | None = None
    metrics: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    too_small: list[str] = field(default_factory=list)  # remarks on rates

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
        self.too_small: list[str] = []

    # ------------------------------------------------------------ ways to one quantity

    def scale(self, per: str) -> pd.Series[float] | float | None:
        """What makes an amount of a rate: seconds, cycles; None where these are not known."""
        if per == PER_SECOND:
            return self.columns.get("counter_time_s")
        return self._cycles.values if per == PER_CYCLE else 1.0

    @cached_property
    def _cycles(self) -> _Found:
        found = _Found()
        time_s = self.columns.get("counter_time_s")
        for unit in CYCLES:
            for name in (f"{unit}.avg", f"{unit}.max"):
                if name in self.names:
                    found.fill(self._floats(name), [name])
            rate = f"{unit}.avg.per_second"
            if rate in self.names and time_s is not None:
                found.fill(self._floats(rate) * time_s, [rate])
        return found

    def by_ways(self, ways: Iterable[Way], found: _Found | None = None) -> _Found:
        """Of each row by the first way that tells it."""
        found = found or _Found()
        for way in ways:
            scale = self.scale(way.per) if way.metric in self.names else None
            if scale is None or found.is_whole:
                continue
            amount = self._floats(way.metric) * way.factor * scale
            if way.per:
                lacking = amount if found.values is None else amount.where(found.values.isna())
                amount, too_small = _counted(lacking, way.metric)
                found.too_small += too_small
            clocks = self._cycles.metrics if way.per == PER_CYCLE else []
            found.fill(amount, [way.metric, *clocks], way.remark)
        return found

    def _take(self, found: _Found) -> pd.Series[float] | None:
        """Its values, with all that is to be said."""
        for all_of_them, these in (
            (self.used, found.metrics),
            (self.remarks, found.remarks),
            (self.too_small, found.too_small),
        ):
            all_of_them += [text for text in dict.fromkeys(these) if text not in all_of_them]
        return found.values

    def _tell(
        self, column: str, values: pd.Series[float], found: Collection[_Found], parts: str
    ) -> None:
        """A column that some row has a value in, or why what was found makes none."""
        if values.notna().any():
            self.columns[column] = values
            return
        self._take_too_small(found)
        if not any(one.too_small for one in found):
            self.remarks.append(f"{in_words(column)} are not told: no kernel has {parts}")

    def _take_too_small(self, found: Iterable[_Found]) -> None:
        for one in found:
            self._take(_Found(too_small=one.too_small))

    def _floats(self, name: str) -> pd.Series[float]:
        return self.metrics[name].astype(float)

    # ------------------------------------------------------------ quantities

    def time(self) -> None:
        found = _Found()
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
            found = {op: self.by_ways(INSTRUCTIONS[op]) for op in collected}
            if any(one.values is None for one in found.values()):
                self._say_why(kind, found.values(), [INSTRUCTIONS[op] for op in collected])
                continue
            if missing:
                self.remarks.append(f"{kind} FLOPs are a lower bound: no {', '.join(missing)}")
            parts = {op: values for op in found if (values := self._take(found[op])) is not None}
            total = _added([values * flops[op] for op, values in parts.items()])
            said = f"all of {', '.join(collected)}"
            self._tell(f"flops_{kind}_vector", total, found.values(), said)

    def tensor_flops(self) -> None:
        import pandas as pd

        works: dict[str, tensor_counters.Work] = {}
        kinds = tensor_counters.by_type(map(str, self.metrics.columns))
        ways = {name: flop_ways(f"tensor {kind}", name) for kind in kinds for name in kinds[kind]}
        found = {name: self.by_ways(those) for name, those in ways.items()}
        known = {name: one.values for name, one in found.items() if one.values is not None}
        amounts, within = tensor_counters.apart(
            pd.DataFrame(known, index=self.metrics.index, columns=list(found))
        )
        for kind, names in kinds.items():
            its_own = [found[name] for name in names]
            kept = [name for name in names if name in amounts.columns]
            if kind in within:
                self.remarks.append(
                    f"tensor {kind} is not told by itself: {within[kind]} counts it, too"
                )
            if all(one.values is None for one in its_own):
                self._say_why(f"tensor {kind}", its_own, [ways[name] for name in names])
            elif kept:
                work = works[kind] = tensor_counters.added(amounts[kept])
                for name in work.used:
                    self._take(found[name])
                parts = ", ".join(tensor_counters.once(kept))
                self._tell(f"flops_{kind}_matrix", work.values, its_own, f"all of {parts}")
        self.remarks += tensor_counters.remarks(works)

    def tensor_instructions(self) -> None:
        """A guess for kernels of chips that have no other counter, and only for these."""
        names = sorted(filter(is_of_tensor_instructions, self.names))
        if not names:
            return
        is_old = self._is_version(lambda version: version < FIRST_WITH_TENSOR_COUNTERS)
        is_new = self._is_version(lambda version: version >= FIRST_WITH_TENSOR_COUNTERS)
        is_untold = ~self._has_tensor_flops()
        guessed = self.by_ways(TENSOR_INSTRUCTIONS)
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
        found = [self.by_ways(ways) for ways in (DRAM_READ, DRAM_WRITE)]
        read, written = map(self._take, found)
        for column, values in (("dram_read_bytes", read), ("dram_write_bytes", written)):
            if values is not None:
                self.columns[column] = values
        both = _Found()
        if read is not None and written is not None:
            both.fill(read + written, [])
        found.append(self.by_ways(DRAM_BOTH, both))
        total = self._take(found[-1])
        if total is not None:
            self.columns["dram_bytes"] = total
        elif (read is not None or written is not None) and not any(one.too_small for one in found):
            only = "no kernel has both reads and writes"
            if read is None or written is None:
                only = f"only {'writes' if read is None else 'reads'} were collected"
            self.remarks.append(f"DRAM bytes are not told: {only}")
        for column, ways in CACHES.items():
            values = self._take(self.by_ways(ways))
            if values is not None:
                self.columns[column] = values

    def cautions(self) -> None:
        self.remarks += self.too_small
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

    def _has_any(self, ways: Iterable[Way]) -> bool:
        return any(way.metric in self.names for way in ways)

    def _has_tensor_flops(self) -> pd.Series[bool]:
        """By row, whether any are known."""
        import pandas as pd

        known = pd.Series(False, index=self.metrics.index)
        for name, values in self.columns.items():
            if name.endswith("_matrix"):
                known |= values.notna()
        return known

    def _say_why(self, what: str, found: Iterable[_Found], ways: Iterable[Collection[Way]]) -> None:
        """Why counters tell no FLOPs: rates that make none, or that have nothing to go with."""
        self._take_too_small(found)
        rates = {way.per for those in ways for way in those if way.metric in self.names}
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


def _counted(amount: pd.Series[float], rate: str) -> tuple[pd.Series[float], list[str]]:
    """A count from a rate; not known where there is something, and less than one of it."""
    count = amount.round()
    is_too_small = (amount > 0) & (count == 0)
    if not is_too_small.any():
        return count, []
    said = (
        f"not used: {rate} of {int(is_too_small.sum()):,} of {len(count):,} kernels, which would"
        " make less than one; its unit is another than it says"
    )
    return count.mask(is_too_small), [said]


def _added(parts: list[pd.Series[float]]) -> pd.Series[float]:
    """Their sum; a row with no value in one of them has no sum."""
    first, *others = parts
    for other in others:
        first = first + other
    return first


def _version(compute_capability: str | None) -> tuple[int, int] | None:
    """ "9.0" as (9, 0)."""
    found = re.fullmatch(r"(\d+)\.(\d+)", compute_capability or "")
    return (int(found[1]), int(found[2])) if found else None

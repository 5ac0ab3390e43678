"""The counters of tensor cores: how they are named, and which to add up for each type of number.

The pattern of their names grows with every chip:

    sm__ops_path_tensor_[op_X_]src_TYPES[_dst_TYPE][_sparsity_off|_sparsity_on].sum

They count 2 for a multiply-add, so no factor is needed. The same work may be told several times: as
a total and by the type of its result, as a total and with and without sparsity, by its operands
(src) and by its instruction (op). Counters are added up if no work is told by two of them.

fp4 alone and fp4 among others are taken for different work. The counters by instruction of compute
capability 10.0 say so: only utcomma has the first, only utcqmma the second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "sm__ops_path_tensor_"
_TYPE = r"(?:bf16|fp16|tf32|fp64|fp32|fp8|fp6|fp4|int8|int4|int1)"
_NAME = re.compile(
    rf"{PREFIX}(?:op_(?P<op>[a-z0-9]+)_)?src_(?P<src>{_TYPE}(?:_{_TYPE})*)"
    rf"(?:_dst_(?P<dst>{_TYPE}))?(?:_sparsity_(?P<sparsity>off|on))?\.sum"
    r"(?P<rate>\.per_second|\.per_cycle_elapsed)?"
)
PER_SECOND, PER_CYCLE = ".per_second", ".per_cycle_elapsed"
# Several operand types behind one counter: the type whose roof the work stands under.
_TOGETHER = {
    "fp16_bf16_tf32": "fp16",  # compute capability 7.5 has no other one
    "fp4_fp6_fp8": "fp8",
    "fp4_fp6": "fp6",
}
_RESULTS = dict.fromkeys(("fp16", "fp8", "fp6"), ("fp16", "fp32"))  # of others, one
_SHARES = frozenset({"fp4_fp6_fp8", "fp4_fp6"})  # of which the mixture is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCounter:
    """A counter's name, understood."""

    name: str
    op: str
    src: str
    dst: str
    sparsity: str
    rate: str  # "" of a count

    @property
    def type(self) -> str:
        return _TOGETHER.get(self.src, self.src)

    @property
    def counts(self) -> str:
        """The name of the counter itself, where this is a rate of it."""
        return self.name.removesuffix(self.rate)

    def overlaps(self, other: TensorCounter) -> bool:
        """Whether both tell some of the same work."""
        pairs = zip(self._parts, other._parts, strict=True)
        return self._shares_operands(other) and all(not a or not b or a == b for a, b in pairs)

    def holds(self, other: TensorCounter) -> bool:
        """Whether it tells all that the other one tells."""
        if not self._shares_operands(other) or not other.operands <= self.operands:
            return False
        return all(not a or a == b for a, b in zip(self._parts, other._parts, strict=True))

    @property
    def operands(self) -> frozenset[str]:
        return frozenset(self.src.split("_"))

    def _shares_operands(self, other: TensorCounter) -> bool:
        if "fp4" in (self.src, other.src):
            return self.src == other.src
        return not self.operands.isdisjoint(other.operands)

    @property
    def _parts(self) -> tuple[str, str, str]:
        """What it is narrowed to besides its operands, "" for anything."""
        return self.op, self.dst, self.sparsity


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What counters of one type tell of each row."""

    values: pd.Series[float]
    used: tuple[str, ...]  # those that were added up
    left_out: tuple[str, ...]  # those that also tell work which is in none of them


def parse(name: str) -> TensorCounter | None:
    """None where the name is not one of them."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    parts = {key: found[key] or "" for key in ("op", "src", "dst", "sparsity", "rate")}
    return TensorCounter(name=name, **parts)


def by_type(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The counters of each type of operands, also those of which only a rate is there."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for counter in filter(None, map(parse, names)):
        found[counter.type][counter.counts] = None
    return {kind: tuple(counters) for kind, counters in sorted(found.items())}


def apart(amounts: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Without what a row has in a counter of more types, too; and that counter, by type.

    A counter of which nothing is left has no column.
    """
    counters = [counter for name in amounts.columns if (counter := parse(str(name))) is not None]
    values, within = dict(amounts.items()), dict[str, str]()
    for counter in counters:
        for wide in counters:
            if wide.type == counter.type or not counter.operands < wide.operands:
                continue
            is_twice = amounts[wide.name].notna() & amounts[counter.name].notna()
            if wide.overlaps(counter) and is_twice.any():
                values[counter.name] = values[counter.name].mask(is_twice)
                within[counter.type] = wide.name
    kept = [name for name in values if values[name].notna().any() or amounts[name].isna().all()]
    return amounts.assign(**{str(name): values[name] for name in kept})[kept], within


def once(names: Iterable[str]) -> list[str]:
    """Those of one type to add up, the widest first: no work is told by two of them.

    By operands goes before by instruction, and totals before results and sparsity.
    """
    counters = [counter for counter in map(parse, names) if counter is not None]
    taken: list[TensorCounter] = []
    for counter in sorted(counters, key=_narrowness):
        if not any(map(counter.overlaps, taken)):
            taken.append(counter)
    return [counter.name for counter in counters if counter in taken]


def _narrowness(counter: TensorCounter) -> tuple[bool, int, bool, bool]:
    width = len(counter.src.split("_"))
    return bool(counter.op), -width, bool(counter.dst), bool(counter.sparsity)


def added(amounts: pd.DataFrame) -> Work:
    """The work of each row, from counters of one type.

    A row that lacks a counter has its work from others, if they tell it. Else it is not known.
    """
    import numpy as np
    import pandas as pd

    names, values = [str(name) for name in amounts.columns], amounts.to_numpy(dtype=float)
    is_there = ~np.isnan(values)
    alike = np.zeros(len(amounts), dtype=int)  # the same number for rows that have the same
    for column in is_there.T:
        alike = pd.factorize(2 * alike + column)[0]
    total, used, left_out = np.full(len(amounts), np.nan), set[str](), set[str]()
    for number, first in zip(*np.unique(alike, return_index=True), strict=True):
        pattern = is_there[first]
        known = [name for name, is_known in zip(names, pattern, strict=True) if is_known]
        lacking = {
            name: bool(is_there[:, column].any())
            for column, name in enumerate(names)
            if not pattern[column]
        }
        if known and _tell_all(known, lacking):
            rows, taken = alike == number, once(known)
            total[rows] = values[np.ix_(rows, [names.index(name) for name in taken])].sum(axis=1)
            used.update(taken)
            more = [name for name in _untold(known, taken) if name not in left_out]
            left_out.update(name for name in more if (values[rows, names.index(name)] > 0).any())
    return Work(
        values=pd.Series(total, index=amounts.index),
        used=tuple(name for name in names if name in used),
        left_out=tuple(name for name in names if name in left_out),
    )


def _untold(known: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Those that tell more than what was taken."""
    by = [counter for counter in map(parse, taken) if counter is not None]
    counters = [counter for counter in map(parse, known) if counter is not None]
    return [counter.name for counter in counters if not _is_told(counter, by)]


def _tell_all(known: Iterable[str], lacking: Mapping[str, bool]) -> bool:
    """Whether nothing is lost with counters that a row lacks, and other rows may have.

    One that no row has may not exist on this chip: then any other one of its work will do.
    """
    there = [counter for counter in map(parse, known) if counter is not None]
    for counter, others_have_it in ((parse(name), has) for name, has in lacking.items()):
        assert counter is not None
        if not (_is_told(counter, there) if others_have_it else any(map(counter.overlaps, there))):
            return False
    return True


def _is_told(counter: TensorCounter, by: Sequence[TensorCounter]) -> bool:
    """As a whole, or by all results, or with and without sparsity."""
    if any(other.holds(counter) for other in by):
        return True
    ways = []
    if not counter.dst:
        ways.append([replace(counter, dst=dst) for dst in _RESULTS.get(counter.type, ("fp32",))])
    if not counter.sparsity:
        ways.append([replace(counter, sparsity=half) for half in ("off", "on")])
    return any(all(_is_told(part, by) for part in way) for way in ways)


def remarks(works: Mapping[str, Work]) -> list[str]:
    """What to know about counters that were added up, by type."""
    said = []
    for kind, work in works.items():
        counters = [c for c in map(parse, work.used) if c is not None]
        mixed = sorted({c.src for c in counters} & _SHARES)
        if mixed:
            together = ", ".join(mixed[0].split("_"))
            said.append(
                f"this chip counts {together} operands together; they are shown as tensor {kind}"
            )
        for counter in _lonely(counters):
            other = "on" if counter.sparsity == "off" else "off"
            said.append(
                f"tensor {kind} is a lower bound: the counter with sparsity {other} was not"
                " collected"
            )
        if work.left_out:
            said.append(
                f"tensor {kind} is a lower bound: {', '.join(work.left_out)} left out, with some of"
                " the same work and other work"
            )
    return said


def _lonely(counters: list[TensorCounter]) -> list[TensorCounter]:
    """One half of a total that is told with and without sparsity."""
    halves: dict[tuple[str, str, str], list[TensorCounter]] = defaultdict(list)
    for counter in counters:
        if counter.sparsity:
            halves[counter.op, counter.src, counter.dst].append(counter)
    return [group[0] for group in halves.values() if len(group) == 1][:1]

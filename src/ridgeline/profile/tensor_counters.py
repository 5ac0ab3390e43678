"""The counters of tensor cores: how they are named, and which to add up for each type of number.

The pattern of their names grows with every chip:

    sm__ops_path_tensor_[op_X_]src_TYPES[_dst_TYPE][_sparsity_off|_sparsity_on].sum

They count 2 for a multiply-add, so no factor is needed. The same work may be told several times: as
a total and by the type of its result, as a total and with and without sparsity, by its operands
(src) and by its instruction (op). Counters are added up if no work is told by two of them.
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
_RESULTS = {"fp16": ("fp16", "fp32"), "fp8": ("fp16", "fp32")}  # of others, one
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
        """Whether both, of one type, tell some of the same work."""
        pairs = zip(self._parts, other._parts, strict=True)
        return all(not a or not b or a == b for a, b in pairs)

    def holds(self, other: TensorCounter) -> bool:
        """Whether it tells all that the other one, of the same type, tells."""
        return all(not a or a == b for a, b in zip(self._parts, other._parts, strict=True))

    @property
    def _parts(self) -> tuple[str, str, str]:
        """What it is narrowed to, "" for anything; every src of a type has the type in it."""
        return self.op, self.dst, self.sparsity


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


def partition(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each type of operands, the counters whose sum is all its work, each counted once."""
    return {kind: tuple(once(found)) for kind, found in by_type(names).items()}


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


def added(amounts: pd.DataFrame) -> tuple[pd.Series[float], list[str]]:
    """The work of each row, from counters of one type; and those that took part.

    A row that lacks a counter has its work from others, if they tell it. Else it is not known.
    """
    import numpy as np
    import pandas as pd

    names, values = [str(name) for name in amounts.columns], amounts.to_numpy(dtype=float)
    is_there = ~np.isnan(values)
    alike = np.zeros(len(amounts), dtype=int)  # the same number for rows that have the same
    for column in is_there.T:
        alike = pd.factorize(2 * alike + column)[0]
    total, used = np.full(len(amounts), np.nan), set[str]()
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
    return pd.Series(total, index=amounts.index), [name for name in names if name in used]


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


def remarks(used: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What to know about counters that were added up."""
    said = []
    for kind, names in used.items():
        counters = [c for c in map(parse, names) if c is not None]
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
    return said


def _lonely(counters: list[TensorCounter]) -> list[TensorCounter]:
    """One half of a total that is told with and without sparsity."""
    halves: dict[tuple[str, str, str], list[TensorCounter]] = defaultdict(list)
    for counter in counters:
        if counter.sparsity:
            halves[counter.op, counter.src, counter.dst].append(counter)
    return [group[0] for group in halves.values() if len(group) == 1][:1]

"""The counters of tensor cores: how they are named, and which to add up for each type of number.

The pattern of their names grows with every chip:

    sm__ops_path_tensor_[op_X_]src_TYPES[_dst_TYPE][_sparsity_off|_sparsity_on].sum

They count 2 for a multiply-add, so no factor is needed. The same work may be told several times: as
a total and by the type of its result, as a total and with and without sparsity, by its operands
(src) and by its instruction (op). One of these ways is taken, never two of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


def parse(name: str) -> TensorCounter | None:
    """None where the name is not one of them."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    parts = {key: found[key] or "" for key in ("op", "src", "dst", "sparsity", "rate")}
    return TensorCounter(name=name, **parts)


def partition(names: Iterable[str], rate: str = "") -> dict[str, tuple[str, ...]]:
    """For each type of operands, the counters whose sum is all its work, each counted once.

    With a rate, the same of counters per second or per cycle.
    """
    by_type: dict[str, list[TensorCounter]] = defaultdict(list)
    for counter in (found for found in map(parse, names) if found and found.rate == rate):
        by_type[counter.type].append(counter)
    return {kind: tuple(c.name for c in _once(found)) for kind, found in sorted(by_type.items())}


def _once(counters: list[TensorCounter]) -> list[TensorCounter]:
    """By operands where that is told, else by instruction; per source, result and sparsity."""
    by_operands = [counter for counter in counters if not counter.op]
    groups: dict[tuple[str, str], list[TensorCounter]] = defaultdict(list)
    for counter in by_operands or counters:
        groups[counter.op, counter.src].append(counter)
    return [counter for group in groups.values() for counter in _one_way(group)]


def _one_way(counters: list[TensorCounter]) -> list[TensorCounter]:
    """The total if it is there; else what it divides into: results first, then sparsity."""
    without_result = [c for c in counters if not c.dst]
    if without_result:
        return _either(without_result)
    by_result: dict[str, list[TensorCounter]] = defaultdict(list)
    for counter in counters:
        by_result[counter.dst].append(counter)
    return [counter for group in by_result.values() for counter in _either(group)]


def _either(counters: list[TensorCounter]) -> list[TensorCounter]:
    totals = [counter for counter in counters if not counter.sparsity]
    return totals or counters


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

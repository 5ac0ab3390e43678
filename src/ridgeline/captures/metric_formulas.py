"""Which counters of Nsight Compute make a quantity: its formulas, the best first.

Each counter may be there as an amount or as a rate. One per second makes an amount with time. Of
FLOPs and instructions, which are per cycle of an SM, one per cycle does so with these cycles; bytes
are per cycle of dram, lts or l1tex, each with its own clock, and such rates of them are not used.

The names of tensor-core counters grow with every chip:

    sm__ops_path_tensor_[op_X_]src_TYPES[_dst_TYPE][_sparsity_off|_sparsity_on].sum

They count 2 for a multiply-add, so no factor is needed. The same work may be counted several times:
as a total and by the type of its result, as a total and with and without sparsity, by its operands
(src) and by its instruction (op). Counters are added up if no work is in two of them.

fp4 alone and fp4 among others are taken for different work. The counters by instruction of compute
capability 10.0 say so: only utcomma has the first, only utcqmma the second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

SECTOR_BYTES = 32
WRITEBACK_BYTES = 128
PER_SECOND, PER_CYCLE = ".per_second", ".per_cycle_elapsed"
_RATES = {PER_SECOND: "per second", PER_CYCLE: "per cycle"}

# FLOPs of one instruction of a thread. The packed fp32 forms (…2) came with Blackwell.
VECTOR_FLOPS = {
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2, "fadd2": 2, "fmul2": 2, "ffma2": 4},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_INSTRUCTION = "{unit}__sass_thread_inst_executed_op_{op}_pred_on.sum"
PIPE_TENSOR = "sm__inst_executed_pipe_tensor.sum"
# and those of its parts, by instruction or by subpipe; type_hfma2 is no tensor work
_TENSOR_INSTRUCTIONS = re.compile(
    r"(?:smsp|sm)__inst_executed_pipe_tensor(?!\w*_type_hfma2)(?:_\w+)?\.sum"
    r"(?:\.per_second|\.per_cycle_elapsed)?"
)
CYCLES = ("smsp__cycles_elapsed", "sm__cycles_elapsed", "gpc__cycles_elapsed")
_CLOCKS = ("gpu__time_duration", *CYCLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFormula:
    """A quantity from one metric: `factor` times a metric, and a rate times seconds or cycles."""

    metric: str
    factor: float = 1.0
    per: str = ""  # PER_SECOND or PER_CYCLE of a rate
    remark: str = ""


def _formulas(metric: str, *, factor: float = 1.0, remark: str = "") -> tuple[MetricFormula, ...]:
    """The amount itself, and from its rate."""
    rate = f"{metric}{PER_SECOND}"
    said = remark or f"from rates: {rate}"
    return (
        MetricFormula(metric=metric, factor=factor, remark=remark),
        MetricFormula(metric=rate, factor=factor, per=PER_SECOND, remark=said),
    )


def flop_formulas(what: str, *counters: str) -> tuple[MetricFormula, ...]:
    """The amounts, then from rates, of counters of the same: the first of them preferred."""
    rates = [
        MetricFormula(
            metric=f"{name}{per}", per=per, remark=f"{what} FLOPs are made from rates {words}"
        )
        for per, words in _RATES.items()
        for name in counters
    ]
    return (*(MetricFormula(metric=name) for name in counters), *rates)


INSTRUCTIONS = {
    op: flop_formulas(kind, *(_INSTRUCTION.format(unit=unit, op=op) for unit in ("smsp", "sm")))
    for kind, ops in VECTOR_FLOPS.items()
    for op in ops
}
TENSOR_INSTRUCTIONS = flop_formulas("tensor fp16", PIPE_TENSOR)
L2_CHART = "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes"
L1_CHART = "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes"
_WRITEBACK = "l1tex__lsu_writeback_active_mem"
DRAM_READ = (
    *_formulas("dram__bytes_read.sum"),
    *_formulas("dram__bytes_op_read.sum"),
    *_formulas("dram__sectors_read.sum", factor=SECTOR_BYTES),
    *_formulas("fbpa__dram_read_bytes.sum"),
)
DRAM_WRITE = (
    *_formulas("dram__bytes_write.sum"),
    *_formulas("dram__bytes_op_write.sum"),
    *_formulas("dram__sectors_write.sum", factor=SECTOR_BYTES),
    *_formulas("fbpa__dram_write_bytes.sum"),
)
DRAM_BOTH = (*_formulas("dram__bytes.sum"), *_formulas("dram__sectors.sum", factor=SECTOR_BYTES))
CACHES: dict[str, tuple[MetricFormula, ...]] = {
    "l2_bytes": (
        *_formulas("lts__t_bytes.sum"),
        *_formulas("lts__t_sectors.sum", factor=SECTOR_BYTES),
        *_formulas("lts__lts2xbar_cycles_active.sum", factor=SECTOR_BYTES, remark=L2_CHART),
    ),
    "l1_bytes": (
        *_formulas("l1tex__t_bytes.sum"),
        *_formulas(f"{_WRITEBACK}_lg.sum", factor=WRITEBACK_BYTES, remark=L1_CHART),
        *_formulas(f"{_WRITEBACK}_lgds.sum", factor=WRITEBACK_BYTES, remark=L1_CHART),
    ),
}  # fmt: skip
TIMES = tuple(f"gpu__time_duration{end}" for end in (".sum", ".max", ".avg", "", ".min"))
CYCLES_OVER_RATE = tuple(
    (f"{unit}.{amount}", f"{unit}.{rate}.per_second")
    for unit in ("sm__cycles_elapsed", "gpc__cycles_elapsed", "smsp__cycles_elapsed")
    for amount, rate in (*product(("avg", "max"), repeat=2), ("sum", "sum"))
)


def _metrics(*groups: Iterable[MetricFormula]) -> frozenset[str]:
    return frozenset(one.metric for formulas in groups for one in formulas)


_OF_FLOPS = _metrics(*INSTRUCTIONS.values())
_OF_BYTES = _metrics(DRAM_READ, DRAM_WRITE, DRAM_BOTH, *CACHES.values())
_OF_TIME = frozenset([*TIMES, *(name for pair in CYCLES_OVER_RATE for name in pair)])


def is_needed(metric: str) -> bool:
    """Whether a metric can take part in any quantity; all others need not be kept."""
    is_known = metric in _OF_TIME or is_of_bytes(metric) or is_of_flops(metric)
    return is_known or is_of_tensor_instructions(metric)


def is_of_time(metric: str) -> bool:
    """Whether it tells time or cycles, which several files of one capture may each have."""
    return metric.startswith(_CLOCKS)


def is_of_flops(metric: str) -> bool:
    return metric in _OF_FLOPS or parse_tensor_counter(metric) is not None


def is_of_bytes(metric: str) -> bool:
    return metric in _OF_BYTES


def is_of_tensor_instructions(metric: str) -> bool:
    """Whether it counts instructions of tensor cores, which are FLOPs on the oldest chips only."""
    return _TENSOR_INSTRUCTIONS.fullmatch(metric) is not None


# ---------------------------------------------------------------- counters of tensor cores

TENSOR_PREFIX = "sm__ops_path_tensor_"
_TYPE = r"(?:bf16|fp16|tf32|fp64|fp32|fp8|fp6|fp4|int8|int4|int1)"
_NAME = re.compile(
    rf"{TENSOR_PREFIX}(?:op_(?P<op>[a-z0-9]+)_)?src_(?P<src>{_TYPE}(?:_{_TYPE})*)"
    rf"(?:_dst_(?P<dst>{_TYPE}))?(?:_sparsity_(?P<sparsity>off|on))?\.sum"
    r"(?P<rate>\.per_second|\.per_cycle_elapsed)?"
)
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
        """Whether some work is in both."""
        pairs = zip(self._parts, other._parts, strict=True)
        return self._shares_operands(other) and all(not a or not b or a == b for a, b in pairs)

    def covers(self, other: TensorCounter) -> bool:
        """Whether it counts all that the other one counts."""
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


def parse_tensor_counter(name: str) -> TensorCounter | None:
    """None where the name is not one of them."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    parts = {key: found[key] or "" for key in ("op", "src", "dst", "sparsity", "rate")}
    return TensorCounter(name=name, **parts)


def group_by_type(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The counters of each type of operands, also those of which only a rate is there."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for counter in filter(None, map(parse_tensor_counter, names)):
        found[counter.type][counter.counts] = None
    return {kind: tuple(counters) for kind, counters in sorted(found.items())}


def remove_overlaps(names: Iterable[str]) -> list[str]:
    """Those to add up, the widest first: no work is in two of them.

    By operands goes before by instruction, and totals before results and sparsity.
    """
    counters = _parse_all(names)
    taken: list[TensorCounter] = []
    for counter in sorted(counters, key=_narrowness):
        if not any(map(counter.overlaps, taken)):
            taken.append(counter)
    return [counter.name for counter in counters if counter in taken]


def _narrowness(counter: TensorCounter) -> tuple[bool, int, bool, bool]:
    width = len(counter.operands)
    return bool(counter.op), -width, bool(counter.dst), bool(counter.sparsity)


def find_overlapping(name: str, others: Iterable[str]) -> list[str]:
    """Those of the others that count some of the same work."""
    [counter] = _parse_all([name])
    return [other.name for other in _parse_all(others) if counter.overlaps(other)]


def is_covered(name: str, taken: Iterable[str]) -> bool:
    """Whether all that a counter counts is in those that were taken."""
    [counter] = _parse_all([name])
    return _is_covered(counter, _parse_all(taken))


def _is_covered(counter: TensorCounter, by: Sequence[TensorCounter]) -> bool:
    """As a whole, or by all results, or with and without sparsity."""
    if any(other.covers(counter) for other in by):
        return True
    splits = []
    if not counter.dst:
        splits.append([replace(counter, dst=dst) for dst in _RESULTS.get(counter.type, ("fp32",))])
    if not counter.sparsity:
        splits.append([replace(counter, sparsity=half) for half in ("off", "on")])
    return any(all(_is_covered(part, by) for part in parts) for parts in splits)


def note_tensor_counters(kind: str, taken: Iterable[str]) -> list[str]:
    """Notes on counters of one type that were added up."""
    counters, notes = _parse_all(taken), []
    mixed = sorted({counter.src for counter in counters} & _SHARES)
    if mixed:
        together = ", ".join(mixed[0].split("_"))
        notes.append(
            f"this chip counts {together} operands together; they are shown as tensor {kind}"
        )
    halves: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for counter in counters:
        if counter.sparsity:
            halves[counter.op, counter.src, counter.dst].append(counter.sparsity)
    alone = [group[0] for group in halves.values() if len(group) == 1]
    for half in alone[:1]:
        other = "on" if half == "off" else "off"
        notes.append(
            f"tensor {kind} is a lower bound: the counter with sparsity {other} was not collected"
        )
    return notes


def _parse_all(names: Iterable[str]) -> list[TensorCounter]:
    return [counter for counter in map(parse_tensor_counter, names) if counter is not None]

"""Which counters of Nsight Compute tell a quantity: the ways to it, the best first.

Each counter may be there as an amount or as a rate. One per second makes an amount with time. Of
FLOPs and instructions, which are per cycle of an SM, one per cycle does so with these cycles; bytes
are per cycle of dram, lts or l1tex, each with its own clock, and such rates of them are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from ridgeline.captures import tensor_counters
from ridgeline.captures.tensor_counters import PER_CYCLE, PER_SECOND

SECTOR_BYTES = 32
WRITEBACK_BYTES = 128
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
class Way:
    """One way to a quantity: `factor` times a metric, and a rate times seconds or cycles."""

    metric: str
    factor: float = 1.0
    per: str = ""  # PER_SECOND or PER_CYCLE of a rate
    remark: str = ""


def _ways(metric: str, *, factor: float = 1.0, remark: str = "") -> tuple[Way, ...]:
    """The amount itself, and from its rate."""
    rate = f"{metric}{PER_SECOND}"
    said = remark or f"from rates: {rate}"
    return (
        Way(metric=metric, factor=factor, remark=remark),
        Way(metric=rate, factor=factor, per=PER_SECOND, remark=said),
    )


def ways_of(counter: str) -> tuple[Way, ...]:
    """To the amount of one counter, whatever it is used for."""
    return _ways(counter) if is_of_bytes(counter) else flop_ways("", counter)


def flop_ways(what: str, *counters: str) -> tuple[Way, ...]:
    """The amounts, then from rates, of counters of the same: the first of them preferred."""
    rates = [
        Way(metric=f"{name}{per}", per=per, remark=f"{what} FLOPs are made from rates {words}")
        for per, words in _RATES.items()
        for name in counters
    ]
    return (*(Way(metric=name) for name in counters), *rates)


INSTRUCTIONS = {
    op: flop_ways(kind, *(_INSTRUCTION.format(unit=unit, op=op) for unit in ("smsp", "sm")))
    for kind, ops in VECTOR_FLOPS.items()
    for op in ops
}
TENSOR_INSTRUCTIONS = flop_ways("tensor fp16", PIPE_TENSOR)
L2_CHART = "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes"
L1_CHART = "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes"
DRAM_READ = (
    *_ways("dram__bytes_read.sum"),
    *_ways("dram__bytes_op_read.sum"),
    *_ways("dram__sectors_read.sum", factor=SECTOR_BYTES),
    *_ways("fbpa__dram_read_bytes.sum"),
)
DRAM_WRITE = (
    *_ways("dram__bytes_write.sum"),
    *_ways("dram__bytes_op_write.sum"),
    *_ways("dram__sectors_write.sum", factor=SECTOR_BYTES),
    *_ways("fbpa__dram_write_bytes.sum"),
)
DRAM_BOTH = (*_ways("dram__bytes.sum"), *_ways("dram__sectors.sum", factor=SECTOR_BYTES))
CACHES: dict[str, tuple[Way, ...]] = {
    "l2_bytes": (
        *_ways("lts__t_bytes.sum"),
        *_ways("lts__t_sectors.sum", factor=SECTOR_BYTES),
        *_ways("lts__lts2xbar_cycles_active.sum", factor=SECTOR_BYTES, remark=L2_CHART),
    ),
    "l1_bytes": (
        *_ways("l1tex__t_bytes.sum"),
        *_ways("l1tex__lsu_writeback_active_mem_lg.sum", factor=WRITEBACK_BYTES, remark=L1_CHART),
        *_ways("l1tex__lsu_writeback_active_mem_lgds.sum", factor=WRITEBACK_BYTES, remark=L1_CHART),
    ),
}  # fmt: skip
TIMES = tuple(f"gpu__time_duration{end}" for end in (".sum", ".max", ".avg", "", ".min"))
CYCLES_OVER_RATE = tuple(
    (f"{unit}.{amount}", f"{unit}.{rate}.per_second")
    for unit in ("sm__cycles_elapsed", "gpc__cycles_elapsed", "smsp__cycles_elapsed")
    for amount, rate in (*product(("avg", "max"), repeat=2), ("sum", "sum"))
)


def _metrics(*groups: Iterable[Way]) -> frozenset[str]:
    return frozenset(way.metric for ways in groups for way in ways)


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
    return metric in _OF_FLOPS or tensor_counters.parse(metric) is not None


def is_of_bytes(metric: str) -> bool:
    return metric in _OF_BYTES


def is_of_tensor_instructions(metric: str) -> bool:
    """Whether it counts instructions of tensor cores, which are FLOPs on the oldest chips only."""
    return _TENSOR_INSTRUCTIONS.fullmatch(metric) is not None

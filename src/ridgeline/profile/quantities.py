"""From the base counters of Nsight Compute to FLOPs, bytes and seconds.

A table of metrics has a row per kernel and a column per metric, in base units: seconds, bytes,
hertz and plain counts. Each quantity is made by the first rule whose metrics were collected; one
without any is absent, never 0. What is made from rates is rounded: it is a count; a rate above 0
that makes less than one is in another unit than it says, and tells nothing. Conventions:

    a multiply-add is 2 FLOPs
    fp16 outside tensor cores is packed: 2 lanes an instruction (older tools count 1)
    tensor-core counters already count 2 per multiply-add
    sm__ and smsp__ counters of one thing are equal sums: one of them is used
    L2 and L1 bytes are lts__t_bytes and l1tex__t_bytes; where only what Nsight Compute's own chart
    uses was collected, that is taken, and a remark says so
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.profile import tensor_counters

if TYPE_CHECKING:
    import pandas as pd

SECTOR_BYTES = 32
WRITEBACK_BYTES = 128
PIPE_TENSOR = "sm__inst_executed_pipe_tensor.sum"
FLOPS_PER_TENSOR_INSTRUCTION = 512  # of compute capability 7.0 and 7.2, adding up in fp32
FIRST_WITH_TENSOR_COUNTERS = (7, 5)
FIRST_WITH_BULK_COPIES = (9, 0)
BULK_COPIES = "L1 bytes leave out the bulk tensor copies of this chip"
NO_TIME, NO_FLOPS, NO_BYTES = "no time", "no FLOPs", "no bytes"  # how such a remark begins

# FLOPs of one instruction of a thread. The packed fp32 forms (…2) came with Blackwell.
VECTOR_FLOPS = {
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2, "fadd2": 2, "fmul2": 2, "ffma2": 4},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_OPS = {op: kind for kind, ops in VECTOR_FLOPS.items() for op in ops}
_INSTRUCTIONS = re.compile(
    r"(?P<unit>smsp|sm)__sass_thread_inst_executed_op_(?P<op>[a-z0-9]+)_pred_on\.sum"
    r"(?P<rate>\.per_cycle_elapsed)?"
)
CYCLES = ("smsp__cycles_elapsed", "sm__cycles_elapsed", "gpc__cycles_elapsed")
_CLOCKS = ("gpu__time_duration", *CYCLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to a quantity: `factor` times the sum of its metrics, or these times the seconds."""

    metrics: tuple[str, ...]
    factor: float = 1.0
    is_rate: bool = False
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Quantities by column, and what is to be said about how they were found."""

    table: pd.DataFrame
    metrics: tuple[str, ...]  # those that took part
    remarks: tuple[str, ...]


def _ways(*metrics: str, factor: float = 1.0, remark: str = "") -> tuple[Way, ...]:
    """The amounts themselves, and from rates."""
    rates = tuple(f"{name}.per_second" for name in metrics)
    names = " + ".join(rates)
    return (
        Way(metrics=metrics, factor=factor, remark=remark),
        Way(metrics=rates, factor=factor, is_rate=True, remark=remark or f"from rates: {names}"),
    )


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
BYTE_WAYS: dict[str, tuple[Way, ...]] = {
    "dram_read_bytes": DRAM_READ,
    "dram_write_bytes": DRAM_WRITE,
    "dram_bytes": (*_ways("dram__bytes.sum"), *_ways("dram__sectors.sum", factor=SECTOR_BYTES)),
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
    for amount in ("avg", "max")
    for rate in ("avg", "max")
)
_NEEDED = frozenset(
    [
        *TIMES,
        *(name for pair in CYCLES_OVER_RATE for name in pair),
        *(name for ways in BYTE_WAYS.values() for way in ways for name in way.metrics),
        PIPE_TENSOR,
    ]
)


def is_needed(metric: str) -> bool:
    """Whether a metric can take part in any quantity; all others need not be kept."""
    if metric in _NEEDED or tensor_counters.parse(metric) is not None:
        return True
    found = _INSTRUCTIONS.fullmatch(metric)
    return found is not None and found["op"] in _OPS


def is_of_time(metric: str) -> bool:
    """Whether it tells time or cycles, which several files of one capture may each have."""
    return metric.startswith(_CLOCKS)


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
    finder.bytes()
    finder.cautions()
    table = pd.DataFrame(finder.columns, index=metrics.index, copy=False)
    return Quantities(table=table, metrics=tuple(finder.used), remarks=tuple(finder.remarks))


def settled(metrics: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rates as the amounts that they are with the time and cycles beside them, and a remark."""
    finder = _Finder(metrics)
    finder.time()
    per_second, per_cycle = finder.columns.get("counter_time_s"), finder.cycles()
    amounts, used = {}, []
    for name in sorted(finder.names):
        base, _, end = name.partition(".sum")
        scale = {".per_second": per_second, ".per_cycle_elapsed": per_cycle}.get(end)
        if scale is not None and f"{base}.sum" not in finder.names:
            amounts[f"{base}.sum"] = finder.counted(metrics[name] * scale, [name])
            used.append(name)
    said = [f"from rates: {', '.join(used)}"] if used else []
    return metrics.drop(columns=used).assign(**amounts), said + finder.too_small


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
        self.too_small: list[str] = []  # remarks on rates

    def time(self) -> None:
        for name in TIMES:
            if name in self.names:
                self.columns["counter_time_s"] = self._sum([name])
                return
        for amount, rate in CYCLES_OVER_RATE:
            if {amount, rate} <= self.names and bool((self.metrics[rate] > 0).any()):
                per_second = self._sum([rate]).where(self.metrics[rate] > 0)
                self.columns["counter_time_s"] = self._sum([amount]) / per_second
                self.remarks.append(f"time is cycles over their rate: {amount} / {rate}")
                return

    def vector_flops(self) -> None:
        for kind in VECTOR_FLOPS:
            for is_rate in (False, True):
                found = self._instructions(kind, is_rate=is_rate)
                if found is not None:
                    self.columns[f"flops_{kind}_vector"] = found
                    break

    def _instructions(self, kind: str, *, is_rate: bool) -> pd.Series[float] | None:
        by_op = _by_op(self.names, kind, is_rate=is_rate)
        if not by_op:
            return None
        missing = [op for op in VECTOR_FLOPS[kind] if op not in by_op and not op.endswith("2")]
        if any(op.endswith("fma") for op in missing):
            self.remarks.append(f"{kind} FLOPs are not told: {', '.join(missing)} not collected")
            return None
        scale = self.cycles() if is_rate else 1.0
        if scale is None:
            return None
        if missing:
            self.remarks.append(f"{kind} FLOPs are a lower bound: no {', '.join(missing)}")
        if is_rate:
            self.remarks.append(f"{kind} FLOPs are made from rates per cycle")
        parts = [self._sum([name]) * VECTOR_FLOPS[kind][op] for op, name in by_op.items()]
        return self.counted(_added(parts) * scale, by_op.values()) if is_rate else _added(parts)

    def counted(self, amount: pd.Series[float], rates: Collection[str]) -> pd.Series[float]:
        """A count from rates; not known where there is something, and less than one of it."""
        count = amount.round()
        is_too_small = (amount > 0) & (count == 0)
        if not is_too_small.any():
            return count
        self.too_small.append(
            f"not used: {' + '.join(rates)} of {int(is_too_small.sum()):,} of {len(count):,}"
            " kernels, which would make less than one; its unit is another than it says"
        )
        return count.mask(is_too_small)

    def cycles(self) -> pd.Series[float] | None:
        """Cycles of a kernel, to turn rates per cycle into counts."""
        for unit in CYCLES:
            for amount in (f"{unit}.avg", f"{unit}.max"):
                if amount in self.names:
                    return self._sum([amount])
            if f"{unit}.avg.per_second" in self.names and "counter_time_s" in self.columns:
                return self._sum([f"{unit}.avg.per_second"]) * self.columns["counter_time_s"]
        return None

    def tensor_flops(self) -> None:
        used = tensor_counters.partition(self.names)
        for kind, names in used.items():
            self.columns[f"flops_{kind}_matrix"] = self._sum(names)
        for rate in (tensor_counters.PER_SECOND, tensor_counters.PER_CYCLE):
            for kind, names in tensor_counters.partition(self.names, rate).items():
                if kind not in used and self._from_rates(kind, names, rate):
                    used[kind] = names
        self.remarks += tensor_counters.remarks(used)
        if not used and PIPE_TENSOR in self.names:
            self._tensor_instructions()

    def _tensor_instructions(self) -> None:
        """A guess for kernels of chips that have no other counter, and only for these."""
        counted = self.metrics[PIPE_TENSOR].astype(float)
        is_old = self._is_version(lambda version: version < FIRST_WITH_TENSOR_COUNTERS)
        if bool((counted.notna() & is_old).any()):
            guess = self._sum([PIPE_TENSOR]).where(is_old) * FLOPS_PER_TENSOR_INSTRUCTION
            self.columns["flops_fp16_matrix"] = guess
            self.remarks.append(
                "tensor fp16 FLOPs are a guess: this chip has no counter for them, so each tensor"
                f" instruction is taken as {FLOPS_PER_TENSOR_INSTRUCTION} FLOPs"
            )
        if bool(((counted > 0) & ~is_old).any()):
            self.remarks.append(
                "tensor-core FLOPs are not told: tensor instructions were counted, which no factor"
                " turns into FLOPs; collect sm__ops_path_tensor_src_*"
            )

    def _from_rates(self, kind: str, names: Collection[str], rate: str) -> bool:
        """Whether the tensor work of a kind could be told from its rates."""
        is_per_cycle = rate == tensor_counters.PER_CYCLE
        scale = self.cycles() if is_per_cycle else self.columns.get("counter_time_s")
        if scale is None:
            lacking = "cycles" if is_per_cycle else "time"
            self.remarks.append(f"tensor {kind} FLOPs are not told: rates without {lacking}")
            return False
        self.columns[f"flops_{kind}_matrix"] = self.counted(self._sum(names) * scale, names)
        self.remarks.append(f"tensor {kind} FLOPs are made from rates, {next(iter(names))}")
        return True

    def bytes(self) -> None:
        for column, ways in BYTE_WAYS.items():
            found = self._by_ways(ways)
            if found is not None:
                self.columns[column] = found
        parts = [self.columns.get(f"dram_{way}_bytes") for way in ("read", "write")]
        if parts[0] is not None and parts[1] is not None:
            both = self.columns["dram_bytes"] = parts[0] + parts[1]
            if both.isna().all() and not self.too_small:
                self.remarks.append("DRAM bytes are not told: no kernel has both reads and writes")
        elif "dram_bytes" not in self.columns and (parts[0] is not None or parts[1] is not None):
            only = "reads" if parts[0] is not None else "writes"
            self.remarks.append(f"DRAM bytes are not told: only {only} were collected")

    def _by_ways(self, ways: Iterable[Way]) -> pd.Series[float] | None:
        for way in ways:
            if not set(way.metrics) <= self.names:
                continue
            if way.is_rate and "counter_time_s" not in self.columns:
                continue
            if way.remark:
                self.remarks.append(way.remark)
            amount = self._sum(way.metrics) * way.factor
            if way.is_rate:
                return self.counted(amount * self.columns["counter_time_s"], way.metrics)
            return amount
        return None

    def cautions(self) -> None:
        self.remarks += self.too_small
        if "counter_time_s" not in self.columns:
            self.remarks.append(f"{NO_TIME}: collect gpu__time_duration.sum")
        if not any(name.startswith("flops_") for name in self.columns):
            self.remarks.append(f"{NO_FLOPS}: no counter of them was collected")
        if not any(name.endswith("_bytes") for name in self.columns):
            self.remarks.append(f"{NO_BYTES}: no counter of them was collected")
        has_bulk_copies = self._is_version(lambda version: version >= FIRST_WITH_BULK_COPIES)
        if "l1_bytes" in self.columns and bool(has_bulk_copies.any()):
            self.remarks.append(BULK_COPIES)

    def _is_version(self, holds: Callable[[tuple[int, int]], bool]) -> pd.Series[bool]:
        """By row, whether something holds of its compute capability; not where that is unknown."""
        import pandas as pd

        if self.capability is None or isinstance(self.capability, str):
            version = _version(self.capability)
            return pd.Series(version is not None and holds(version), index=self.metrics.index)
        found = {text: _version(str(text)) for text in self.capability.unique()}
        those = [text for text, version in found.items() if version is not None and holds(version)]
        return self.capability.isin(those)

    def _sum(self, names: Collection[str]) -> pd.Series[float]:
        self.used += [name for name in names if name not in self.used]
        if len(names) == 1:
            return self.metrics[next(iter(names))].astype(float)
        return self.metrics[list(names)].astype(float).sum(axis=1, min_count=1)


def _by_op(names: Collection[str], kind: str, *, is_rate: bool) -> dict[str, str]:
    """The counters of a kind by instruction, all of one unit: smsp or sm, whichever has more."""
    units: dict[str, dict[str, str]] = {"smsp": {}, "sm": {}}
    for name in names:
        found = _INSTRUCTIONS.fullmatch(name)
        if found and _OPS.get(found["op"]) == kind and (found["rate"] is not None) == is_rate:
            units[found["unit"]][found["op"]] = name
    best = max(units.values(), key=len)
    return {op: best[op] for op in VECTOR_FLOPS[kind] if op in best}


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

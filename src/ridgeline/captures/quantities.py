"""From counters of Nsight Compute to FLOPs, bytes and seconds: the formulas, and their use.

A table of metrics has a row per kernel and a column per metric, in base units: seconds, bytes,
hertz and plain counts. Each quantity of a row is made by the first formula whose metric has a value
there; one without any is absent, never 0. Conventions:

    a multiply-add is 2 FLOPs; tensor-core counters already count it so
    fp16 outside tensor cores is packed: 2 lanes an instruction (older tools count 1)
    sm__ and smsp__ counters of one thing are equal sums: one of them is used
    a rate per second makes an amount with time, one of FLOPs per cycle of an SM with these cycles;
    bytes per cycle are not used, since dram, lts and l1tex each have a clock of their own

The names of tensor-core counters grow with every chip:

    sm__ops_path_tensor_[op_X_]src_TYPES[_dst_TYPE][_sparsity_off|_sparsity_on].sum

The same work may be counted several times: as a total and by the type of its result, with and
without sparsity, by its operands (src) and by its instruction (op). Counters are added up if no
work is in two of them. fp4 alone and fp4 among others are taken for different work: in compute
capability 10.0 only utcomma has the first, only utcqmma the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

_RATES = {".per_second": "per second", ".per_cycle_elapsed": "per cycle"}
_SECTOR_BYTES, _WRITEBACK_BYTES = 32, 128

BULK_COPIES = "L1 bytes leave out the bulk tensor copies of this chip"
NO_TIME, NO_FLOPS, NO_BYTES = "no time", "no FLOPs", "no bytes"  # how such a remark begins
NO_TENSORS = "tensor cores were not counted"
LOWER_BOUND = "FLOPs are a lower bound"
_FIRST_WITH_TENSOR_COUNTERS, _FIRST_WITH_BULK_COPIES = (7, 5), (9, 0)

# ---------------------------------------------------------------- formulas


class _Formula(NamedTuple):
    """An amount from one metric, or from its rate."""

    metric: str
    factor: float = 1.0
    remark: str = ""


def _dram_formulas(way: str) -> list[_Formula]:
    return [
        _Formula(f"dram__bytes_{way}.sum"),
        _Formula(f"dram__bytes_op_{way}.sum"),
        _Formula(f"dram__sectors_{way}.sum", _SECTOR_BYTES),
        _Formula(f"fbpa__dram_{way}_bytes.sum"),
    ]


_L2_CHART = "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes"
_L1_CHART = "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes"
_WRITEBACK = "l1tex__lsu_writeback_active_mem"
_BYTES = {  # DRAM bytes are reads and writes, else this
    "dram_read_bytes": _dram_formulas("read"),
    "dram_write_bytes": _dram_formulas("write"),
    "dram_bytes": [_Formula("dram__bytes.sum"), _Formula("dram__sectors.sum", _SECTOR_BYTES)],
    "l2_bytes": [
        _Formula("lts__t_bytes.sum"),
        _Formula("lts__t_sectors.sum", _SECTOR_BYTES),
        _Formula("lts__lts2xbar_cycles_active.sum", _SECTOR_BYTES, _L2_CHART),
    ],
    "l1_bytes": [
        _Formula("l1tex__t_bytes.sum"),
        _Formula(f"{_WRITEBACK}_lg.sum", _WRITEBACK_BYTES, _L1_CHART),
        _Formula(f"{_WRITEBACK}_lgds.sum", _WRITEBACK_BYTES, _L1_CHART),
    ],
}
_VECTOR_FLOPS = {  # of one instruction of a thread; the packed fp32 forms (…2) came with Blackwell
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2, "fadd2": 2, "fmul2": 2, "ffma2": 4},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_INSTRUCTIONS = {
    op: [
        _Formula(f"{unit}__sass_thread_inst_executed_op_{op}_pred_on.sum")
        for unit in ("smsp", "sm")
    ]
    for ops in _VECTOR_FLOPS.values()
    for op in ops
}
_SHARES = {  # of the peak, averaged over the time of the kernel
    "sm_peak_share": [_Formula("sm__throughput.avg.pct_of_peak_sustained_elapsed")],
    "dram_peak_share": [
        _Formula("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        _Formula("dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    ],
}
SHARES = tuple(_SHARES)
_TIMES = [f"gpu__time_duration{end}" for end in (".sum", ".max", ".avg", "", ".min")]
_CYCLES_OVER_RATE = tuple(
    (f"{unit}__cycles_elapsed.{amount}", f"{unit}__cycles_elapsed.{rate}.per_second")
    for unit in ("sm", "gpc", "smsp")
    for amount, rate in (*product(("avg", "max"), repeat=2), ("sum", "sum"))
)
_KNOWN_NAMES = frozenset(
    [
        *_TIMES,
        *(name for pair in _CYCLES_OVER_RATE for name in pair),
        *(f.metric for fs in _SHARES.values() for f in fs),
        *(f.metric + per for fs in _BYTES.values() for f in fs for per in ("", ".per_second")),
        *(f.metric + per for fs in _INSTRUCTIONS.values() for f in fs for per in ("", *_RATES)),
    ]
)
_PIPE_TENSOR = "sm__inst_executed_pipe_tensor.sum"
# and those of its parts, by instruction or by subpipe; type_hfma2 is no tensor work
_TENSOR_INSTRUCTIONS = re.compile(
    r"(?:smsp|sm)__inst_executed_pipe_tensor(?!\w*_type_hfma2)(?:_\w+)?\.sum"
    r"(?:\.per_second|\.per_cycle_elapsed)?"
)
_FLOPS_PER_TENSOR_INSTRUCTION = 512  # of compute capability 7.0 and 7.2, adding up in fp32
_GUESS = (
    "tensor fp16 FLOPs are a guess: this chip has no counter for them, so each tensor"
    f" instruction is taken as {_FLOPS_PER_TENSOR_INSTRUCTION} FLOPs"
)
_ONLY_INSTRUCTIONS = (
    "tensor-core FLOPs are unavailable: only tensor instructions were counted; collect"
    f" sm__ops_path_tensor_src_*, or, before compute capability 7.5 (V100), {_PIPE_TENSOR} with the"
    " column CC or --device"
)


def is_needed(metric: str) -> bool:
    """Whether a metric can take part in any quantity; all others need not be kept."""
    is_of_tensors = parse_tensor_counter(metric) is not None or counts_tensor_instructions(metric)
    return metric in _KNOWN_NAMES or is_of_tensors


def counts_tensor_instructions(metric: str) -> bool:
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
# Several operand types behind one counter: the type whose ceiling the work stands under.
_SHOWN_AS = {
    "fp16_bf16_tf32": "fp16",  # compute capability 7.5 has no other one
    "fp4_fp6_fp8": "fp8",
    "fp4_fp6": "fp6",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCounter:
    """A counter by the parts of its name."""

    name: str  # without its rate
    op: str
    src: str
    dst: str
    sparsity: str

    @property
    def type(self) -> str:
        return _SHOWN_AS.get(self.src, self.src)

    @property
    def operands(self) -> frozenset[str]:
        """Its types; fp4 alone is other work than fp4 among others."""
        return frozenset(["fp4 alone"] if self.src == "fp4" else self.src.split("_"))

    @property
    def narrowness(self) -> tuple[bool, int, bool, bool]:
        """By operands goes before by instruction, and totals before results and sparsity."""
        return bool(self.op), -len(self.operands), bool(self.dst), bool(self.sparsity)

    def overlaps(self, other: TensorCounter) -> bool:
        """Whether some work is in both."""
        is_narrowed_apart = any(a and b and a != b for a, b in self._pair_parts(other))
        return not self.operands.isdisjoint(other.operands) and not is_narrowed_apart

    def contains(self, other: TensorCounter) -> bool:
        """Whether all work of the other is in this one, too."""
        is_wider = all(own in ("", part) for own, part in self._pair_parts(other))
        return is_wider and other.operands <= self.operands

    def _pair_parts(self, other: TensorCounter) -> tuple[tuple[str, str], ...]:
        return (self.op, other.op), (self.dst, other.dst), (self.sparsity, other.sparsity)


def parse_tensor_counter(name: str) -> TensorCounter | None:
    """None where the name is not one of them."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    parts = {key: match[key] or "" for key in ("op", "src", "dst", "sparsity")}
    return TensorCounter(name=name.removesuffix(match["rate"] or ""), **parts)


def remove_overlaps(counters: Sequence[TensorCounter]) -> list[TensorCounter]:
    """Those to add up, the widest taken first: no work is in two of them."""
    taken: list[TensorCounter] = []
    for counter in sorted(counters, key=lambda counter: counter.narrowness):
        if not any(map(counter.overlaps, taken)):
            taken.append(counter)
    return [counter for counter in counters if counter in taken]


def _note_halves(kind: str, added: Sequence[TensorCounter]) -> list[str]:
    """Notes on a half (by sparsity) without the other."""
    names = {counter.name for counter in added}
    lacking = [
        other
        for counter in added
        for half, other in (("off", "on"), ("on", "off"))
        if counter.sparsity == half and counter.name.replace(f"_{half}.", f"_{other}.") not in names
    ]
    return [
        f"tensor {kind} {LOWER_BOUND}: the counter with sparsity {other} was not collected"
        for other in lacking
    ]


def _note_partial(known: Iterable[TensorCounter], taken: Sequence[TensorCounter]) -> list[str]:
    """Notes on counters that are not added, since part of their work is in one that is."""
    return [
        f"tensor {counter.type} {LOWER_BOUND}: {counter.name} overlaps in part with others and is"
        " not added"
        for counter in known
        if not any(other.contains(counter) for other in taken)
    ]


# ---------------------------------------------------------------- quantities of every row


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Quantities by column, and notes on how they were derived."""

    table: pd.DataFrame
    remarks: tuple[str, ...]


def derive_quantities(
    metrics: pd.DataFrame, *, compute_capability: str | None = None
) -> Quantities:
    """FLOPs, bytes, shares of the peak and `counter_time_s` of every row, as far as collected.

    The compute capability is that of all rows, None where it is not known.
    """
    import pandas as pd

    deriver = _Deriver(metrics, compute_capability)
    deriver.derive_time()  # first: rates need it
    deriver.derive_vector_flops()
    deriver.derive_tensor_flops()
    deriver.guess_tensor_flops()
    deriver.derive_bytes()
    deriver.derive_shares()
    deriver.note_missing()
    table = pd.DataFrame(deriver.columns, index=metrics.index, copy=False)
    return Quantities(table=table, remarks=tuple(dict.fromkeys(deriver.remarks)))


class _Amount(NamedTuple):
    """Values by row, and notes on how they were made."""

    values: pd.Series[float] | None = None
    remarks: tuple[str, ...] = ()

    def fill(self, more: pd.Series[float], remark: str = "") -> _Amount:
        """With the values of rows that have none so far."""
        is_new = more.notna() if self.values is None else more.notna() & self.values.isna()
        if not is_new.any():
            return self
        values = more if self.values is None else self.values.fillna(more)
        remarks = (*self.remarks, remark) if remark else self.remarks
        return _Amount(values, remarks)


_NOTHING = _Amount()


class _Deriver:
    """Collects columns, one kind of quantity after the other."""

    def __init__(self, metrics: pd.DataFrame, compute_capability: str | None) -> None:
        self.metrics = metrics
        self.names = frozenset(map(str, metrics.columns[metrics.notna().any()]))
        numbers = re.findall(r"\d+", compute_capability or "")
        self.version = tuple(map(int, numbers))  # () of an unknown chip
        self.columns: dict[str, pd.Series[float]] = {}
        self.remarks: list[str] = []

    def derive_time(self) -> None:
        time_s = _NOTHING
        for name in filter(self.names.__contains__, _TIMES):
            time_s = time_s.fill(self._floats(name))
        for cycles, rate in _CYCLES_OVER_RATE:
            if {cycles, rate} <= self.names:
                per_second = self._floats(rate).where(self.metrics[rate] > 0)
                remark = f"time is cycles over their rate: {cycles} / {rate}"
                time_s = time_s.fill(self._floats(cycles) / per_second, remark)
        self._add("counter_time_s", time_s)

    def derive_vector_flops(self) -> None:
        for kind, flops in _VECTOR_FLOPS.items():
            amounts = {op: self._apply(_INSTRUCTIONS[op], kind) for op in flops}
            known = {op: amount for op, amount in amounts.items() if amount.values is not None}
            missing = [op for op in flops if op not in known and not op.endswith("2")]
            lacking = ", ".join(missing)
            if any(op.endswith("fma") for op in missing):
                if known:
                    self.remarks.append(f"{kind} FLOPs are unavailable: {lacking} not collected")
            elif known:
                if missing:
                    self.remarks.append(f"{kind} {LOWER_BOUND}: no {lacking}")
                factors = [flops[op] for op in known]
                self._add_up(f"flops_{kind}_vector", list(known.values()), factors)

    def derive_tensor_flops(self) -> None:
        """Sums by type of operands. A counter that overlaps with a wider one is not added."""
        parsed = map(parse_tensor_counter, map(str, self.metrics.columns))
        counters = list(dict.fromkeys(filter(None, parsed)))  # some are there as rates, too
        amounts = {
            counter: self._apply([_Formula(counter.name)], f"tensor {counter.type}")
            for counter in counters
        }
        known = [counter for counter in counters if amounts[counter].values is not None]
        taken = remove_overlaps(known)
        for kind in sorted({counter.type for counter in counters}):
            added = [counter for counter in taken if counter.type == kind]
            absent = [one for one in counters if one.type == kind and one not in known]
            # a part that no kernel has makes the sum unknown
            if added and all(any(map(counter.overlaps, added)) for counter in absent):
                parts = [amounts[counter] for counter in added]
                self._add_up(f"flops_{kind}_matrix", parts, [1] * len(parts))
                self.remarks += _note_halves(kind, added)
        self.remarks += _note_partial(known, taken)

    def guess_tensor_flops(self) -> None:
        """From instructions, for kernels of chips that have no other counter."""
        names = sorted(filter(counts_tensor_instructions, self.names))
        if not names:
            return
        products = [column for name, column in self.columns.items() if name.endswith("_matrix")]
        is_known = sum((column.notna() for column in products), self.metrics[names[0]] < 0).gt(0)
        guessed = self._apply([_Formula(_PIPE_TENSOR)], "tensor fp16")
        is_old = () < self.version < _FIRST_WITH_TENSOR_COUNTERS
        if is_old and not products and guessed.values is not None:
            guess = guessed.values * _FLOPS_PER_TENSOR_INSTRUCTION
            self._add("flops_fp16_matrix", guessed._replace(values=guess))
            self.remarks.append(_GUESS)
            is_known = guess.notna()
        if bool((~is_known & (self.metrics[names] > 0).any(axis=1)).any()):
            self.remarks.append(_ONLY_INSTRUCTIONS)

    def derive_bytes(self) -> None:
        amounts = {column: self._apply(formulas) for column, formulas in _BYTES.items()}
        read, written = (amounts[f"dram_{way}_bytes"].values for way in ("read", "write"))
        if read is not None and written is not None:
            both = _Amount().fill(read + written)
            amounts["dram_bytes"] = self._apply(_BYTES["dram_bytes"], amount=both)
        elif amounts["dram_bytes"].values is None and (read is not None or written is not None):
            only = "writes" if read is None else "reads"
            self.remarks.append(f"DRAM bytes are unavailable: only {only} were collected")
        for column, amount in amounts.items():
            self._add(column, amount)

    def derive_shares(self) -> None:
        for column, formulas in _SHARES.items():
            self._add(column, self._apply(formulas))

    def note_missing(self) -> None:
        """Notes on kinds of quantities that there are none of, and on L1 bytes of new chips."""
        if "counter_time_s" not in self.columns:
            self.remarks.append(f"{NO_TIME}: collect gpu__time_duration.sum")
        for note, part, word in ((NO_FLOPS, "flops_", "FLOPs"), (NO_BYTES, "_bytes", "bytes")):
            is_explained = any(f"{word} are unavailable" in remark for remark in self.remarks)
            if not is_explained and not any(part in name for name in self.columns):
                self.remarks.append(f"{note}: no counter of them was collected")
        if "l1_bytes" in self.columns and self.version >= _FIRST_WITH_BULK_COPIES:
            self.remarks.append(BULK_COPIES)

    # ------------------------------------------------------------ formulas of one quantity

    def _apply(
        self, formulas: Iterable[_Formula], kind: str = "", amount: _Amount = _NOTHING
    ) -> _Amount:
        """Of each row by the first formula whose metric has a value there; `kind` of FLOPs."""
        for metric, factor, remark in formulas:
            if metric in self.names:
                amount = amount.fill(self._floats(metric) * factor, remark)
            for per, words in _RATES.items():
                clock, rate = self._clocks[per], f"{metric}{per}"
                if rate in self.names and clock is not None:
                    values = (self._floats(rate) * factor * clock).round()
                    # less than one cannot be: the rate is in another unit than it says
                    values = values.mask((values == 0) & (self.metrics[rate] > 0))
                    of_kind = f"{kind} FLOPs are made from rates {words}" if kind else ""
                    from_rate = remark or of_kind or f"from rates: {rate}"
                    amount = amount.fill(values, from_rate)
        return amount

    @cached_property
    def _clocks(self) -> dict[str, pd.Series[float] | None]:
        """What makes an amount of a rate: seconds and cycles, where these are known."""
        time_s, cycles = self.columns.get("counter_time_s"), _NOTHING
        for name in (f"{unit}__cycles_elapsed" for unit in ("smsp", "sm", "gpc")):
            for metric in filter(self.names.__contains__, (f"{name}.avg", f"{name}.max")):
                cycles = cycles.fill(self._floats(metric))
            rate = f"{name}.avg.per_second"
            if rate in self.names and time_s is not None:
                cycles = cycles.fill(self._floats(rate) * time_s)
        return {".per_second": time_s, ".per_cycle_elapsed": cycles.values}

    def _floats(self, name: str) -> pd.Series[float]:
        return self.metrics[name].astype(float)

    def _add_up(self, column: str, amounts: Sequence[_Amount], factors: Sequence[int]) -> None:
        """A weighted sum; a row with no value in one of them has no sum."""
        pairs = zip(amounts, factors, strict=True)
        total, *others = (one.values * factor for one, factor in pairs if one.values is not None)
        for other in others:
            total = total + other
        self._add(column, _Amount(total, tuple(text for one in amounts for text in one.remarks)))

    def _add(self, column: str, amount: _Amount) -> None:
        """A column that some row has a value in."""
        self.remarks += amount.remarks
        if amount.values is not None and amount.values.notna().any():
            self.columns[column] = amount.values

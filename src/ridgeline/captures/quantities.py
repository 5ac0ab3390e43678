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
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PER_SECOND, PER_CYCLE = ".per_second", ".per_cycle_elapsed"
_RATES = {PER_SECOND: "per second", PER_CYCLE: "per cycle"}
_CLOCKS = {PER_SECOND: "time", PER_CYCLE: "cycles"}  # that make an amount of a rate
_SECTOR_BYTES, _WRITEBACK_BYTES = 32, 128

BULK_COPIES = "L1 bytes leave out the bulk tensor copies of this chip"
NO_TIME, NO_FLOPS, NO_BYTES = "no time", "no FLOPs", "no bytes"  # how such a remark begins
NO_TENSORS = "tensor cores were not counted"
LOWER_BOUND = "FLOPs are a lower bound"
_NOT_COLLECTED = "no counter of them was collected"
_UNUSABLE = "there is no counter that can be used"
_FIRST_WITH_TENSOR_COUNTERS, _FIRST_WITH_BULK_COPIES = (7, 5), (9, 0)

# ---------------------------------------------------------------- formulas


@dataclass(frozen=True, slots=True)
class Formula:
    """An amount from one metric: its value times `factor`; of a rate also times its clock."""

    metric: str
    factor: float = 1.0
    per: str = ""  # PER_SECOND or PER_CYCLE of a rate
    remark: str = ""


def _byte_formulas(metric: str, factor: float = 1.0, remark: str = "") -> list[Formula]:
    """The amount itself, and from its rate."""
    rate = f"{metric}{PER_SECOND}"
    from_rate = remark or f"from rates: {rate}"
    return [Formula(metric, factor, "", remark), Formula(rate, factor, PER_SECOND, from_rate)]


def _flop_formulas(what: str, *counters: str) -> list[Formula]:
    """The amounts, then from rates, of counters of the same: the first of them preferred."""
    rates = product(_RATES.items(), counters)
    return [
        *map(Formula, counters),
        *(
            Formula(f"{name}{per}", per=per, remark=f"{what} FLOPs are made from rates {words}")
            for (per, words), name in rates
        ),
    ]


def _dram_formulas(way: str) -> list[Formula]:
    return [
        *_byte_formulas(f"dram__bytes_{way}.sum"),
        *_byte_formulas(f"dram__bytes_op_{way}.sum"),
        *_byte_formulas(f"dram__sectors_{way}.sum", _SECTOR_BYTES),
        *_byte_formulas(f"fbpa__dram_{way}_bytes.sum"),
    ]


_L2_CHART = "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes"
_L1_CHART = "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes"
_WRITEBACK = "l1tex__lsu_writeback_active_mem"
_BYTES = {  # DRAM bytes are reads and writes, else this
    "dram_read_bytes": _dram_formulas("read"),
    "dram_write_bytes": _dram_formulas("write"),
    "dram_bytes": [
        *_byte_formulas("dram__bytes.sum"),
        *_byte_formulas("dram__sectors.sum", _SECTOR_BYTES),
    ],
    "l2_bytes": [
        *_byte_formulas("lts__t_bytes.sum"),
        *_byte_formulas("lts__t_sectors.sum", _SECTOR_BYTES),
        *_byte_formulas("lts__lts2xbar_cycles_active.sum", _SECTOR_BYTES, _L2_CHART),
    ],
    "l1_bytes": [
        *_byte_formulas("l1tex__t_bytes.sum"),
        *_byte_formulas(f"{_WRITEBACK}_lg.sum", _WRITEBACK_BYTES, _L1_CHART),
        *_byte_formulas(f"{_WRITEBACK}_lgds.sum", _WRITEBACK_BYTES, _L1_CHART),
    ],
}
_VECTOR_FLOPS = {  # of one instruction of a thread; the packed fp32 forms (…2) came with Blackwell
    "fp64": {"dadd": 1, "dmul": 1, "dfma": 2},
    "fp32": {"fadd": 1, "fmul": 1, "ffma": 2, "fadd2": 2, "fmul2": 2, "ffma2": 4},
    "fp16": {"hadd": 2, "hmul": 2, "hfma": 4},
}
_INSTRUCTIONS = {
    op: _flop_formulas(
        kind, *(f"{unit}__sass_thread_inst_executed_op_{op}_pred_on.sum" for unit in ("smsp", "sm"))
    )
    for kind, ops in _VECTOR_FLOPS.items()
    for op in ops
}
_TIMES = [Formula(f"gpu__time_duration{end}") for end in (".sum", ".max", ".avg", "", ".min")]
_CYCLES = [
    formula
    for unit in ("smsp__cycles_elapsed", "sm__cycles_elapsed", "gpc__cycles_elapsed")
    for formula in (
        Formula(f"{unit}.avg"),
        Formula(f"{unit}.max"),
        Formula(f"{unit}.avg.per_second", per=PER_SECOND),
    )
]
_CYCLES_OVER_RATE = tuple(
    (f"{unit}__cycles_elapsed.{amount}", f"{unit}__cycles_elapsed.{rate}.per_second")
    for unit in ("sm", "gpc", "smsp")
    for amount, rate in (*product(("avg", "max"), repeat=2), ("sum", "sum"))
)
_TIME_NAMES = frozenset(
    [
        *(formula.metric for formula in _TIMES),
        *(name for pair in _CYCLES_OVER_RATE for name in pair),
    ]
)
_BYTE_NAMES, _FLOP_NAMES = (
    frozenset(formula.metric for formulas in table.values() for formula in formulas)
    for table in (_BYTES, _INSTRUCTIONS)
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
_ONLY_INSTRUCTIONS = "tensor-core FLOPs are not told: tensor instructions were counted"
_WHAT_TO_COLLECT = {  # by whether the chip is before the first with tensor counters
    False: ", which no factor turns into FLOPs; collect sm__ops_path_tensor_src_*",
    True: f" in part; collect {_PIPE_TENSOR}, from which they are guessed on this chip",
    None: ", and the chip is not known; collect sm__ops_path_tensor_src_*, or, before compute"
    f" capability 7.5 (V100), {_PIPE_TENSOR} and export it with its column CC",
}


def is_needed(metric: str) -> bool:
    """Whether a metric can take part in any quantity; all others need not be kept."""
    is_known = metric in _TIME_NAMES or metric in _BYTE_NAMES or _is_of_flops(metric)
    return is_known or counts_tensor_instructions(metric)


def counts_tensor_instructions(metric: str) -> bool:
    """Whether it counts instructions of tensor cores, which are FLOPs on the oldest chips only."""
    return _TENSOR_INSTRUCTIONS.fullmatch(metric) is not None


def _is_of_flops(metric: str) -> bool:
    return metric in _FLOP_NAMES or parse_tensor_counter(metric) is not None


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
_WITH_NOTE = ("fp4_fp6", "fp4_fp6_fp8")  # of which the mixture is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCounter:
    """A counter by the parts of its name."""

    name: str  # without its rate
    op: str
    src: str
    dst: str
    sparsity: str
    rate: str  # "" of a count

    @property
    def type(self) -> str:
        return _SHOWN_AS.get(self.src, self.src)

    @property
    def operands(self) -> frozenset[str]:
        return frozenset(self.src.split("_"))

    @property
    def narrowness(self) -> tuple[bool, int, bool, bool]:
        """By operands goes before by instruction, and totals before results and sparsity."""
        return bool(self.op), -len(self.operands), bool(self.dst), bool(self.sparsity)

    def overlaps(self, other: TensorCounter) -> bool:
        """Whether some work is in both."""
        if "fp4" in (self.src, other.src) and self.src != other.src:
            return False
        parts = ((self.op, other.op), (self.dst, other.dst), (self.sparsity, other.sparsity))
        is_narrowed_apart = any(a and b and a != b for a, b in parts)
        return not self.operands.isdisjoint(other.operands) and not is_narrowed_apart


def parse_tensor_counter(name: str) -> TensorCounter | None:
    """None where the name is not one of them."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    parts = {key: match[key] or "" for key in ("op", "src", "dst", "sparsity", "rate")}
    return TensorCounter(name=name.removesuffix(parts["rate"]), **parts)


def _parse_tensor_counters(names: Iterable[str]) -> dict[str, TensorCounter]:
    """Those of the names that are tensor counters, also those of which only a rate is there."""
    counters = filter(None, map(parse_tensor_counter, names))
    return {counter.name: replace(counter, rate="") for counter in counters}


def _remove_overlaps(counters: Sequence[TensorCounter]) -> list[TensorCounter]:
    """Those to add up, the widest taken first: no work is in two of them."""
    taken: list[TensorCounter] = []
    for counter in sorted(counters, key=lambda counter: counter.narrowness):
        if not any(map(counter.overlaps, taken)):
            taken.append(counter)
    return [counter for counter in counters if counter in taken]


def _note_added(kind: str, added: Sequence[TensorCounter]) -> list[str]:
    """Notes on mixed operands, and on a half (by sparsity) without the other."""
    notes = []
    mixed = sorted({counter.src for counter in added} & {*_WITH_NOTE})
    if mixed:
        together = mixed[0].replace("_", ", ")
        notes.append(
            f"this chip counts {together} operands together; they are shown as tensor {kind}"
        )
    halves = defaultdict(list)
    for counter in added:
        if counter.sparsity:
            halves[counter.op, counter.src, counter.dst].append(counter.sparsity)
    alone = [half[0] for half in halves.values() if len(half) == 1]
    if alone:
        other = "on" if alone[0] == "off" else "off"
        notes.append(
            f"tensor {kind} is a lower bound: the counter with sparsity {other} was not collected"
        )
    return notes


# ---------------------------------------------------------------- quantities of every row


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Quantities by column, and notes on how they were derived."""

    table: pd.DataFrame
    metrics: tuple[str, ...]  # those that took part
    remarks: tuple[str, ...]


def derive_quantities(
    metrics: pd.DataFrame,
    *,
    compute_capability: str | None = None,
    unusable: Collection[str] = (),
) -> Quantities:
    """FLOPs, bytes and `counter_time_s` of every row; columns only for what was collected.

    The compute capability is that of all rows, None where it is not known. `unusable` are metrics
    that were collected and have no value that can be used.
    """
    import pandas as pd

    deriver = _Deriver(metrics, compute_capability)
    deriver.derive_time()  # first: rates need it
    deriver.derive_vector_flops()
    deriver.derive_tensor_flops()
    deriver.guess_tensor_flops()
    deriver.derive_bytes()
    deriver.note_missing([*map(str, metrics.columns), *unusable], unusable)
    table = pd.DataFrame(deriver.columns, index=metrics.index, copy=False)
    return Quantities(table=table, metrics=tuple(deriver.used), remarks=tuple(deriver.remarks))


@dataclass(slots=True)
class _Amount:
    """Values by row, what they are made of, and notes on that."""

    values: pd.Series[float] | None = None
    metrics: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

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


class _Deriver:
    """Collects columns, one kind of quantity after the other."""

    def __init__(self, metrics: pd.DataFrame, compute_capability: str | None) -> None:
        self.metrics, self.version = metrics, _parse_version(compute_capability or "")
        self.names = frozenset(map(str, metrics.columns[metrics.notna().any()]))
        self.columns: dict[str, pd.Series[float]] = {}
        self.used: list[str] = []
        self.remarks: list[str] = []

    def derive_time(self) -> None:
        time_s = self._apply(_TIMES)
        for amount, rate in _CYCLES_OVER_RATE:
            if {amount, rate} <= self.names:
                per_second = self._floats(rate).where(self.metrics[rate] > 0)
                remark = f"time is cycles over their rate: {amount} / {rate}"
                time_s.fill(self._floats(amount) / per_second, [amount, rate], remark)
        self._add_amount("counter_time_s", time_s)

    def derive_vector_flops(self) -> None:
        for kind, flops in _VECTOR_FLOPS.items():
            collected = [op for op in flops if self._has_any(_INSTRUCTIONS[op])]
            missing = [op for op in flops if op not in collected and not op.endswith("2")]
            if not collected:
                continue
            if any(op.endswith("fma") for op in missing):
                lacking = ", ".join(missing)
                self.remarks.append(f"{kind} FLOPs are not told: {lacking} not collected")
                continue
            amounts = {op: self._apply(_INSTRUCTIONS[op]) for op in collected}
            if any(amount.values is None for amount in amounts.values()):
                self._note_rates(kind, [_INSTRUCTIONS[op] for op in collected])
                continue
            if missing:
                self.remarks.append(f"{kind} FLOPs are a lower bound: no {', '.join(missing)}")
            total = self._add_up(list(amounts.values()), [flops[op] for op in collected])
            self._add_flops(kind, "vector", total, collected)

    def derive_tensor_flops(self) -> None:
        """Sums by type of operands. A counter that overlaps with a wider one is not added."""
        counters = _parse_tensor_counters(map(str, self.metrics.columns))
        formulas = {
            name: _flop_formulas(f"tensor {counter.type}", name)
            for name, counter in counters.items()
        }
        amounts = {name: self._apply(formulas[name]) for name in counters}
        taken = _remove_overlaps(
            [counter for name, counter in counters.items() if amounts[name].values is not None]
        )
        notes: list[str] = []
        for kind in sorted({counter.type for counter in counters.values()}):
            every = [counter for counter in counters.values() if counter.type == kind]
            own = [counter for counter in every if amounts[counter.name].values is not None]
            added = [counter for counter in taken if counter in own]
            if not own:
                self._note_rates(f"tensor {kind}", [formulas[counter.name] for counter in every])
            wider = [c for counter in own for c in taken if c not in own and c.overlaps(counter)]
            if wider:
                name = wider[0].name
                self.remarks.append(f"tensor {kind} is not told by itself: {name} counts it, too")
            if added:
                self._add_tensor_flops(kind, every, added, amounts)
                notes += _note_added(kind, added)
        self.remarks += notes

    def _add_tensor_flops(
        self,
        kind: str,
        every: Sequence[TensorCounter],
        added: Sequence[TensorCounter],
        amounts: Mapping[str, _Amount],
    ) -> None:
        """The sum of those that are added; a part that no kernel has makes it unknown."""
        total = self._add_up([amounts[c.name] for c in added], [1] * len(added))
        absent = [counter for counter in every if amounts[counter.name].values is None]
        if any(not any(map(counter.overlaps, added)) for counter in absent):
            total = total * float("nan")
        parts = [counter.name for counter in _remove_overlaps([*added, *absent])]
        self._add_flops(kind, "matrix", total, parts)

    def guess_tensor_flops(self) -> None:
        """From instructions, for kernels of chips that have no other counter, and only for these.

        A note says what to collect for other kernels of which only instructions are known.
        """
        names = sorted(filter(counts_tensor_instructions, self.names))
        if not names:
            return
        is_old = self.version < _FIRST_WITH_TENSOR_COUNTERS if self.version else None
        is_unknown = ~self._has_tensor_flops()
        guessed = self._apply(_flop_formulas("tensor fp16", _PIPE_TENSOR))
        if is_old and guessed.values is not None and bool(is_unknown.any()):
            guess = guessed.values.where(is_unknown) * _FLOPS_PER_TENSOR_INSTRUCTION
            self._use(guessed)
            so_far = self.columns.get("flops_fp16_matrix", guess)
            self.columns["flops_fp16_matrix"] = so_far.fillna(guess)
            self.remarks.append(_GUESS)
            is_unknown &= guess.isna()
        if bool((is_unknown & (self.metrics[names] > 0).any(axis=1)).any()):
            self.remarks.append(_ONLY_INSTRUCTIONS + _WHAT_TO_COLLECT[is_old])

    def derive_bytes(self) -> None:
        amounts = {column: self._apply(formulas) for column, formulas in _BYTES.items()}
        read, written = (amounts[f"dram_{way}_bytes"].values for way in ("read", "write"))
        both = _Amount()
        if read is not None and written is not None:
            both.fill(read + written, [])
        amounts["dram_bytes"] = self._apply(_BYTES["dram_bytes"], both)
        if amounts["dram_bytes"].values is None and not (read is None and written is None):
            only = "no kernel has both reads and writes"
            if read is None or written is None:
                only = f"only {'writes' if read is None else 'reads'} were collected"
            self.remarks.append(f"DRAM bytes are not told: {only}")
        for column, amount in amounts.items():
            self._add_amount(column, amount)

    def note_missing(self, collected: Collection[str], unusable: Collection[str]) -> None:
        """Notes on kinds of quantities that there are none of, and on L1 bytes of new chips."""
        if "counter_time_s" not in self.columns:
            is_there = any(name.startswith("gpu__time_") or "cycles_elapsed" in name
                           for name in unusable)  # fmt: skip
            self.remarks.append(
                f"{NO_TIME}: {_UNUSABLE if is_there else 'collect gpu__time_duration.sum'}"
            )
        for note, part, is_of in (
            (NO_FLOPS, "flops_", _is_of_flops),
            (NO_BYTES, "_bytes", _BYTE_NAMES.__contains__),
        ):
            if not any(part in name for name in self.columns):
                is_there = any(map(is_of, collected))
                self.remarks.append(f"{note}: {_UNUSABLE if is_there else _NOT_COLLECTED}")
        has_bulk_copies = self.version is not None and self.version >= _FIRST_WITH_BULK_COPIES
        if "l1_bytes" in self.columns and has_bulk_copies:
            self.remarks.append(BULK_COPIES)

    # ------------------------------------------------------------ formulas of one quantity

    def _apply(self, formulas: Iterable[Formula], amount: _Amount | None = None) -> _Amount:
        """Of each row by the first formula whose metric has a value there."""
        amount = amount or _Amount()
        for formula in formulas:
            scale = self._scale(formula.per) if formula.metric in self.names else None
            if scale is None or (amount.values is not None and amount.values.notna().all()):
                continue
            values = self._floats(formula.metric) * formula.factor * scale
            is_count = formula.per and formula not in _CYCLES
            if is_count:  # less than one cannot be: the rate is in another unit than it says
                values = values.round().mask((values > 0) & (values < 0.5))
            clocks = self._cycles.metrics if formula.per == PER_CYCLE else []
            amount.fill(values, [formula.metric, *clocks], formula.remark)
        return amount

    def _scale(self, per: str) -> pd.Series[float] | float | None:
        """What makes an amount of a rate: seconds, cycles; None where these are not known."""
        if per == PER_SECOND:
            return self.columns.get("counter_time_s")
        return self._cycles.values if per == PER_CYCLE else 1.0

    @cached_property
    def _cycles(self) -> _Amount:
        return self._apply(_CYCLES)

    def _floats(self, name: str) -> pd.Series[float]:
        return self.metrics[name].astype(float)

    def _use(self, amount: _Amount) -> None:
        """Keep the metrics and remarks of an amount that takes part in a quantity."""
        for every, new in ((self.used, amount.metrics), (self.remarks, amount.remarks)):
            every += [text for text in dict.fromkeys(new) if text not in every]

    def _add_amount(self, column: str, amount: _Amount) -> None:
        self._use(amount)
        if amount.values is not None:
            self.columns[column] = amount.values

    def _add_up(self, amounts: Sequence[_Amount], factors: Sequence[int]) -> pd.Series[float]:
        """A weighted sum; a row with no value in one of them has no sum."""
        for amount in amounts:
            self._use(amount)
        parts = [
            amount.values * factor
            for amount, factor in zip(amounts, factors, strict=True)
            if amount.values is not None
        ]
        total = parts[0]
        for other in parts[1:]:
            total = total + other
        return total

    def _add_flops(
        self, kind: str, path: str, total: pd.Series[float], parts: Sequence[str]
    ) -> None:
        """A column that some row has a value in, or why there is none."""
        if total.notna().any():
            self.columns[f"flops_{kind}_{path}"] = total
        else:
            what = f"{'tensor ' * (path == 'matrix')}{kind} FLOPs"
            self.remarks.append(f"{what} are not told: no kernel has all of {', '.join(parts)}")

    # ------------------------------------------------------------ what is there

    def _has_any(self, formulas: Iterable[Formula]) -> bool:
        return any(formula.metric in self.names for formula in formulas)

    def _has_tensor_flops(self) -> pd.Series[bool]:
        """By row, whether any are known."""
        import pandas as pd

        known = [values for name, values in self.columns.items() if name.endswith("_matrix")]
        return pd.DataFrame(dict(enumerate(known)), index=self.metrics.index).notna().any(axis=1)

    def _note_rates(self, what: str, formulas: Iterable[Collection[Formula]]) -> None:
        """Counters make no FLOPs if they are rates without time or cycles."""
        rates = {one.per for those in formulas for one in those if one.metric in self.names}
        lacking = [
            word for per, word in _CLOCKS.items() if per in rates and self._scale(per) is None
        ]
        if lacking:
            without = " or ".join(lacking)
            self.remarks.append(f"{what} FLOPs are not told: rates without {without}")


def _parse_version(compute_capability: str) -> tuple[int, int] | None:
    """ "9.0" as (9, 0)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", compute_capability)
    return (int(match[1]), int(match[2])) if match else None

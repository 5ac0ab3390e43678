"""Kernels and counters as files have them, and from these to a capture and its warnings.

Metrics of one quantity may lie in several files, so files are joined as `Counters`, before
quantities are derived.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import FLOPS, TEXTS, Capture, in_words, total
from ridgeline.captures.metric_formulas import (
    is_of_bytes,
    is_of_flops,
    is_of_tensor_instructions,
    is_of_time,
)
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import WRONG_UNITS
from ridgeline.captures.quantities import (
    LOWER_BOUND,
    NO_BYTES,
    NO_FLOPS,
    NO_TENSORS,
    NO_TIME,
    UNUSABLE,
    Quantities,
    derive_quantities,
)
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = (
    "kernel", "id", "process_id", "host", "stream", "grid", "block", "nvtx", "device",
    "device_number", "compute_capability", "passes",
)  # fmt: skip
TEXT_METRICS = {"device__attribute_display_name": "device", "profiler__replayer_passes": "passes"}
LAUNCH = ["host", "process_id", "id", "kernel"]  # columns that identify one
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A row per kernel in both tables, in the same order."""

    file: str
    kind: str
    kernels: pd.DataFrame  # TEXT_COLUMNS, and the launches that a row stands for
    metrics: pd.DataFrame  # in base units, only those that can take part in a quantity
    notes: tuple[str, ...]
    invalid: tuple[str, ...]  # those of the notes that name invalid values
    unusable: tuple[str, ...]  # metrics that the file has and that cannot be used
    has_rules: bool  # results of rules in place of metrics
    log: ReadingLog

    @property
    def capability(self) -> str | None:
        """The only compute capability, or the first of several."""
        return next(iter(self.different("compute_capability")), None)

    @property
    def capabilities(self) -> str | pd.Series[str] | None:
        """The one of all kernels, or that of each."""
        is_one = len(self.different("compute_capability")) < 2
        return self.capability if is_one else self.kernels["compute_capability"]

    @property
    def metric_names(self) -> frozenset[str]:
        """The metrics that have a value."""
        return frozenset(map(str, self.metrics.columns[self.metrics.notna().any()]))

    def different(self, column: str) -> list[str]:
        """The different texts of a column, without the empty one."""
        return [text for text in self.kernels[column].unique() if text]


Part = Counters | Capture  # one file; a trace has nothing to join


@dataclass(slots=True)
class KernelRows:
    """Kernels of a file that has one metric per line."""

    texts: list[dict[str, str | int]] = field(default_factory=list)
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)  # by row
    _rows: dict[Hashable, int] = field(default_factory=dict)

    def find_row(self, key: Hashable) -> int | None:
        return self._rows.get(key)

    def add_row(self, key: Hashable, texts: Mapping[str, str], launches: int = 1) -> int:
        row = self._rows[key] = len(self.texts)
        self.texts.append({**texts, "launches": launches})
        return row

    def add_value(self, row: int, metric: str, value: float) -> None:
        """The first value of a metric counts: sections repeat some, with fewer digits."""
        values = self.metrics.setdefault(metric, {})
        if isnan(values.get(row, nan)):
            values[row] = value

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The kernels and their metrics as tables."""
        import pandas as pd

        names = (*TEXT_COLUMNS, "launches")
        kernels = pd.DataFrame({name: [row.get(name, "") for row in self.texts] for name in names})
        return kernels, pd.DataFrame(self.metrics, index=range(len(kernels)), dtype=float)


def make_counters(
    file: str,
    kind: str,
    frames: tuple[pd.DataFrame, pd.DataFrame],
    log: ReadingLog,
    *,
    notes: Sequence[str],
    unusable: Sequence[str] = (),
    has_rules: bool = False,
) -> Counters:
    """Each launch once, without invalid values; a file without kernels is refused."""
    kernels, collected = frames
    if not len(kernels):
        raise log.refusal(file, "holds no kernels")
    metrics, invalid = drop_invalid(collected)
    lost = [str(name) for name in collected if collected[name].count() > metrics[name].count()]
    kernels, metrics, repeated = merge_repeated(kernels, metrics)
    return Counters(
        file=file,
        kind=kind,
        kernels=kernels,
        metrics=metrics,
        notes=(*notes, *invalid, *repeated),
        invalid=tuple(invalid),
        unusable=(*unusable, *lost),
        has_rules=has_rules,
        log=log,
    )


def drop_invalid(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Nothing in place of numbers that no counter can have, and notes on them."""
    import numpy as np

    negative = [name for name in table.columns if bool((table[name] < 0).any())]
    infinite = [name for name in table.columns if bool((table[name] == np.inf).any())]
    valid = {
        str(name): table[name].where(table[name].between(0, np.inf, inclusive="left"))
        for name in dict.fromkeys([*negative, *infinite])
    }
    notes = [
        f"values that are {problem} are not used: {', '.join(map(in_words, names[:_MOST_NAMED]))}"
        for problem, names in (("negative", negative), ("too large for a number", infinite))
        if names
    ]
    return (table.assign(**valid) if valid else table), notes


def merge_repeated(
    kernels: pd.DataFrame, metrics: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Rows of the same process, launch number and name as one, with the first values."""
    is_numbered = kernels["id"].ne("") & kernels["process_id"].ne("")
    is_repeated = kernels.duplicated(LAUNCH) & is_numbered
    if not is_repeated.any():
        return kernels, metrics, []
    keys = [kernels[name] for name in LAUNCH]
    keys.append(kernels.index.to_series().where(~is_numbered, -1))  # others stay by themselves
    firsts = metrics.groupby(keys, sort=False).first().reset_index(drop=True)
    kernels = kernels[~is_repeated].reset_index(drop=True)
    note = f"rows of the same process and launch number are one kernel: {is_repeated.sum():,}"
    return kernels, firsts, [note]


TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"
_MISSING = {NO_TIME: is_of_time, NO_FLOPS: is_of_flops, NO_BYTES: is_of_bytes}
_HALVES = ("dram_read_bytes", "dram_write_bytes")  # of a quantity, none by themselves
_COLLECT = (
    "collect gpu__time_duration.sum, dram__bytes_read.sum, dram__bytes_write.sum,"
    " sm__ops_path_tensor_src_* (before compute capability 7.5 sm__inst_executed_pipe_tensor.sum)"
    " and smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma}_pred_on.sum; `ridgeline profile` does"
)
_COLLECT_TENSORS = "collect sm__ops_path_tensor_src_*"
_FIRST_WITH_TENSOR_CORES = 7  # compute capability 7.0
_TENSOR_KERNELS = re.compile(  # parts of the names that libraries give to kernels on tensor cores
    r"[hi]mma|gmma|tensor_?op|nvjet|_[sih](?:884|1688|16816|8816|16832)|"
    r"xmma_\w*(?:f16|bf16|tf32|i8|e4m3)|(?:tf32|bf16)(?:gemm|_)",
    re.IGNORECASE,
)


def to_capture(counters: Counters) -> Capture:
    """A capture of Nsight Compute."""
    import numpy as np

    launches = counters.kernels["launches"]
    with np.errstate(over="ignore"):  # a warning says so
        derived = derive_quantities(counters.metrics, compute_capability=counters.capabilities)
        numbers, too_large = drop_invalid(derived.table.mul(launches, axis=0))
    if not any(numbers[name].notna().any() for name in numbers if name not in _HALVES):
        raise _nothing_usable(counters, too_large or _unused_metrics(counters.metrics, derived))
    kernels = _all_columns(counters.kernels, numbers)
    capabilities = counters.different("compute_capability")
    warnings = [
        *counters.notes,
        *_derivation_notes(derived, counters),
        *too_large,
        *_note_devices(counters),
        *_note_columns(kernels, is_cut=counters.log.is_cut),
        *_note_tensors(kernels, counters),
        *counters.log.notes(),
    ]
    return Capture(
        file=counters.file,
        kind=counters.kind,
        kernels=kernels,
        device=common_device(counters.different("device"), capabilities),
        compute_capability=capabilities[0] if len(capabilities) == 1 else None,
        passes=_most_passes(counters),
        metrics=derived.metrics,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def make_time_capture(
    file: str,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    device: str | None = None,
    compute_capability: str | None = None,
    notes: Sequence[str] = (),
) -> Capture:
    """A capture of a trace, which has time only.

    Rows have kernel, time_s and any of launches, grid, block, stream, id, process_id, device.
    """
    import pandas as pd

    table = pd.DataFrame(list(rows))
    columns: dict[str, Any] = {"kernel": table["kernel"]}
    columns["launches"] = table.get("launches", pd.Series(1, index=table.index)).astype("int64")
    columns["time_s"] = table["time_s"].astype(float)
    columns["counter_time_s"] = float("nan")
    for name in TEXTS:
        columns[name] = table[name].fillna("").astype(str) if name in table else ""
    columns["time_source"] = "profiler"
    return Capture(
        file=file,
        kind=kind,
        kernels=pd.DataFrame(columns),
        device=device,
        compute_capability=compute_capability,
        passes=None,
        metrics=(),
        warnings=(TIME_ONLY, *notes),
    )


def note_several_devices(devices: Sequence[str], prefix: str = "") -> list[str]:
    if len(devices) < 2:
        return []
    return [f"kernels of several devices are added up: {prefix}{', '.join(devices)}"]


def common_device(names: Collection[str], capabilities: Collection[str] = ()) -> str | None:
    """The name of the only device, or "CC 9.0" where only that is known; None of several."""
    if len(names) > 1 or len(capabilities) > 1:
        return None
    return next(iter((*names, *(f"CC {capability}" for capability in capabilities))), None)


def _all_columns(kernels: pd.DataFrame, numbers: pd.DataFrame) -> pd.DataFrame:
    """The table of kernels as capture.py describes it."""
    capability = kernels["compute_capability"]
    device = kernels["device"].where(
        kernels["device"].ne(""), ("CC " + capability).where(capability.ne(""), "")
    )
    table = kernels.assign(layer="", phase="", op="", device=device)
    has_time = "counter_time_s" in numbers
    table["counter_time_s"] = numbers["counter_time_s"] if has_time else float("nan")
    table["time_s"] = table["counter_time_s"]
    table["time_source"] = "counter" if has_time else ""
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers.drop(columns="counter_time_s", errors="ignore"))


def _nothing_usable(counters: Counters, reasons: Sequence[str]) -> RidgelineError:
    refuse, count = counters.log.refusal, len(counters.kernels)
    kernels = f"has {count:,} kernel{'s' if count > 1 else ''}"
    wrong_units = [note for note in counters.notes if note.startswith(WRONG_UNITS)]
    for causes, hint in (
        (counters.invalid, "capture and export it again"),
        (wrong_units, "export it again with --print-units base"),
        (reasons, _COLLECT),
    ):
        if causes:
            problem = f"{kernels} and nothing that can be used: {'; '.join(causes)}"
            return refuse(counters.file, problem, hint)
    if len(counters.metrics.columns):
        return refuse(counters.file, f"{kernels} and no values: none is a number")
    if counters.has_rules:
        hint = f"export it with --page raw, or capture it again with metrics: {_COLLECT}"
        return refuse(counters.file, f"{kernels} with a rule and no metric", hint)
    problem = f"{kernels} and no metric that tells FLOPs, bytes or time"
    return refuse(counters.file, problem, _COLLECT)


def _derivation_notes(derived: Quantities, counters: Counters) -> list[str]:
    """How quantities were derived. A metric that cannot be used was collected all the same."""
    unusable = {
        f"{missing}:": f"{missing}: {UNUSABLE}"
        for missing, is_of in _MISSING.items()
        if any(map(is_of, counters.unusable))
    }
    return [
        next((note for start, note in unusable.items() if remark.startswith(start)), remark)
        for remark in derived.remarks
    ]


def _unused_metrics(metrics: pd.DataFrame, derived: Quantities) -> list[str]:
    """Why metrics that have values give no quantity."""
    names = [str(name) for name in metrics.columns[metrics.notna().any()]]
    reasons = [remark for remark in derived.remarks if not remark.startswith(tuple(_MISSING))]
    reasons += [f"{name} without time or cycles" for name in names if ".per_" in name]
    return (reasons or [f"{name} alone tells nothing" for name in names]) if names else []


def _most_passes(counters: Counters) -> int | None:
    matches = (re.match(r"\d+", text) for text in counters.different("passes"))
    return max((int(match[0]) for match in matches if match), default=None)


def _note_devices(counters: Counters) -> list[str]:
    """By their names where these differ, else by their chips, else by their numbers."""
    names, chips = counters.different("device"), counters.different("compute_capability")
    if len(names) < 2 and len(chips) > 1:
        return note_several_devices(chips, "compute capability ")
    return note_several_devices(names if len(names) > 1 else counters.different("device_number"))


def _note_columns(kernels: pd.DataFrame, *, is_cut: bool) -> list[str]:
    """Sums that overflow, columns with gaps, and tensor work that totals leave out."""
    overflows, gaps, others = [], [], []
    complete = kernels[:-1] if is_cut else kernels
    for name in map(str, kernels.columns):
        if name != "time_s" and not name.startswith(("flops_", "dram_bytes", "l2_", "l1_")):
            continue
        words, amount = in_words(name), total(kernels, name)
        missing = int(complete[name].isna().sum())
        if 0 < missing < len(complete):
            verb = "is" if name == "time_s" else "are"
            gaps.append(f"{words} {verb} not known of {missing:,} of {len(complete):,} kernels")
        if amount is None and kernels[name].notna().any():
            overflows.append(f"the sum of {words} is too large for a number")
        if amount and name.endswith("_matrix") and name not in FLOPS.values():
            work = words.replace("FLOPs", "work")
            others.append(f"{work} is in the table of kernels only: {amount:.4g}")
    return overflows + gaps + others


def _note_tensors(kernels: pd.DataFrame, counters: Counters) -> list[str]:
    """A note where FLOPs were counted, none of tensor cores, and there may be some."""
    columns = [str(name) for name in kernels.columns if kernels[name].notna().any()]
    if not any(name.startswith("flops_") for name in columns):
        return []
    has_note = any(map(is_of_tensor_instructions, counters.metric_names))
    if has_note or any(name.endswith("_matrix") for name in columns):
        return []
    names = kernels["kernel"].astype(str)
    users = names[names.str.contains(_TENSOR_KERNELS)]
    if len(users):
        return [
            f"{NO_TENSORS}, and {len(users):,} of {len(names):,} kernels use them by their names"
            f" ({users.iloc[0][:60]}): {LOWER_BOUND}; {_COLLECT_TENSORS}"
        ]
    major = (counters.capability or "").partition(".")[0]
    if major.isdecimal() and int(major) >= _FIRST_WITH_TENSOR_CORES:
        return [f"{NO_TENSORS}: {LOWER_BOUND} if kernels use them; {_COLLECT_TENSORS}"]
    return []

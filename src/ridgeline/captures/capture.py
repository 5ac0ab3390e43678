"""Captures: kernels and counters as files have them, joined, and what they come to.

A reader makes `Counters`, with metrics in base units. Metrics of one quantity may lie in several
files, so files are joined before quantities are derived: that makes a `Capture`. Its table of
kernels has a row per launch, in the order of execution:

    kernel, launches                  its name; how many launches the row stands for
    time_s, counter_time_s            seconds of all of them; by the counters, where they tell
    time_source                       "counter", "profiler" (a trace), "" where there is no time
    layer, phase, op                  where it belongs; "" until someone finds out
    grid, block, stream               as the capture has them, "" where it does not
    id, process_id, nvtx              likewise; nvtx is the innermost way, "outer/inner"
    device                            its GPU, or "CC 9.0" where only that is known
    flops_P_vector, flops_P_matrix    executed FLOPs outside and on tensor cores
    dram_bytes, dram_read_bytes, dram_write_bytes, l2_bytes, l1_bytes

A column that was not collected is absent, or not a number: never 0.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import WRONG_UNITS
from ridgeline.captures.quantities import (
    LOWER_BOUND,
    NO_BYTES,
    NO_FLOPS,
    NO_TENSORS,
    NO_TIME,
    Quantities,
    counts_tensor_instructions,
    derive_quantities,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import CaptureRequest, ProfileSummary
from ridgeline.store import ResultsFolder, StoredCapture

if TYPE_CHECKING:
    import pandas as pd

TEXTS = (
    "time_source", "layer", "phase", "op", "grid", "block", "stream", "id", "process_id", "nvtx",
    "device",
)  # fmt: skip
FLOPS = {  # the names of `ridgeline import --json` and their columns
    "fp64": "flops_fp64_vector",
    "fp32": "flops_fp32_vector",
    "fp16": "flops_fp16_vector",
    "tensor_fp16": "flops_fp16_matrix",
    "tensor_bf16": "flops_bf16_matrix",
    "tensor_tf32": "flops_tf32_matrix",
    "tensor_fp8": "flops_fp8_matrix",
    "tensor_int8": "flops_int8_matrix",
    "tensor_fp64": "flops_fp64_matrix",
}
BYTES = ("dram_bytes", "l2_bytes", "l1_bytes")
PROGRAM = "ncu program"  # the kind of a program that was profiled here
_BETWEEN_FILES = " + "  # the names of files that were joined
_WORDS = {
    "time_s": "time", "counter_time_s": "time", "dram_bytes": "DRAM bytes",
    "dram_read_bytes": "bytes read from DRAM", "dram_write_bytes": "bytes written to DRAM",
    "l2_bytes": "L2 bytes", "l1_bytes": "L1 bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One capture: of one file, or of several that belong together."""

    file: str
    kind: str  # ncu-raw, ncu-details, ncu-ui, ncu-text, ncu-rep, kineto or nsys
    kernels: pd.DataFrame
    device: str | None = None  # its name, or "CC 9.0" where only that is known; None of several
    compute_capability: str | None = None  # likewise
    passes: int | None = None  # the most that one kernel was replayed for
    metrics: tuple[str, ...] = ()  # those that can be used
    warnings: tuple[str, ...]

    @property
    def launches(self) -> int:
        return int(self.kernels["launches"].sum())

    @property
    def kernel_time_s(self) -> float | None:
        return total(self.kernels, "time_s")


def total(kernels: pd.DataFrame, column: str) -> float | None:
    """The sum over all kernels; None where nothing is known, which is not 0, or it is no number."""
    import numpy as np

    if column not in kernels:
        return None
    with np.errstate(over="ignore"):
        amount = float(kernels[column].sum(min_count=1))
    return amount if math.isfinite(amount) else None


def sums(kernels: pd.DataFrame) -> dict[str, int | float | None]:
    """Executed FLOPs by the names of FLOPS and bytes by those of BYTES; None where not known."""
    columns = {**FLOPS, **{name: name for name in BYTES}}
    amounts = {name: total(kernels, column) for name, column in columns.items()}
    # a count is whole, unless a rate or a rounded file made it
    return {name: int(n) if n is not None and n.is_integer() else n for name, n in amounts.items()}


def totals(capture: Capture) -> dict[str, Any]:
    """A capture in short, as `ridgeline import --json` prints it; what is absent is None."""
    amounts = sums(capture.kernels)
    return {
        "file": capture.file,
        "kernels": capture.launches,
        "flops": {name: amounts[name] for name in FLOPS},
        **{name: amounts[name] for name in BYTES},
        "kernel_time_s": capture.kernel_time_s,
        "device": capture.device,
        "warnings": list(capture.warnings),
    }


def column_in_words(column: str) -> str:
    """A column of a table of kernels as people call it: `tensor fp16 FLOPs`."""
    match = re.fullmatch(r"flops_(\w+)_(vector|matrix)", column)
    if match is None:
        return _WORDS.get(column, column)
    return f"{'tensor ' * (match[2] == 'matrix')}{match[1]} FLOPs"


# ---------------------------------------------------------------- as a file has it

TEXT_COLUMNS = (
    "kernel", "id", "process_id", "host", "stream", "grid", "block", "nvtx", "device",
    "device_number", "compute_capability", "passes",
)  # fmt: skip
_LAUNCH = ["host", "process_id", "id", "kernel"]  # columns that identify one
_INVALID = "values that are"  # how such a note begins
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Kernels and counters of Nsight Compute: a row per kernel in both tables, in one order."""

    file: str
    kind: str
    kernels: pd.DataFrame  # TEXT_COLUMNS, and the launches that a row stands for
    metrics: pd.DataFrame  # in base units, only those that can take part in a quantity
    notes: tuple[str, ...]
    unusable: tuple[str, ...]  # metrics that the file has and that cannot be used
    has_rules: bool  # results of rules in place of metrics
    log: ReadingLog

    @property
    def metric_names(self) -> frozenset[str]:
        """The metrics that have a value."""
        return frozenset(map(str, self.metrics.columns[self.metrics.notna().any()]))

    def distinct(self, column: str) -> list[str]:
        """The different texts of a column, without the empty one."""
        return [text for text in self.kernels[column].unique() if text]


def make_counters(
    path: Path,
    kind: str,
    kernels: pd.DataFrame,
    collected: pd.DataFrame,
    log: ReadingLog,
    notes: Sequence[str],
    *,
    unusable: Sequence[str] = (),
    has_rules: bool = False,
) -> Counters:
    """Each launch once, without invalid values; a file without kernels is refused."""
    if not len(kernels):
        raise log.refusal(path, "holds no kernels")
    metrics, invalid = _drop_invalid(collected)
    lost = [str(name) for name in collected if collected[name].count() > metrics[name].count()]
    kernels, metrics, repeated = _merge_repeated(kernels, metrics)
    return Counters(
        file=str(path), kind=kind, kernels=kernels, metrics=metrics,
        notes=(*notes, *invalid, *repeated), unusable=(*unusable, *lost), has_rules=has_rules,
        log=log,
    )  # fmt: skip


def _drop_invalid(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Nothing in place of numbers that no counter can have, and notes on them."""
    import numpy as np

    invalid = {
        "negative": [name for name in table if bool((table[name] < 0).any())],
        "too large for a number": [name for name in table if bool((table[name] == np.inf).any())],
    }
    names = {str(name): table[name] for names in invalid.values() for name in names}
    valid = {n: one.where(one.between(0, np.inf, inclusive="left")) for n, one in names.items()}
    notes = [
        f"{_INVALID} {problem} are not used: "
        + ", ".join(column_in_words(str(name)) for name in names[:_MOST_NAMED])
        for problem, names in invalid.items()
        if names
    ]
    return (table.assign(**valid) if valid else table), notes


def _merge_repeated(
    kernels: pd.DataFrame, metrics: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Rows of the same process, launch number and name as one, with the first values."""
    is_numbered = kernels["id"].ne("") & kernels["process_id"].ne("")
    is_repeated = kernels.duplicated(_LAUNCH) & is_numbered
    if not is_repeated.any():
        return kernels, metrics, []
    keys = [kernels[name] for name in _LAUNCH]
    keys.append(kernels.index.to_series().where(~is_numbered, -1))  # others stay by themselves
    firsts = metrics.groupby(keys, sort=False).first().reset_index(drop=True)
    kernels = kernels[~is_repeated].reset_index(drop=True)
    note = f"rows of the same process and launch number are one kernel: {is_repeated.sum():,}"
    return kernels, firsts, [note]


# ---------------------------------------------------------------- several files of one capture

_ROUNDED = 0.01  # of a value: pages show it with fewer digits
_SAME_LAUNCH = [*_LAUNCH, "grid", "block", "compute_capability", "launches"]


def join_counters(a: Counters, b: Counters) -> Counters | None:
    """One table with the launches and metrics of both; None if they do not belong together.

    They have different metrics of the same launches, and the same values where they have the same
    metric; or the same metrics of different launches of one process.
    """
    if _have_same_launches(a, b):
        joined = _join_metrics(a, b)
    elif _are_of_one_process(a, b):
        joined = _join_launches(a, b)
    else:
        return None
    return replace(
        joined,
        file=f"{a.file}{_BETWEEN_FILES}{b.file}",
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        unusable=(*a.unusable, *b.unusable),
        has_rules=a.has_rules or b.has_rules,
        log=a.log + b.log,
    )


def _have_same_launches(a: Counters, b: Counters) -> bool:
    """Whether each has metrics that the other lacks, and those of both agree.

    Another run of a program has other times.
    """
    if a.file == b.file or a.metric_names == b.metric_names or len(a.kernels) != len(b.kernels):
        return False
    is_same = a.kernels[_SAME_LAUNCH].equals(b.kernels[_SAME_LAUNCH])
    shared = sorted(a.metric_names & b.metric_names)
    if not is_same or not a.kernels["process_id"].ne("").all():
        return False
    difference = (a.metrics[shared] - b.metrics[shared]).abs()
    return not bool((difference > _ROUNDED * a.metrics[shared].abs()).any(axis=None))


def _join_metrics(a: Counters, b: Counters) -> Counters:
    """Of a metric of both the first's values; a device that only one has is that of both."""
    import pandas as pd

    added = [name for name in b.metrics.columns if name not in a.metric_names]
    first = [name for name in a.metrics.columns if name not in added]
    metrics = pd.concat([a.metrics[first], b.metrics[added]], axis=1)
    return replace(a, kernels=a.kernels.mask(a.kernels == "", b.kernels), metrics=metrics)


def _are_of_one_process(a: Counters, b: Counters) -> bool:
    """Whether both have the same metrics, of different launches of one process."""
    if a.metric_names != b.metric_names or a.kind != b.kind:
        return False
    columns = [one.kernels[name] for one in (a, b) for name in ("host", "process_id")]
    if any(column.nunique() > 1 for column in columns):
        return False
    host, process, other_host, other_process = (column.iloc[0] for column in columns)
    is_same = bool(process) and (host, process) == (other_host, other_process)
    return is_same and set(a.kernels["id"]).isdisjoint(b.kernels["id"])


def _join_launches(a: Counters, b: Counters) -> Counters:
    import pandas as pd

    kernels = pd.concat([a.kernels, b.kernels], ignore_index=True)
    metrics = pd.concat([a.metrics, b.metrics], ignore_index=True)
    order = kernels["id"].astype(int).sort_values(kind="stable").index
    kernels, metrics = (t.loc[order].reset_index(drop=True) for t in (kernels, metrics))
    return replace(a, kernels=kernels, metrics=metrics)


# ---------------------------------------------------------------- from counters to a capture

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"
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


def derive_capture(counters: Counters) -> Capture:
    """FLOPs, bytes and seconds of counters; without any, the file is refused."""
    import numpy as np

    capabilities = counters.distinct("compute_capability")
    capability = capabilities[0] if len(capabilities) == 1 else None
    with np.errstate(over="ignore"):  # a warning says so
        derived = derive_quantities(
            counters.metrics, compute_capability=capability, unusable=counters.unusable
        )
        table = derived.table.mul(counters.kernels["launches"], axis=0)
        numbers, too_large = _drop_invalid(table)
    if not any(numbers[name].notna().any() for name in numbers if name not in _HALVES):
        raise _refuse_unusable(counters, too_large or _explain_unused(counters, derived))
    kernels = _make_kernels(counters.kernels, numbers)
    warnings = [
        *counters.notes,
        *derived.remarks,
        *too_large,
        *_note_devices(counters),
        *_note_columns(kernels),
        *_note_tensors(kernels, counters.metric_names, capability),
        *counters.log.notes(),
    ]
    passes = (re.match(r"\d+", text) for text in counters.distinct("passes"))
    return Capture(
        file=counters.file,
        kind=counters.kind,
        kernels=kernels,
        device=common_device(counters.distinct("device"), capabilities),
        compute_capability=capability,
        passes=max((int(match[0]) for match in passes if match), default=None),
        metrics=derived.metrics,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def make_time_capture(
    path: Path,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    device: str | None,
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
        file=str(path), kind=kind, kernels=pd.DataFrame(columns), device=device,
        compute_capability=compute_capability, warnings=(TIME_ONLY, *notes),
    )  # fmt: skip


def note_several_devices(devices: Sequence[str], prefix: str = "") -> list[str]:
    several = f"kernels of several devices are added up: {prefix}{', '.join(devices)}"
    return [several] if len(devices) > 1 else []


def common_device(names: Collection[str], capabilities: Collection[str] = ()) -> str | None:
    """The name of the only device, or "CC 9.0" where only that is known; None of several."""
    if len(names) > 1 or len(capabilities) > 1:
        return None
    return next(iter((*names, *(f"CC {capability}" for capability in capabilities))), None)


def _make_kernels(kernels: pd.DataFrame, numbers: pd.DataFrame) -> pd.DataFrame:
    """The table of kernels of a capture."""
    capability = kernels["compute_capability"]
    label = ("CC " + capability).where(capability.ne(""), "")
    device = kernels["device"].where(kernels["device"].ne(""), label)
    table = kernels.assign(layer="", phase="", op="", device=device)
    has_time = "counter_time_s" in numbers
    table["counter_time_s"] = numbers["counter_time_s"] if has_time else float("nan")
    table["time_s"] = table["counter_time_s"]
    table["time_source"] = "counter" if has_time else ""
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers.drop(columns="counter_time_s", errors="ignore"))


def _refuse_unusable(counters: Counters, reasons: Sequence[str]) -> RidgelineError:
    count = len(counters.kernels)
    kernels = f"has {count:,} kernel{'s' if count > 1 else ''}"
    problem, hint = f"{kernels} and no metric that tells FLOPs, bytes or time", _COLLECT
    if len(counters.metrics.columns):
        problem, hint = f"{kernels} and no values: none is a number", ""
    elif counters.has_rules:
        problem = f"{kernels} with a rule and no metric"
        hint = f"export it with --page raw, or capture it again with metrics: {_COLLECT}"
    for start, causes, way_out in (
        (_INVALID, counters.notes, "capture and export it again"),
        (WRONG_UNITS, counters.notes, "export it again with --print-units base"),
        ("", reasons, _COLLECT),
    ):
        if those := [cause for cause in causes if cause.startswith(start)]:
            problem = f"{kernels} and nothing that can be used: {'; '.join(those)}"
            return counters.log.refusal(counters.file, problem, way_out)
    return counters.log.refusal(counters.file, problem, hint)


def _explain_unused(counters: Counters, derived: Quantities) -> list[str]:
    """Why metrics that have values give no quantity."""
    names = [str(name) for name in counters.metrics if name in counters.metric_names]
    missing = (NO_TIME, NO_FLOPS, NO_BYTES)
    reasons = [remark for remark in derived.remarks if not remark.startswith(missing)]
    reasons += [f"{name} without time or cycles" for name in names if ".per_" in name]
    return (reasons or [f"{name} alone tells nothing" for name in names]) if names else []


def _note_devices(counters: Counters) -> list[str]:
    """By their names where these differ, else by their chips, else by their numbers."""
    names, chips = counters.distinct("device"), counters.distinct("compute_capability")
    if len(names) < 2 and len(chips) > 1:
        return note_several_devices(chips, "compute capability ")
    return note_several_devices(names if len(names) > 1 else counters.distinct("device_number"))


def _note_columns(kernels: pd.DataFrame) -> list[str]:
    """Sums that overflow, columns with gaps, and tensor work that totals leave out."""
    overflows, gaps, others = [], [], []
    for name in map(str, kernels.columns):
        if name != "time_s" and not name.startswith(("flops_", "dram_bytes", "l2_", "l1_")):
            continue
        words, amount = column_in_words(name), total(kernels, name)
        missing = int(kernels[name].isna().sum())
        if 0 < missing < len(kernels):
            verb = "is" if name == "time_s" else "are"
            gaps.append(f"{words} {verb} not known of {missing:,} of {len(kernels):,} kernels")
        if amount is None and kernels[name].notna().any():
            overflows.append(f"the sum of {words} is too large for a number")
        if amount and name.endswith("_matrix") and name not in FLOPS.values():
            work = words.replace("FLOPs", "work")
            others.append(f"{work} is in the table of kernels only: {amount:.4g}")
    return overflows + gaps + others


def _note_tensors(
    kernels: pd.DataFrame, metrics: Collection[str], capability: str | None
) -> list[str]:
    """A note where FLOPs were counted, none of tensor cores, and there may be some."""
    columns = [str(name) for name in kernels.columns if kernels[name].notna().any()]
    has_flops = any(name.startswith("flops_") for name in columns)
    has_tensors = any(name.endswith("_matrix") for name in columns)
    if not has_flops or has_tensors or any(map(counts_tensor_instructions, metrics)):
        return []
    names = kernels["kernel"].astype(str)
    users = names[names.str.contains(_TENSOR_KERNELS)]
    if len(users):
        return [
            f"{NO_TENSORS}, and {len(users):,} of {len(names):,} kernels use them by their names"
            f" ({users.iloc[0][:60]}): {LOWER_BOUND}; {_COLLECT_TENSORS}"
        ]
    major = (capability or "").partition(".")[0]
    if major.isdecimal() and int(major) >= _FIRST_WITH_TENSOR_CORES:
        return [f"{NO_TENSORS}: {LOWER_BOUND} if kernels use them; {_COLLECT_TENSORS}"]
    return []


# ---------------------------------------------------------------- in a results folder


def store_capture(results: ResultsFolder, capture: Capture, *, label: str | None) -> StoredCapture:
    """Store a capture as a run of the command `import`, with its kernels."""
    from ridgeline.provenance import collect

    result = ProfileSummary(
        status="ok",
        provenance="imported",
        device_name=capture.device,
        compute_capability=capture.compute_capability,
        backend="cuda",
        kind=capture.kind,
        totals=sums(capture.kernels),
        kernel_time_s=capture.kernel_time_s,
        launches=capture.launches,
        passes=capture.passes,
        metrics=capture.metrics,
        warnings=capture.warnings,
    )
    files = files_of(capture)
    request = CaptureRequest(files=tuple(files), label=label or "")
    name = label or Path(files[0]).name
    tables = {"kernels": capture.kernels}
    run_id = results.save_run(f"import-{name}", request, result, collect(), tables=tables)
    return results.read_run(run_id)


def files_of(capture: Capture) -> list[str]:
    """The files that a capture was read from."""
    return capture.file.split(_BETWEEN_FILES)


def sources_of(run: StoredCapture) -> list[str]:
    """The files of a stored capture, or the command line of a program.

    Programs were once stored as if they had been imported, their command line as the one file.
    """
    return [shlex.join(run.request.program)] if run.request.program else list(run.request.files)

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
    sm_peak_share, dram_peak_share    of the most that is possible, while the kernel ran

A column that was not collected is absent, or not a number: never 0.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import READ_TEXT
from ridgeline.captures.quantities import (
    LOWER_BOUND,
    NO_BYTES,
    NO_FLOPS,
    NO_TENSORS,
    NO_TIME,
    SHARES,
    counts_tensor_instructions,
    derive_quantities,
)
from ridgeline.captures.table import KINETO, NSYS
from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import Datasheet, datasheet_for, list_datasheets
from ridgeline.records import CaptureRequest, ProfileSummary
from ridgeline.store import ResultsFolder, StoredCapture

if TYPE_CHECKING:
    import pandas as pd

TEXTS = (
    "time_source", "layer", "phase", "op", "grid", "block", "stream", "id", "process_id", "nvtx",
    "device",
)  # fmt: skip
FLOPS = {  # the names of `ridgeline import --json` and their columns
    **{kind: f"flops_{kind}_vector" for kind in ("fp64", "fp32", "fp16")},
    **{
        f"tensor_{kind}": f"flops_{kind}_matrix"
        for kind in ("fp16", "bf16", "tf32", "fp8", "int8", "fp64")
    },
}
BYTES = ("dram_bytes", "l2_bytes", "l1_bytes")
PROGRAM = "ncu program"  # the kind of a program that was profiled here
_BETWEEN_FILES = " + "  # the names of files that were joined
_WORDS = {
    "time_s": "time is",
    **{column: f"{name.replace('_', ' ')} FLOPs are" for name, column in FLOPS.items()},
    "dram_bytes": "DRAM bytes are", "l2_bytes": "L2 bytes are", "l1_bytes": "L1 bytes are",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One capture: of one file, or of several that belong together."""

    file: str
    kind: str  # ncu-raw, ncu-details, ncu-ui, ncu-text, ncu-rep, kineto or nsys
    kernels: pd.DataFrame
    device: str | None = None  # its name, or "CC 9.0" where only that is known; None of several
    compute_capability: str | None = None  # likewise
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


def mean_shares(kernels: pd.DataFrame) -> dict[str, float | None]:
    """Shares of the peak, each averaged over the time of the kernels that have it."""
    means = dict[str, float | None].fromkeys(SHARES)
    for name in means.keys() & set(kernels):
        known = kernels[kernels[name].notna() & kernels["time_s"].gt(0)]
        time_s = float(known["time_s"].sum())
        means[name] = float((known[name] * known["time_s"]).sum()) / time_s if time_s else None
    return means


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
        **mean_shares(capture.kernels),
        "device": capture.device,
        "warnings": list(capture.warnings),
    }


# ---------------------------------------------------------------- as a file has it

TEXT_COLUMNS = (
    "kernel", "id", "process_id", "host", "stream", "grid", "block", "nvtx", "device",
    "device_number", "compute_capability",
)  # fmt: skip
_LAUNCH = [  # columns that identify one
    "host", "process_id", "id", "kernel", "grid", "block", "compute_capability",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Kernels and their counters, or times: a row per kernel in both tables, in one order."""

    file: str
    kind: str
    kernels: pd.DataFrame  # TEXT_COLUMNS and, of a table of sums, launches
    metrics: pd.DataFrame  # in base units, only those that can take part in a quantity
    notes: tuple[str, ...]
    has_rules: bool  # results of rules in place of metrics
    log: ReadingLog

    @property
    def is_trace(self) -> bool:
        """Whether it has time only, and not by a counter."""
        return self.kind in (KINETO, NSYS)

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
    texts: pd.DataFrame,
    metrics: Mapping[str, Any],
    log: ReadingLog,
    notes: Sequence[str] = (),
    *,
    has_rules: bool = False,
) -> Counters:
    """From texts of kernels as a file has them, and metrics; without kernels it is refused.

    `texts` has any of TEXT_COLUMNS and, of a table of sums, launches. Values that no counter can
    have are left out.
    """
    import numpy as np
    import pandas as pd

    if not len(texts):
        raise log.refusal(path, "holds no kernels")
    kernels = pd.DataFrame("", index=texts.index, columns=TEXT_COLUMNS, dtype=object)
    for name in kernels.columns.intersection(texts.columns):
        places, different = pd.factorize(texts[name])  # few are different
        read = READ_TEXT.get(name, str.strip)
        kernels[name] = np.array([read(text) for text in different], dtype=object)[places]
    if "launches" in texts:
        kernels["launches"] = texts["launches"].astype("int64")
    values = pd.DataFrame(metrics, index=kernels.index, dtype=float)
    return Counters(
        file=str(path),
        kind=kind,
        kernels=kernels,
        metrics=values.where((values >= 0) & (values < math.inf)),
        notes=(*notes, *log.notes()),
        has_rules=has_rules,
        log=log,
    )


# ---------------------------------------------------------------- a device that a user names

MOST_CLOSE = 5  # names in a message


def find_devices(name: str) -> list[Datasheet]:
    """The devices with a datasheet that a name is for: several where it leaves the part open."""
    if sheet := datasheet_for(name):
        return [sheet]
    words = {sheet.name: _split_words(sheet.name) for sheet in list_datasheets()}
    parts = _split_words(name)
    if devices := [one for one in list_datasheets() if parts and parts <= words[one.name]]:
        return devices
    near = set(get_close_matches(name.casefold(), sorted(set().union(*words.values())), n=1))
    close = [title for title, words_of in words.items() if near & words_of][:MOST_CLOSE]
    raise RidgelineError(
        f"there is no datasheet of a device {name!r}",
        hint=f"close names: {', '.join(close)}" if close else "for example v100, a100 or h200",
    )


def _split_words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.casefold()))


def name_device(counters: Counters, devices: Sequence[Datasheet]) -> Counters:
    """Where a file does not name its device, the first of these; another chip is refused."""
    kernels, device = counters.kernels.copy(), devices[0]
    chips = {one.compute_capability for one in devices}
    if others := set(counters.distinct("compute_capability")) - chips:
        names = ", ".join(counters.distinct("device")) or "a device"
        raise RidgelineError(
            f"{counters.file} is of {names} (CC {', '.join(sorted(others))}), not of {device.name}",
            hint="leave --device out, or import this file without the others",
        )
    is_unnamed = kernels["device"].eq("")
    if not is_unnamed.any():
        return counters
    kernels.loc[is_unnamed, "device"] = device.name
    kernels.loc[kernels["compute_capability"].eq(""), "compute_capability"] = (
        device.compute_capability or ""
    )
    note = f"the device is taken to be {device.name}"
    if len(devices) > 1:
        note += f"; --device may also name {', '.join(one.name for one in devices[1:])}"
    return replace(counters, kernels=kernels, notes=(*counters.notes, note))


# ---------------------------------------------------------------- several files of one capture

_ROUNDED = 0.01  # of a value: pages show it with fewer digits


def join_counters(a: Counters, b: Counters) -> Counters | None:
    """One table with the metrics of both; None if they do not belong together.

    They have different metrics of the same launches, and the same values where they have the same
    metric: another run of a program has other times. A device that only one has is that of both.
    """
    import pandas as pd

    if a.file == b.file or a.metric_names == b.metric_names or len(a.kernels) != len(b.kernels):
        return None
    if a.is_trace or b.is_trace:
        return None
    is_same = a.kernels[_LAUNCH].equals(b.kernels[_LAUNCH])
    if not is_same or not a.kernels["process_id"].ne("").all():
        return None
    shared = sorted(a.metric_names & b.metric_names)
    difference = (a.metrics[shared] - b.metrics[shared]).abs()
    if (difference > _ROUNDED * a.metrics[shared].abs()).any(axis=None):
        return None
    added = [name for name in b.metrics.columns if name not in a.metric_names]
    first = [name for name in a.metrics.columns if name not in added]
    return replace(
        a,
        file=f"{a.file}{_BETWEEN_FILES}{b.file}",
        kernels=a.kernels.mask(a.kernels == "", b.kernels),
        metrics=pd.concat([a.metrics[first], b.metrics[added]], axis=1),
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        has_rules=a.has_rules or b.has_rules,
    )


# ---------------------------------------------------------------- from counters to a capture

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"
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
    capabilities = counters.distinct("compute_capability")
    capability = capabilities[0] if len(capabilities) == 1 else None
    derived = derive_quantities(counters.metrics, compute_capability=capability)
    if not {*derived.table} - {"dram_read_bytes", "dram_write_bytes", *SHARES}:
        raise _refuse_unusable(counters, derived.remarks)
    kernels = _make_kernels(counters, derived.table)
    device, devices_note = _find_device(kernels["device"], counters.kernels["device_number"])
    warnings = [
        *([TIME_ONLY] if counters.is_trace else []),
        *counters.notes,
        *([] if counters.is_trace else derived.remarks),
        *devices_note,
        *_note_columns(kernels),
        *_note_tensors(kernels, counters, capability),
    ]
    return Capture(
        file=counters.file,
        kind=counters.kind,
        kernels=kernels,
        device=device,
        compute_capability=capability,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _find_device(names: pd.Series[str], numbers: pd.Series[str]) -> tuple[str | None, list[str]]:
    """The name of the only kind of device, None of several; and a note on several devices."""
    different, devices = (list(filter(None, texts.unique())) for texts in (names, numbers))
    several = different if len(different) > 1 else devices
    note = f"kernels of several devices are added up: {', '.join(several)}"
    return different[0] if len(different) == 1 else None, [note] * (len(several) > 1)


def _make_kernels(counters: Counters, numbers: pd.DataFrame) -> pd.DataFrame:
    """The table of kernels of a capture; a device without a name is its compute capability."""
    kernels = counters.kernels
    capability = kernels["compute_capability"]
    label = ("CC " + capability).where(capability.ne(""), "")
    device = kernels["device"].where(kernels["device"].ne(""), label)
    has_time = "counter_time_s" in numbers
    time_s = numbers["counter_time_s"] if has_time else float("nan")
    source = "profiler" if counters.is_trace else "counter" if has_time else ""
    table = kernels.assign(
        launches=kernels.get("launches", 1), layer="", phase="", op="", device=device,
        time_s=time_s, counter_time_s=float("nan") if counters.is_trace else time_s,
        time_source=source,
    )  # fmt: skip
    first = ["kernel", "launches", "time_s", "counter_time_s", *TEXTS]
    return table[first].join(numbers.drop(columns="counter_time_s", errors="ignore"))


def _refuse_unusable(counters: Counters, remarks: Sequence[str]) -> RidgelineError:
    count = len(counters.kernels)
    causes = [*counters.notes, *remarks]
    reasons = [text for text in causes if not text.startswith((NO_TIME, NO_FLOPS, NO_BYTES))]
    if counters.has_rules and counters.metrics.empty:
        problem, hint = "with a rule and no metric", f"export it with --page raw, or {_COLLECT}"
    elif len(counters.metrics.columns) and not counters.metric_names:
        problem, hint = "and no values: none is a number", ""
    elif reasons:
        problem, hint = f"and nothing that can be used: {'; '.join(reasons)}", _COLLECT
    else:
        problem, hint = "and no metric that tells FLOPs, bytes or time", _COLLECT
    problem = f"has {count:,} kernel{'s' if count > 1 else ''} {problem}"
    return counters.log.refusal(counters.file, problem, hint)


def _note_columns(kernels: pd.DataFrame) -> list[str]:
    """Columns with gaps, and tensor work that totals leave out."""
    gaps, others = [], []
    for name, words in _WORDS.items():
        missing = int(kernels[name].isna().sum()) if name in kernels else 0
        if 0 < missing < len(kernels):
            gaps.append(f"{words} not known of {missing:,} of {len(kernels):,} kernels")
    for name in map(str, kernels.columns):
        amount = total(kernels, name) if name.endswith("_matrix") else None
        if amount and name not in FLOPS.values():
            work = f"tensor {name.split('_')[1]} work"
            others.append(f"{work} is in the table of kernels only: {amount:.4g}")
    return gaps + others


def _note_tensors(kernels: pd.DataFrame, counters: Counters, capability: str | None) -> list[str]:
    """A note where FLOPs were counted, none of tensor cores, and there may be some."""
    flops = [str(name) for name in kernels.columns if str(name).startswith("flops_")]
    has_tensors = any(name.endswith("_matrix") for name in flops)
    if not flops or has_tensors or any(map(counts_tensor_instructions, counters.metric_names)):
        return []
    users = kernels["kernel"][kernels["kernel"].astype(str).str.contains(_TENSOR_KERNELS)]
    if len(users):
        return [
            f"{NO_TENSORS}, and {len(users):,} of {len(kernels):,} kernels use them by their names"
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

    shares = mean_shares(capture.kernels)
    result = ProfileSummary(
        status="ok",
        provenance="imported",
        device_name=capture.device,
        compute_capability=capture.compute_capability,
        backend="cuda",
        kind=capture.kind,
        totals=sums(capture.kernels) | {n: x for n, x in shares.items() if x is not None},
        kernel_time_s=capture.kernel_time_s,
        launches=capture.launches,
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

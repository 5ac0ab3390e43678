"""From paths to captures: the kind of each file, its reader, and files that belong together.

The kind is told by content: a name is no evidence. Two files belong together if they have different
metrics of the same launches, and the same values where they have the same metric; or the same
metrics of different launches of one process. Other files are captures of their own.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ridgeline.captures.capture import BETWEEN_FILES, Capture
from ridgeline.captures.counters import LAUNCH, Counters, Part, to_capture
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.table import (
    DETAILS,
    GZIP_MARK,
    KINETO,
    NSYS,
    REPORT,
    TEXT,
    OnBytes,
    Table,
    decode_head,
    explain_os_errors,
    find_encoding,
    open_text,
    parse_header,
    read_head,
    refuse_pipes,
)
from ridgeline.captures.text import KERNEL_LINE
from ridgeline.errors import RidgelineError


def read_captures(paths: Sequence[Path]) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    captures, refusals = join_captures([read_part(Path(path)) for path in paths])
    if refusals:
        raise refusals[0]
    return captures


def read_capture(path: Path, on_bytes: OnBytes | None = None) -> Capture:
    """One file of any kind. `on_bytes` gets the bytes read so far and those of the file."""
    part = read_part(path, on_bytes)
    return part if isinstance(part, Capture) else to_capture(part)


def read_part(path: Path, on_bytes: OnBytes | None = None) -> Part:
    """One file, as far as it can be read without the other files of a capture."""
    with explain_os_errors(path):
        refuse_pipes(path)
        return _read(path, on_bytes)


def _read(path: Path, on_bytes: OnBytes | None) -> Part:
    detected = detect(path)
    if detected.kind == KINETO:
        from ridgeline.captures.kineto import read_trace

        return read_trace(path, on_bytes)
    if detected.kind == REPORT:
        return _read_report(path)
    if detected.kind == TEXT:
        from ridgeline.captures.text import read_text

        return read_text(path, detected.log, on_bytes)
    assert detected.table is not None
    if detected.kind == NSYS:
        from ridgeline.captures.nsys import read_nsys

        return read_nsys(detected.table, on_bytes)
    if detected.kind == DETAILS:
        from ridgeline.captures.csv_long import read_long

        return read_long(detected.table, on_bytes)
    from ridgeline.captures.csv_wide import read_wide

    return read_wide(detected.table, on_bytes)


def _read_report(path: Path) -> Counters:
    """The kernels of a report, by way of a raw table."""
    from ridgeline.captures.csv_wide import read_wide
    from ridgeline.captures.ncu_rep import convert_report

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.csv"
        convert_report(path, file)
        try:
            table = detect(file).table
            assert table is not None
            return replace(read_wide(table), file=str(path), kind=REPORT)
        except RidgelineError as error:
            problem = error.problem.replace(str(file), str(path))
            raise RidgelineError(problem, hint=error.hint) from error


ROUNDED = 0.01  # of a value: pages show it with fewer digits
_SAME_LAUNCH = [*LAUNCH, "grid", "block", "compute_capability", "launches"]


def join_captures(parts: Sequence[Part]) -> tuple[list[Capture], list[RidgelineError]]:
    """A capture for each group of files that belong together; and the refusals."""
    captures, refusals = [], []
    for part in join_parts(parts):
        try:
            captures.append(part if isinstance(part, Capture) else to_capture(part))
        except RidgelineError as error:
            refusals.append(error)
    return captures, refusals


def join_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts, with those that belong together as one, in the place of the first."""
    joined: list[Part] = []
    for part in parts:
        for place, other in enumerate(joined):
            if isinstance(part, Capture) or isinstance(other, Capture):
                continue
            if are_more_launches(other, part) or are_more_metrics(other, part):
                joined[place] = _merge(other, part)
                break
        else:
            joined.append(part)
    return joined


def are_more_launches(a: Counters, b: Counters) -> bool:
    """Whether both have the same metrics, of different launches of one process."""
    processes = [part.kernels[["host", "process_id"]].drop_duplicates() for part in (a, b)]
    if a.metric_names != b.metric_names or a.kind != b.kind or any(len(p) > 1 for p in processes):
        return False
    is_same = processes[0].values.tolist() == processes[1].values.tolist()
    has_process = bool(processes[0]["process_id"].iloc[0])
    return is_same and has_process and set(a.kernels["id"]).isdisjoint(b.kernels["id"])


def are_more_metrics(a: Counters, b: Counters) -> bool:
    """Whether each has metrics that the other lacks, of the same launches."""
    if a.file == b.file or a.metric_names == b.metric_names or len(a.kernels) != len(b.kernels):
        return False
    is_same = a.kernels[_SAME_LAUNCH].equals(b.kernels[_SAME_LAUNCH])
    return is_same and bool(a.kernels["process_id"].ne("").all()) and _have_same_values(a, b)


def _have_same_values(a: Counters, b: Counters) -> bool:
    """Whether metrics that both have agree: another run of a program has other times."""
    shared = sorted(a.metric_names & b.metric_names)
    difference = (a.metrics[shared] - b.metrics[shared]).abs()
    return not bool((difference > ROUNDED * a.metrics[shared].abs()).any(axis=None))


def _merge(a: Counters, b: Counters) -> Counters:
    """One table with the launches and metrics of both; of a metric of both the first's values."""
    import pandas as pd

    if are_more_metrics(a, b):
        added = [name for name in b.metrics.columns if name not in a.metric_names]
        first = [name for name in a.metrics.columns if name not in added]
        metrics = pd.concat([a.metrics[first], b.metrics[added]], axis=1)
        kernels = a.kernels.mask(a.kernels == "", b.kernels)  # a device that only one has
    else:
        kernels = pd.concat([a.kernels, b.kernels], ignore_index=True)
        order = kernels["id"].astype(int).sort_values(kind="stable").index
        kernels = kernels.loc[order].reset_index(drop=True)
        metrics = pd.concat([a.metrics, b.metrics], ignore_index=True)
        metrics = metrics.loc[order].reset_index(drop=True)
    return replace(
        a,
        file=f"{a.file}{BETWEEN_FILES}{b.file}",
        kernels=kernels,
        metrics=metrics,
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        invalid=(*a.invalid, *b.invalid),
        unusable=(*a.unusable, *b.unusable),
        has_rules=a.has_rules or b.has_rules,
        log=ReadingLog(
            messages=[*a.log.messages, *b.log.messages],
            skipped=a.log.skipped + b.log.skipped,
            is_cut=a.log.is_cut or b.log.is_cut,
            has_other_table=a.log.has_other_table or b.log.has_other_table,
        ),
    )


REPORT_MARK = b"NVR\0"
SQLITE_MARK = b"SQLite format 3\0"
ARCHIVES = (  # where the mark is
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (0, b"\x04\x22\x4d\x18", "packed with lz4"),
    (0, b"BZh", "packed with bzip2"),
    (0, b"\xfd7zXZ\0", "packed with xz"),
    (0, GZIP_MARK, "packed twice"),
)
READS = (
    "ridgeline reads Nsight Compute's CSV (--csv --page raw or details), its text, the UI's export"
    " and .ncu-rep; PyTorch and Kineto traces (.json, .json.gz); and the CSV of"
    " nsys stats --report cuda_gpu_kern_sum, cuda_gpu_trace, cuda_kern_exec_sum or"
    " cuda_kern_exec_trace"
)
_JSON = re.compile(r'\{\s*["}]|\[\s*[{\]]')  # and not `[rank0]: …` or `{'loss': 0.5}`
_TRACE = re.compile(r'\[\s*\{[^{}]*"ph"|.*"traceEvents"', re.DOTALL)
_LONGEST_LINE = 2**20  # characters that are looked at
_KERNEL_SUM = "nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep"
_SUMMARY = "ncu --import FILE.ncu-rep --csv --print-summary per-kernel > summary.csv"
_NSYS_JSON = r'\{\s*"(?:Time ?\(%\)|(?:Start|Duration|Total Time) ?\(\w+\))"\s*:'
_OTHERS = (  # a pattern in the head, the problem, the hint; the first that is there
    (r"^(?=.*\bMetric Name\b)(?=.*\bAverage\b).*\bInvocations\b",
     "is a summary of ncu over all kernels together (--print-summary per-gpu)", _SUMMARY),
    (r", Invocations [\d.,]+\s*$",
     "is the text of a summary (ncu --print-summary), of which only the CSV is read", _SUMMARY),
    (r"SKIPPED: .* does not contain .* data", "holds no kernels: nsys skipped the table",
     "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …"),
    (_NSYS_JSON, "is JSON of nsys stats, of which only the CSV is read", _KERNEL_SUM),
    (r"==\d+== (?:NVPROF is profiling|Profiling result)",
     "is of nvprof, which ridgeline does not read",
     "capture it with ncu --csv --page raw, or nsys profile and nsys stats"),
    (r"Time ?\(%\)|Total Time|Total \(\w+\)|DurNonChild",
     "is a table of nsys that is not the CSV of a kernel table", _KERNEL_SUM),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A kind of capture, and the table in it where there is one."""

    kind: str
    table: Table | None = None
    log: ReadingLog = field(default_factory=ReadingLog)


def detect(path: Path) -> Detected:
    """The kind of a file; one of an unknown kind is refused with the reason."""
    head = read_head(path)
    if head.startswith(REPORT_MARK):
        _refuse_packed_report(path)
        return Detected(kind=REPORT)
    _refuse_binary(path, head)
    text = decode_head(head).lstrip("\ufeff \t\r\n")
    is_json = _JSON.match(text) is not None
    if is_json and _TRACE.match(text):
        return Detected(kind=KINETO)
    log = ReadingLog()
    found = _find_table(path, find_encoding(head), log)
    if found is not None:
        return found
    if log.messages:
        raise log.refusal(str(path), "holds no kernels")
    for pattern, problem, hint in _OTHERS:
        if re.search(pattern, text, re.MULTILINE):
            raise RidgelineError(f"{path} {problem}", hint=hint)
    if is_json:
        return Detected(kind=KINETO)
    raise RidgelineError(f"{path} is no capture that ridgeline knows", hint=READS)


def _find_table(path: Path, encoding: str, log: ReadingLog) -> Detected | None:
    """The first table or text of kernels, whatever a program printed before it."""
    lines = 0
    with open_text(path) as stream:
        while line := stream.readline(_LONGEST_LINE):
            header = parse_header(line)
            if header is not None:
                table = Table(path=path, header=header, lines_before=lines,
                              is_utf8=encoding != "utf-16", log=log)  # fmt: skip
                return Detected(kind=header.kind, table=table, log=log)
            if ", Context " in line and len(line) < 2**14 and KERNEL_LINE.fullmatch(line):
                return Detected(kind=TEXT, log=log)
            log.add_line(line)
            lines += line.endswith("\n")
    return None


def _refuse_binary(path: Path, head: bytes) -> None:
    if not head.strip():
        raise RidgelineError(f"{path} is empty", hint="capture or export it again")
    for at, mark, problem in ARCHIVES:
        if head.startswith(mark, at):
            raise RidgelineError(f"{path} is {problem}", hint="unpack it and name the files in it")
    if path.suffix in (".nsys-rep", ".qdrep") or head.startswith(SQLITE_MARK):
        raise RidgelineError(
            f"{path} is a report of Nsight Systems, which only nsys can read",
            hint=f"nsys stats --report cuda_gpu_trace --format csv {path.name} > kernels.csv, and"
            " import that",
        )


def _refuse_packed_report(path: Path) -> None:
    """Only NVIDIA's library reads reports, and it does not unpack them."""
    with path.open("rb") as file:
        if file.read(2) == GZIP_MARK:
            raise RidgelineError(
                f"{path} is a packed report", hint=f"unpack it: gunzip --keep {path.name}"
            )

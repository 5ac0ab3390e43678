"""From paths to captures: the kind of each file, its reader, and files that belong together.

The kind is told by content: a name is no evidence.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ridgeline.captures.capture import Capture, Counters, derive_capture, join_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.ncu_tables import KERNEL_LINE, read_long, read_text, read_wide
from ridgeline.captures.table import (
    DETAILS,
    GZIP_MARK,
    NSYS,
    REPORT,
    OnBytes,
    Table,
    explain_os_errors,
    find_encoding,
    open_text,
    parse_header,
    read_head,
)
from ridgeline.captures.traces import read_nsys, read_trace
from ridgeline.errors import RidgelineError

Part = Counters | Capture  # one file; a trace has nothing to join


def read_captures(paths: Sequence[Path]) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    captures, refusals = join_captures([read_part(Path(path)) for path in paths])
    if refusals:
        raise refusals[0]
    return captures


def read_capture(path: Path, on_bytes: OnBytes | None = None) -> Capture:
    """One file of any kind. `on_bytes` gets the bytes read so far and those of the file."""
    part = read_part(path, on_bytes)
    return part if isinstance(part, Capture) else derive_capture(part)


def join_captures(parts: Sequence[Part]) -> tuple[list[Capture], list[RidgelineError]]:
    """A capture for each group of files that belong together; and the refusals."""
    groups: list[Part] = []
    for part in parts:
        for number, other in enumerate(groups):
            if isinstance(part, Capture) or isinstance(other, Capture):
                continue
            joined = join_counters(other, part)
            if joined is not None:
                groups[number] = joined
                break
        else:
            groups.append(part)
    captures, refusals = [], []
    for part in groups:
        try:
            captures.append(part if isinstance(part, Capture) else derive_capture(part))
        except RidgelineError as error:
            refusals.append(error)
    return captures, refusals


def read_part(path: Path, on_bytes: OnBytes | None = None) -> Part:
    """One file, as far as it can be read without the other files of a capture."""
    with explain_os_errors(path):
        if path.exists() and not path.is_file() and not path.is_dir():  # it is read twice
            raise RidgelineError(
                f"{path} is a pipe or a device", hint="write it to a file and import that"
            )
        head = read_head(path)
        if head.startswith(_REPORT_MARK):
            return _read_report(path)
        _refuse_binary(path, head)
        text = head.decode(find_encoding(head), errors="replace").lstrip("\ufeff \t\r\n")
        is_json = _JSON.match(text) is not None
        if is_json and _TRACE.match(text):
            return read_trace(path, on_bytes)
        log = ReadingLog()
        source = _find_table(path, log)
        if isinstance(source, Table):
            return _read_table(source, on_bytes)
        if source is not None:
            return read_text(path, log, on_bytes)
        if log.messages:
            raise log.refusal(path, "holds no kernels")
        for pattern, problem, hint in _OTHERS:
            if re.search(pattern, text, re.MULTILINE):
                raise RidgelineError(f"{path} {problem}", hint=hint)
        if is_json:
            return read_trace(path, on_bytes)
        raise RidgelineError(f"{path} is no capture that ridgeline knows", hint=_READS)


def _read_table(table: Table, on_bytes: OnBytes | None = None) -> Part:
    if table.header.kind == NSYS:
        return read_nsys(table, on_bytes)
    read = read_long if table.header.kind == DETAILS else read_wide
    return read(table, on_bytes)


def _find_table(path: Path, log: ReadingLog) -> Table | Path | None:
    """The first table, or the path of a text of kernels, whatever a program printed before it."""
    lines = 0
    with open_text(path) as stream:
        while line := stream.readline(_LONGEST_LINE):
            header = parse_header(line)
            if header is not None:
                return Table(path=path, header=header, lines_before=lines, log=log)
            if ", Context " in line and len(line) < 2**14 and KERNEL_LINE.fullmatch(line):
                return path
            log.add_line(line)
            lines += line.endswith("\n")
    return None


def _read_report(path: Path) -> Counters:
    """The kernels of a report, by way of a raw table."""
    from ridgeline.captures.ncu_rep import convert_report  # it is also run as a program

    with path.open("rb") as report:
        if report.read(2) == GZIP_MARK:  # NVIDIA's library, which alone reads it, does not unpack
            raise RidgelineError(
                f"{path} is a packed report", hint=f"unpack it: gunzip --keep {path.name}"
            )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.csv"
        convert_report(path, file)
        try:
            table = _find_table(file, ReadingLog())
            assert isinstance(table, Table)
            return replace(read_wide(table), file=str(path), kind=REPORT)
        except RidgelineError as error:
            problem = error.problem.replace(str(file), str(path))
            raise RidgelineError(problem, hint=error.hint) from error


_REPORT_MARK = b"NVR\0"
_SQLITE_MARK = b"SQLite format 3\0"
_ARCHIVES = (  # where the mark is
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (0, b"\x04\x22\x4d\x18", "packed with lz4"),
    (0, b"BZh", "packed with bzip2"),
    (0, b"\xfd7zXZ\0", "packed with xz"),
    (0, GZIP_MARK, "packed twice"),
)
_READS = (
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


def _refuse_binary(path: Path, head: bytes) -> None:
    if not head.strip():
        raise RidgelineError(f"{path} is empty", hint="capture or export it again")
    for at, mark, problem in _ARCHIVES:
        if head.startswith(mark, at):
            raise RidgelineError(f"{path} is {problem}", hint="unpack it and name the files in it")
    if path.suffix in (".nsys-rep", ".qdrep") or head.startswith(_SQLITE_MARK):
        raise RidgelineError(
            f"{path} is a report of Nsight Systems, which only nsys can read",
            hint=f"nsys stats --report cuda_gpu_trace --format csv {path.name} > kernels.csv, and"
            " import that",
        )

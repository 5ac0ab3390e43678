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
    find_encoding,
    open_bytes,
    open_text,
    parse_header,
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
    if path.exists() and not path.is_file():  # a pipe, which cannot be read twice
        raise RidgelineError(
            f"{path} is not a regular file", hint="name files; write what a pipe brings to a file"
        )
    with open_bytes(path) as stream:
        head = stream.read(_HEAD)
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
        if source.header.kind == NSYS:
            return read_nsys(source, on_bytes)
        read = read_long if source.header.kind == DETAILS else read_wide
        return read(source, on_bytes)
    if source is not None:
        return read_text(path, log, on_bytes)
    if log.messages:
        raise log.refusal(path, "holds no kernels")
    for pattern, problem, hint in _OTHERS:
        if re.search(pattern, text):
            raise RidgelineError(f"{path} {problem}", hint=hint)
    if is_json:
        return read_trace(path, on_bytes)
    raise RidgelineError(f"{path} is no capture that ridgeline knows", hint=_READS)


def _find_table(path: Path, log: ReadingLog) -> Table | Path | None:
    """The first table, or the path of a text of kernels, whatever a program printed before it."""
    with open_text(path) as stream:
        for number, line in enumerate(stream):
            header = parse_header(line)
            if header is not None:
                return Table(path=path, header=header, lines_before=number, log=log)
            if ", Context " in line and len(line) < 2**14 and KERNEL_LINE.fullmatch(line):
                return path
            log.add_line(line)
    return None


def _read_report(path: Path) -> Counters:
    """The kernels of a report, by way of a raw table."""
    from ridgeline.captures.ncu_rep import convert_report  # it is also run as a program

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


_HEAD = 2**20  # bytes by which a file is known
_REPORT_MARK = b"NVR\0"
_SQLITE_MARK = b"SQLite format 3\0"
_PACKED = (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", GZIP_MARK)  # zip, zstd, …
_READS = (
    "ridgeline reads Nsight Compute's CSV (--csv --page raw or details), its text, the UI's export"
    " and .ncu-rep; PyTorch and Kineto traces (.json, .json.gz); and the CSV of"
    " nsys stats --report cuda_gpu_kern_sum, cuda_gpu_trace, cuda_kern_exec_sum or"
    " cuda_kern_exec_trace"
)
_JSON = re.compile(r'\{\s*["}]|\[\s*[{\]]')  # and not `[rank0]: …` or `{'loss': 0.5}`
_TRACE = re.compile(r'\[\s*\{[^{}]*"ph"|.*"traceEvents"', re.DOTALL)
_OTHERS = (  # a pattern in the head, the problem, the hint; the first that is there
    (r"\bInvocations\b", "is a summary of ncu (--print-summary), which is not read",
     "ncu --import FILE.ncu-rep --csv --page raw > capture.csv"),
    (r"Time ?\(%\)|Total Time|Total \(\w+\)|DurNonChild",
     "is a table of nsys that is not the CSV of a kernel table",
     "nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep"),
)  # fmt: skip


def _refuse_binary(path: Path, head: bytes) -> None:
    if not head.strip():
        raise RidgelineError(f"{path} is empty", hint="capture or export it again")
    if head.startswith(_PACKED):
        raise RidgelineError(
            f"{path} is packed, and only one layer of gzip is unpacked here", hint="unpack it"
        )
    if path.suffix in (".nsys-rep", ".qdrep") or head.startswith(_SQLITE_MARK):
        raise RidgelineError(
            f"{path} is a report of Nsight Systems, which only nsys can read",
            hint=f"nsys stats --report cuda_gpu_trace --format csv {path.name} > kernels.csv, and"
            " import that",
        )

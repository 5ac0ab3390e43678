"""The kind of a file, by its content: its name is no evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ridgeline.captures.reading_log import ReadingLog
from ridgeline.captures.table import KINETO, REPORT, TEXT, Table, parse_header
from ridgeline.captures.text import KERNEL_LINE
from ridgeline.captures.text_io import (
    GZIP_MARK,
    decode_head,
    find_encoding,
    open_text,
    read_head,
)
from ridgeline.errors import RidgelineError

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

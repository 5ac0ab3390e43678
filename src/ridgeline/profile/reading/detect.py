"""What a file is, found out from its content; its name says little."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.reading import evidence
from ridgeline.profile.reading.header import KINETO, REPORT, TEXT, parse_header
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.opening import (
    HEAD_BYTES,
    MARK_BYTES,
    encoding_of,
    head_text,
    line_ends,
    open_lines,
    packing_of,
    read_head,
)
from ridgeline.profile.reading.prefixes import KERNEL_LINE, BareLines
from ridgeline.profile.reading.source import Source
from ridgeline.profile.reading.turned import turned_round

REPORT_MARK = b"NVR\0"
ARCHIVES = (  # where a mark stands
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (0, b"\x04\x22\x4d\x18", "packed with lz4"),
)
SQLITE_MARK = b"SQLite format 3\0"
_SKIPPED = re.compile(r"SKIPPED: .* does not contain .* data")
_JSON = re.compile(r'\{\s*["}]|\[\s*[{\]]')  # and not `[rank0]: …` or `{'loss': 0.5}`
_EVENTS = '"traceEvents"'
_NSYS_JSON = re.compile(r'\{\s*"(?:Time ?\(%\)|(?:Start|Duration|Total Time) ?\(\w+\))"\s*:')
_NSYS_TITLES = re.compile(
    r"^.*(?:Time ?\(%\)|Total Time|Total \(\w+\)|DurNonChild).*$", re.MULTILINE
)
_FOR_PEOPLE = re.compile(r"^[^,;\t]*\bTotal Time\b[^,;\t]*\bInstances\b[^,;\t]*\bName\b", re.M)
_NVPROF = re.compile(r"==\d+== (?:NVPROF is profiling|Profiling result)")
_NSYS_TABLES = {  # by a title that only they have
    "Kern Inst": "in which a kernel counts once for every NVTX range around it",
    "Category": "about kernels, copies and calls together",
    "Num Calls": "about calls or copies, not about kernels",
    "Operation": "about calls or copies, not about kernels",
    "Range": "about NVTX ranges, not about kernels",
}
_SUMMARY_LINE = re.compile(r"^\s*\S.*, Invocations [\d.,]+\s*$", re.MULTILINE)
_SUMMARY_TITLES = re.compile(r"^(?=.*\bMetric Name\b)(?=.*\bAverage\b).*\bInvocations\b", re.M)
_BY_KERNEL = "ncu --import FILE.ncu-rep --csv --print-summary per-kernel"
_LINE = 2**20  # characters that are looked at; progress that a program prints may be longer
_ROW = 2**17  # characters of a row whose numbers are looked at
READS = (
    "ridgeline reads Nsight Compute's CSV (--csv --page raw or details), its text, the UI's export"
    " and .ncu-rep; PyTorch and Kineto traces (.json, .json.gz); and the CSV of"
    " nsys stats --report cuda_gpu_kern_sum, cuda_gpu_trace, cuda_kern_exec_sum or"
    " cuda_kern_exec_trace"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """A kind of capture, and the table in it where there is one."""

    kind: str
    source: Source | None = None
    log: Log


def detect(path: Path) -> Detected:
    """Find out what a file is; one that is nothing we know is refused with the reason."""
    head = read_head(path)
    if head.startswith(REPORT_MARK):
        _refuse_packed(path)
        return Detected(kind=REPORT, log=Log())
    _refuse_others(path, head)
    text = head_text(head).lstrip("\ufeff \t\r\n")
    _refuse_old_lines(path, text)
    is_json = _JSON.match(text) is not None
    if is_json and not _ends_early(text):
        return _trace(path, text)
    log = Log()
    turned = turned_round(text[: text.rfind("\n") + 1] if len(head) == HEAD_BYTES else text)
    if turned is not None:
        if len(head) == HEAD_BYTES:
            raise RidgelineError(
                f"{path} has metrics below each other, and is too long to turn round",
                hint="export it with a row per kernel: ncu --csv --page raw",
            )
        source = Source(path=path, header=turned.header, lines_before=0, lines_below=turned.lines,
                        is_plain=False, turned=turned.lines, log=log)  # fmt: skip
        return Detected(kind=turned.header.kind, source=source, log=log)
    encoding = encoding_of(head)
    with open_lines(path) as stream:
        lines = line_ends(stream, _LINE)
        for number, line in enumerate(lines):
            header = parse_header(line)
            if header is not None:
                below = tuple(islice((row for row in lines if len(row) < _ROW), evidence.ROWS))
                is_pasted = isinstance(stream, BareLines)
                is_plain = encoding in ("utf-8", "utf-8-sig") and not is_pasted
                source = Source(path=path, header=header, lines_before=number, lines_below=below,
                                is_plain=is_plain, log=log)  # fmt: skip
                return Detected(kind=header.kind, source=source, log=log)
            if KERNEL_LINE.match(line):
                if _SUMMARY_LINE.match(line):
                    raise _summary(path)
                return Detected(kind=TEXT, log=log)
            log.see(line)
    if is_json and not log.lines:
        return _trace(path, text)
    raise _unknown(path, log, text)


def _ends_early(text: str) -> bool:
    """Whether more follows a first piece of JSON, which a program may have printed."""
    if _EVENTS in text:
        return False
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):  # it is longer than the text, or damaged
        return text.startswith("{")
    return bool(text[end:].strip())


def _trace(path: Path, text: str) -> Detected:
    if _EVENTS not in text and _NSYS_JSON.search(text):
        raise _other_format(path)
    return Detected(kind=KINETO, log=Log())


def _other_format(path: Path) -> RidgelineError:
    return RidgelineError(
        f"{path} is JSON of nsys stats, of which only the CSV is read",
        hint="nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep",
    )


def _refuse_others(path: Path, head: bytes) -> None:
    if not head.strip():
        raise RidgelineError(f"{path} is empty", hint="capture or export it again")
    for at, mark, what in ARCHIVES:
        if head.startswith(mark, at):
            raise RidgelineError(f"{path} is {what}", hint="unpack it and name what is in it")
    if path.suffix in (".nsys-rep", ".qdrep") or head.startswith(SQLITE_MARK):
        raise RidgelineError(
            f"{path} is a report of Nsight Systems, which only nsys can read",
            hint=f"nsys stats --report cuda_gpu_trace --format csv {path.name} > kernels.csv, and"
            " import that",
        )


def _refuse_packed(path: Path) -> None:
    """Only NVIDIA's library reads reports, and it does not unpack them."""
    with path.open("rb") as file:
        packing = packing_of(file.read(MARK_BYTES))
    if packing is not None:
        hint = f"unpack it: {packing.program} {path.name}"
        raise RidgelineError(f"{path} is a packed report", hint=hint)


def _refuse_old_lines(path: Path, text: str) -> None:
    """Carriage returns end lines in old files; otherwise they write over what is there."""
    if "\n" not in text and any(map(_is_capture, text.split("\r")[:-1])):
        raise RidgelineError(
            f"{path} has lines that end in carriage returns only",
            hint=f"tr '\\r' '\\n' < {path.name} > lines-{path.name}, and import that",
        )


def _is_capture(line: str) -> bool:
    return parse_header(line) is not None or KERNEL_LINE.match(line) is not None


def _summary(path: Path) -> RidgelineError:
    return RidgelineError(
        f"{path} is the text of a summary (ncu --print-summary), of which only the CSV is read",
        hint=f"{_BY_KERNEL} > summary.csv, or export it without --print-summary",
    )


def _unknown(path: Path, log: Log, text: str) -> RidgelineError:
    if _SUMMARY_TITLES.search(text):
        return RidgelineError(
            f"{path} is a summary of ncu over all kernels together (--print-summary per-gpu)",
            hint=f"{_BY_KERNEL} > summary.csv tells them apart",
        )
    if _SUMMARY_LINE.search(text):
        return _summary(path)
    if log.lines:
        return log.refusal(str(path), "holds no kernels")
    skipped = _SKIPPED.search(text)
    if skipped:
        return RidgelineError(
            f"{path} holds no kernels: nsys said {skipped[0].strip()!r}",
            hint="see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    if _NSYS_JSON.search(text):
        return _other_format(path)
    if _NVPROF.search(text):
        return RidgelineError(
            f"{path} is of nvprof, which ridgeline does not read",
            hint="capture it with ncu --csv --page raw, or nsys profile and nsys stats",
        )
    titles = " ".join(_NSYS_TITLES.findall(text))
    if _FOR_PEOPLE.search(text):
        return RidgelineError(
            f"{path} is a table of nsys for people", hint="make it with nsys stats --format csv"
        )
    for title, what in _NSYS_TABLES.items():
        if title in titles:
            return RidgelineError(
                f"{path} is a table of nsys {what}",
                hint="nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep",
            )
    return RidgelineError(f"{path} is no capture that ridgeline knows", hint=READS)

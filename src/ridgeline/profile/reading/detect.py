"""What a file is, found out from its content; its name says little."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.reading import evidence
from ridgeline.profile.reading.header import KINETO, REPORT, TEXT, parse_header
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.opening import (
    GZIP,
    encoding_of,
    head_text,
    line_ends,
    open_text,
    read_head,
)
from ridgeline.profile.reading.source import Source

REPORT_MARK = b"NVR\0"
ZIP_MARK = b"PK\x03\x04"
SQLITE_MARK = b"SQLite format 3\0"
_KERNEL_LINE = re.compile(r"^\s*\S.*, Context \d+, Stream \d+")
_SKIPPED = re.compile(r"SKIPPED: .* does not contain .* data")
_LINE = 2**20  # characters that are looked at; progress that a program prints may be longer
_ROW = 2**17  # characters of a row whose numbers are looked at
READS = (
    "ridgeline reads Nsight Compute's CSV (--csv --page raw or details), its text, the UI's export"
    " and .ncu-rep; PyTorch and Kineto traces (.json, .json.gz); and the CSV of"
    " nsys stats --report cuda_gpu_kern_sum or cuda_gpu_trace"
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
    text = head_text(head)
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return Detected(kind=KINETO, log=Log())
    log = Log()
    encoding = encoding_of(head)
    with open_text(path) as stream:
        lines = line_ends(stream, _LINE)
        for number, line in enumerate(lines):
            header = parse_header(line)
            if header is not None:
                below = tuple(islice((row for row in lines if len(row) < _ROW), evidence.ROWS))
                is_utf8 = encoding in ("utf-8", "utf-8-sig")
                source = Source(path=path, header=header, lines_before=number, lines_below=below,
                                is_utf8=is_utf8, log=log)  # fmt: skip
                return Detected(kind=header.kind, source=source, log=log)
            if _KERNEL_LINE.match(line):
                return Detected(kind=TEXT, log=log)
            log.see(line)
    raise _unknown(path, log, text)


def _refuse_others(path: Path, head: bytes) -> None:
    if not head.strip():
        raise RidgelineError(f"{path} is empty", hint="capture or export it again")
    if head.startswith(ZIP_MARK):
        raise RidgelineError(f"{path} is a zip archive", hint="unpack it and name what is in it")
    if path.suffix in (".nsys-rep", ".qdrep") or head.startswith(SQLITE_MARK):
        raise RidgelineError(
            f"{path} is a report of Nsight Systems, which only nsys can read",
            hint=f"nsys stats --report cuda_gpu_trace --format csv {path.name} > kernels.csv, and"
            " import that",
        )


def _refuse_packed(path: Path) -> None:
    """Only NVIDIA's library reads reports, and it does not unpack them."""
    with path.open("rb") as file:
        if file.read(len(GZIP)) == GZIP:
            raise RidgelineError(
                f"{path} is a packed report", hint=f"unpack it: gunzip --keep {path.name}"
            )


def _unknown(path: Path, log: Log, text: str) -> RidgelineError:
    if log.lines:
        return log.refusal(str(path), "holds no kernels")
    skipped = _SKIPPED.search(text)
    if skipped:
        return RidgelineError(
            f"{path} holds no kernels: nsys said {skipped[0].strip()!r}",
            hint="see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    if "Num Calls" in text or "Operations" in text:
        return RidgelineError(
            f"{path} is a table of nsys about calls or copies, not about kernels",
            hint="nsys stats --report cuda_gpu_kern_sum --format csv FILE.nsys-rep",
        )
    if "Total Time" in text and "Instances" in text:
        return RidgelineError(
            f"{path} is a table of nsys for people", hint="make it with nsys stats --format csv"
        )
    return RidgelineError(f"{path} is no capture that ridgeline knows", hint=READS)

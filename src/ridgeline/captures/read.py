"""From paths to captures: the kind of each file, its reader, and files that belong together.

The kind is told by content: a name is no evidence.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ridgeline.captures.capture import (
    Capture,
    Counters,
    derive_capture,
    find_devices,
    join_counters,
    name_device,
)
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.ncu_tables import DEVICE_NAME, KERNEL_LINE, read_long, read_text, read_wide
from ridgeline.captures.quantities import is_needed
from ridgeline.captures.table import (
    DETAILS,
    GZIP_MARK,
    NSYS,
    REPORT,
    Table,
    find_encoding,
    open_bytes,
    open_text,
    parse_header,
)
from ridgeline.captures.traces import read_nsys, read_trace
from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import Datasheet
from ridgeline.machine.system import SystemIO, ncu_path


def read_captures(paths: Sequence[Path], *, device: str | None = None) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    devices = find_devices(device) if device else []
    captures, refusals = join_captures([read_part(path, devices) for path in paths])
    if refusals:
        raise refusals[0]
    return captures


def read_capture(path: Path) -> Capture:
    """One file of any kind."""
    return derive_capture(read_part(path))


def join_captures(parts: Sequence[Counters]) -> tuple[list[Capture], list[RidgelineError]]:
    """A capture for each group of files that belong together; and the refusals."""
    groups: list[Counters] = []
    for part in parts:
        for number, other in enumerate(groups):
            joined = join_counters(other, part)
            if joined is not None:
                groups[number] = joined
                break
        else:
            groups.append(part)
    captures, refusals = [], []
    for group in groups:
        try:
            captures.append(derive_capture(group))
        except RidgelineError as error:
            refusals.append(error)
    return captures, refusals


def read_part(path: Path, devices: Sequence[Datasheet] = ()) -> Counters:
    """One file without the other files of its capture; of the first device if it names none."""
    counters = _read_file(path)
    return name_device(counters, devices) if devices else counters


def _read_file(path: Path) -> Counters:
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
        return read_trace(path)
    log = ReadingLog()
    source = _find_table(path, log)
    if isinstance(source, Table):
        if source.header.kind == NSYS:
            return read_nsys(source)
        read = read_long if source.header.kind == DETAILS else read_wide
        return read(source)
    if source is not None:
        return read_text(path, log)
    if log.messages:
        raise log.refusal(path, "holds no kernels")
    for pattern, problem, hint in _OTHERS:
        if re.search(pattern, text):
            raise RidgelineError(f"{path} {problem}", hint=hint)
    if is_json:
        return read_trace(path)
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


_HEAD = 2**20  # bytes by which a file is known
_REPORT_MARK = b"NVR\0"
_SQLITE_MARK = b"SQLite format 3\0"
_PACKED = (b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", GZIP_MARK)  # zip, zstd, …
_READS = (
    "ridgeline reads Nsight Compute's CSV (--csv --page raw or details), its text, the UI's export"
    " and .ncu-rep; PyTorch and Kineto traces (.json, .json.gz); and the CSV of"
    " nsys stats --report cuda_gpu_kern_sum or cuda_gpu_trace"
)
_JSON = re.compile(r'\{\s*["}]|\[\s*[{\]]')  # and not `[rank0]: …` or `{'loss': 0.5}`
_TRACE = re.compile(r'\[\s*\{[^{}]*"ph"|.*"traceEvents"', re.DOTALL)
_OTHERS = (  # a pattern in the head, the problem, the hint; the first that is there
    (r"\bInvocations\b", "is a summary of ncu (--print-summary), which is not read",
     "ncu --import FILE.ncu-rep --csv --page raw > capture.csv"),
    (r"Time ?\(%\)|Total Time|Total \(\w+\)|DurNonChild|Kernel Dur|KAvg",
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


# ---------------------------------------------------------------- binary reports

TIME_LIMIT_S = 600
INSTALL = "pip install ncu-report, or install Nsight Compute and put its ncu on the PATH"
_OPTIONS = ("--csv", "--page", "raw", "--print-units", "base")
_WRITE_TABLE = "import sys; from ridgeline.captures import read; read.write_table(sys.argv[1])"


def _read_report(path: Path) -> Counters:
    """The kernels of a report, by way of a table: only NVIDIA's library or ncu reads one.

    The package ncu-report is used, or an installed ncu. The library runs in a process of its own,
    since a damaged report may crash it.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.csv"
        _convert_report(path, file)
        try:
            return replace(_read_file(file), file=str(path), kind=REPORT)
        except RidgelineError as error:
            problem = error.problem.replace(str(file), str(path))
            raise RidgelineError(problem, hint=error.hint) from error


def _convert_report(path: Path, file: Path) -> None:
    """Write a report as a table; one that cannot be read is refused."""
    program = ncu_path(SystemIO())
    if find_spec("ncu_report") is not None:
        command = [sys.executable, "-P", "-c", _WRITE_TABLE, str(path.absolute())]
    elif program is not None:
        command = [program, "--import", str(path.absolute()), *_OPTIONS]
    else:
        raise RidgelineError(
            f"nothing here can read the report {path}: Nsight Compute (ncu) was not found",
            hint=INSTALL,
        )
    problem = _run(command, file)
    if problem or not file.stat().st_size:
        raise RidgelineError(
            f"{path} cannot be read: {problem or 'it holds no kernels'}",
            hint="it is damaged, or of a later version than the reader: copy it again, update"
            " ncu-report, or export it with ncu --import FILE --csv --page raw",
        )


def _run(command: list[str], file: Path) -> str:
    """Have a program write the table; its error if it failed."""
    try:
        with file.open("wb") as out:
            process = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, timeout=TIME_LIMIT_S,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError) as error:
        return str(error)
    if not process.returncode:
        return ""
    log = ReadingLog()
    with file.open(errors="replace") as lines:  # ncu prints its errors there, too
        for line in lines:
            log.add_line(line)
    errors = process.stderr.decode(errors="replace").strip().splitlines()
    status = f"its reader ended with status {process.returncode}"
    return [*log.errors[:1], *errors[-1:], status][0][:300]


# ---------------------------------------------------------------- in a process of its own

_HEADER = (
    "ID", "Kernel Name", "Stream", "Block Size", "Grid Size", "CC", "Start/Stop_Range:",
    "Metric Name", "Metric Unit", "Metric Value",
)  # fmt: skip


def write_table(path: str) -> None:
    """Print a report as a long table, with ncu_report on the path."""
    import ncu_report

    out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    actions = list(_actions(ncu_report.load_report(path)))
    if actions:
        out.writerow(_HEADER)
    for number, action in enumerate(actions):
        kernel = [number, *_describe_kernel(action)]
        out.writerow([*kernel, "", "", ""])
        for name in sorted(action.metric_names()):
            metric = action.metric_by_name(name)
            if (name == DEVICE_NAME or is_needed(name)) and metric.has_value():
                out.writerow([*kernel, name, metric.unit(), metric.value()])


def _actions(report: Any) -> Iterator[Any]:
    """Every kernel of every range."""
    for number in range(report.num_ranges()):
        part = report.range_by_idx(number)
        for index in range(part.num_actions()):
            yield part.action_by_idx(index)


def _describe_kernel(action: Any) -> list[str]:
    def read(name: str) -> str:
        metric = action.metric_by_name(name)
        return str(int(metric.value())) if metric is not None and metric.has_value() else ""

    block, grid = (
        ", ".join(read(f"launch__{what}_dim_{axis}") for axis in "xyz")
        for what in ("block", "grid")
    )
    parts = (read(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    name = action.name(action.NameBase_DEMANGLED) or action.name()
    ranges = "/".join(_ranges(action))
    return [name, read("launch__stream_id"), block, grid, ".".join(parts).strip("."), ranges]


def _ranges(action: Any) -> Iterator[str]:
    """The names of the NVTX ranges around a launch."""
    state = action.nvtx_state()
    for identifier in state.domains() if state is not None else ():
        domain = state.domain_by_id(identifier)
        yield from (*domain.push_pop_ranges(), *domain.start_end_ranges())

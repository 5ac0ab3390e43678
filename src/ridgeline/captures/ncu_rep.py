"""Binary reports of Nsight Compute, .ncu-rep: only its own library or program reads them.

The package ncu-report is used, or an installed ncu. The library runs in a process of its own
(`python -m ridgeline.captures.ncu_rep FILE`), since a damaged report may crash it. Each writes what
`ncu --csv --page raw --print-units base` prints, and that is read.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.quantities import is_needed
from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import ncu_path
from ridgeline.machine.system import SystemIO

TIME_LIMIT_S = 600
INSTALL = "pip install ncu-report, or install Nsight Compute and put its ncu on the PATH"
_OPTIONS = ("--csv", "--page", "raw", "--print-units", "base")


def convert_report(path: Path, file: Path) -> None:
    """Write a report as a raw table; one that cannot be read is refused."""
    program = ncu_path(SystemIO())
    if find_spec("ncu_report") is not None:
        command = [sys.executable, "-m", "ridgeline.captures.ncu_rep", str(path.absolute())]
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

_TEXTS = (
    "device__attribute_display_name", "profiler__replayer_passes", "launch__stream_id",
)  # fmt: skip
_HEADER = ("ID", "Process ID", "Kernel Name", "Stream", "Block Size", "Grid Size", "CC",
           "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg")  # fmt: skip
_RANGE = '"{}:{}:none:none:none:none:none:none"'


def write_table(path: str) -> None:
    """Print a report as a raw table, with ncu_report on the path."""
    import ncu_report

    actions = list(_actions(ncu_report.load_report(path)))
    names = sorted({name for action in actions for name in action.metric_names() if _is_used(name)})
    units = [next((m.unit() for a in actions if (m := _metric(a, name))), "") for name in names]
    out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    if actions:
        out.writerow([*_HEADER, *names])
        out.writerow([*("" for _ in _HEADER), *units])
    for number, action in enumerate(actions):
        values = (_text(_metric(action, name)) for name in names)
        out.writerow([*_identity(number, action), *values])


def _actions(report: Any) -> Iterator[Any]:
    """Every kernel of every range."""
    for number in range(report.num_ranges()):
        part = report.range_by_idx(number)
        for index in range(part.num_actions()):
            yield part.action_by_idx(index)


def _is_used(name: str) -> bool:
    return name in _TEXTS or is_needed(name)


def _metric(action: Any, name: str) -> Any:
    """The metric if this kernel has it."""
    metric = action.metric_by_name(name)
    return metric if metric is not None and metric.has_value() else None


def _text(metric: Any) -> str:
    if metric is None:
        return ""
    value = metric.value()
    return repr(value) if isinstance(value, float) else str(value)


def _identity(number: int, action: Any) -> list[str]:
    sizes = [
        f"({', '.join(_whole(action, f'launch__{what}_dim_{axis}') for axis in 'xyz')})"
        for what in ("block", "grid")
    ]
    capability = ".".join(
        _whole(action, f"device__attribute_compute_capability_{part}")
        for part in ("major", "minor")
    )
    name = action.name(action.NameBase_DEMANGLED) or action.name()
    stream = _whole(action, "launch__stream_id")
    return [str(number), "", name, stream, *sizes, capability.strip("."), " ".join(_ranges(action))]


def _whole(action: Any, name: str) -> str:
    metric = _metric(action, name)
    return str(int(metric.value())) if metric is not None else ""


def _ranges(action: Any) -> Iterator[str]:
    """The NVTX ranges around a launch, as Nsight Compute writes them."""
    state = action.nvtx_state()
    for identifier in state.domains() if state is not None else ():
        domain = state.domain_by_id(identifier)
        for name in (*domain.push_pop_ranges(), *domain.start_end_ranges()):
            yield _RANGE.format(domain.name(), name)


if __name__ == "__main__":
    write_table(sys.argv[1])

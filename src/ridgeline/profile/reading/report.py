"""Binary reports of Nsight Compute, .ncu-rep: only its own library or program reads them.

Whatever is there is used: the package ncu-report, the library beside an installed ncu, or ncu
itself. The library runs in a process of its own, since a damaged report may take it down. Each of
them writes what `ncu --csv --page raw --print-units base` prints, and that is read like any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.ncu import find_ncu
from ridgeline.profile.reading.counters import Counters
from ridgeline.profile.reading.header import REPORT
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.opening import named

LIBRARY = "ncu_report"
WORKER = "ridgeline.profile.reading.report_worker"
TIME_LIMIT_S = 600
INSTALL = "pip install ncu-report, or install Nsight Compute and put its ncu on the PATH"


def read_report(path: Path) -> Counters:
    """The kernels of a report."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "report.csv"
        said = _convert(path, table)
        if not table.exists() or not table.stat().st_size:
            raise RidgelineError(
                f"{path} cannot be read: {said or 'it holds no kernels'}",
                hint="it is damaged, or of a later version than the reader: copy it again, update"
                " ncu-report, or export it with ncu --import FILE --csv --page raw",
            )
        return _renamed(table, path)


def _renamed(table: Path, path: Path) -> Counters:
    """The table in the name of the report."""
    from ridgeline.profile.reading.files import read_ncu_counters

    with named(path, table):
        found = read_ncu_counters(table)
    return replace(found, file=str(path), kind=REPORT)


def _convert(path: Path, table: Path) -> str:
    """Write the report as a table; what was said if that failed."""
    said = ""
    program, why_none = _program()
    library = _library(program)
    if library is not None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*library, *filter(None, sys.path)]),
        }
        # -P: what lies in the user's folder is not imported
        said = _run([sys.executable, "-P", "-m", WORKER, str(path)], table, environment)
        if table.stat().st_size:
            return said
    if program is None and library is None:
        problem = f"nothing here can read the report {path}: {why_none}"
        raise RidgelineError(problem, hint=INSTALL)
    if program is not None:
        options = ["--csv", "--page", "raw", "--print-units", "base"]
        said = _run([program, "--import", str(path.absolute()), *options], table, dict(os.environ))
    return said


def _program() -> tuple[str | None, str]:
    """An installed ncu; or why there is none."""
    try:
        return find_ncu().path, ""
    except RidgelineError as error:
        return None, error.problem


def _library(program: str | None) -> list[str] | None:
    """The folders to add to the path for the library; None where there is no library."""
    if find_spec(LIBRARY) is not None:
        return []
    if program is None:
        return None
    for parent in Path(program).resolve().parents:
        folder = parent / "extras" / "python"
        if (folder / f"{LIBRARY}.py").exists():
            return [str(folder)]
    return None


def _run(command: list[str], table: Path, environment: dict[str, str]) -> str:
    """Have a program write the table; its last words."""
    try:
        with table.open("wb") as out:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, env=environment,
                timeout=TIME_LIMIT_S, stdin=subprocess.DEVNULL,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        table.write_bytes(b"")
        return f"its reader took more than {TIME_LIMIT_S} s"
    except OSError as error:
        return str(error)
    if not done.returncode:
        return ""
    log = Log()
    with table.open(errors="replace") as lines:  # ncu has its errors there, too
        for line in lines:
            log.see(line)
    table.write_bytes(b"")
    words = done.stderr.decode(errors="replace").strip().splitlines()
    said = [*log.errors[:1], *words[-1:], f"its reader ended with status {done.returncode}"]
    return said[0][:300]

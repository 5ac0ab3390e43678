"""Nsight Compute on this machine: where it is, and what it can count here."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ridgeline.captures.ncu_errors import WITHOUT, explained
from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import NCU_VARIABLE as VARIABLE
from ridgeline.machine.profilers import ncu_path
from ridgeline.machine.system_io import SystemIO

OLDEST = (2021, 1)  # tensor counters by type, --print-units base
GRAPHS = (2023, 1)  # which can be counted as a whole since then
ONCE_SINCE = (2023, 1)  # older versions may not know the options of ONCE
ONCE = ("--replay-mode", "application", "--app-replay-buffer", "memory")
ANSWER_S = 120.0  # for ncu to answer a question
PASSES = "profiler__replayer_passes"


@dataclass(frozen=True, slots=True)
class Ncu:
    """The program."""

    path: str
    version: str

    def command(self, metrics: Sequence[str], log: Path, *, is_once: bool) -> list[str]:
        """The start of a command line that counts `metrics` as the step runs in earnest.

        Clocks stay as they are and caches are not emptied, so that traffic is that of the step.
        """
        return [
            self.path, "--csv", "--page", "raw", "--print-units", "base", "--nvtx",
            "--profile-from-start", "off", "--clock-control", "none",
            "--cache-control", "none", *(self._once if is_once else ()), *self._each_node,
            "--metrics", ",".join(metrics), "--log-file", str(log),
        ]  # fmt: skip

    @property
    def _once(self) -> tuple[str, ...]:
        """Nothing is saved to run a kernel twice, and what was counted is written at the end.

        For a second pass the whole program would run again, which must not be.
        """
        return ONCE if _numbers(self.version) >= ONCE_SINCE else ()

    @property
    def _each_node(self) -> tuple[str, ...]:
        """Kernels of a CUDA graph are counted one by one; older versions know no other way."""
        is_a_choice = _numbers(self.version) >= GRAPHS
        return ("--graph-profiling", "node") if is_a_choice else ()


def find_ncu() -> Ncu:
    """The ncu that the user names, that of PATH, or the newest of the first usual folder."""
    path = ncu_path(SystemIO())
    if path is None:
        raise RidgelineError(
            "Nsight Compute (ncu) was not found",
            hint=f"install it (it comes with the CUDA toolkit), put it on PATH, or name it by "
            f"{VARIABLE}=/path/to/ncu; {WITHOUT}",
        )
    try:
        said = _output([path, "--version"])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RidgelineError(
            f"{path} does not start: {error}", hint=f"name another one by {VARIABLE}; {WITHOUT}"
        ) from error
    found = re.search(r"Version (\d+(?:\.\d+)+)", said)
    version = found[1] if found else ""
    if found and _numbers(version) < OLDEST:
        raise RidgelineError(
            f"{path} is ncu {version}, which is too old",
            hint=f"install {OLDEST[0]}.{OLDEST[1]} or later, or name one by {VARIABLE}; {WITHOUT}",
        )
    return Ncu(path, version)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def known_metrics(ncu: Ncu) -> frozenset[str]:
    """Names of all metrics of the devices here, without their endings (.sum, .avg)."""
    said = _ask(ncu, [ncu.path, "--query-metrics"])
    names = frozenset(metric_names(said))
    if not names:
        raise explained(said, "ncu names no metric for the device here")
    return names


def metric_names(said: str) -> list[str]:
    """The first word of each line of `ncu --query-metrics` that is a metric's name."""
    return re.findall(r"^([a-z][a-z0-9]*__\w+)\s", said, flags=re.MULTILINE)


def passes_of(ncu: Ncu, metrics: Sequence[str], device: int = 0) -> int:
    """How often a kernel has to run for these metrics: asked with a tiny kernel."""
    program = [sys.executable, str(Path(__file__).with_name("probe.py")), str(device)]
    command = [
        ncu.path, "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none",
        "--metrics", ",".join(metrics), *program,
    ]  # fmt: skip
    return passes_in(_ask(ncu, command))


def passes_in(said: str) -> int:
    """The passes of the one kernel in ncu's answer."""
    lines = said.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    rows = list(csv.reader(lines[start:])) if start is not None else []
    column = rows[0].index(PASSES) if rows and PASSES in rows[0] else None
    found = [row[column] for row in rows[1:] if column is not None and len(row) > column and row[0]]
    if not found or not found[0].isdecimal():
        raise explained(said, "ncu did not say how many passes its counters take")
    return int(found[0])


def _ask(ncu: Ncu, command: Sequence[str]) -> str:
    try:
        said = _output(command)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RidgelineError(
            f"{ncu.path} gave no answer: {error}",
            hint=f"try `{ncu.path} --query-metrics` by hand; {WITHOUT}",
        ) from error
    if "==ERROR==" in said:
        raise explained(said, "ncu failed")
    return said


def _output(command: Sequence[str]) -> str:
    """All that a command prints; one that hangs is ended with all that it has started."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, complaints = process.communicate(timeout=ANSWER_S)
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return said + complaints

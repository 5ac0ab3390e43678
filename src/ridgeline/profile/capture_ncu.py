"""Counting by Nsight Compute: a process for every group of metrics, with ncu around it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ridgeline.captures.ncu_messages import NO_KERNELS, WITHOUT, explain_failure
from ridgeline.captures.quantities import NO_BYTES, NO_FLOPS, NO_TENSORS, NO_TIME
from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import NCU_VARIABLE as VARIABLE
from ridgeline.machine.profilers import ncu_path
from ridgeline.machine.system import SystemIO
from ridgeline.profile.metrics import (
    NCU,
    SASS,
    choose_metrics,
    counts_warp_groups,
    is_of_tensors,
)
from ridgeline.profile.processes import Ncu, Session, Workspace, version_numbers, wait_ready
from ridgeline.profile.profile_step import COUNTERS
from ridgeline.profile.request import Plan
from ridgeline.profile.step_kernels import TracedSteps

if TYPE_CHECKING:
    import pandas as pd

OLDEST = (2021, 1)  # tensor counters by type, --print-units base
ANSWER_S = 120.0  # for ncu to answer
OF_ONE_GROUP = (NO_TIME, NO_FLOPS, NO_BYTES, NO_TENSORS)  # which another group has

# Seconds on an H200, by ncu 2025.3. Instrumented code is cheap to run and made once for every
# function. The chip's counters are set up anew for every kernel; those of memory and of products by
# whole groups of warps cost most. ncu holds a lock until it ends, so processes count in turn.
INSTRUMENTED_S = 0.009  # a kernel, with instrumented code …
FUNCTION_S = 0.05  # … which is made for every function
COUNTED_S = 0.009  # a kernel, with the chip's counters …
MEMORY_S, TENSORS_S, WARP_GROUPS_S = 0.012, 0.002, 0.019  # … of these kinds, beside one another
FIRST_S = 1.0  # the first kernel, and the work of known size
END_S = 0.6  # a process that has counted: writing, ending


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
        output = _run_command([path, "--version"])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RidgelineError(
            f"{path} does not start: {error}", hint=f"name another one by {VARIABLE}; {WITHOUT}"
        ) from error
    match = re.search(r"Version (\d+(?:\.\d+)+)", output)
    version = match[1] if match else ""
    if match and version_numbers(version) < OLDEST:
        raise RidgelineError(
            f"{path} is ncu {version}, which is too old",
            hint=f"install {OLDEST[0]}.{OLDEST[1]} or later, or name one by {VARIABLE}; {WITHOUT}",
        )
    return Ncu(path, version)


def query_metrics(ncu: Ncu) -> frozenset[str]:
    """Names of all metrics of the devices here, without their endings (.sum, .avg)."""
    try:
        output = _run_command([ncu.path, "--query-metrics"])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RidgelineError(
            f"{ncu.path} gave no answer: {error}",
            hint=f"try `{ncu.path} --query-metrics` by hand; {WITHOUT}",
        ) from error
    if "==ERROR==" in output:
        raise explain_failure(output, "ncu failed")
    names = frozenset(metric_names(output))
    if not names:
        raise explain_failure(output, "ncu names no metric for the device here")
    return names


def metric_names(output: str) -> list[str]:
    """The first word of each line of `ncu --query-metrics` that is a metric's name."""
    return re.findall(r"^([a-z][a-z0-9]*__\w+)\s", output, flags=re.MULTILINE)


def _run_command(command: Sequence[str]) -> str:
    """All that a command prints; one that hangs is ended with all that it has started."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=ANSWER_S)
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return output + errors


def counting_time_s(groups: Sequence[Sequence[str]], launches: int, functions: int) -> float:
    """How long processes that are ready take to count these groups, one after the other."""
    return sum(FIRST_S + _kernels_s(group, launches, functions) + END_S for group in groups)


def _kernels_s(group: Sequence[str], launches: int, functions: int) -> float:
    if SASS in group[0]:
        return functions * FUNCTION_S + launches * INSTRUMENTED_S
    of_tensors = [name for name in group if is_of_tensors([name])]
    has_others = len(of_tensors) < len(group)
    one_s = COUNTED_S + MEMORY_S * has_others + TENSORS_S * bool(of_tensors)
    one_s += WARP_GROUPS_S * any(map(counts_warp_groups, of_tensors))
    return launches * one_s


@dataclass(slots=True)
class NcuCapture:
    """What Nsight Compute counts here, in groups, and the processes that have loaded for it."""

    tool: ClassVar[str] = NCU
    workspace: Workspace
    ncu: Ncu
    groups: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...]  # on this chip
    not_by_cupti: str = ""  # the reason, where that was tried
    loaded: list[Session] = field(default_factory=list)

    @classmethod
    def choose(cls, workspace: Workspace) -> NcuCapture:
        """Ask ncu what the chip has, and choose from it."""
        workspace.on_progress("asking ncu")
        request, ncu = workspace.request, find_ncu()
        chosen = choose_metrics(query_metrics(ncu), request.precision, request.level)
        return cls(workspace, ncu, chosen.ncu_groups(), chosen.missing)

    def load(self) -> None:
        """Have a process for each group load what it needs."""
        self.loaded = [self.start(number) for number in range(len(self.groups))]

    def start(self, number: int) -> Session:
        """The process for a group."""
        return self.workspace.start(f"group{number}", COUNTERS, self.ncu, self.groups[number])

    @property
    def is_parallel(self) -> bool:
        return self.workspace.has_memory_for(1 + len(self.groups))

    def begin(self) -> None:
        """They warm up, if there is memory for all of them."""
        for session in self.loaded if self.is_parallel else ():
            session.begin()

    def wait_ready(self) -> None:
        if self.is_parallel:
            wait_ready(self.loaded)

    def plan(self, traced: TracedSteps, ready_s: float) -> Plan:
        """Every kernel; where processes run in turn, each takes `ready_s` to get ready."""
        launches, functions = len(traced.kernels), int(traced.kernels["kernel"].nunique())
        starts_s = 0.0 if self.is_parallel else ready_s * len(self.groups)
        return Plan(
            tool=NCU, groups=self.groups, passes=len(self.groups), launches=launches,
            time_s=starts_s + counting_time_s(self.groups, launches, functions),
            is_parallel=self.is_parallel, missing=self.missing, not_by_cupti=self.not_by_cupti,
        )  # fmt: skip

    def count(self, plan: Plan, _: TracedSteps) -> list[pd.DataFrame]:
        """The kernels with their counters, a table for each group."""
        counted = []
        for number in range(len(self.groups)):
            self.workspace.on_progress(f"counting, {number + 1} of {len(self.groups)}")
            session = self.loaded[number] if self.loaded else self.start(number)
            session.begin()
            wait_ready([session])
            session.go()
            session.wait_done(plan.time_s)
            session.wait()  # which frees the counters, and its memory
            counted.append(session)
        return [self.read(session) for session in counted]

    def count_unmarked(self) -> list[pd.DataFrame]:
        """What a program launches between cudaProfilerStart and Stop."""
        captures = []
        for number in range(len(self.groups)):
            self.workspace.on_progress(f"counting, {number + 1} of {len(self.groups)}")
            session = self.start(number)
            session.wait()
            captures.append(self.read(session))
        return captures

    def read(self, session: Session) -> pd.DataFrame:
        """What ncu wrote."""
        from ridgeline.captures import read_capture

        assert session.log is not None
        if NO_KERNELS in session.output:
            raise explain_failure(session.output, "ncu profiled nothing")
        capture = read_capture(session.log)
        warnings = self.workspace.warnings
        of_all = [text for text in capture.warnings if not text.startswith(OF_ONE_GROUP)]
        warnings += [text for text in of_all if text not in warnings]
        return capture.kernels

    @property
    def version(self) -> str:
        return self.ncu.version

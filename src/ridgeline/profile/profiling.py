"""A step under the profilers: planned, traced, counted, joined and checked.

The order: one step traced by torch's profiler (kernels, their times, their operators), then the
plan, then the same step in a process that reads the counters (counting.py), or in one for
every group of counters (also there), then all of it joined. Time is never taken from a process
that counts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import has_cupti
from ridgeline.measure.isolation import run_isolated
from ridgeline.profile.counting import (
    CuptiCapture,
    NcuCapture,
    check_fallback,
    find_ncu,
)
from ridgeline.profile.cupti import RefusedError
from ridgeline.profile.processes import (
    OnProgress,
    Session,
    Workspace,
    all_ended,
    wait_until,
)
from ridgeline.profile.profile_step import TRACE, hold_parent_lock
from ridgeline.profile.request import CUPTI, NCU, Plan, ProfiledStep, Request
from ridgeline.profile.step_kernels import (
    TracedSteps,
    add_layers,
    check_counters,
    check_phases,
    compute_ratios,
    doubt_ratios,
    is_known_work,
    join_counters,
    read_traced_steps,
)
from ridgeline.store import writing

ShowPlan = Callable[[Plan], None]


def need_cuda(kind: str) -> None:
    """Counters are those of NVIDIA's GPUs."""
    if kind != "cuda":
        raise RidgelineError(
            f"there is nothing to profile on {kind}: counters and kernels are those of an NVIDIA "
            "GPU",
            hint="`ridgeline run --layers` gives the time of each layer on any device; captures "
            "from elsewhere are read by `ridgeline import`",
        )


def need_counters(tool: str) -> None:
    """What reads them must be there: PyTorch's CUPTI, or Nsight Compute."""
    if tool != CUPTI:
        try:
            find_ncu()
        except RidgelineError:
            if tool == NCU or not run_isolated(cupti_here, None).value():
                raise
    elif not run_isolated(cupti_here, None).value():
        raise RidgelineError(
            "this PyTorch has no CUPTI that can count",
            hint="install a PyTorch for CUDA 12.8 or later, or count by --tool ncu",
        )


def cupti_here(_: object, send: object) -> bool:
    """Whether the PyTorch of this process has a CUPTI that can count."""
    import torch  # noqa: F401  which loads it

    return has_cupti()


def profile(
    request: Request,
    on_progress: OnProgress = lambda what: None,
    show_plan: ShowPlan = lambda plan: None,
) -> ProfiledStep:
    """Profile a step. A dry request ends with the plan and the kernels of the trace."""
    from_s = time.monotonic()
    with _open_workspace(request, on_progress) as workspace:
        profiled = _Profile(workspace)
        profiled.start()
        return replace(profiled.run(show_plan), taken_s=time.monotonic() - from_s)


@contextmanager
def _open_workspace(request: Request, on_progress: OnProgress) -> Iterator[Workspace]:
    """A folder for the processes of a profile; none of them outlives the block."""
    with ExitStack() as stack:
        if request.keep is not None:  # files of two profiles would be taken for one another's
            with writing(request.keep, elsewhere="--keep DIR"):
                request.keep.mkdir(parents=True, exist_ok=True)
                folder = tempfile.mkdtemp(prefix="profile-", dir=request.keep)
        else:
            usual = Path(os.environ.get("TMPDIR") or "/tmp")
            with writing(usual, elsewhere="TMPDIR=DIR in the environment"):
                own = tempfile.TemporaryDirectory(prefix="ridgeline-", ignore_cleanup_errors=True)
                folder = stack.enter_context(own)
        workspace = Workspace(request, Path(folder), on_progress)
        stack.enter_context(hold_parent_lock(Path(folder)))
        stack.enter_context(all_ended(workspace.sessions))
        yield workspace


@dataclass(slots=True)
class _Profile:
    """One profile: who traces, and who counts."""

    workspace: Workspace
    capture: CuptiCapture | NcuCapture | None = None  # None: without counters
    tracing: Session | None = None

    @property
    def request(self) -> Request:
        return self.workspace.request

    def start(self) -> None:
        """A model's processes start to load, and leave the device alone."""
        request = self.request
        if request.tier == "counters" and not request.uses_cupti:
            self.capture = NcuCapture.choose(self.workspace)
        if request.task is None:
            return
        self.tracing = self.workspace.start("trace", TRACE)
        if request.uses_cupti:
            self.capture = CuptiCapture.load(self.workspace)
        elif isinstance(self.capture, NcuCapture) and not request.is_dry:
            self.capture.load()
        import pandas  # noqa: F401  while they load

    def run(self, show_plan: ShowPlan) -> ProfiledStep:
        """The step, traced and counted."""
        return replace(
            self._trace_and_count(show_plan),
            warnings=tuple(self.workspace.warnings),
            tool=self.capture.tool if self.capture is not None else "",
            tool_version=self.capture.version if self.capture is not None else "",
        )

    def _trace_and_count(self, show_plan: ShowPlan) -> ProfiledStep:
        from_s = time.monotonic()
        self.workspace.on_progress("getting ready")
        session = self.tracing or self.workspace.start("trace", TRACE)
        traced = self._trace(session)
        step = ProfiledStep(
            kernels=join_counters(traced.kernels, [], traced.calls),
            steps=self.request.steps,
            plan=None,
            step_time_s=traced.step_time_s,
            busy_s=traced.busy_s,
            copies=add_layers(traced.copies, traced.calls),
        )
        try:
            step = self._add_counters(step, traced, show_plan, time.monotonic() - from_s)
        except RefusedError as refused:  # ncu's processes have to load and warm up first
            from_s = time.monotonic()
            self.capture = self._switch_to_ncu(str(refused))
            self.capture.begin()
            self.capture.wait_ready()
            step = self._add_counters(step, traced, show_plan, time.monotonic() - from_s)
        session.wait()
        check_phases(step.kernels, self.request.mode, is_marked=bool(traced.calls))
        return step

    def _trace(self, session: Session) -> TracedSteps:
        """The step as torch's profiler saw it; what gets ready beside it is so by then."""
        session.begin()
        if self.capture is not None:
            self.capture.begin()
            self.capture.wait_ready()
        wait_until("ready", [session])
        self.workspace.on_progress("tracing")
        session.go()
        session.wait_done()
        if self.capture is not None and not self.capture.is_parallel:
            session.wait()  # and frees its memory
        return read_traced_steps(session.job)

    def _add_counters(
        self, step: ProfiledStep, traced: TracedSteps, show_plan: ShowPlan, ready_s: float
    ) -> ProfiledStep:
        """With counters, unless none were requested, or only the plan."""
        if self.capture is None:
            return step
        plan = self.capture.plan(traced, ready_s)
        show_plan(plan)
        if self.request.is_dry:
            return replace(step, plan=plan)
        from_s = time.monotonic()
        captures = self.capture.count(plan, traced)
        counted_s = time.monotonic() - from_s
        ratios = compute_ratios(captures)
        steps = [table[~is_known_work(table)].reset_index(drop=True) for table in captures]
        kernels = join_counters(traced.kernels, steps, traced.calls)
        self.workspace.warnings += [*doubt_ratios(ratios), *check_counters(kernels)]
        return replace(step, plan=plan, counted_s=counted_s, kernels=kernels, ratios=ratios)

    def _switch_to_ncu(self, why: str) -> NcuCapture:
        """Nsight Compute, for what the process cannot count itself."""
        assert isinstance(self.capture, CuptiCapture)
        check_fallback(self.request.tool, why)
        self.capture.session.end()
        try:
            capture = NcuCapture.choose(self.workspace)
        except RidgelineError as error:
            problem = f"{error.problem}; CUPTI cannot count either: {why}"
            raise RidgelineError(problem, hint=error.hint) from error
        capture.not_by_cupti = why
        self.workspace.warnings.append(f"Nsight Compute counted, and not CUPTI: {why}")
        if not self.request.is_dry:
            capture.load()
        return capture

"""A step under the profilers: planned, traced, counted, joined and checked.

The order: one step traced by torch's profiler (kernels, their times, their operators), then the
plan, then the same step in a process that reads the counters (capture_cupti.py), or in one for
every group of counters (capture_ncu.py), then all of it joined. Time is never taken from a process
that counts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile import self_test
from ridgeline.profile.capture_cupti import CuptiCapture, check_fallback
from ridgeline.profile.capture_ncu import NcuCapture
from ridgeline.profile.checks import check_counted, check_step, check_traced
from ridgeline.profile.cupti.range_profiler import RefusedError
from ridgeline.profile.join_counters import join_counters, side_by_side, with_places, without_trace
from ridgeline.profile.processes import (
    NotMarkedError,
    Session,
    Tell,
    Workspace,
    all_ended,
    wait_loaded,
    wait_ready,
)
from ridgeline.profile.request import Plan, ProfiledStep, Request
from ridgeline.profile.step_mark import TRACE, hold_parent_lock
from ridgeline.profile.trace import TracedSteps, traced_steps
from ridgeline.store import writing

if TYPE_CHECKING:
    import pandas as pd

ShowPlan = Callable[[Plan], None]


def profile(
    request: Request,
    tell: Tell = lambda what: None,
    show_plan: ShowPlan = lambda plan: None,
) -> ProfiledStep:
    """Profile a step. A dry request ends with the plan and the kernels of the trace."""
    with standing_by(request, tell) as standby:
        return standby.profile(show_plan)


@contextmanager
def standing_by(request: Request, tell: Tell = lambda what: None) -> Iterator[Standby]:
    """Have the processes of a profile load what they need while the caller does something else."""
    with ExitStack() as stack:
        folder = _new_folder(request.keep) if request.keep is not None else None
        own = folder or stack.enter_context(_temporary_folder())
        place = Workspace(request, own, tell)
        standby = Standby(place)
        stack.enter_context(hold_parent_lock(own))
        stack.enter_context(all_ended(place.sessions))
        standby.start()
        yield standby


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with ExitStack() as stack:
        usual = Path(os.environ.get("TMPDIR") or "/tmp")
        with writing(usual, elsewhere="TMPDIR=DIR in the environment"):
            made = tempfile.TemporaryDirectory(prefix="ridgeline-", ignore_cleanup_errors=True)
            folder = stack.enter_context(made)
        yield Path(folder)


def _new_folder(where: Path) -> Path:
    """A folder of its own for each profile: files of two would be taken for one another's."""
    with writing(where, elsewhere="--keep DIR"):
        where.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="profile-", dir=where))


@contextmanager
def _chain_errors(why: str) -> Iterator[None]:
    """What ails Nsight Compute is told with what ailed CUPTI before, if anything did."""
    try:
        yield
    except RidgelineError as error:
        if not why:
            raise
        raise RidgelineError(
            f"{error.problem}; CUPTI cannot count either: {why}", hint=error.hint
        ) from error


@dataclass(slots=True)
class Standby:
    """A profile that can begin."""

    place: Workspace
    capture: CuptiCapture | NcuCapture | None = None  # None: without counters
    tracing: Session | None = None
    started_s: float = field(default_factory=time.monotonic)

    @property
    def request(self) -> Request:
        return self.place.request

    def start(self) -> None:
        """A model's processes start to load, and leave the device alone."""
        request = self.request
        if request.tier == "counters" and not request.uses_cupti:
            self.capture = NcuCapture.choose(self.place)
        if request.task is None:
            return
        self.tracing = self.place.start("trace", TRACE)
        if request.uses_cupti:
            self.capture = CuptiCapture.loading(self.place)
        elif isinstance(self.capture, NcuCapture) and not request.is_dry:
            self.capture.load()
        import pandas  # noqa: F401  while they load

    def wait_loaded(self) -> None:
        """Until nothing of it disturbs a measurement."""
        wait_loaded(self.place.sessions)
        if isinstance(self.capture, CuptiCapture) and (why := self.capture.refusal):
            check_fallback(self.request.tool, why)
            with _chain_errors(why):
                self.capture = self._switch_to_ncu(why)
            wait_loaded(self.place.sessions)

    def profile(
        self,
        show_plan: ShowPlan = lambda plan: None,
        *,
        memory_bytes: int | None = None,
    ) -> ProfiledStep:
        """The step, traced and counted; `memory_bytes` of one process, if that is known by now."""
        if memory_bytes is not None:
            self.place.request = replace(self.request, memory_bytes=memory_bytes)
        from_s = time.monotonic()
        try:
            found = self._profile_marked(show_plan)
        except NotMarkedError:
            is_of_user = self.request.task is None and not self.request.is_dry
            if not is_of_user or not isinstance(self.capture, NcuCapture):
                raise
            found = self._profile_unmarked(self.capture)
        return replace(
            found,
            taken_s=time.monotonic() - from_s,
            standby_s=from_s - self.started_s,
            warnings=tuple(self.place.warnings),
            tool=self.capture.tool if self.capture is not None else "",
            tool_version=self.capture.version if self.capture is not None else "",
        )

    def _profile_marked(self, show_plan: ShowPlan) -> ProfiledStep:
        """A program whose step is marked: traced first, then counted."""
        from_s = time.monotonic()
        self.place.tell("getting ready")
        session = self.tracing or self.place.start("trace", TRACE)
        traced = self._trace(session)
        found = ProfiledStep(
            kernels=join_counters(traced.kernels, [], traced.calls).kernels,
            steps=self.request.steps,
            plan=None,
            step_time_s=traced.step_time_s,
            busy_s=traced.busy_s,
            copies=with_places(traced.copies, traced.calls),
        )
        ready_s = time.monotonic() - from_s
        try:
            found = self._add_counters(found, traced, show_plan, ready_s)
        except RefusedError as refused:
            found = self._fall_back_to_ncu(str(refused), found, traced, show_plan)
        session.wait()
        check_step(found.kernels, self.request.mode, is_marked=bool(traced.calls))
        return found

    def _trace(self, session: Session) -> TracedSteps:
        """The step as torch's profiler saw it; what gets ready beside it is so by then."""
        session.begin()
        if self.capture is not None:
            self.capture.begin()
            self.capture.wait_ready()
        wait_ready([session])
        self.place.tell("tracing")
        session.go()
        session.wait_done()
        if self.capture is not None and not self.capture.is_parallel:
            session.wait()  # and frees its memory
        found = traced_steps(session.job)
        check_traced(found.kernels)
        return found

    def _add_counters(
        self, found: ProfiledStep, traced: TracedSteps, show_plan: ShowPlan, ready_s: float
    ) -> ProfiledStep:
        """With counters, unless nobody asked for them or all that is wanted is the plan."""
        capture = self.capture
        if capture is None:
            return found
        with _chain_errors(capture.not_by_cupti):
            plan = capture.plan(traced, ready_s)
            show_plan(plan)
            if self.request.is_dry:
                return replace(found, plan=plan)
            from_s = time.monotonic()
            captures = capture.count(plan, traced)
            counted_s = time.monotonic() - from_s
        found = replace(found, plan=plan, counted_s=counted_s)
        return self._join(found, traced, captures)

    def _fall_back_to_ncu(
        self, why: str, found: ProfiledStep, traced: TracedSteps, show_plan: ShowPlan
    ) -> ProfiledStep:
        """By Nsight Compute, whose processes have to load and warm up first."""
        from_s = time.monotonic()
        check_fallback(self.request.tool, why)
        with _chain_errors(why):
            self.capture = self._switch_to_ncu(why)
            self.capture.begin()
            self.capture.wait_ready()
        return self._add_counters(found, traced, show_plan, time.monotonic() - from_s)

    def _switch_to_ncu(self, why: str) -> NcuCapture:
        """Nsight Compute, for what the process cannot count itself."""
        assert isinstance(self.capture, CuptiCapture)
        self.capture.session.end()
        capture = NcuCapture.choose(self.place)
        capture.not_by_cupti = why
        self.place.warnings.append(f"Nsight Compute counted, and not CUPTI: {why}")
        if not self.request.is_dry:
            capture.load()
        return capture

    def _profile_unmarked(self, capture: NcuCapture) -> ProfiledStep:
        """A program between cudaProfilerStart and Stop: counters alone, with their own times."""
        result = without_trace(capture.count_unmarked())
        self.place.warnings += [
            "kernels are not told apart by layer and phase, and their times are those under the "
            "counters: mark the step with ridgeline.profile_step() for both",
            *self_test.doubts({}),
            *check_counted(result),
        ]
        return ProfiledStep(kernels=result.kernels, plan=None)

    def _join(
        self, found: ProfiledStep, traced: TracedSteps, captures: Sequence[pd.DataFrame]
    ) -> ProfiledStep:
        """Joined with what was counted, which is tested and checked."""
        ratios = self_test.ratios(captures)
        steps = [table[~self_test.is_known_work(table)] for table in captures]
        tables = [table.reset_index(drop=True) for table in steps]
        if traced.calls:
            result = join_counters(traced.kernels, tables, traced.calls)
        else:
            result = side_by_side(traced.kernels, tables)
        self.place.warnings += [*self_test.doubts(ratios), *check_counted(result)]
        return replace(found, kernels=result.kernels, ratios=ratios)

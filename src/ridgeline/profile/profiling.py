"""A step under the profilers: planned, traced, counted, joined and checked.

The order: what the chip can count, then one step traced by torch's profiler (kernels, their times,
their operators), then the plan, then a process for every group of counters that takes the same
step, then all of it joined. Time is never taken from a process that counts.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ridgeline.errors import RidgelineError
from ridgeline.profile import self_test
from ridgeline.profile.checks import check_counted, check_step, check_traced
from ridgeline.profile.joined import join_counters, side_by_side, without_trace
from ridgeline.profile.metrics import KINDS, choose_metrics, is_of_tensors
from ridgeline.profile.ncu import Ncu, find_ncu, known_metrics, passes_of
from ridgeline.profile.ncu_errors import NO_KERNELS, explained
from ridgeline.profile.operators import may_use_tensor_cores
from ridgeline.profile.outcome import ProfiledStep
from ridgeline.profile.passes import Group, Remembered, cache_path, grouped, remembered_names
from ridgeline.profile.plan import Plan, fitting
from ridgeline.profile.quantities import NO_BYTES, NO_FLOPS, NO_TENSORS, NO_TIME
from ridgeline.profile.request import Request
from ridgeline.profile.sessions import (
    NotMarkedError,
    Session,
    all_ended,
    start,
    target_program,
    wait_loaded,
    wait_ready,
)
from ridgeline.profile.step_mark import ALL, COUNTERS, DISTINCT, TRACE, Job, waited_for
from ridgeline.profile.traced import TracedSteps, traced_steps
from ridgeline.store import writing

if TYPE_CHECKING:
    import pandas as pd

OF_ONE_GROUP = (NO_TIME, NO_FLOPS, NO_BYTES, NO_TENSORS)  # which another group has
NOT_PLANNED = "--budget was left out: without marks nobody knows beforehand what there is to count"
NOT_TOLD_APART = "--deduplicate was left out: operators cannot be told apart here"
MOST_MEMORY = 0.8  # of the device's, for all processes together
Tell = Callable[[str], None]  # what is going on


def profile(
    request: Request,
    tell: Tell = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
) -> ProfiledStep:
    """Profile a step. A dry request ends with the plan and the kernels of the trace."""
    with standing_by(request, tell) as standby:
        return standby.profile(show_plan)


@contextmanager
def standing_by(
    request: Request, tell: Tell = lambda what: None, *, may_ask: bool = True
) -> Iterator[Standby]:
    """Have the processes of a profile load what they need while the caller does something else.

    While another profile counts, ncu must not be asked about the chip: without `may_ask`, what is
    not remembered of it is an error.
    """
    with ExitStack() as stack:
        folder = _new_folder(request.keep) if request.keep is not None else None
        own = folder or stack.enter_context(_temporary_folder())
        standby = Standby(request, own, tell, may_ask=may_ask)
        stack.enter_context(waited_for(standby.folder))
        stack.enter_context(all_ended(standby.sessions))
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


@dataclass(slots=True)
class Standby:
    """A profile that can begin."""

    request: Request
    folder: Path
    tell: Tell
    may_ask: bool = True
    ncu: Ncu | None = None
    groups: tuple[Group, ...] = ()
    program: tuple[str, ...] = ()
    sessions: list[Session] = field(default_factory=list)  # all, for their end
    tracing: Session | None = None
    counting: list[Session] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    started_s: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Ask what the chip can count; a model's processes start to load, and leave it alone."""
        self.groups = self._groups()
        self.program = self._program()
        if self.request.task is None:
            return
        self.tracing = self._start("trace", None)
        if not self.request.is_dry:
            self.counting = [self._start(f"group{n}", one) for n, one in enumerate(self.groups)]
        import pandas  # noqa: F401  while they load

    def wait_loaded(self) -> None:
        """Until nothing of it disturbs a measurement."""
        wait_loaded(self.sessions)

    def profile(
        self,
        show_plan: Callable[[Plan], None] = lambda plan: None,
        *,
        memory_bytes: int | None = None,
    ) -> ProfiledStep:
        """The step, traced and counted; `memory_bytes` of one process, if that is known by now."""
        if memory_bytes is not None:
            self.request = replace(self.request, memory_bytes=memory_bytes)
        from_s = time.monotonic()
        try:
            found = self._marked(show_plan)
        except NotMarkedError:
            if self.request.task is not None or not self.groups or self.request.is_dry:
                raise
            found = self._unmarked()
        return replace(
            found,
            taken_s=time.monotonic() - from_s,
            standby_s=from_s - self.started_s,
            ncu_version=self.ncu.version if self.ncu is not None else "",
            warnings=tuple(self.warnings),
        )

    def _marked(self, show_plan: Callable[[Plan], None]) -> ProfiledStep:
        """A program whose step is marked: traced first, then counted."""
        from_s = time.monotonic()
        self.tell("getting ready")
        session = self.tracing or self._start("trace", None)
        traced = self._trace(session)
        plan = self._plan(traced, time.monotonic() - from_s) if self.groups else None
        if plan is not None:
            show_plan(plan)
        found = ProfiledStep(
            kernels=join_counters(traced.kernels, [], traced.calls).kernels,
            steps=self.request.steps,
            plan=plan,
            step_time_s=traced.step_time_s,
            busy_s=traced.busy_s,
        )
        if plan is not None and not self.request.is_dry:
            from_s = time.monotonic()
            captures = self._count(plan)
            found = replace(found, counted_s=time.monotonic() - from_s)
            found = self._with_counters(found, plan, traced, captures)
        session.wait()
        check_step(found.kernels, self.request.mode, is_marked=bool(traced.calls))
        return found

    def _unmarked(self) -> ProfiledStep:
        """A program between cudaProfilerStart and Stop: counters alone, with their own times."""
        captures = []
        for number, group in enumerate(self.groups):
            self.tell(f"counting, {number + 1} of {len(self.groups)}")
            session = self._start(f"group{number}", group)
            session.wait()
            captures.append(self._read(session))
        result = without_trace(captures)
        self.warnings += [
            "kernels are not told apart by layer and phase, and their times are those under the "
            "counters: mark the step with ridgeline.profile_step() for both",
            *([NOT_TOLD_APART] if self.request.deduplicate else ()),
            *([NOT_PLANNED] if self.request.budget_s is not None else ()),
            *self_test.doubts({}),
            *check_counted(result),
        ]
        return ProfiledStep(kernels=result.kernels, plan=None)

    def _groups(self) -> tuple[Group, ...]:
        """What to count, in groups of one pass; nothing for the tier without counters."""
        request = self.request
        if request.tier == "time":
            return ()
        self.tell("asking ncu")
        ncu = self.ncu = find_ncu()
        device = request.task.settings.device if request.task is not None else 0

        def names_here() -> frozenset[str]:
            return known_metrics(ncu) if self.may_ask else _not_now()

        def passes_here(names: Sequence[str]) -> int:
            return passes_of(ncu, names, device) if self.may_ask else _not_now()

        names = remembered_names(
            cache_path("metrics", version=ncu.version, device=request.device), names_here
        )
        asked = choose_metrics(names, request.precision, request.level)
        self.missing = asked.missing
        known = Remembered(cache_path("passes", version=ncu.version, device=request.device))
        ask = known.asking(passes_here)
        if not request.deduplicate:
            return grouped(asked.atoms, ask, asked.parts)
        return grouped(asked.atoms, ask, asked.parts, is_of_few=is_of_tensors)

    def _program(self) -> tuple[str, ...]:
        if self.request.task is None:
            return self.request.program
        path = self.folder / "task.pickle"
        path.write_bytes(pickle.dumps(self.request.task))
        return tuple(target_program(path))

    @property
    def _is_parallel(self) -> bool:
        """Side by side only what fits side by side; a user's program runs alone."""
        request = self.request
        needed = (len(self.groups) + 1) * request.memory_bytes
        return request.task is not None and 0 < needed < MOST_MEMORY * request.device_bytes

    def _start(self, name: str, group: Group | None) -> Session:
        job = Job(
            name=name,
            role=TRACE if group is None else COUNTERS,
            folder=str(self.folder),
            warmup=self.request.warmup,
            steps=self.request.steps,
            has_marks=self.request.has_marks,
            products_only=group is not None and is_of_tensors(group.metrics),
            kinds=tuple(k for k in KINDS[self.request.precision] if k != "fp8"),
        )
        # a user's program may be anything: ncu's usual way is left to it
        is_once = self.request.task is not None and group is not None and group.passes == 1
        session = start(self.program, job, self.ncu, group, is_once=is_once)
        self.sessions.append(session)
        return session

    def _trace(self, session: Session) -> TracedSteps:
        """The step as torch's profiler saw it; what gets ready beside it is so by then."""
        together = [session, *(self.counting if self._is_parallel else ())]
        for one in together:
            one.begin()
        wait_ready(together)
        self.tell("tracing")
        session.go()
        session.wait_done()
        if not self._is_parallel:
            session.wait()  # and frees its memory
        found = traced_steps(session.job)
        check_traced(found.kernels)
        return found

    def _plan(self, traced: TracedSteps, ready_s: float) -> Plan:
        trace, calls = traced.kernels, traced.calls
        first = [call for call in calls if call["index"] == call["like"]]
        products = [call for call in first if may_use_tensor_cores(str(call["op"]))]
        plans = [
            Plan(
                groups=self.groups,
                launches=len(trace),
                distinct=_launched_by(first, trace) if calls else len(trace),
                products=_launched_by(products, trace) if calls else len(trace),
                functions=int(trace["kernel"].nunique()),
                memory_bytes=self.request.memory_bytes,
                start_s=ready_s,
                is_parallel=self._is_parallel,
                picks=picks,
                missing=self.missing,
            )
            for picks in ((ALL, DISTINCT) if calls else (ALL,))
        ]
        if self.request.deduplicate and not calls:
            self.warnings.append(NOT_TOLD_APART)
        return fitting(plans[-1:] if self.request.deduplicate else plans, self.request.budget_s)

    def _count(self, plan: Plan) -> list[pd.DataFrame]:
        """The kernels with their counters, a table for each group."""
        counted = []
        for number, group in enumerate(plan.groups):
            self.tell(f"counting, {number + 1} of {len(plan.groups)}")
            is_loaded = bool(self.counting)
            session = self.counting[number] if is_loaded else self._start(f"group{number}", group)
            session.begin()
            wait_ready([session])
            session.go(plan.picks)
            session.wait_done(plan.time_s)
            session.wait()  # which frees the counters, and its memory
            counted.append(session)
        return [self._read(session) for session in counted]

    def _read(self, session: Session) -> pd.DataFrame:
        """What ncu wrote."""
        from ridgeline.profile.reading import read_capture

        assert session.log is not None
        if NO_KERNELS in session.said:
            raise explained(session.said, "ncu profiled nothing")
        capture = read_capture(session.log)
        of_all = [w for w in capture.warnings if not w.startswith(OF_ONE_GROUP)]
        self.warnings += [warning for warning in of_all if warning not in self.warnings]
        return capture.kernels

    def _with_counters(
        self, found: ProfiledStep, plan: Plan, traced: TracedSteps, captures: Sequence[pd.DataFrame]
    ) -> ProfiledStep:
        """Joined with what was counted, which is tested and checked."""
        ratios = self_test.ratios(captures)
        steps = [table[~self_test.is_known_work(table)] for table in captures]
        tables = [table.reset_index(drop=True) for table in steps]
        if traced.calls:
            groups = enumerate(plan.groups) if plan.picks == DISTINCT else ()
            of_products = [number for number, group in groups if is_of_tensors(group.metrics)]
            result = join_counters(traced.kernels, tables, traced.calls, of_products)
        else:
            result = side_by_side(traced.kernels, tables)
        self.warnings += [*self_test.doubts(ratios), *check_counted(result)]
        return replace(found, kernels=result.kernels, ratios=ratios)


def _not_now() -> NoReturn:
    raise RidgelineError("ncu counts, and cannot be asked", hint="wait until it has ended")


def _launched_by(calls: Sequence[Mapping[str, Any]], trace: pd.DataFrame) -> int:
    """Kernels of these operators."""
    return int(trace["index"].isin({int(call["index"]) for call in calls}).sum())

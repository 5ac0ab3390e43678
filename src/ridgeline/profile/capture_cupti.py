"""Counting by CUPTI: one process reads the counters of its own step, of every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ridgeline.captures.ncu_messages import explain_failure
from ridgeline.errors import RidgelineError
from ridgeline.profile.cupti.messages import CounterPlan, counted_table, refusal
from ridgeline.profile.cupti.range_profiler import NOT_PERMITTED, RefusedError
from ridgeline.profile.metrics import CUPTI
from ridgeline.profile.processes import Session, Workspace, wait_ready
from ridgeline.profile.request import Plan
from ridgeline.profile.step_mark import INSIDE
from ridgeline.profile.trace import TracedSteps

if TYPE_CHECKING:
    import pandas as pd

LIMIT_S = 120.0  # for counting; after it Nsight Compute may try
# Seconds on an H200, by CUPTI 13.0: counters are set up once for all kernels …
SETUP_S = 2.5
KERNEL_S = 0.0011  # … of which each takes so long in a pass


@dataclass(slots=True)
class CuptiCapture:
    """The process that counts. What it cannot do is a `RefusedError`: there are other ways."""

    tool: ClassVar[str] = CUPTI
    not_by_cupti: ClassVar[str] = ""
    workspace: Workspace
    session: Session
    version: str = ""
    failure: str = ""  # before it could say anything

    @classmethod
    def loading(cls, workspace: Workspace) -> CuptiCapture:
        """A process that has begun to load."""
        return cls(workspace, workspace.start("inside", INSIDE))

    @property
    def is_parallel(self) -> bool:
        return self.workspace.fits(2)

    def begin(self) -> None:
        """It warms up, if there is room for it beside the one that is traced."""
        if self.is_parallel:
            self.session.begin()

    def wait_ready(self) -> None:
        """Until it has; should it fail, that is told when it is to count."""
        if self.is_parallel:
            try:
                wait_ready([self.session])
            except RidgelineError as error:
                self.failure = error.problem

    def plan(self, traced: TracedSteps, _: float) -> Plan:
        """Every kernel."""
        if self.failure:
            raise RefusedError(self.failure)
        with _refuse_on_error():
            self.session.begin()
            wait_ready([self.session])
        planned = CounterPlan.read(self.session.job)
        self.version = planned.version
        launches = len(traced.kernels)
        return Plan(
            tool=CUPTI, groups=(planned.metrics,), passes=planned.passes, launches=launches,
            time_s=SETUP_S + planned.passes * launches * KERNEL_S,
            is_parallel=self.is_parallel, missing=planned.missing,
        )  # fmt: skip

    def count(self, plan: Plan, traced: TracedSteps) -> list[pd.DataFrame]:
        """The kernels with their counters, in one table."""
        self.workspace.tell("counting")
        with _refuse_on_error():
            self.session.go(str(len(traced.kernels)))
            self.session.wait_done(plan.time_s, least_limit_s=LIMIT_S)
            self.session.wait()
        table, remarks = counted_table(self.session.job)
        self.workspace.warnings += remarks
        return [table]

    @property
    def refusal(self) -> str:
        """Why it cannot, if it has said so."""
        return refusal(self.session.job)


@contextmanager
def _refuse_on_error() -> Iterator[None]:
    """Whatever ails the process, its own words come first."""
    try:
        yield
    except RidgelineError as error:
        raise RefusedError(error.problem) from error


def check_fallback(tool: str, why: str) -> None:
    """Raise where no one else could count either, or nobody else is wished."""
    if NOT_PERMITTED in why:
        raise explain_failure("ERR_NVGPUCTRPERM", why)
    if tool == CUPTI:
        raise RidgelineError(
            f"CUPTI cannot count here: {why}",
            hint="--tool ncu has Nsight Compute count it; --tier time needs no counters",
        )

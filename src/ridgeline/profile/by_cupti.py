"""Counting by CUPTI: one process reads the counters of its own step, of every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ridgeline.captures.ncu_errors import explained
from ridgeline.errors import RidgelineError
from ridgeline.profile.cupti.library import NOT_PERMITTED, RefusedError
from ridgeline.profile.cupti.told import Foretold, counted_table, refusal
from ridgeline.profile.metrics import CUPTI
from ridgeline.profile.passes import Group
from ridgeline.profile.plan import Plan, fitting, planned
from ridgeline.profile.sessions import Session, wait_ready
from ridgeline.profile.step_mark import INSIDE
from ridgeline.profile.traced import TracedSteps
from ridgeline.profile.workplace import Workplace
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

LIMIT_S = 120.0  # for counting; after it someone else may try
NCU_S, NCU_KERNEL_S = 10.0, 0.06  # of Nsight Compute, and each kernel that differs, about


@dataclass(slots=True)
class ByCupti:
    """The process that counts. What it cannot do is a `RefusedError`: there are other ways."""

    tool: ClassVar[str] = CUPTI
    not_by_cupti: ClassVar[str] = ""
    place: Workplace
    session: Session
    version: str = ""
    failure: str = ""  # before it could say anything

    @classmethod
    def loading(cls, place: Workplace) -> ByCupti:
        """A process that has begun to load."""
        return cls(place, place.start("inside", INSIDE))

    @property
    def is_parallel(self) -> bool:
        return self.place.fits(2)

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
        """Every kernel: nothing is gained by leaving some out."""
        if self.failure:
            raise RefusedError(self.failure)
        with _or_refused():
            self.session.begin()
            wait_ready([self.session])
        foretold = Foretold.read(self.session.job)
        self.version = foretold.version
        plan = planned(
            traced, groups=(Group(foretold.metrics, foretold.passes),), tool=CUPTI,
            missing=foretold.missing, is_parallel=self.is_parallel,
        )  # fmt: skip
        budget_s = self.place.request.budget_s
        if self.place.request.tool != CUPTI and _fits_ncu_alone(plan, budget_s):
            raise RefusedError(f"that would take {format_time(plan.time_s)}")
        return fitting([plan], budget_s)

    def count(self, plan: Plan, traced: TracedSteps) -> list[pd.DataFrame]:
        """The kernels with their counters, in one table."""
        self.place.tell("counting")
        with _or_refused():
            self.session.go(str(len(traced.kernels)))
            self.session.wait_done(plan.time_s, least_limit_s=LIMIT_S)
            self.session.wait()
        table, remarks = counted_table(self.session.job)
        self.place.warnings += remarks
        return [table]

    @property
    def refusal(self) -> str:
        """Why it cannot, if it has said so."""
        return refusal(self.session.job)

    def of_products(self, _: Plan) -> tuple[int, ...]:
        return ()  # it looks at everything


@contextmanager
def _or_refused() -> Iterator[None]:
    """Whatever ails the process, its own words come first."""
    try:
        yield
    except RidgelineError as error:
        raise RefusedError(error.problem) from error


def _fits_ncu_alone(plan: Plan, budget_s: float | None) -> bool:
    """Whether a step has so many kernels of so few kinds that Nsight Compute is quicker."""
    if budget_s is None or plan.time_s <= budget_s:
        return False
    return NCU_S + plan.distinct * NCU_KERNEL_S <= budget_s


def need_other_way(tool: str, why: str) -> None:
    """Raise where no one else could count either, or nobody else is wished."""
    if NOT_PERMITTED in why:
        raise explained("ERR_NVGPUCTRPERM", why)
    if tool == CUPTI:
        raise RidgelineError(
            f"CUPTI cannot count here: {why}",
            hint="--tool ncu has Nsight Compute count it; --tier time needs no counters",
        )

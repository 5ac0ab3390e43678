"""Counting by CUPTI: one process reads the counters of its own step, of every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.profile.cupti.library import NOT_PERMITTED, RefusedError
from ridgeline.profile.cupti.told import Foretold, counted_table
from ridgeline.profile.metrics import CUPTI
from ridgeline.profile.ncu_errors import explained
from ridgeline.profile.passes import Group
from ridgeline.profile.plan import Plan, fitting
from ridgeline.profile.sessions import Session, wait_ready
from ridgeline.profile.step_mark import ALL, INSIDE, REFUSED
from ridgeline.profile.traced import TracedSteps
from ridgeline.profile.workplace import Workplace, planned

if TYPE_CHECKING:
    import pandas as pd

LIMIT_S = 120.0  # for counting; after it someone else may try


@dataclass(slots=True)
class ByCupti:
    """The process that counts. What it cannot do is a `RefusedError`: there are other ways."""

    place: Workplace
    session: Session
    version: int | None = None

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
            with suppress(RidgelineError):
                wait_ready([self.session])

    def plan(self, traced: TracedSteps, ready_s: float) -> Plan:
        """Every kernel: nothing is gained by leaving some out."""
        with _or_refused():
            self.session.begin()
            wait_ready([self.session])
        foretold = Foretold.read(self.session.job)
        self.version = foretold.cupti_version
        request = self.place.request
        plan = planned(
            traced, groups=(Group(foretold.metrics, foretold.passes),), picks=ALL, tool=CUPTI,
            missing=foretold.missing, memory_bytes=request.memory_bytes, start_s=ready_s,
            is_parallel=self.is_parallel,
        )  # fmt: skip
        return fitting([plan], request.budget_s)

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
        path = self.session.job.path(REFUSED)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def versions(self) -> dict[str, Any]:
        return {"tool": CUPTI, "cupti_version": self.version}

    def of_products(self, _: Plan) -> tuple[int, ...]:
        return ()  # it looks at everything


@contextmanager
def _or_refused() -> Iterator[None]:
    """Whatever ails the process, its own words come first."""
    try:
        yield
    except RidgelineError as error:
        raise RefusedError(error.problem) from error


def check_other_way(tool: str, why: str) -> None:
    """Raise where no one else could count either, or nobody else is wished."""
    if NOT_PERMITTED in why:
        raise explained("ERR_NVGPUCTRPERM", why)
    if tool == CUPTI:
        raise RidgelineError(
            f"CUPTI cannot count here: {why}",
            hint="--tool ncu has Nsight Compute count it; --tier time needs no counters",
        )

"""Counting by CUPTI: one process reads the counters of its own step, of every kernel.

The process (model_process.py) writes files for its parent: its plan, then the counted kernels, or
why it cannot count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ridgeline.captures.ncu_messages import explain_failure
from ridgeline.captures.quantities import derive_quantities
from ridgeline.errors import RidgelineError
from ridgeline.profile.cupti import NOT_PERMITTED, RefusedError
from ridgeline.profile.metrics import CUPTI, DURATION
from ridgeline.profile.processes import Session, Workspace, wait_ready
from ridgeline.profile.profile_step import INSIDE, REFUSED, Job
from ridgeline.profile.request import Plan
from ridgeline.profile.step_kernels import TracedSteps

if TYPE_CHECKING:
    import pandas as pd

# ---------------------------------------------------------------- what the process writes

COUNTER_PLAN, COUNTED = "foretold.json", "counted.json"  # files of a job
FIRST_WITH_PARTS = 10_000  # versions of CUPTI from which on they are those of CUDA
S_PER_NS = 1e-9  # CUPTI tells time in nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterPlan:
    """What will be counted, before it is."""

    metrics: tuple[str, ...]
    passes: int
    missing: tuple[str, ...]  # on this chip
    compute_capability: str
    cupti_version: int

    @property
    def version(self) -> str:
        """Of CUPTI: `13.0.1` of 130001; before CUDA 13 its versions are plain numbers."""
        number = self.cupti_version
        if number < FIRST_WITH_PARTS:
            return str(number)
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"

    def write(self, job: Job) -> None:
        job.path(COUNTER_PLAN).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, job: Job) -> CounterPlan:
        raise_refusal(job)
        content: dict[str, Any] = json.loads(job.path(COUNTER_PLAN).read_text(encoding="utf-8"))
        names = {name: tuple(content[name]) for name in ("metrics", "missing")}
        return cls(**{**content, **names})


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLaunches:
    """The kernels of all steps, the work of known size first, and their counters."""

    launches: Sequence[Sequence[str]]  # kernel and range
    values: Sequence[Sequence[float]]  # in the order of CounterPlan.metrics

    def write(self, job: Job) -> None:
        job.path(COUNTED).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, job: Job) -> CountedLaunches:
        raise_refusal(job)
        return cls(**json.loads(job.path(COUNTED).read_text(encoding="utf-8")))


def write_refusal(job: Job, why: str) -> None:
    """Write why it cannot be; the file is there when it is whole."""
    waiting = job.path(f"{REFUSED}.new")
    waiting.write_text(why, encoding="utf-8")
    waiting.rename(job.path(REFUSED))


def read_refusal(job: Job) -> str:
    """Why the process cannot count, if it has said so."""
    path = job.path(REFUSED)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def raise_refusal(job: Job) -> None:
    """Raise the reason that the process has written, if it has."""
    if why := read_refusal(job):
        raise RefusedError(why)


def read_counted_table(job: Job) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The kernels with their quantities, and notes on these."""
    import pandas as pd

    planned, counted = CounterPlan.read(job), CountedLaunches.read(job)
    metrics = pd.DataFrame(counted.values, columns=list(planned.metrics), dtype=float)
    if DURATION in metrics:
        metrics[DURATION] *= S_PER_NS
    derived = derive_quantities(metrics, compute_capability=planned.compute_capability)
    texts = pd.DataFrame(counted.launches, columns=["kernel", "nvtx"], dtype=object)
    return texts.join(derived.table), derived.remarks


# ---------------------------------------------------------------- the process

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
    failure: str = ""  # before it could write anything

    @classmethod
    def loading(cls, workspace: Workspace) -> CuptiCapture:
        """A process that has begun to load."""
        return cls(workspace, workspace.start("inside", INSIDE))

    @property
    def is_parallel(self) -> bool:
        return self.workspace.has_memory_for(2)

    def begin(self) -> None:
        """It warms up, if there is memory for it and the one that is traced."""
        if self.is_parallel:
            self.session.begin()

    def wait_ready(self) -> None:
        """Until it has; a failure is raised when it is to count."""
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
        self.workspace.on_progress("counting")
        with _refuse_on_error():
            self.session.go(str(len(traced.kernels)))
            self.session.wait_done(plan.time_s, least_limit_s=LIMIT_S)
            self.session.wait()
        table, remarks = read_counted_table(self.session.job)
        self.workspace.warnings += remarks
        return [table]

    @property
    def refusal(self) -> str:
        """Why it cannot, if it has written that."""
        return read_refusal(self.session.job)


@contextmanager
def _refuse_on_error() -> Iterator[None]:
    """Turn any error of the process into a refusal."""
    try:
        yield
    except RidgelineError as error:
        raise RefusedError(error.problem) from error


def check_fallback(tool: str, why: str) -> None:
    """Raise where ncu could not count either, or is not allowed to."""
    if NOT_PERMITTED in why:
        raise explain_failure("ERR_NVGPUCTRPERM", why)
    if tool == CUPTI:
        raise RidgelineError(
            f"CUPTI cannot count here: {why}",
            hint="--tool ncu has Nsight Compute count it; --tier time needs no counters",
        )

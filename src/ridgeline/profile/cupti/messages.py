"""What a process that counts inside of itself tells: its plan, its kernels, or why it cannot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import derive_quantities
from ridgeline.profile.cupti.range_profiler import RefusedError
from ridgeline.profile.metrics import DURATION
from ridgeline.profile.step_mark import REFUSED, Job

if TYPE_CHECKING:
    import pandas as pd

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
        check_not_refused(job)
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
        check_not_refused(job)
        return cls(**json.loads(job.path(COUNTED).read_text(encoding="utf-8")))


def refuse(job: Job, why: str) -> None:
    """Write why it cannot be; the file is there when it is whole."""
    waiting = job.path(f"{REFUSED}.new")
    waiting.write_text(why, encoding="utf-8")
    waiting.rename(job.path(REFUSED))


def refusal(job: Job) -> str:
    """Why the process cannot count, if it has said so."""
    path = job.path(REFUSED)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def check_not_refused(job: Job) -> None:
    """Raise the reason that the process has written, if it has."""
    if why := refusal(job):
        raise RefusedError(why)


def counted_table(job: Job) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The kernels with their quantities, and what is to be said about these."""
    import pandas as pd

    planned, counted = CounterPlan.read(job), CountedLaunches.read(job)
    metrics = pd.DataFrame(counted.values, columns=list(planned.metrics), dtype=float)
    if DURATION in metrics:
        metrics[DURATION] *= S_PER_NS
    found = derive_quantities(metrics, compute_capability=planned.compute_capability)
    texts = pd.DataFrame(counted.launches, columns=["kernel", "nvtx"], dtype=object)
    return texts.join(found.table), found.remarks

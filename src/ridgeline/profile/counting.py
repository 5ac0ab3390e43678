"""Who reads the counters of a step: its own process by CUPTI, or Nsight Compute around processes.

With CUPTI the process (model_process.py) writes files for its parent: its plan, then the counted
kernels, or why it cannot count. Nsight Compute gets a process for every group of metrics.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ridgeline.captures.ncu_messages import NO_KERNELS, WITHOUT, explain_failure
from ridgeline.captures.quantities import (
    NO_BYTES,
    NO_FLOPS,
    NO_TENSORS,
    NO_TIME,
    derive_quantities,
)
from ridgeline.errors import RidgelineError
from ridgeline.machine.system import NCU_VARIABLE as VARIABLE
from ridgeline.machine.system import SystemIO, ncu_path
from ridgeline.profile.cupti import NOT_PERMITTED, RefusedError
from ridgeline.profile.processes import Ncu, Session, Workspace, version_numbers, wait_until
from ridgeline.profile.profile_step import COUNTERS, INSIDE, REFUSED, Job
from ridgeline.profile.request import CUPTI, DURATION, NCU, Plan, choose_metrics
from ridgeline.profile.step_kernels import TracedSteps

if TYPE_CHECKING:
    import pandas as pd

# ---------------------------------------------------------------- what the process writes

FIRST_WITH_PARTS = 10_000  # versions of CUPTI from which on they are those of CUDA
S_PER_NS = 1e-9  # CUPTI tells time in nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterPlan:
    """What will be counted, before it is."""

    metrics: Sequence[str]
    passes: int
    missing: Sequence[str]  # on this chip
    compute_capability: str
    cupti_version: int

    @property
    def version(self) -> str:
        """Of CUPTI: `13.0.1` of 130001; before CUDA 13 its versions are plain numbers."""
        number = self.cupti_version
        if number < FIRST_WITH_PARTS:
            return str(number)
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLaunches:
    """The kernels of all steps, the work of known size first, and their counters."""

    launches: Sequence[Sequence[str]]  # kernel and range
    values: Sequence[Sequence[float]]  # in the order of CounterPlan.metrics


R = TypeVar("R", CounterPlan, CountedLaunches)
FILES = {CounterPlan: "foretold.json", CountedLaunches: "counted.json"}  # of a job


def write_record(job: Job, record: CounterPlan | CountedLaunches) -> None:
    job.path(FILES[type(record)]).write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_record(job: Job, kind: type[R]) -> R:
    """What the process wrote; a refusal is raised."""
    if job.path(REFUSED).exists():
        raise RefusedError(job.path(REFUSED).read_text(encoding="utf-8"))
    return kind(**json.loads(job.path(FILES[kind]).read_text(encoding="utf-8")))


def write_refusal(job: Job, why: str) -> None:
    """Write why it cannot be; the file is there when it is whole."""
    waiting = job.path(f"{REFUSED}.new")
    waiting.write_text(why, encoding="utf-8")
    waiting.rename(job.path(REFUSED))


def read_counted_table(job: Job) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The kernels with their quantities, and notes on these."""
    import pandas as pd

    planned, counted = read_record(job, CounterPlan), read_record(job, CountedLaunches)
    metrics = pd.DataFrame(counted.values, columns=list(planned.metrics), dtype=float)
    if DURATION in metrics:
        metrics[DURATION] *= S_PER_NS
    derived = derive_quantities(metrics, compute_capability=planned.compute_capability)
    texts = pd.DataFrame(counted.launches, columns=["kernel", "nvtx"], dtype=object)
    named = [name for name in job.metrics if name in metrics]
    return texts.join(derived.table).join(metrics[named]), derived.remarks


# ---------------------------------------------------------------- by CUPTI

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
    def load(cls, workspace: Workspace) -> CuptiCapture:
        """A process that begins to load."""
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
                wait_until("ready", [self.session])
            except RidgelineError as error:
                self.failure = error.problem

    def plan(self, traced: TracedSteps, _: float) -> Plan:
        """Every kernel."""
        if self.failure:
            raise RefusedError(self.failure)
        with _refuse_on_error():
            self.session.begin()
            wait_until("ready", [self.session])
        planned = read_record(self.session.job, CounterPlan)
        self.version = planned.version
        launches = len(traced.kernels)
        return Plan(
            tool=CUPTI, groups=(tuple(planned.metrics),), passes=planned.passes, launches=launches,
            time_s=SETUP_S + planned.passes * launches * KERNEL_S,
            is_parallel=self.is_parallel, missing=tuple(planned.missing),
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


# ---------------------------------------------------------------- by Nsight Compute

OLDEST = (2021, 1)  # tensor counters by type, --print-units base
ANSWER_S = 120.0  # for ncu to answer
OF_ONE_GROUP = (NO_TIME, NO_FLOPS, NO_BYTES, NO_TENSORS)  # which another group has
# Seconds on an H200, by ncu 2025.3, which holds a lock until it ends: processes count in turn.
NCU_PROCESS_S = 1.6  # the first kernel, the work of known size, writing and ending
NCU_KERNEL_S = 0.023  # a kernel in one group, on average over groups


def find_ncu() -> Ncu:
    """The ncu that the user names, that of PATH, or the newest of the first usual folder."""
    path = ncu_path(SystemIO())
    if path is None:
        raise RidgelineError(
            "Nsight Compute (ncu) was not found",
            hint=f"install it (it comes with the CUDA toolkit), put it on PATH, or name it by "
            f"{VARIABLE}=/path/to/ncu; {WITHOUT}",
        )
    match = re.search(r"Version (\d+(?:\.\d+)+)", _ask_ncu(path, "--version"))
    version = match[1] if match else ""
    if match and version_numbers(version) < OLDEST:
        raise RidgelineError(
            f"{path} is ncu {version}, which is too old",
            hint=f"install {OLDEST[0]}.{OLDEST[1]} or later, or name one by {VARIABLE}; {WITHOUT}",
        )
    return Ncu(path, version)


def query_metrics(ncu: Ncu) -> frozenset[str]:
    """Names of all metrics of the devices here, without their endings (.sum, .avg)."""
    output = _ask_ncu(ncu.path, "--query-metrics")
    if "==ERROR==" in output:
        raise explain_failure(output, "ncu failed")
    names = frozenset(metric_names(output))
    if not names:
        raise explain_failure(output, "ncu names no metric for the device here")
    return names


def metric_names(output: str) -> list[str]:
    """The first word of each line of `ncu --query-metrics` that is a metric's name."""
    return re.findall(r"^([a-z][a-z0-9]*__\w+)\s", output, flags=re.MULTILINE)


def _ask_ncu(path: str, option: str) -> str:
    """All that ncu prints."""
    try:
        done = subprocess.run(
            [path, option], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            encoding="utf-8", errors="replace", timeout=ANSWER_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RidgelineError(
            f"{path} gave no answer: {error}",
            hint=f"try `{path} {option}` by hand, or name another one by {VARIABLE}; {WITHOUT}",
        ) from error
    return done.stdout + done.stderr


def read_named_metrics(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Those metrics of ncu's raw page that are among the names, by the launch's `ID`."""
    import pandas as pd

    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(line for line in file if not line.startswith("=="))
        header = next((row for row in rows if "ID" in row), [])
        cells = [dict(zip(header, row, strict=False)) for row in rows]
    columns = [name for name in names if name in header]
    launches = [cell for cell in cells if cell.get("ID", "").isdecimal()]  # not the row of units
    table = {name: [cell.get(name, "").replace(",", "") for cell in launches] for name in columns}
    index = pd.Index([cell["ID"] for cell in launches], name="id")
    numbers: pd.DataFrame = pd.DataFrame(table, index=index).apply(pd.to_numeric, errors="coerce")
    return numbers[~numbers.index.duplicated()] if columns else numbers.iloc[:0]


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
        chosen = choose_metrics(
            query_metrics(ncu), request.precision, request.level, request.metrics
        )
        return cls(workspace, ncu, chosen.ncu_groups(), chosen.missing)

    def load(self) -> None:
        """Have a process for each group load what it needs."""
        self.loaded = [self._start(number) for number in range(len(self.groups))]

    def _start(self, number: int) -> Session:
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
            wait_until("ready", self.loaded)

    def plan(self, traced: TracedSteps, ready_s: float) -> Plan:
        """Every kernel; where processes run in turn, each takes `ready_s` to get ready."""
        launches, groups = len(traced.kernels), len(self.groups)
        start_s = 0.0 if self.is_parallel else ready_s
        return Plan(
            tool=NCU, groups=self.groups, passes=groups, launches=launches,
            time_s=groups * (start_s + NCU_PROCESS_S + launches * NCU_KERNEL_S),
            is_parallel=self.is_parallel, missing=self.missing, not_by_cupti=self.not_by_cupti,
        )  # fmt: skip

    def count(self, plan: Plan, _: TracedSteps) -> list[pd.DataFrame]:
        """The kernels with their counters, a table for each group."""
        counted = []
        for number in range(len(self.groups)):
            self.workspace.on_progress(f"counting, {number + 1} of {len(self.groups)}")
            session = self.loaded[number] if self.loaded else self._start(number)
            session.begin()
            wait_until("ready", [session])
            session.go()
            session.wait_done(plan.time_s)
            session.wait()  # which frees the counters, and its memory
            counted.append(session)
        return [self._read(session) for session in counted]

    def _read(self, session: Session) -> pd.DataFrame:
        """What ncu wrote."""
        from ridgeline.captures import read_capture

        assert session.log is not None
        if NO_KERNELS in session.output:
            raise explain_failure(session.output, "ncu profiled nothing")
        capture = read_capture(session.log)
        warnings = self.workspace.warnings
        of_all = [text for text in capture.warnings if not text.startswith(OF_ONE_GROUP)]
        warnings += [text for text in of_all if text not in warnings]
        named = read_named_metrics(session.log, self.workspace.request.metrics)
        return capture.kernels.join(named, on="id") if len(named) else capture.kernels

    @property
    def version(self) -> str:
        return self.ncu.version

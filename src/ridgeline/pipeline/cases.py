"""Cases and their runner: each is measured, in its own process or in this one, and stored at once.

A case that crashes is a failed run, an input that is wrong is noted, and the next case goes on. An
interrupt leaves what is stored in the results folder, and in the runner's lists. Cases may come
from a generator: the next one is asked for when the one before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import inf
from typing import Any, Protocol

from ridgeline.count.capacity import max_batch
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Failure as CaseFailure
from ridgeline.measure.isolation import Outcome, Work, attempt, run_isolated, stdout_to_stderr
from ridgeline.measure.worker import (
    MeasuredCase,
    Progress,
    Task,
    check_task,
    ignore_message,
    measure_task,
    memory_task,
    run_request,
)
from ridgeline.provenance import collect
from ridgeline.records import Failure, RunResult, WorkloadSpec
from ridgeline.settings import DEFAULT_BATCH, Settings
from ridgeline.signals import interrupts_later
from ridgeline.store import FailedRun, MeasuredRun, ResultsFolder, Run, run_label
from ridgeline.workloads.sources import workload_spec

WITHIN = 0.01  # of the largest batch: a try takes seconds


class ProgressListener(Protocol):
    """Hears how far a stage or a list of cases is."""

    def start(self, what: str, seconds: float = 0.0, *, advance: bool = True) -> None:
        """The next unit begins and takes about so long; without `advance`, it is none of them."""

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of it is done; a total of 0 is not known."""


class NoProgress(ProgressListener):
    """A listener that shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The largest batch that fits, and how that was found."""

    batch_size: int
    fails: int | None = None  # the smallest batch that was tried in vain
    reason: str | None = None  # of its failure

    def __str__(self) -> str:
        fails = f" (batch {self.fails} fails: {self.reason})" if self.fails else ""
        return f"{self.batch_size}{fails}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Task):
    """One configuration to run, and what its run is stored with."""

    repeat: int = 1
    label: str = ""
    digest: str | None = None  # tells modules of the same name apart; a file has its own
    largest: LargestBatch | None = None  # how its batch size was found
    case_id: str = ""  # of a sweep; the name of the run begins with it

    @property
    def name(self) -> str:
        return f"{self.spec.model}, batch {self.spec.batch_size}, {self.settings.precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Models, batch sizes and settings, of which every combination is a case."""

    models: tuple[str, ...]
    settings: tuple[Settings, ...]  # one per precision
    batch_sizes: tuple[int, ...] = (DEFAULT_BATCH,)
    mode: str = "train"
    input_sizes: tuple[tuple[int, ...] | None, ...] = (None,)
    seq_len: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    label: str = ""
    without: frozenset[tuple[str, str]] = frozenset()  # models, and the size that they do not have

    def spec(self, model: str, batch_size: int = 1) -> WorkloadSpec:
        size = None if (model, "input_size") in self.without else self.input_sizes[0]
        length = None if (model, "seq_len") in self.without else self.seq_len
        return workload_spec(model, batch_size, size, length, self.config, mode=self.mode)

    def sizes_of(self, model: str) -> tuple[Selection, ...]:
        """The same of one model and one input size each."""
        sizes = self.input_sizes[:1] if (model, "input_size") in self.without else self.input_sizes
        return tuple(replace(self, models=(model,), input_sizes=(size,)) for size in sizes)

    def specs(self) -> tuple[WorkloadSpec, ...]:
        """One per model; the batch size is not used."""
        return tuple(self.spec(model) for model in dict.fromkeys(self.models))

    def cases(self, model: str, settings: Settings, batch_sizes: Iterable[int]) -> Iterator[Case]:
        """Each batch size, as often as it is to be repeated."""
        for batch_size in batch_sizes:
            spec = self.spec(model, batch_size)
            for repeat in range(1, self.repeats + 1):
                yield Case(spec=spec, settings=settings, repeat=repeat, label=self.label)

    @property
    def case_count(self) -> int:
        sizes = sum(len(self.sizes_of(model)) for model in self.models)
        return sizes * len(self.settings) * len(self.batch_sizes) * self.repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Where work is done: in a process of its own, or in this one."""

    in_process: bool = False
    timeout_s: float | None = None  # of work in a process of its own
    keeps_stdout: bool = False  # of this process, for what a model prints

    def do(
        self, work: Work[Any], task: Any, on_message: Callable[[Any], None] = ignore_message
    ) -> Outcome[Any]:
        """The answer, or the failure that whatever was raised is."""
        if not self.in_process:
            return run_isolated(work, task, on_message, timeout_s=self.timeout_s)
        with self.in_this_process():
            return attempt(work, task, on_message)

    def in_this_process(self) -> AbstractContextManager[None]:
        return nullcontext() if self.keeps_stdout else stdout_to_stderr()


@dataclass(slots=True, kw_only=True)
class CaseRunner:
    """Runs cases one after another; `runs` and `errors` are what has come of them so far."""

    results: ResultsFolder
    executor: Executor = field(default_factory=Executor)
    progress: ProgressListener = field(default_factory=NoProgress)
    case_s: float = 0.0  # what a case takes, about, where the progress is by time
    reraises: bool = False  # what a case in this process raises, for debuggers and scripts
    work: Work[MeasuredCase] = measure_task
    on_result: Callable[[Case, RunResult], None] = lambda case, result: None  # before it is stored
    on_failure: Callable[[CaseFailure], None] = ignore_message  # before it is stored
    runs: list[Run] = field(default_factory=list)  # completed and failed ones, each stored
    errors: list[RidgelineError] = field(default_factory=list)  # of inputs; nothing was run

    @property
    def completed(self) -> list[MeasuredRun]:
        return [run for run in self.runs if isinstance(run.result, RunResult)]

    @property
    def failed(self) -> list[FailedRun]:
        return [run for run in self.runs if isinstance(run.result, Failure)]

    def run(self, cases: Iterable[Case]) -> None:
        """Measure and store each case."""
        for case in cases:
            with self.note_errors():
                self._run_case(case)

    @contextmanager
    def note_errors(self) -> Iterator[None]:
        """An input that is wrong ends this configuration only."""
        try:
            yield
        except RidgelineError as error:
            if str(error) not in map(str, self.errors):
                self.errors.append(error)

    def on_message(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.progress.update(message.what, message.done, message.total)

    def _run_case(self, case: Case) -> None:
        self.progress.start(case.name, self.case_s)
        outcome = self._measure(case)
        largest = asdict(case.largest) if case.largest else None
        if (failed := outcome.failure) is not None:
            if failed.is_input:
                raise failed.error()
            self.on_failure(failed)
            failure = Failure(reason=failed.reason, hint=failed.hint, max_batch=largest)
            with interrupts_later():
                self._store(case, failure, log=failed.log)
            return
        measured = outcome.value()
        result = replace(measured.result, max_batch=largest)
        with interrupts_later():  # what is shown is stored, and what is stored is shown
            self.on_result(case, result)
            self._store(case, result, measured, log=measured.log)

    def _measure(self, case: Case) -> Outcome[MeasuredCase]:
        if not (self.reraises and self.executor.in_process):
            return self.executor.do(self.work, case, self.on_message)
        with self.executor.in_this_process():
            return Outcome(answer=self.work(case, self.on_message))

    def _store(
        self,
        case: Case,
        result: RunResult | Failure,
        measured: MeasuredCase | None = None,
        *,
        log: str,
    ) -> None:
        request = run_request(case, label=case.label, repeat=case.repeat, digest=case.digest)
        label = run_label("run", case.spec.model, case.spec.batch_size, label=case.label)
        label = f"{case.case_id}-{label}" if case.case_id else label
        made = replace(collect(), backends=measured.backends if measured else {})
        tables = measured.tables if measured else {}
        try:
            run_id = self.results.save_run(label, request, result, made, tables=tables, log=log)
            self.runs.append(self.results.read_run(run_id))
        except RidgelineError as error:
            raise RidgelineError(
                f"{case.name} was measured and could not be kept: {error.problem}", hint=error.hint
            ) from error


def run_selection(
    selection: Selection,
    runner: CaseRunner,
    *,
    find_max_batch: bool = False,
    on_message: Callable[[str], None] = ignore_message,
) -> None:
    """Run every combination; with `find_max_batch`, the largest batch that fits instead."""
    if len(selection.models) > 1:  # a single one is found out about at once
        selection = check_models(selection, runner, on_message)
    every = [(one, model) for model in selection.models for one in selection.sizes_of(model)]
    for (one, model), settings in product(every, selection.settings):
        with runner.note_errors():
            if not find_max_batch:
                runner.run(one.cases(model, settings, one.batch_sizes))
                continue
            largest = find_largest_batch(one, model, settings, runner)
            on_message(f"{model}, {settings.precision}: the largest batch is {largest}")
            cases = one.cases(model, settings, [largest.batch_size])
            runner.run(replace(case, largest=largest) for case in cases)


def check_models(
    selection: Selection, runner: CaseRunner, on_message: Callable[[str], None] = ignore_message
) -> Selection:
    """Refuse what cannot be found now, rather than after hours with the others.

    A size that only some of the models have is left out for the others.
    """
    runner.progress.start("looking for the models", advance=False)
    wrong = runner.executor.do(check_task, selection.specs(), runner.on_message).value()
    missing = {one.missing_size for one in wrong}
    everywhere = len(dict.fromkeys(selection.models))
    usable = {
        name for name in missing if sum(one.missing_size == name for one in wrong) < everywhere
    }
    left_out = [one for one in wrong if one.missing_size and one.missing_size in usable]
    for one in left_out:
        on_message(f"{one.problem}: it is left out there")
    wrong = [one for one in wrong if one not in left_out]
    if len(wrong) == 1:
        raise RidgelineError(wrong[0].problem, hint=wrong[0].hint)
    if wrong:
        lines = [f"{one.problem}: {one.hint}" for one in wrong]
        raise RidgelineError(
            "\n  ".join([f"{len(wrong)} models cannot be run, and none was measured", *lines]),
            hint="fix these names, or leave these models out",
        )
    return replace(
        selection, without=frozenset((one.model, str(one.missing_size)) for one in left_out)
    )


# ---------------------------------------------------------------- the largest batch


def find_largest_batch(
    selection: Selection, model: str, settings: Settings, runner: CaseRunner
) -> LargestBatch:
    """Try batches on a device with memory of its own.

    Whatever makes a batch fail, it does not fit: libraries have limits of their own.
    """
    reasons: dict[int, str] = {}

    def try_batch(batch_size: int) -> Outcome[tuple[int, int]]:
        runner.progress.start(f"{model}: does batch {batch_size} fit?", advance=False)
        task = Task(spec=selection.spec(model, batch_size), settings=settings)
        return runner.executor.do(memory_task, task, runner.on_message)

    one_bytes, total_bytes = try_batch(1).value()
    if not total_bytes:  # a batch that does not fit would make the system kill a process
        raise RidgelineError(
            "batches are tried on a device with memory of its own, and a CPU has none",
            hint=f"`ridgeline count {model} --mode {selection.mode} --find-max-batch 16GB` counts"
            " what fits",
        )

    def peak_bytes(batch_size: int) -> float:
        if batch_size == 1:
            return one_bytes
        outcome = try_batch(batch_size)
        if outcome.failure is None:
            return outcome.value()[0]
        if outcome.failure.is_input:
            raise outcome.failure.error()
        reasons[batch_size] = outcome.failure.reason.split(". ")[0]
        return inf

    found = max_batch(peak_bytes, total_bytes, within=WITHIN)
    fails = min(reasons, default=None)
    reason = None if fails is None else reasons[fails]
    return LargestBatch(batch_size=found, fails=fails, reason=reason)

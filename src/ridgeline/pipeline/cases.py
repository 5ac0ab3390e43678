"""The runner of cases: each is measured, in its own process or in this one, and stored at once.

A case that crashes is a failed run, an input that is wrong is noted, and the next case goes on. An
interrupt leaves what is stored in the results folder, and in the runner's lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome, Work, attempt, run_isolated, stdout_to_stderr
from ridgeline.measure.worker import (
    MeasuredCase,
    Progress,
    Task,
    check_task,
    ignore_message,
    measure_task,
    run_request,
)
from ridgeline.pipeline.max_batch import BatchSearch, LargestBatch
from ridgeline.provenance import collect
from ridgeline.records import Failure, RunResult, WorkloadSpec
from ridgeline.settings import DEFAULT_BATCH, Settings
from ridgeline.signals import interrupts_later
from ridgeline.store import FailedRun, MeasuredRun, ResultsFolder, Run, run_label
from ridgeline.workloads.sources import workload_spec


class ProgressListener(Protocol):
    """Hears how far a stage or a list of cases is."""

    def expect(self, seconds: float) -> None:
        """About so long the next unit of work will take."""

    def start(self, what: str, *, advance: bool = True) -> None:
        """The next unit of work begins; without `advance`, something between two of them."""

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of it is done; a total of 0 is not known."""


class NoProgress:
    """A listener that shows nothing."""

    def expect(self, seconds: float) -> None: ...
    def start(self, what: str, *, advance: bool = True) -> None: ...
    def update(self, what: str, done: int, total: int) -> None: ...


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
    input_size: tuple[int, ...] | None = None
    seq_len: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    label: str = ""

    def spec(self, model: str, batch_size: int = 1) -> WorkloadSpec:
        return workload_spec(
            model, batch_size, self.input_size, self.seq_len, self.config, mode=self.mode
        )

    def specs(self) -> tuple[WorkloadSpec, ...]:
        """One per model; the batch size is not used."""
        return tuple(self.spec(model) for model in self.models)

    def task(self, model: str, batch_size: int, settings: Settings) -> Task:
        return Task(spec=self.spec(model, batch_size), settings=settings)

    def cases(self, model: str, settings: Settings, batch_sizes: Iterable[int]) -> Iterator[Case]:
        """Each batch size, as often as it is to be repeated."""
        for batch_size in batch_sizes:
            spec = self.spec(model, batch_size)
            for repeat in range(1, self.repeats + 1):
                yield Case(spec=spec, settings=settings, repeat=repeat, label=self.label)

    @property
    def case_count(self) -> int:
        return len(self.models) * len(self.settings) * len(self.batch_sizes) * self.repeats


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

    @contextmanager
    def in_this_process(self) -> Iterator[None]:
        if self.keeps_stdout:
            yield
            return
        with stdout_to_stderr():
            yield


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
    on_failure_log: Callable[[str], None] = lambda log: None
    runs: list[Run] = field(default_factory=list)
    errors: list[RidgelineError] = field(default_factory=list)

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
        if self.case_s:
            self.progress.expect(self.case_s)
        self.progress.start(case.name)
        outcome = self._measure(case)
        if outcome.failure is not None and outcome.failure.is_input:
            raise outcome.failure.error()
        largest = asdict(case.largest) if case.largest else None
        if outcome.failure is not None:
            self.on_failure_log(outcome.failure.log)
            reason, hint = outcome.failure.reason, outcome.failure.hint
            failure = Failure(reason=reason, hint=hint, max_batch=largest)
            with interrupts_later():
                self._store(case, failure, log=outcome.failure.log)
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
        backends = measured.backends if measured else {}
        tables = measured.tables if measured else {}
        made = replace(collect(), backends=backends)
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
        check_models(selection, runner)
    for model in selection.models:
        for settings in selection.settings:
            with runner.note_errors():
                if find_max_batch:
                    runner.run(_largest_cases(selection, model, settings, runner, on_message))
                else:
                    runner.run(selection.cases(model, settings, selection.batch_sizes))


def check_models(selection: Selection, runner: CaseRunner) -> None:
    """Refuse what cannot be found now, rather than after hours with the others."""
    runner.progress.start("looking for the models", advance=False)
    specs, wrong = [], list[RidgelineError]()
    for model in dict.fromkeys(selection.models):
        try:
            specs.append(selection.spec(model, min(selection.batch_sizes, default=1)))
        except RidgelineError as error:
            wrong.append(error)
    problems = runner.executor.do(check_task, tuple(specs), runner.on_message).value()
    wrong += [RidgelineError(problem, hint=hint) for problem, hint in problems]
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        lines = [f"{error.problem}: {error.hint}" for error in wrong]
        raise RidgelineError(
            "\n  ".join([f"{len(wrong)} models cannot be run, and none was measured", *lines]),
            hint="mend these names, or leave these models out",
        )


def _largest_cases(
    selection: Selection,
    model: str,
    settings: Settings,
    runner: CaseRunner,
    on_message: Callable[[str], None],
) -> Iterator[Case]:
    """The cases of the largest batch that fits."""

    def on_try(batch_size: int) -> None:
        runner.progress.start(f"{model}: does batch {batch_size} fit?", advance=False)

    largest = BatchSearch(
        task=lambda batch_size: selection.task(model, batch_size, settings),
        do=lambda work, task: runner.executor.do(work, task, runner.on_message),
        on_try=on_try,
    ).find()
    on_message(f"{model}, {settings.precision}: the largest batch is {largest}")
    for case in selection.cases(model, settings, (largest.batch_size,)):
        yield replace(case, largest=largest)

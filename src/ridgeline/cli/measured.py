"""The work behind `ridgeline run`: one configuration after another, each stored at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.api import spec
from ridgeline.cli import INTERRUPTED, show_runs
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.progress import run_progress
from ridgeline.cli.stdout import StdoutError
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import (
    Failure,
    Outcome,
    Work,
    attempt,
    run_isolated,
    stdout_to_stderr,
)
from ridgeline.measure.tasks import (
    Found,
    Progress,
    Task,
    check_task,
    measure_task,
    question,
)
from ridgeline.pipeline.max_batch import Largest, Search
from ridgeline.provenance import collect
from ridgeline.records import WorkloadSpec
from ridgeline.report.views import write_views
from ridgeline.settings import Settings, check_mode
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    from ridgeline.cli.progress import RunProgress

SOME_FAILED = 3
LABEL_KEPT = 24  # characters of a label in the name of a run, beside its model


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, parsed."""

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    mode: str
    settings: tuple[Settings, ...]  # one per precision
    input_size: tuple[int, ...] | None
    seq_len: int | None
    config: dict[str, Any]
    repeats: int
    find_max_batch: bool
    label: str | None
    results: Path
    in_process: bool
    as_json: bool
    quiet: bool
    debug: bool
    has_lines: bool = True  # a line for scripts after each run

    def task(self, model: str, batch_size: int, settings: Settings) -> Task:
        chosen = spec(model, batch_size, self.input_size, self.seq_len, self.config)
        return Task(spec=replace(chosen, mode=self.mode), settings=settings)

    @property
    def runs(self) -> int:
        batches = 1 if self.find_max_batch else len(self.batch_sizes)
        return len(self.models) * len(self.settings) * batches * self.repeats


@dataclass(slots=True)
class Done:
    """What has been measured so far."""

    runs: list[Run] = field(default_factory=list)
    errors: list[RidgelineError] = field(default_factory=list)


def run_all(asked: Asked) -> None:
    """Measure, store and show; what is done stays done, whatever happens next."""
    check_mode(asked.mode)
    results = ResultsFolder(asked.results)
    results.check_writable()  # now rather than after minutes of measuring
    done = Done()
    interrupted = False
    try:
        if asked.in_process:
            with stopped_at_once():
                _import_all()
        with run_progress(asked.runs, quiet=asked.quiet) as progress:
            Runner(asked, results, done, progress).run()
    except KeyboardInterrupt:
        interrupted = True
    try:
        with interrupts_later():  # what is stored is told
            _finish(asked, results, done)
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        kept = f"; runs kept: {len(done.runs)}" if done.runs else ""
        print(f"ridgeline: interrupted{kept}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if done.errors:
        raise_last(done.errors)
    if any(run.found["status"] != "ok" for run in done.runs):
        sys.exit(SOME_FAILED)


def _import_all() -> None:
    """What a measurement in this process needs; where it is missing, the run itself says so."""
    with suppress(ImportError, OSError):
        import ridgeline.measure.worker  # noqa: F401


def _finish(asked: Asked, results: ResultsFolder, done: Done) -> None:
    """Views and tables of what there is."""
    written: list[Path] = []
    if any(run.found["status"] == "ok" for run in done.runs):
        try:
            written, problems = write_views(results)
            show_runs.advise(problems, asked.quiet)
        except RidgelineError as error:
            problem = f"the runs are kept, and their views could not be made: {error.problem}"
            done.errors.append(RidgelineError(problem, hint=error.hint))
    if done.runs or asked.as_json:
        show_runs.show(asked, done.runs, results, written)


def raise_last(errors: list[RidgelineError]) -> None:
    """The last error ends the command; those before it are printed."""
    *earlier, last = errors
    for error in earlier:
        print(f"ridgeline: {error}", file=sys.stderr)
    raise last


def tell_failed(runs: list[Run]) -> bool:
    """A line for every run that failed; whether there is one."""
    failed = [run for run in runs if run.found["status"] != "ok"]
    for run in failed:
        name = f"{run.asked['model']}, batch {run.asked['batch_size']}"
        print(f"ridgeline: {name}: failed: {run.found['reason']}", file=sys.stderr)
    return bool(failed)


@dataclass(slots=True)
class Runner:
    """The loop over configurations."""

    asked: Asked
    results: ResultsFolder
    done: Done
    progress: RunProgress

    def run(self) -> None:
        if len(self.asked.models) > 1:  # a single one is found out about at once
            self._check_models()
        for model in self.asked.models:
            for settings in self.asked.settings:
                with self._noted():
                    self._measure_batches(model, settings)

    def _check_models(self) -> None:
        """Refuse what cannot be found now, rather than after hours with the others."""
        self.progress.start("looking for the models", advance=False)
        specs, wrong = [], list[RidgelineError]()
        batch_size = min(self.asked.batch_sizes, default=1)
        for model in dict.fromkeys(self.asked.models):
            try:
                specs.append(self.asked.task(model, batch_size, self.asked.settings[0]).spec)
            except RidgelineError as error:
                wrong.append(error)
        found = self._do(check_task, tuple(specs))
        wrong += [RidgelineError(problem, hint=hint) for problem, hint in found.value()]
        if len(wrong) > 1:
            raise _all_in_one(wrong)
        if wrong:
            raise wrong[0]

    def _measure_batches(self, model: str, settings: Settings) -> None:
        largest = self._largest(model, settings) if self.asked.find_max_batch else None
        batch_sizes = (largest.batch_size,) if largest else self.asked.batch_sizes
        for batch_size in batch_sizes:
            task = self.asked.task(model, batch_size, settings)
            for repeat in range(1, self.asked.repeats + 1):
                with self._noted():
                    self._measure(task, repeat, largest)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """An input that is wrong ends this configuration only."""
        try:
            yield
        except RidgelineError as error:
            if str(error) not in map(str, self.done.errors):
                self.done.errors.append(error)

    def _measure(self, task: Task, repeat: int, largest: Largest | None) -> None:
        spec = task.spec
        self.progress.start(f"{spec.model}, batch {spec.batch_size}, {task.settings.precision}")
        outcome = self._do(measure_task, task)
        if outcome.failure is not None and outcome.failure.is_input:
            raise outcome.failure.error()
        if outcome.failure is not None and self.asked.debug:
            print(outcome.failure.log, end="", file=sys.stderr)
        answer = outcome.answer or _failed(outcome.failure)
        found_by = asdict(largest) if largest else None
        answer = replace(answer, found={**answer.found, "max_batch": found_by})
        with interrupts_later():  # told is stored, and stored is told
            self._tell(task, answer)
            self._store(task, repeat, answer)

    def _do(self, work: Work[Any], task: Any) -> Outcome[Any]:
        """In a process of its own, unless asked otherwise."""
        if not self.asked.in_process:
            return run_isolated(work, task, self._hear)
        with stdout_to_stderr():
            if self.asked.debug and work is measure_task:
                return Outcome(answer=work(task, self._hear))
            return attempt(work, task, self._hear)

    def _hear(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.progress.update(message.what, message.done, message.total)

    def _tell(self, task: Task, answer: Found) -> None:
        """The line for scripts, before anything can happen to the run."""
        if not self.asked.has_lines or self.asked.as_json or answer.found["status"] != "ok":
            return
        # where nobody reads any more, the run is stored all the same, and the end says it again
        with self.progress.aside(), suppress(StdoutError):
            print(show_runs.measured_line(task.spec, answer.found), flush=True)

    def _store(self, task: Task, repeat: int, answer: Found) -> None:
        try:
            run = self.results.write_run(
                label=_run_name(self.asked.label, task.spec),
                asked=question(task, label=self.asked.label or "", repeat=repeat),
                found=answer.found,
                provenance=replace(collect(), backends=answer.backends),
                tables=answer.tables,
                log=answer.log,
            )
        except RidgelineError as error:
            what = f"{task.spec.model}, batch {task.spec.batch_size}, {task.settings.precision}"
            raise RidgelineError(
                f"{what} was measured and could not be kept: {error.problem}", hint=error.hint
            ) from error
        self.done.runs.append(run)

    def _largest(self, model: str, settings: Settings) -> Largest:
        found = Search(
            task=lambda batch_size: self.asked.task(model, batch_size, settings),
            do=self._do,
            tell=lambda batch_size: self.progress.start(
                f"{model}: does batch {batch_size} fit?", advance=False
            ),
        ).find()
        if not self.asked.quiet:
            print(f"{model}, {settings.precision}: the largest batch is {found}", file=sys.stderr)
        return found


def _all_in_one(wrong: list[RidgelineError]) -> RidgelineError:
    lines = [f"{error.problem}: {error.hint}" for error in wrong]
    return RidgelineError(
        "\n  ".join([f"{len(wrong)} models cannot be run, and none was measured", *lines]),
        hint="mend these names, or leave these models out",
    )


def _run_name(label: str | None, spec: WorkloadSpec) -> str:
    """`LABEL-resnet50-bs32`; of a file, without the folders before it."""
    model = spec.model.rpartition("/")[2]
    return f"{label[:LABEL_KEPT] if label else 'run'}-{model}-bs{spec.batch_size}"


def _failed(failure: Failure | None) -> Found:
    assert failure is not None
    return Found(
        found={"status": "failed", "reason": failure.reason, "hint": failure.hint}, log=failure.log
    )

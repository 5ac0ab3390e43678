"""The work behind `ridgeline run`: one configuration after another, each stored at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.api import spec
from ridgeline.cli import INTERRUPTED, show_runs
from ridgeline.cli.progress import run_progress
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import (
    Failure,
    Outcome,
    Work,
    attempt,
    run_isolated,
    stdout_to_stderr,
)
from ridgeline.measure.settings import Settings, check_mode
from ridgeline.measure.tasks import Found, Progress, Task, measure_task, memory_task
from ridgeline.provenance import collect
from ridgeline.records import WorkloadSpec
from ridgeline.report.views import write_views
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    from ridgeline.cli.progress import RunProgress

SOME_FAILED = 3
SAFE_SHARE = 0.8  # of a CPU's free memory: torch and its workspaces need some, too


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
        with run_progress(asked.runs, quiet=asked.quiet) as progress:
            _Runner(asked, results, done, progress).run()
    except KeyboardInterrupt:
        interrupted = True
    _finish(asked, results, done)
    if interrupted:
        kept = f"; runs kept: {len(done.runs)}" if done.runs else ""
        print(f"ridgeline: interrupted{kept}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if done.errors:
        _raise_errors(done.errors)
    if any(run.found["status"] != "ok" for run in done.runs):
        sys.exit(SOME_FAILED)


def _finish(asked: Asked, results: ResultsFolder, done: Done) -> None:
    """Views and tables of what there is."""
    written: list[Path] = []
    if any(run.found["status"] == "ok" for run in done.runs):
        try:
            written, problems = write_views(results)
            show_runs.advise(problems, asked.quiet)
        except RidgelineError as error:
            done.errors.append(error)
    if done.runs or asked.as_json:
        show_runs.show(asked, done.runs, results, written)


def _raise_errors(errors: list[RidgelineError]) -> None:
    """The last error ends the command; those before it are printed."""
    *earlier, last = errors
    for error in earlier:
        print(f"ridgeline: {error}", file=sys.stderr)
    raise last


@dataclass(slots=True)
class _Runner:
    """The loop over configurations."""

    asked: Asked
    results: ResultsFolder
    done: Done
    progress: RunProgress

    def run(self) -> None:
        for model in self.asked.models:
            for settings in self.asked.settings:
                with self._noted():
                    for batch_size in self._batch_sizes(model, settings):
                        for repeat in range(1, self.asked.repeats + 1):
                            with self._noted():
                                self._measure(model, batch_size, settings, repeat)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """An input that is wrong ends this configuration only."""
        try:
            yield
        except RidgelineError as error:
            if str(error) not in map(str, self.done.errors):
                self.done.errors.append(error)

    def _measure(self, model: str, batch_size: int, settings: Settings, repeat: int) -> None:
        task = self.asked.task(model, batch_size, settings)
        self.progress.start(f"{model}, batch {batch_size}, {settings.precision}")
        outcome = self._do(measure_task, task)
        if outcome.failure is not None and outcome.failure.is_input:
            raise outcome.failure.error()
        if outcome.failure is not None and self.asked.debug:
            print(outcome.failure.log, end="", file=sys.stderr)
        self._store(task, repeat, outcome)

    def _do(self, work: Work[Any], task: Task) -> Outcome[Any]:
        """In a process of its own, unless asked otherwise."""
        if not self.asked.in_process:
            return run_isolated(work, task, self._hear)
        with stdout_to_stderr():
            if self.asked.debug:
                return Outcome(answer=work(task, self._hear))
            return attempt(work, task, self._hear)

    def _hear(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.progress.update(message.what, message.done, message.total)

    def _store(self, task: Task, repeat: int, outcome: Outcome[Found]) -> None:
        answer = outcome.answer or _failed(outcome.failure)
        label = self.asked.label or f"run-{task.spec.model}-bs{task.spec.batch_size}"
        self.done.runs.append(
            self.results.write_run(
                label=label,
                asked=_question(task, label=self.asked.label or "", repeat=repeat),
                found=answer.found,
                provenance=replace(collect(), backends=answer.backends),
                tables=answer.tables,
                log=answer.log,
            )
        )

    def _batch_sizes(self, model: str, settings: Settings) -> tuple[int, ...]:
        if not self.asked.find_max_batch:
            return self.asked.batch_sizes
        return (self._max_batch(model, settings),)

    def _max_batch(self, model: str, settings: Settings) -> int:
        """The largest batch that fits: tried out on a GPU, counted for a CPU's free memory."""
        from ridgeline.count.capacity import max_batch

        limit_bytes, peak_bytes = self._memory_probe(model, settings)
        found = max_batch(peak_bytes, limit_bytes)
        if not self.asked.quiet:
            print(f"{model}, {settings.precision}: the largest batch is {found}", file=sys.stderr)
        return found

    def _memory_probe(self, model: str, settings: Settings) -> tuple[int, Callable[[int], float]]:
        def tried(batch_size: int) -> float:
            self.progress.start(f"{model}: does batch {batch_size} fit?", advance=False)
            outcome = self._do(memory_task, self.asked.task(model, batch_size, settings))
            if outcome.failure is None:
                return int(outcome.value()[0])
            if outcome.failure.is_input or not outcome.failure.is_out_of_memory:
                raise outcome.failure.error()
            return inf

        first = self._do(memory_task, self.asked.task(model, 1, settings))
        total_bytes = int(first.value()[1])
        return (total_bytes, tried) if total_bytes else self._counted_memory(model, settings)

    def _counted_memory(self, model: str, settings: Settings) -> tuple[int, Callable[[int], float]]:
        """For a CPU: a batch that does not fit would make the system kill somebody."""
        import psutil

        from ridgeline.count.counting import Settings as CountSettings
        from ridgeline.count.counting import count_workload
        from ridgeline.measure.backends import choose_backend
        from ridgeline.measure.precision import choose_precision

        used = choose_precision(settings.precision, choose_backend(settings.backend)).used
        counting = CountSettings(
            mode=self.asked.mode,
            precision=used,
            optimizer=settings.optimizer,
            optimizer_options=settings.optimizer_options,
        )

        def counted(batch_size: int) -> int:
            self.progress.start(f"{model}: does batch {batch_size} fit?", advance=False)
            task = self.asked.task(model, batch_size, settings)
            return count_workload(task.spec, counting).memory.peak_bytes

        return int(SAFE_SHARE * psutil.virtual_memory().available), counted


def _failed(failure: Failure | None) -> Found:
    assert failure is not None
    return Found(
        found={"status": "failed", "reason": failure.reason, "hint": failure.hint}, log=failure.log
    )


def _question(task: Task, *, label: str, repeat: int) -> dict[str, Any]:
    """Enough to run the same again."""
    asked: WorkloadSpec = task.spec
    return {
        "command": "run",
        "model": asked.model,
        "batch_size": asked.batch_size,
        "mode": asked.mode,
        "input_size": asked.input_size,
        "seq_len": asked.seq_len,
        "config": dict(asked.config),
        **task.settings.to_dict(),
        "label": label,
        "repeat": repeat,
    }

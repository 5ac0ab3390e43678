"""The work behind `ridgeline profile`: a run nobody watches, then the same step counted."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ridgeline.api import spec
from ridgeline.cli import INTERRUPTED, show_profiles
from ridgeline.cli.measured import SOME_FAILED, Asked, Done, Runner, raise_last, tell_failed
from ridgeline.cli.progress import StageProgress, stage_progress
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.tasks import Task
from ridgeline.pipeline.count import count_missing
from ridgeline.pipeline.machine import DeviceTask, device_task
from ridgeline.profile.profiling import Standby, need_counters, need_cuda, standing_by
from ridgeline.profile.request import Plan, Request, request_for_program, request_for_task
from ridgeline.profile.storage import profile_program, profile_run
from ridgeline.provenance import collect
from ridgeline.report.views import write_views
from ridgeline.settings import Settings, check_mode
from ridgeline.store import ResultsFolder, Run

RUN_S, TRACE_S, COUNTED_S = 20.0, 3.0, 5.0  # of one configuration, about
PROGRAM_S = 120.0  # a program, which starts anew for every group of counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The command line, parsed."""

    models: tuple[str, ...]
    program: tuple[str, ...]
    precision_told: str  # of the program
    batch_sizes: tuple[int, ...]
    mode: str
    settings: tuple[Settings, ...]  # one per precision
    input_size: tuple[int, ...] | None
    seq_len: int | None
    config: dict[str, Any]
    tier: str
    level: str
    tool: str
    is_dry: bool
    iters: int
    warmup: int
    keep: Path | None
    label: str | None
    results: Path
    as_json: bool
    quiet: bool
    debug: bool

    @property
    def options(self) -> dict[str, Any]:
        """How the step is to be profiled."""
        return {
            "tier": self.tier,
            "level": self.level,
            "tool": self.tool,
            "steps": self.iters,
            "warmup": self.warmup,
            "is_dry": self.is_dry,
            "keep": self.keep,
        }

    def task(self, model: str, batch_size: int, settings: Settings) -> Task:
        chosen = spec(model, batch_size, self.input_size, self.seq_len, self.config)
        return Task(spec=replace(chosen, mode=self.mode), settings=settings)

    def asked(self) -> Asked:
        """What `ridgeline run` would be asked."""
        return Asked(
            models=self.models,
            batch_sizes=self.batch_sizes,
            mode=self.mode,
            settings=self.settings,
            input_size=self.input_size,
            seq_len=self.seq_len,
            config=self.config,
            repeats=1,
            find_max_batch=False,
            label=self.label,
            results=self.results,
            in_process=False,
            as_json=self.as_json,
            quiet=self.quiet,
            debug=self.debug,
            has_lines=False,
        )


@dataclass(slots=True)
class Profiling:
    """What has been profiled so far."""

    wanted: Wanted
    runs: Done = field(default_factory=Done)
    profiles: list[Run] = field(default_factory=list)
    plans: list[tuple[str, Plan]] = field(default_factory=list)
    failures: list[RidgelineError] = field(default_factory=list)  # of profiles, each stored

    def run(self) -> None:
        """Profile, store and show; what is done stays done, whatever happens next."""
        wanted = self.wanted
        check_mode(wanted.mode)
        Request(**wanted.options)  # what cannot be asked is said before anything runs
        results = ResultsFolder(wanted.results)
        results.check_writable()
        interrupted = False
        try:
            if wanted.program:
                self._program(results)
            else:
                self._models(results)
        except KeyboardInterrupt:
            interrupted = True
        if self.runs.runs:
            write_views(results)
        self._answer(results)
        if interrupted:
            print(f"ridgeline: interrupted; profiles kept: {len(self.profiles)}", file=sys.stderr)
            sys.exit(INTERRUPTED)
        self._end()

    def _models(self, results: ResultsFolder) -> None:
        wanted = self.wanted
        asked = wanted.asked()
        each = list(product(wanted.models, wanted.settings, wanted.batch_sizes))
        is_checked = False
        one_s = RUN_S + TRACE_S + COUNTED_S
        with stage_progress(one_s * len(each), quiet=wanted.quiet) as progress:
            for model, settings, size in each:
                one = replace(asked, models=(model,), settings=(settings,), batch_sizes=(size,))
                before = len(self.runs.runs)
                progress.expect(RUN_S)
                with self._standing_by(wanted.task(model, size, settings), progress) as standby:
                    if not is_checked:
                        self._check_device()  # while the other processes load
                        is_checked = True
                    standby = _loaded(standby)
                    Runner(one, results, self.runs, _Unweighted(progress)).run()
                    for run in self.runs.runs[before:]:
                        self._profile(results, run, settings, progress, standby)

    @contextmanager
    def _standing_by(self, task: Task, progress: StageProgress) -> Iterator[Standby | None]:
        """The processes of a profile; None where they do not start, which the profile will tell."""
        with ExitStack() as stack:
            standby: Standby | None = None
            request = request_for_task(task, collect().host, **self.wanted.options)
            if request.device:
                progress.start(f"{task.spec.model}, batch {task.spec.batch_size}: loading")
                tell = partial(progress.update, done=0, total=0)
                with suppress(RidgelineError):
                    standby = stack.enter_context(standing_by(request, tell))
            yield standby

    def _check_device(self) -> None:
        """A model that is not found, no GPU, or nothing to count with, ends the command now."""
        wanted = self.wanted
        first = wanted.settings[0]
        task = DeviceTask(
            specs=tuple(wanted.task(model, 1, first).spec for model in wanted.models),
            backend="auto",
            device=first.device,
            precisions=tuple(settings.precision for settings in wanted.settings),
        )
        need_cuda(run_isolated(device_task, task).value().partition(":")[0])
        if wanted.tier == "counters":
            need_counters(wanted.tool)

    def _profile(
        self,
        results: ResultsFolder,
        run: Run,
        settings: Settings,
        progress: StageProgress,
        standby: Standby | None,
    ) -> None:
        if run.found["status"] != "ok":
            return
        wanted = self.wanted
        name = f"{run.asked['model']}, batch {run.asked['batch_size']}, {settings.precision}"
        progress.expect(TRACE_S + COUNTED_S)
        progress.start(name)
        made: Run | None = None
        try:
            made = profile_run(
                results,
                run,
                wanted.task(str(run.asked["model"]), int(run.asked["batch_size"]), settings),
                wanted.options,
                label=wanted.label or "",
                on_progress=lambda what: progress.update(what, 0, 0),
                show_plan=lambda plan: self._show_plan(name, plan, progress),
                on_stored=self.profiles.append,
                standby=standby,
            )
        except RidgelineError as error:
            self.failures.append(error)
        if made is not None:
            progress.start(f"{name}: counting what it must do")
            counted = run_isolated(_count_task, (wanted.results, run.run_id))
            problems = [counted.failure.reason] if counted.failure else counted.answer or []
            if problems and not wanted.quiet:
                reason = f"what the model must do is not known: {'; '.join(problems)}"
                with progress.aside():
                    print(f"note: {name}: {reason}", file=sys.stderr, flush=True)

    def _show_plan(self, name: str, plan: Plan, progress: StageProgress) -> None:
        self.plans = [one for one in self.plans if one[0] != name]  # it may be replaced by another
        self.plans.append((name, plan))
        if not self.wanted.quiet:
            with progress.aside():
                print(f"{name}: {plan}", file=sys.stderr, flush=True)

    def _program(self, results: ResultsFolder) -> None:
        wanted = self.wanted
        host = collect().host
        request = request_for_program(wanted.program, wanted.precision_told, host, **wanted.options)
        name = shlex.join(wanted.program)
        self._need_gpu()
        with stage_progress(PROGRAM_S, quiet=wanted.quiet) as progress:
            progress.start(name)
            profile_program(
                results,
                request,
                label=wanted.label or "",
                on_progress=lambda what: progress.update(what, 0, 0),
                show_plan=lambda plan: self._show_plan(name, plan, progress),
                on_stored=self.profiles.append,
            )

    def _need_gpu(self) -> None:
        """The driver knows at once; where it cannot be asked, torch does."""
        if not any(device.kind == "cuda" for device in collect().host.devices):
            task = DeviceTask(specs=(), backend="auto", device=0, precisions=("fp32",))
            need_cuda(run_isolated(device_task, task).value().partition(":")[0])

    def _answer(self, results: ResultsFolder) -> None:
        wanted = self.wanted
        if wanted.as_json:
            content = {
                "profiles": [show_profiles.as_dict(run) for run in self.profiles],
                "plans": [{"name": name, **plan.to_dict()} for name, plan in self.plans],
            }
            print(json.dumps(content, indent=2, allow_nan=False))
        elif any(run.found["status"] == "ok" for run in self.profiles):
            show_profiles.show(self.profiles, results, quiet=wanted.quiet)
            for run in () if wanted.quiet else self.profiles:
                print(f"wrote {run.path}", file=sys.stderr)

    def _end(self) -> None:
        for failure in dict.fromkeys(map(str, self.failures)):
            print(f"ridgeline: {failure}", file=sys.stderr)
        if self.runs.errors:
            raise_last(self.runs.errors)
        if tell_failed(self.runs.runs) or self.failures:
            sys.exit(SOME_FAILED)


def _loaded(standby: Standby | None) -> Standby | None:
    """None if one of its processes has died, which the profile will tell."""
    try:
        if standby is not None:
            standby.wait_loaded()
    except RidgelineError:
        return None
    return standby


def _count_task(what: tuple[Path, str], send: Any) -> list[str]:
    """Count what the run did, so that both can be compared; what went wrong."""
    results, run_id = what
    return count_missing(ResultsFolder(results), [run_id], with_files=True)[1]


class _Unweighted(StageProgress):
    """The runner's progress without its own share of the bar."""

    def __init__(self, bar: StageProgress) -> None:
        self._bar = bar

    def start(self, what: str, *, advance: bool = True) -> None:
        self._bar.start(what)

    def update(self, what: str, done: int, total: int) -> None:
        self._bar.update(what, done, total)

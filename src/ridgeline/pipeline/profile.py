"""Profiles: the stage of an analysis that counts, and the steps of models or of a program alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.worker import Task, ignore_message
from ridgeline.pipeline.cases import CaseRunner, NoProgress, ProgressListener, Selection
from ridgeline.pipeline.count import count_run_task
from ridgeline.pipeline.machine import DeviceTask, device_task
from ridgeline.pipeline.stages import Stages
from ridgeline.profile.profiling import Standby, need_counters, need_cuda, standing_by
from ridgeline.profile.request import (
    AUTO,
    Plan,
    Request,
    request_for_program,
    request_for_run,
    request_for_task,
)
from ridgeline.profile.storage import profile_program, profile_run
from ridgeline.provenance import collect
from ridgeline.store import MeasuredRun, ResultsFolder, Run, StoredProfile

NOT_REQUESTED = "it was not asked for"
NO_GPU = "counters are those of NVIDIA GPUs"
STAGE_OPTIONS: dict[str, Any] = {"level": "hierarchical"}
RUN_S, TRACE_S, COUNTED_S = 20.0, 3.0, 5.0  # of one configuration, about
PROGRAM_S = 120.0  # a program, which starts anew for every group of counters
OnProgress = Callable[[str], None]

# ---------------------------------------------------------------- a stage of an analysis


def profile_stage(
    stages: Stages,
    results: ResultsFolder,
    runs: Sequence[MeasuredRun],
    *,
    device: str,
    is_requested: bool,
    on_start: OnProgress = ignore_message,
    on_progress: OnProgress = ignore_message,
) -> list[StoredProfile]:
    """Profile each run, or say why not; what fails is a failed stage and nothing more."""
    reason = _reason_to_skip(device, is_requested=is_requested)
    if reason:
        stages.skip("profile", reason)
        return []
    done: list[StoredProfile] = []
    failures: list[str] = []
    jobs = [(run, _task_of(run)) for run in runs]
    with stages.begin("profile") as stage, ExitStack() as stack:
        ahead = _LoadedAhead(stack)
        for (run, task), following in zip(jobs, [*jobs[1:], None], strict=True):
            on_start(f"counters: {run.request.model}, batch {run.request.batch_size}")
            load = partial(ahead.load, following)
            try:
                with ahead.in_turn(on_progress) as standby:
                    profile = profile_run(
                        results, run, task, STAGE_OPTIONS, on_progress=on_progress, show_plan=load,
                        standby=standby,
                    )  # fmt: skip
            except RidgelineError as error:
                failures.append(str(error).replace("\n", " "))
                if not done:  # what ails the first will ail the others
                    break
            else:
                done += [profile] if profile is not None else []
        stage.reason = f"counters of {len(done)} runs"
        if failures:
            stage.status = "done" if done else "failed"
            stage.reason = "; ".join([*([stage.reason] if done else []), *dict.fromkeys(failures)])
    return done


def _task_of(run: MeasuredRun) -> Task:
    """The step of a run, without its number of steps."""
    settings = replace(run.request.settings, iters=None)
    return Task(spec=run.request.workload, settings=settings)


@dataclass(slots=True)
class _LoadedAhead:
    """The processes of the next profile, which load while the kernels of this one are counted."""

    stack: ExitStack
    standby: Standby | None = None

    def load(self, following: tuple[MeasuredRun, Task] | None, _: Plan) -> None:
        """They leave the device alone, and ncu, until it is their turn."""
        if following is not None and self.standby is None:  # a second plan may be shown
            with suppress(RidgelineError):
                request = request_for_run(*following, **STAGE_OPTIONS)
                self.standby = self.stack.enter_context(standing_by(request))

    @contextmanager
    def in_turn(self, on_progress: OnProgress) -> Iterator[Standby | None]:
        """What was loaded for this profile; its processes end with the block."""
        standby, self.standby = self.standby, None
        with self.stack.pop_all():
            if standby is not None:
                standby.workspace.on_progress = on_progress
            yield standby


def _reason_to_skip(device: str, *, is_requested: bool) -> str:
    if not is_requested:
        return NOT_REQUESTED
    if not device.startswith("cuda"):
        return NO_GPU
    try:
        need_counters(AUTO)
    except RidgelineError as error:
        return str(error).replace("\n", " ")
    return ""


# ---------------------------------------------------------------- profiles alone


@dataclass(slots=True, kw_only=True)
class Profiler:
    """Profiles steps one after another; the lists hold what has come of it so far."""

    results: ResultsFolder
    options: dict[str, Any]  # fields of Request: how a step is to be profiled
    label: str = ""
    progress: ProgressListener = field(default_factory=NoProgress)
    on_plan: Callable[[str, Plan], None] = lambda name, plan: None
    on_message: Callable[[str], None] = ignore_message
    on_failure_log: Callable[[str], None] = ignore_message
    runner: CaseRunner | None = None  # of the runs that nobody watches
    profiles: list[Run] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    failures: list[RidgelineError] = field(default_factory=list)  # of profiles, each stored

    def profile_models(self, selection: Selection) -> None:
        """Run each case unwatched, then profile the same step, and count what it must do."""
        self.runner = CaseRunner(
            results=self.results, progress=self.progress, on_failure_log=self.on_failure_log
        )
        is_checked = False
        each = product(selection.models, selection.settings, selection.batch_sizes)
        for model, settings, batch_size in each:
            (case,) = selection.cases(model, settings, [batch_size])
            first = len(self.runner.runs)
            self.progress.expect(RUN_S)
            with self._standing_by(case) as standby:
                if not is_checked:
                    self._check_device(selection)  # while the other processes load
                    is_checked = True
                loaded = _wait_loaded(standby)
                self.runner.run([case])
                for run in self.runner.runs[first:]:
                    if run.result.status == "ok":
                        self._profile(run, case, loaded)

    def profile_program(self, program: Sequence[str], precision: str) -> None:
        """Profile a program of the user's."""
        name = shlex.join(program)
        request = request_for_program(program, precision, collect().host, **self.options)
        need_gpu()
        self.progress.start(name)
        profile_program(
            self.results,
            request,
            label=self.label,
            on_progress=self._on_progress,
            show_plan=partial(self._show_plan, name),
            on_stored=self.profiles.append,
        )

    def _on_progress(self, what: str) -> None:
        self.progress.update(what, 0, 0)

    def _show_plan(self, name: str, plan: Plan) -> None:
        self.plans.pop(name, None)  # it may be replaced by another
        self.plans[name] = plan
        self.on_plan(name, plan)

    @contextmanager
    def _standing_by(self, task: Task) -> Iterator[Standby | None]:
        """The processes of a profile; None where they do not start, which the profile will say."""
        with ExitStack() as stack:
            standby: Standby | None = None
            request = request_for_task(task, collect().host, **self.options)
            if request.device:
                self.progress.start(f"{task.spec.model}, batch {task.spec.batch_size}: loading")
                with suppress(RidgelineError):
                    standby = stack.enter_context(standing_by(request, self._on_progress))
            yield standby

    def _check_device(self, selection: Selection) -> None:
        """A model that is not found, no GPU, or nothing to count with, ends the command now."""
        task = DeviceTask(
            specs=selection.specs(),
            backend="auto",
            device=selection.settings[0].device,
            precisions=tuple(settings.precision for settings in selection.settings),
        )
        need_cuda(run_isolated(device_task, task).value().partition(":")[0])
        if self.options.get("tier", "counters") == "counters":
            need_counters(self.options.get("tool", AUTO))

    def _profile(self, run: MeasuredRun, task: Task, standby: Standby | None) -> None:
        request = run.request
        name = f"{request.model}, batch {request.batch_size}, {request.precision}"
        self.progress.expect(TRACE_S + COUNTED_S)
        self.progress.start(name)
        profile: StoredProfile | None = None
        try:
            profile = profile_run(
                self.results,
                run,
                Task(spec=task.spec, settings=task.settings),
                self.options,
                label=self.label,
                on_progress=self._on_progress,
                show_plan=partial(self._show_plan, name),
                on_stored=self.profiles.append,
                standby=standby,
            )
        except RidgelineError as error:
            self.failures.append(error)
        if profile is not None:
            self.progress.start(f"{name}: counting what it must do")
            counted = run_isolated(count_run_task, (self.results.path, run.run_id))
            problems = [counted.failure.reason] if counted.failure else counted.answer or []
            if problems:
                reason = f"what the model must do is not known: {'; '.join(problems)}"
                self.on_message(f"{name}: {reason}")


def check_options(options: dict[str, Any]) -> None:
    """Refuse a profile that cannot be made, before anything runs."""
    Request(**options)


def need_gpu() -> None:
    """The driver knows at once; where it cannot be asked, torch does."""
    if not any(device.kind == "cuda" for device in collect().host.devices):
        task = DeviceTask(specs=(), backend="auto", device=0, precisions=("fp32",))
        need_cuda(run_isolated(device_task, task).value().partition(":")[0])


def _wait_loaded(standby: Standby | None) -> Standby | None:
    """None if one of its processes has died, which the profile will say."""
    try:
        if standby is not None:
            standby.wait_loaded()
    except RidgelineError:
        return None
    return standby

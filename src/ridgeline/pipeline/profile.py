"""Profiles: of the runs of an analysis, of models, and of a program."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.worker import Task, ignore_message
from ridgeline.pipeline.cases import CaseRunner, Selection
from ridgeline.pipeline.count_models import count_run_task
from ridgeline.pipeline.machine import device_task
from ridgeline.profile.profiling import (
    ProfileResult,
    need_counters,
    need_cuda,
    profile_program,
    profile_run,
)
from ridgeline.profile.request import AUTO, Plan, Request, request_for_program
from ridgeline.provenance import collect
from ridgeline.records import WorkloadSpec
from ridgeline.settings import MEASURING, Settings, option
from ridgeline.store import MeasuredRun, ResultsFolder, Run
from ridgeline.workloads import list_models

STAGE_OPTIONS: dict[str, Any] = {"level": "hierarchical"}
RUN_S, TRACE_S, COUNTED_S = 20.0, 3.0, 5.0  # of one configuration, about
PROGRAM_S = 120.0  # a program, which starts anew for every group of counters
OnProgress = Callable[[str], None]

# ---------------------------------------------------------------- a stage of an analysis


def reason_to_skip(device: str, *, is_requested: bool) -> str:
    """Why no profile is made on a device; empty if one can be."""
    if not is_requested:
        return "it was not asked for"
    if not device.startswith("cuda"):
        return "counters are those of NVIDIA GPUs"
    try:
        need_counters(AUTO)
    except RidgelineError as error:
        return _in_one_line(error)
    return ""


def profile_runs(
    results: ResultsFolder,
    runs: Sequence[MeasuredRun],
    *,
    on_start: OnProgress = ignore_message,
    on_progress: OnProgress = ignore_message,
) -> tuple[int, list[str]]:
    """Profile the step of each run; how many were, and what went wrong."""
    done = 0
    failures: list[str] = []
    for run in runs:
        on_start(f"counters: {run.request.model}, batch {run.request.batch_size}")
        task = Task(spec=run.request.workload, settings=replace(run.request.settings, iters=None))
        try:
            profile_run(results, run, task, STAGE_OPTIONS, on_progress=on_progress)
            done += 1
        except RidgelineError as error:
            failures.append(_in_one_line(error))
            if not done:  # what ails the first will ail the others
                break
    return done, list(dict.fromkeys(failures))


def _in_one_line(error: RidgelineError) -> str:
    return str(error).replace("\n", " ")


# ---------------------------------------------------------------- profiles alone


@dataclass(slots=True, kw_only=True)
class Profiler:
    """Profiles steps one after another; the lists hold what has come of it so far."""

    runner: CaseRunner  # of the runs that nobody watches
    options: dict[str, Any]  # fields of Request: how a step is to be profiled
    label: str = ""
    on_plan: Callable[[str, Plan], None] = lambda name, plan: None
    on_message: Callable[[str], None] = ignore_message
    profiles: list[Run] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    failures: list[RidgelineError] = field(default_factory=list)  # of profiles, each stored
    problems: list[str] = field(default_factory=list)  # with counting what the model must do

    def __post_init__(self) -> None:
        Request(**self.options)  # what cannot be made is refused before anything runs

    def profile_models(self, selection: Selection) -> None:
        """Run each case unwatched, then profile the same step, and count what it must do."""
        runner = self.runner
        runner.case_s = RUN_S
        self.runner.progress.start("looking for the device", advance=False)
        need_gpu(selection)
        if self.options.get("tier", "counters") == "counters":
            need_counters(self.options.get("tool", AUTO))
        each = product(selection.models, selection.settings, selection.batch_sizes)
        for model, settings, batch_size in each:
            for case in selection.cases(model, settings, [batch_size]):
                first = len(runner.completed)
                runner.run([case])
                for run in runner.completed[first:]:
                    self._profile(run, Task(spec=case.spec, settings=case.settings))

    def profile_program(self, program: Sequence[str], precision: str) -> None:
        """Profile a program of the user's."""
        name, host = shlex.join(program), collect().host
        request = request_for_program(program, precision, host, **self.options)
        if not any(device.kind == "cuda" for device in host.devices):  # torch may know of one
            need_gpu(Selection(models=(), settings=(Settings(),)))
        self.runner.progress.start(name)
        profile_program(self.runner.results, request, label=self.label, **self._listeners(name))

    def _listeners(self, name: str) -> dict[str, Any]:
        return {
            "on_progress": lambda what: self.runner.progress.update(what, 0, 0),
            "show_plan": partial(self._show_plan, name),
            "on_stored": self.profiles.append,
        }

    def _show_plan(self, name: str, plan: Plan) -> None:
        self.plans.pop(name, None)  # it may be replaced by another
        self.plans[name] = plan
        self.on_plan(name, plan)

    def _profile(self, run: MeasuredRun, task: Task) -> None:
        request = run.request
        name = f"{request.model}, batch {request.batch_size}, {run.result.precision}"
        self.runner.progress.start(name, TRACE_S + COUNTED_S)
        options = {"label": self.label, **self._listeners(name)}
        try:
            profile = profile_run(self.runner.results, run, task, self.options, **options)
        except RidgelineError as error:
            self.failures.append(error)
            return
        if profile is None:
            return
        self.runner.progress.start(f"{name}: counting what it must do")
        counted = run_isolated(count_run_task, (self.runner.results.path, run.run_id))
        problems = [counted.failure.reason] if counted.failure else counted.answer or []
        self.problems += problems
        if problems:
            reason = f"what the model must do is not known: {'; '.join(problems)}"
            self.on_message(f"{name}: {reason}")


def profile_one(
    selection: Selection, results: ResultsFolder, options: dict[str, Any]
) -> ProfileResult:
    """Profile a single case for a script; what ends it is raised."""
    profiler = Profiler(runner=CaseRunner(results=results), options=options)
    need_cuda(selection.settings[0].backend)
    results.check_writable()
    profiler.profile_models(selection)
    runner = profiler.runner
    failed = [RidgelineError(run.result.reason, hint=run.result.hint) for run in runner.failed]
    for error in (*runner.errors, *failed, *profiler.failures):
        raise error
    (run,) = profiler.profiles
    return ProfileResult(
        run_id=run.run_id,
        of_run=run.request.of_run,
        summary=run.result,
        kernels=results.read_table(run.run_id, "kernels"),
        problems=tuple(profiler.problems),
    )


def need_gpu(selection: Selection) -> None:
    """A model that is not found, or no GPU, ends the command now."""
    settings = tuple(replace(one, backend="auto") for one in selection.settings)
    device = run_isolated(device_task, replace(selection, settings=settings)).value()
    need_cuda(device.partition(":")[0])


# ---------------------------------------------------------------- for a machine without ridgeline

# Which counters there are depends on the chip, so ncu is asked there.
QUERY = """\
METRICS=$(ncu --query-metrics | grep -oE '^(gpu__time_duration|dram__bytes_(read|write)|\
lts__t_bytes|l1tex__t_bytes|smsp__sass_thread_inst_executed_op_[dfh](add|mul|fma)2?_pred_on|\
sm__ops_path_tensor_src_[a-z0-9_]+|sm__inst_executed_pipe_tensor) ' | sed 's/ *$/.sum/' |\
 paste -sd, -)"""
NCU_OPTIONS = (
    "--csv --page raw --print-units base --target-processes all --profile-from-start off"
    " --clock-control none --cache-control none"
)
SCRIPT = """\
import torch, torchvision

model = torchvision.models.get_model({model!r}, weights=None).cuda().{mode}()
images = torch.randn({batch}, 3, {height}, {width}, device="cuda")
labels = torch.randint(1000, ({batch},), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {tf32}


def step():
    with torch.autocast("cuda", torch.float16, enabled={amp}), torch.set_grad_enabled({training}):
        output = model(images)
    if {training}:
        loss = torch.nn.functional.cross_entropy(output.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


for _ in range({warmup}):
    step()
torch.cuda.synchronize()
torch.cuda.profiler.start()
step()
torch.cuda.synchronize()
torch.cuda.profiler.stop()"""
USUAL_SIDE = 224


def write_ncu_command(selection: Selection, program: Sequence[str], warmup: int) -> str:
    """Lines for a shell that capture one step with the metrics that `ridgeline import` wants.

    A model of torchvision is a script that needs torch alone; a program marks its own step, by
    torch.cuda.profiler.start() and stop().
    """
    if program:
        return _ncu_lines("capture", "", shlex.join(program))
    lines = []
    for model, settings, batch in product(
        selection.models, selection.settings, selection.batch_sizes
    ):
        spec = selection.spec(model, batch)
        name = f"{model.rpartition(':')[2]}_bs{batch}_{settings.precision}"
        text = _write_script(spec, settings, warmup)
        lines.append(_ncu_lines(name, f"cat > {name}.py <<'EOF'\n{text}\nEOF\n",
                                f"python {name}.py"))  # fmt: skip
    return "\n\n".join(lines)


def _write_script(spec: WorkloadSpec, settings: Settings, warmup: int) -> str:
    name = spec.model.removeprefix("torchvision:")
    known = (name, "torchvision", "classification")
    if known not in list_models(name):
        raise RidgelineError(
            f"{spec.model} is none of torchvision's classifiers, for which a script can be written",
            hint="for a script of your own: ridgeline profile --print-ncu -- python train.py",
        )
    if settings.precision not in ("fp32", "tf32", "amp"):
        raise RidgelineError(
            f"--print-ncu writes no script in {settings.precision}", hint="use fp32, tf32 or amp"
        )
    ignored = [
        f.name for f in fields(Settings)
        if f.name not in (*MEASURING, "backend", "precision")
        and getattr(settings, f.name) != getattr(Settings(), f.name)
    ]  # fmt: skip
    if ignored:
        raise RidgelineError(
            f"--print-ncu writes no script with {option(ignored[0])}",
            hint="leave it out; for a step of your own: ridgeline profile --print-ncu -- python"
            " train.py",
        )
    height, width = (*(spec.input_size or (USUAL_SIDE,)) * 2,)[:2]
    return SCRIPT.format(
        model=name, mode="train" if spec.mode == "train" else "eval", batch=spec.batch_size,
        height=height, width=width, tf32=settings.precision == "tf32",
        amp=settings.precision == "amp", training=spec.mode == "train", warmup=warmup,
    )  # fmt: skip


def _ncu_lines(name: str, before: str, program: str) -> str:
    command = f'ncu {NCU_OPTIONS} --metrics "$METRICS" --log-file {name}.csv {program}'
    return f"{before}{QUERY}\n{command}\n# then, with ridgeline: ridgeline import {name}.csv"

"""The main job, from a model to a report: machine, count, run, profile, roofline, report.

The command line and `ridgeline.analyze` both do it here, with the same stages and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Work
from ridgeline.pipeline.cases import CaseRunner, ProgressListener, Selection
from ridgeline.pipeline.count_models import ModuleWork, count_task
from ridgeline.pipeline.machine import device_task, is_measured, machine_task
from ridgeline.pipeline.outputs import Outputs, write_points, write_report
from ridgeline.pipeline.predict import is_calibrated, predict_task
from ridgeline.pipeline.profile import profile_runs, reason_to_skip
from ridgeline.report.study import STAGES_FILE, Study, read_stages, read_study
from ridgeline.report.summary import write_headline
from ridgeline.report.text import counted
from ridgeline.report.views import write_views
from ridgeline.settings import as_arguments, check_mode
from ridgeline.store import atomic_write_text, to_json
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

QUICK_ITERS = 10
LOOK_S = 3.0  # at a machine that was measured before
MACHINE_S = {"cpu": (120.0, 15.0), "cuda": (75.0, 40.0), "mps": (60.0, 20.0)}  # full, quick
RUN_S = {False: 30.0, True: 15.0}  # by quick
COUNT_S, REPORT_S, PROFILE_S = 3.0, 8.0, 35.0
NO_RUN = "no run was completed"
OF_PROGRAM = (
    "the step of a module is counted with its program: mark it by ridgeline.profile_step() and run "
    "`ridgeline profile -- python …`"
)

# ---------------------------------------------------------------- stages


@dataclass(slots=True, kw_only=True)
class Stage:
    """One stage. Whoever does the work may say more in `status` and `reason`."""

    stage: str
    status: str = "done"  # or cached, skipped, failed
    reason: str = ""
    time_s: float = 0.0


@contextmanager
def begin_stage(stages: list[Stage], name: str) -> Iterator[Stage]:
    """A stage; an error for people makes it a failed one, and the next stages go on."""
    stage = Stage(stage=name)
    stages.append(stage)
    start_s = monotonic()
    try:
        yield stage
    except RidgelineError as error:
        stage.status, stage.reason = "failed", str(error).replace("\n", " ")
    finally:
        stage.time_s = monotonic() - start_s


def write_stages(results: Path, stages: Iterable[Stage], run_ids: Sequence[str]) -> None:
    """Keep them for the report of these runs."""
    content = {"stages": [asdict(stage) for stage in stages], "runs": list(run_ids)}
    atomic_write_text(results / STAGES_FILE, to_json(content))


# ---------------------------------------------------------------- an analysis


@dataclass(slots=True, kw_only=True)
class Analysis:
    """What is analyzed, how thoroughly, and what came of it; what is done stays done."""

    selection: Selection  # without batch sizes, they are chosen
    runner: CaseRunner
    is_quick: bool = False
    with_counters: bool = True
    remeasure: bool = False
    title: str | None = None
    notebook: bool = False
    module: ModuleWork | None = None  # instead of a model by its name
    device: str = ""  # "cpu", "cuda:0", "mps"
    is_machine_known: bool = False  # it was measured before
    machine: str | None = None
    batch_sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by model
    stages: list[Stage] = field(default_factory=list)
    outputs: Outputs = field(default_factory=Outputs)
    problems: list[str] = field(default_factory=list)
    study: Study | None = None  # None where no run was completed

    @property
    def run_ids(self) -> list[str]:
        return [run.run_id for run in self.runner.completed]

    @property
    def machine_s(self) -> float:
        if self.is_machine_known:
            return LOOK_S
        return MACHINE_S[self.device.partition(":")[0]][self.is_quick]

    @property
    def expected_s(self) -> float:
        """About so long all stages take; two batch sizes are chosen, or one for a quick look."""
        case_s = RUN_S[self.is_quick] + (PROFILE_S if self.is_profiled else 0.0)
        counting_s = COUNT_S * len(self.selection.models)
        return self.machine_s + counting_s + case_s * self._case_count + REPORT_S

    @property
    def plan(self) -> str:
        """What will be done, and about how long it takes."""
        machine = "roofs of the machine as before" if self.is_machine_known else "measure the roofs"
        profiles = ", their counters" if self.is_profiled else ""
        return (
            f"analyzing {', '.join(self.selection.models)} on {self.device}: {machine}, count,"
            f" {counted(self._case_count, 'run')} by layer{profiles}, report; about"
            f" {format_time(self.expected_s)}"
        )

    @property
    def is_profiled(self) -> bool:
        return self.with_counters and self.device.startswith("cuda")

    @property
    def _case_count(self) -> int:
        sizes = self.selection.batch_sizes or ((1,) if self.is_quick else (1, 2))
        return replace(self.selection, batch_sizes=sizes).case_count

    def do(self, work: Work[Any]) -> Any:
        """What a task returns that gets the results folder."""
        return self.runner.executor.do(work, self.runner.results.path, self.on_progress).value()

    def on_progress(self, what: str) -> None:
        self.runner.progress.update(what, 0, 0)

    def start(self, what: str, seconds: float) -> None:
        self.runner.progress.start(what, seconds)


def find_device(analysis: Analysis) -> None:
    """The device that will be used; a model or a device that is not there ends it here."""
    selection, runner = analysis.selection, analysis.runner
    check_mode(selection.mode)
    runner.results.check_writable()
    known = replace(selection, models=()) if analysis.module else selection
    analysis.device = runner.executor.do(device_task, known).value()
    analysis.is_machine_known = not analysis.remeasure and is_measured(
        runner.results.path, analysis.device, is_quick=analysis.is_quick
    )


def run_stages(analysis: Analysis, progress: ProgressListener | None = None) -> None:
    """All stages in their order, on the device that was found."""
    runner = analysis.runner
    runner.progress = progress or runner.progress
    for name, work in (
        ("machine", _measure_machine),
        ("count", _count),
        ("run", _run_models),
        ("profile", _profile),
        ("roofline", _draw_roofline),
        ("report", _report),
    ):
        with begin_stage(analysis.stages, name) as stage:
            work(analysis, stage)
        if analysis.run_ids:
            write_stages(runner.results.path, analysis.stages, analysis.run_ids)


def check_report(analysis: Analysis) -> None:
    """Raise what kept the analysis from its report."""
    if analysis.runner.errors:
        raise analysis.runner.errors[-1]
    if analysis.run_ids and analysis.outputs.page is None:
        stage = next(s for s in analysis.stages[-2:] if s.status == "failed")
        raise RidgelineError(
            f"the {stage.stage} stage failed: {stage.reason}",
            hint="the runs are kept; `ridgeline report` tries again",
        )


def _measure_machine(analysis: Analysis, stage: Stage) -> None:
    analysis.start("machine", analysis.machine_s)
    work = partial(
        machine_task,
        device=analysis.device,
        quick=analysis.is_quick,
        remeasure=analysis.remeasure,
    )
    answer = analysis.do(work)
    analysis.machine, stage.reason = answer.name, answer.note
    stage.status = "cached" if answer.is_cached else "done"


def _count(analysis: Analysis, stage: Stage) -> None:
    """Count, and choose batch sizes where none is named."""
    analysis.start("counting", COUNT_S * len(analysis.selection.models))
    work = partial(
        count_task,
        selection=analysis.selection,
        machine=analysis.machine,
        is_quick=analysis.is_quick,
        module=analysis.module,
    )
    answer = analysis.do(work)
    stage.reason = "; ".join(answer.problems) or f"{answer.counted} configurations counted"
    stage.status = "failed" if answer.problems and not answer.counted else "done"
    analysis.problems += answer.problems
    analysis.batch_sizes = answer.batch_sizes
    if is_calibrated(analysis.runner.results.path, analysis.device):
        stage.reason += f", {_predict(analysis)}"


def _predict(analysis: Analysis) -> str:
    """Predict the steps before they run; how many, or why not."""
    work = partial(
        predict_task,
        selection=analysis.selection,
        batch_sizes=analysis.batch_sizes,
        device=analysis.device,
        module=analysis.module,
    )
    try:
        return f"{analysis.do(work)} predicted"
    except RidgelineError as error:
        analysis.problems.append(f"no predictions: {error.problem}")
        return "no predictions"


def _run_models(analysis: Analysis, stage: Stage) -> None:
    runner, selection = analysis.runner, analysis.selection
    runner.case_s = RUN_S[analysis.is_quick]
    digest = None
    if analysis.module is not None:
        runner.work, digest = analysis.module.measure, analysis.module.digest
    for model in selection.models:
        batch_sizes = analysis.batch_sizes.get(model, selection.batch_sizes or (1,))
        for settings in selection.settings:
            iters = settings.iters or (QUICK_ITERS if analysis.is_quick else None)
            cases = selection.cases(model, replace(settings, iters=iters), batch_sizes)
            runner.run(replace(case, digest=digest) for case in cases)
    stage.reason = f"{len(runner.completed)} runs with their layers"
    if runner.failed or runner.errors:
        stage.status = "done" if runner.completed else "failed"
        reasons = [run.result.reason for run in runner.failed]
        reasons += [error.problem for error in runner.errors]
        stage.reason += f", {len(reasons)} failed: {'; '.join(dict.fromkeys(reasons))}"


def _profile(analysis: Analysis, stage: Stage) -> None:
    """Counters of every configuration, once."""
    stage.reason = OF_PROGRAM
    if analysis.module is None:
        stage.reason = reason_to_skip(analysis.device, is_requested=analysis.with_counters)
    if stage.reason:
        stage.status = "skipped"
        return
    done, failures = profile_runs(
        analysis.runner.results,
        [run for run in analysis.runner.completed if run.request.repeat == 1],
        on_start=lambda what: analysis.start(what, PROFILE_S),
        on_progress=analysis.on_progress,
    )
    stage.status = "failed" if failures and not done else "done"
    counted = [f"counters of {done} runs"] if done or not failures else []
    stage.reason = "; ".join([*counted, *failures])


def _draw_roofline(analysis: Analysis, stage: Stage) -> None:
    """Points and figures; nothing where no run was completed."""
    if not analysis.run_ids:
        stage.status, stage.reason = "skipped", NO_RUN
        return
    analysis.start("report", REPORT_S)
    results = analysis.runner.results
    write_views(results)
    study = read_study(results, run_ids=[run.run_id for run in analysis.runner.runs])
    analysis.study = study
    outputs = analysis.outputs = write_points(study, on_progress=analysis.on_progress)
    stage.reason = f"{len(study.points)} points, {len(outputs.figures)} figures"


def _report(analysis: Analysis, stage: Stage) -> None:
    if analysis.study is None:
        stage.status, stage.reason = "skipped", NO_RUN
        return
    stages = read_stages(analysis.runner.results.path, analysis.run_ids)
    analysis.study = replace(analysis.study, stages=stages)
    write_report(
        analysis.study,
        analysis.outputs,
        title=analysis.title,
        notebook=analysis.notebook,
        on_progress=analysis.on_progress,
    )


# ---------------------------------------------------------------- for scripts and notebooks


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeResult:
    """What `ridgeline.analyze` returns. It shows itself in a notebook."""

    study: Study
    outputs: Outputs
    stages: list[Stage]
    run_ids: tuple[str, ...]

    @property
    def report(self) -> Path | None:
        """The page."""
        return self.outputs.page

    @property
    def findings(self) -> pd.DataFrame:
        """What to fix first: the largest headroom at the top; advice names arguments."""
        findings = self.study.findings
        return findings.assign(advice=[as_arguments(str(text)) for text in findings["advice"]])

    @property
    def points(self) -> pd.DataFrame:
        """Every step, phase and layer with its floor, bound, efficiency and headroom."""
        return self.study.points

    def _lines(self) -> list[str]:
        """The headline, and layer, meaning and advice of each finding."""
        findings = [f"{row['layer']}: {row['meaning']}; {as_arguments(str(row['advice']))}"
                    for row in self.study.top_findings().to_dict("records")]  # fmt: skip
        return [*write_headline(self.study), *findings, f"report: {self.report}"]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in self._lines())


def analyze_in_process(analysis: Analysis) -> AnalyzeResult:
    """All stages in this process; what a model raises is raised, and what it prints is printed."""
    find_device(analysis)
    run_stages(analysis)
    check_report(analysis)
    assert analysis.study is not None
    return AnalyzeResult(
        study=analysis.study,
        outputs=analysis.outputs,
        stages=analysis.stages,
        run_ids=tuple(analysis.run_ids),
    )


def module_work(
    model: Any,
    inputs: Any,
    *,
    mode: str,
    batch_size: int | None,
    loss: Callable[[Any], Any] | None,
) -> tuple[ModuleWork, str, int]:
    """A module to analyze, its name, and the batch that its inputs carry."""
    from ridgeline.count.counting import count_module
    from ridgeline.measure.result import module_workload
    from ridgeline.measure.worker import measure_case
    from ridgeline.tracing.tracker import tensors_in
    from ridgeline.workloads.sources import module_digest

    workload, spec = module_workload(model, inputs, mode=mode, batch_size=batch_size, loss=loss)
    work = ModuleWork(
        digest=module_digest(model, [tuple(tensor.shape) for tensor in tensors_in(inputs)]),
        counter=lambda _spec, settings: count_module(model, inputs, settings, loss=loss),
        measure=lambda task, send: measure_case(workload, task, send),
    )
    return work, spec.model, spec.batch_size

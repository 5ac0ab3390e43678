"""The main job, from a model to a report: machine, count, run, profile, roofline, report.

The command line and `ridgeline.analyze` both do it here, with the same stages and defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Work
from ridgeline.measure.worker import ignore_message
from ridgeline.pipeline.cases import (
    Case,
    CaseRunner,
    Executor,
    NoProgress,
    ProgressListener,
    Selection,
)
from ridgeline.pipeline.count import CountAnswer, Counter, CountTask, count_task
from ridgeline.pipeline.machine import DeviceTask, MachineTask, device_task, machine_task
from ridgeline.pipeline.outputs import Outputs, write_figures, write_points, write_report
from ridgeline.pipeline.profile import profile_stage
from ridgeline.pipeline.stages import Stages
from ridgeline.report.study import Study, read_study
from ridgeline.report.summary import summary
from ridgeline.report.views import write_views
from ridgeline.settings import as_arguments, check_mode
from ridgeline.store import ResultsFolder

if TYPE_CHECKING:
    import pandas as pd

QUICK_ITERS = 10
MACHINE_S = {"cpu": (120.0, 15.0), "cuda": (75.0, 40.0), "mps": (60.0, 20.0)}  # full, quick
RUN_S = {False: 30.0, True: 15.0}  # by quick
COUNT_S, REPORT_S, PROFILE_S = 3.0, 8.0, 35.0
NO_RUN = "no run was completed"
OF_PROGRAM = (
    "the step of a module is counted with its program: mark it by ridgeline.profile_step() and run "
    "`ridgeline profile -- python …`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleWork:
    """A module of the calling program: how it is counted and measured in this process."""

    digest: str
    counter: Counter
    measure: Work[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """What is analyzed, and how thoroughly."""

    selection: Selection  # without batch sizes: they are chosen
    is_quick: bool = False
    with_counters: bool = True
    remeasure: bool = False
    title: str | None = None
    notebook: bool = False
    module: ModuleWork | None = None  # instead of a model by its name

    @property
    def case_count(self) -> int:
        """How many there will be; two batch sizes are chosen, or one for a quick look."""
        sizes = self.selection.batch_sizes or ((1,) if self.is_quick else (1, 2))
        return replace(self.selection, batch_sizes=sizes).case_count


@dataclass(slots=True, kw_only=True)
class Analysis:
    """The stages of one analysis and what came of them; what is done stays done."""

    request: AnalyzeRequest
    results: ResultsFolder
    executor: Executor = field(default_factory=Executor)
    reraises: bool = False  # what a run in this process raises
    on_failure_log: Callable[[str], None] = ignore_message
    progress: ProgressListener = field(default_factory=NoProgress)
    device: str = ""  # "cpu", "cuda:0", "mps"
    machine: str | None = None
    stages: Stages = field(default_factory=Stages)
    outputs: Outputs = field(default_factory=Outputs)
    problems: list[str] = field(default_factory=list)
    runner: CaseRunner = field(init=False)
    study: Study | None = None  # None where no run was completed

    def __post_init__(self) -> None:
        module = self.request.module
        self.runner = CaseRunner(
            results=self.results,
            executor=self.executor,
            case_s=RUN_S[self.request.is_quick],
            reraises=self.reraises,
            on_failure_log=self.on_failure_log,
        )
        if module is not None:
            self.runner.work = module.measure

    @property
    def run_ids(self) -> list[str]:
        return [run.run_id for run in self.runner.completed]

    def find_device(self) -> None:
        """The device that will be used; a model or a device that is not there ends it here."""
        selection = self.request.selection
        check_mode(selection.mode)
        specs = selection.specs()
        self.results.check_writable()
        first = selection.settings[0]
        task = DeviceTask(
            specs=() if self.request.module else specs,
            backend=first.backend,
            device=first.device,
            precisions=tuple(settings.precision for settings in selection.settings),
        )
        self.device = self.executor.do(device_task, task).value()

    @property
    def expected_s(self) -> float:
        """About so long all stages take."""
        request = self.request
        runs_s = request.case_count * RUN_S[request.is_quick]
        if request.with_counters and self.device.startswith("cuda"):
            runs_s += PROFILE_S * request.case_count
        return self._machine_s + COUNT_S * len(request.selection.models) + runs_s + REPORT_S

    @property
    def _machine_s(self) -> float:
        full_s, quick_s = MACHINE_S[self.device.partition(":")[0]]
        return quick_s if self.request.is_quick else full_s

    def run(self, progress: ProgressListener | None = None) -> None:
        """All stages, on the device that was found."""
        if progress is not None:
            self.progress = self.runner.progress = progress
        self._measure_machine()
        batch_sizes = self._count()
        self._run_models(batch_sizes)
        self._profile()
        self._report()

    def check(self) -> None:
        """Raise what kept the analysis from its report."""
        if self.runner.errors:
            raise self.runner.errors[-1]
        if self.run_ids and self.outputs.page is None:
            stage = next(s for s in reversed(self.stages.done) if s.status == "failed")
            raise RidgelineError(
                f"the {stage.stage} stage failed: {stage.reason}",
                hint="the runs are kept; `ridgeline report` tries again",
            )

    def _on_progress(self, what: str) -> None:
        self.progress.update(what, 0, 0)

    def _start(self, what: str, seconds: float) -> None:
        self.progress.expect(seconds)
        self.progress.start(what)

    def _measure_machine(self) -> None:
        self._start("machine", self._machine_s)
        task = MachineTask(
            results=self.results.path,
            device=self.device,
            quick=self.request.is_quick,
            remeasure=self.request.remeasure,
        )
        with self.stages.begin("machine") as stage:
            answer = self.executor.do(machine_task, task, self._on_progress).value()
            self.machine = answer.name
            stage.status = "cached" if answer.is_cached else "done"
            stage.reason = answer.note

    def _count(self) -> dict[str, tuple[int, ...]]:
        """Count, and choose batch sizes where none is named."""
        selection, module = self.request.selection, self.request.module
        first = selection.settings[0]
        self._start("counting", COUNT_S * len(selection.models))
        task = CountTask(
            results=self.results.path,
            specs=selection.specs(),
            batch_sizes=selection.batch_sizes,
            backend=first.backend,
            device=first.device,
            precisions=tuple(settings.precision for settings in selection.settings),
            optimizer=first.optimizer,
            machine=self.machine,
            is_quick=self.request.is_quick,
            digest=module.digest if module else None,
            counter=module.counter if module else None,
        )
        with self.stages.begin("count") as stage:
            answer: CountAnswer = self.executor.do(count_task, task, self._on_progress).value()
            stage.reason = "; ".join(answer.problems) or f"{answer.counted} configurations counted"
            if answer.problems:
                stage.status = "failed" if not answer.counted else "done"
                self.problems += answer.problems
            return answer.batch_sizes
        return dict.fromkeys(selection.models, selection.batch_sizes or (1,))

    def _run_models(self, batch_sizes: dict[str, tuple[int, ...]]) -> None:
        runner = self.runner
        with self.stages.begin("run") as stage:
            for model in self.request.selection.models:
                for settings in self.request.selection.settings:
                    iters = settings.iters or (QUICK_ITERS if self.request.is_quick else None)
                    timed = replace(settings, iters=iters)
                    runner.run(map(self._with_digest, self.request.selection.cases(
                        model, timed, batch_sizes[model]
                    )))  # fmt: skip
            stage.reason = f"{len(runner.completed)} runs with their layers"
            if runner.failed or runner.errors:
                stage.status = "done" if runner.completed else "failed"
                reasons = [run.result.reason for run in runner.failed]
                reasons += [error.problem for error in runner.errors]
                stage.reason += f", {len(reasons)} failed: {'; '.join(dict.fromkeys(reasons))}"

    def _with_digest(self, case: Case) -> Case:
        module = self.request.module
        return replace(case, digest=module.digest) if module else case

    def _profile(self) -> None:
        """Counters of every configuration, once."""
        if self.request.module is not None:
            self.stages.skip("profile", OF_PROGRAM)
            return
        profile_stage(
            self.stages,
            self.results,
            [run for run in self.runner.completed if run.request.repeat == 1],
            device=self.device,
            is_requested=self.request.with_counters,
            on_start=lambda what: self._start(what, PROFILE_S),
            on_progress=self._on_progress,
        )

    def _report(self) -> None:
        """Points, figures and the report; nothing where no run was completed."""
        if not self.run_ids:
            self.stages.skip("roofline", NO_RUN)
            self.stages.skip("report", NO_RUN)
            return
        self._start("report", REPORT_S)
        write_views(self.results)
        study = read_study(self.results, run_ids=[run.run_id for run in self.runner.runs])
        with self.stages.begin("roofline") as stage:
            write_points(study, self.outputs)
            write_figures(study, self.outputs, on_progress=self._on_progress)
            stage.reason = f"{len(study.points)} points, {len(self.outputs.figures)} figures"
        self.stages.write(self.results.path, self.run_ids)
        with self.stages.begin("report"):
            write_report(
                replace(study, stages=self.stages.for_report()),
                self.outputs,
                title=self.request.title,
                notebook=self.request.notebook,
                on_progress=self._on_progress,
            )
        self.stages.write(self.results.path, self.run_ids)
        self.study = study


# ---------------------------------------------------------------- for scripts and notebooks


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeResult:
    """What `ridgeline.analyze` returns. It shows itself in a notebook."""

    study: Study
    outputs: Outputs
    stages: Stages
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

    def _lines(self) -> tuple[list[str], list[tuple[str, str, str]]]:
        """The headline, and layer, meaning and advice of each finding."""
        texts = summary(self.study)
        findings = [
            (str(row["layer"]), str(row["meaning"]), as_arguments(str(row["advice"])))
            for row in texts.findings
        ]
        return list(texts.headline), findings

    def __str__(self) -> str:
        headline, findings = self._lines()
        lines = [f"{layer}: {meaning}; {advice}" for layer, meaning, advice in findings]
        return "\n".join([*headline, *lines, f"report: {self.report}"])

    def _repr_html_(self) -> str:
        from html import escape

        headline, findings = self._lines()
        words = "".join(f"<p>{escape(line)}</p>" for line in headline)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in findings
        )
        head = "<tr><th>layer</th><th>meaning</th><th>what to try</th></tr>"
        return f"{words}<table>{head}{rows}</table><p>{escape(str(self.report))}</p>"


def analyze_in_process(request: AnalyzeRequest, results: Path) -> AnalyzeResult:
    """All stages in this process; what a model raises is raised, and what it prints is printed."""
    analysis = Analysis(
        request=request,
        results=ResultsFolder(results),
        executor=Executor(in_process=True, keeps_stdout=True),
        reraises=True,
    )
    analysis.find_device()
    analysis.run()
    analysis.check()
    assert analysis.study is not None
    return AnalyzeResult(
        study=replace(analysis.study, stages=analysis.stages.for_report()),
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
    if inputs is None:
        raise RidgelineError(
            "a module needs inputs",
            hint="give a tensor, a tuple of arguments or a dictionary of them",
        )
    from ridgeline.count.counting import count_module
    from ridgeline.measure.result import module_workload
    from ridgeline.measure.worker import measure_case
    from ridgeline.tracing.modules import tensors_in
    from ridgeline.workloads.sources import module_digest

    workload, spec = module_workload(model, inputs, mode=mode, batch_size=batch_size, loss=loss)
    work = ModuleWork(
        digest=module_digest(model, [tuple(tensor.shape) for tensor in tensors_in(inputs)]),
        counter=lambda _spec, settings: count_module(model, inputs, settings, loss=loss),
        measure=lambda task, send: measure_case(workload, task, send),
    )
    return work, spec.model, spec.batch_size

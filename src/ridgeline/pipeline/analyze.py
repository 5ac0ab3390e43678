"""The main job in one process: for a module in a script or a notebook, or a model by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.tasks import Task, question
from ridgeline.pipeline.count import spec_of, store_count
from ridgeline.pipeline.machine import MachineTask, machine_task
from ridgeline.pipeline.outputs import Outputs, write_figures, write_points, write_report
from ridgeline.pipeline.profile import profile_stage
from ridgeline.pipeline.stages import Stages
from ridgeline.records import WorkloadSpec
from ridgeline.report.study import Study, read_study
from ridgeline.report.summary import summary
from ridgeline.report.views import write_views
from ridgeline.settings import Settings, as_arguments
from ridgeline.store import ResultsFolder, Run
from ridgeline.workloads.sources import module_digest

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.measure.result import MeasureResult


OF_PROGRAM = (
    "the step of a module is counted with its program: mark it by ridgeline.profile_step() and run "
    "`ridgeline profile -- python …`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeResult:
    """What `ridgeline.analyze` found. It shows itself in a notebook."""

    study: Study
    outputs: Outputs
    stages: Stages
    run_id: str

    @property
    def report(self) -> Path | None:
        """The page."""
        return self.outputs.page

    @property
    def findings(self) -> pd.DataFrame:
        """What to fix first: the largest headroom at the top; advice names arguments."""
        found = self.study.findings
        return found.assign(advice=[as_arguments(str(text)) for text in found["advice"]])

    @property
    def points(self) -> pd.DataFrame:
        """Every step, phase and layer with its floor, bound, efficiency and headroom."""
        return self.study.points

    def __str__(self) -> str:
        told = summary(self.study)
        lines = [*told.headline]
        lines += [
            f"{row['layer']}: {row['meaning']}; {as_arguments(row['advice'])}"
            for row in told.findings
        ]
        return "\n".join([*lines, f"report: {self.report}"])

    def _repr_html_(self) -> str:
        from html import escape

        told = summary(self.study)
        words = "".join(f"<p>{escape(line)}</p>" for line in told.headline)
        rows = "".join(
            f"<tr><td>{escape(str(row['layer']))}</td><td>{escape(str(row['meaning']))}</td>"
            f"<td>{escape(as_arguments(str(row['advice'])))}</td></tr>"
            for row in told.findings
        )
        head = "<tr><th>layer</th><th>meaning</th><th>what to try</th></tr>"
        return f"{words}<table>{head}{rows}</table><p>{escape(str(self.report))}</p>"


def analyze_here(
    model: Any,
    inputs: Any,
    spec: WorkloadSpec | None,
    settings: Settings,
    *,
    mode: str,
    results: Path,
    quick: bool,
    loss: Callable[[Any], Any] | None,
    title: str | None,
    notebook: bool,
    remeasure: bool = False,
    with_counters: bool = True,
) -> AnalyzeResult:
    """All stages in this process. `spec` names a model; without one `model` is a module."""
    folder = ResultsFolder(results)
    folder.check_writable()
    stages, outputs = Stages(), Outputs()
    device = _device(settings)
    with stages.begin("machine") as stage:
        task = MachineTask(results=results, device=device, quick=quick, remeasure=remeasure)
        found = machine_task(task, lambda what: None)
        stage.status = "cached" if found.is_cached else "done"
        stage.reason = as_arguments(found.note)
    run = _run(model, inputs, spec, settings, mode=mode, loss=loss, folder=folder)
    stages.note("run", "one run with its layers")
    with stages.begin("count"):
        _count(model, inputs, spec, run, loss=loss, folder=folder)
    if spec is not None:
        runs = [(run, settings)]
        profile_stage(stages, folder, runs, device=device, is_wanted=with_counters)
    else:
        stages.skip("profile", OF_PROGRAM)
    write_views(folder)
    study = read_study(folder, run_ids=[run.run_id])
    with stages.begin("roofline"):
        write_points(study, outputs)
        write_figures(study, outputs)
    study = replace(study, stages=stages.told())
    with stages.begin("report"):
        write_report(study, outputs, title=title, notebook=notebook)
    stages.write(results, [run.run_id])
    return AnalyzeResult(study=study, outputs=outputs, stages=stages, run_id=run.run_id)


def _device(settings: Settings) -> str:
    from ridgeline.measure.backends import choose_backend

    backend = choose_backend(settings.backend, settings.device)
    return f"cuda:{settings.device}" if backend.kind == "cuda" else backend.kind


def _run(
    model: Any,
    inputs: Any,
    spec: WorkloadSpec | None,
    settings: Settings,
    *,
    mode: str,
    loss: Callable[[Any], Any] | None,
    folder: ResultsFolder,
) -> Run:
    """Measure and store."""
    from ridgeline.measure.result import measure_module, measure_named
    from ridgeline.tracing.modules import tensors_in

    result: MeasureResult
    digest = None
    if spec is not None:
        result = measure_named(spec, settings)
    else:
        result = measure_module(model, inputs, settings, mode=mode, loss=loss)
        spec = WorkloadSpec(model=result.model, batch_size=result.batch_size, mode=mode)
        digest = module_digest(model, [tuple(t.shape) for t in tensors_in(inputs)])
    return folder.write_run(
        label=f"run-{result.model}-bs{result.batch_size}",
        asked=question(Task(spec=spec, settings=settings), digest=digest),
        found=result.found,
        provenance=result.provenance,
        tables=result.tables,
    )


def _count(
    model: Any,
    inputs: Any,
    spec: WorkloadSpec | None,
    run: Run,
    *,
    loss: Callable[[Any], Any] | None,
    folder: ResultsFolder,
) -> None:
    from ridgeline.count.counting import Settings as CountSettings
    from ridgeline.count.counting import count_module, count_workload

    counting = CountSettings(
        mode=str(run.asked["mode"]),
        precision=str(run.found["precision"]),
        optimizer=str(run.asked["optimizer"]),
    )
    if spec is not None:
        counted = count_workload(spec_of(run.asked), counting)
    else:
        counted = count_module(model, inputs, counting, loss=loss)
    store_count(folder, counted, run.asked)


def check_model(model: Any, inputs: Any) -> None:
    """A module needs inputs."""
    if not isinstance(model, str | Path) and inputs is None:
        raise RidgelineError(
            "a module needs inputs",
            hint="give a tensor, a tuple of arguments or a dictionary of them",
        )

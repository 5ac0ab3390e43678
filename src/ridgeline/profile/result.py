"""What `ridgeline.profile` answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.settings import Settings
from ridgeline.measure.tasks import Task, measure_task, question
from ridgeline.profile.checks import need_cuda
from ridgeline.profile.request import Request
from ridgeline.profile.stored import profile_run
from ridgeline.provenance import collect
from ridgeline.records import WorkloadSpec
from ridgeline.store import ResultsFolder
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """A counted step."""

    run_id: str
    of_run: str  # the unwatched run of the same step
    found: Mapping[str, Any]
    kernels: pd.DataFrame
    problems: tuple[str, ...] = ()  # with counting what the model must do

    @property
    def totals(self) -> Mapping[str, float | None]:
        """Executed FLOPs by kind and bytes by level; None where it was not counted."""
        totals: Mapping[str, float | None] = self.found["totals"]
        return totals

    def __str__(self) -> str:
        kernel_s, step_s = self.found["kernel_time_s"], self.found["step_time_s"]
        return (
            f"{self.found['launches']:.0f} kernels, {format_time(kernel_s)} in a step of "
            f"{format_time(step_s)}; {self.run_id}"
        )


def profile_named(
    spec: WorkloadSpec, settings: Settings, results: ResultsFolder, options: Mapping[str, Any]
) -> ProfileResult:
    """Measure a step, then count it; both are stored."""
    need_cuda(settings.backend)
    Request(**options)  # what cannot be asked is said before anything runs
    results.check_writable()
    task = Task(spec=spec, settings=settings)
    measured = run_isolated(measure_task, task).value()
    run = results.write_run(
        label=f"run-{spec.model.rpartition('/')[2]}-bs{spec.batch_size}",
        asked=question(task),
        found=measured.found,
        provenance=collect(),
        tables=measured.tables,
        log=measured.log,
    )
    made = profile_run(results, run, task, options)
    assert made is not None
    kernels = results.read_table(made.run_id, "kernels")
    return ProfileResult(run_id=made.run_id, of_run=run.run_id, found=made.found, kernels=kernels)

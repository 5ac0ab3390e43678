"""The profile of a stored run, stored beside it: a success or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.profile.outcome import asked_of, failed, found_of, kernels_of, request_of
from ridgeline.profile.plan import Plan
from ridgeline.profile.profiling import Tell, profile
from ridgeline.provenance import collect
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.measure.tasks import Task


def profile_run(
    results: ResultsFolder,
    run: Run,
    task: Task,
    options: Mapping[str, Any],
    *,
    label: str = "",
    tell: Tell = lambda what, time_s: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
) -> Run | None:
    """Profile the step of a run and store what came of it; a dry request stores nothing."""
    asked = asked_of(task, run, label)
    try:
        request = request_of(run, task, **options)
        profiled = profile(request, tell=tell, show_plan=show_plan)
    except RidgelineError as error:
        if not options.get("is_dry"):
            _store(results, asked, failed(run, error))
        raise
    if request.is_dry:
        return None
    return _store(results, asked, found_of(request, profiled, run), kernels_of(profiled))


def _store(
    results: ResultsFolder,
    asked: dict[str, Any],
    found: dict[str, Any],
    kernels: pd.DataFrame | None = None,
) -> Run:
    model = str(asked["model"]).rpartition("/")[2]
    return results.write_run(
        label=f"profile-{model}-bs{asked['batch_size']}",
        asked=asked,
        found=found,
        provenance=collect(),
        tables={} if kernels is None else {"kernels": kernels},
    )

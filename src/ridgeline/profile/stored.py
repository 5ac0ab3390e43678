"""Profiles in a results folder: of a stored run, a success or the reason for none; of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import PROGRAM
from ridgeline.errors import RidgelineError
from ridgeline.profile.outcome import asked_of, failed, found_of, tables_of
from ridgeline.profile.plan import Plan
from ridgeline.profile.profiling import Standby, profile
from ridgeline.profile.request import Request, request_of
from ridgeline.profile.workplace import Tell
from ridgeline.provenance import collect
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.measure.tasks import Task


Keep = Callable[[Run], None]  # hears of what is stored, at once


def profile_run(
    results: ResultsFolder,
    run: Run,
    task: Task,
    options: Mapping[str, Any],
    *,
    label: str = "",
    tell: Tell = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    keep: Keep = lambda run: None,
    standby: Standby | None = None,
) -> Run | None:
    """Profile the step of a run and store what came of it or why nothing did; a dry one nothing."""
    wished = Request(task=task, **options).to_dict()
    asked = {**asked_of(task, run, label), "profile": wished}
    try:
        request = request_of(run, task, **options)
        if standby is not None and standby.request.device == request.device:
            profiled = standby.profile(show_plan, memory_bytes=request.memory_bytes)
        else:  # there is none, or it took another device for the first one
            profiled = profile(request, tell=tell, show_plan=show_plan)
    except RidgelineError as error:
        if not options.get("is_dry"):
            _store(results, asked, failed(run, error), keep)
        raise
    if request.is_dry:
        return None
    return _store(results, asked, found_of(request, profiled, run), keep, tables_of(profiled))


def profile_program(
    results: ResultsFolder,
    request: Request,
    *,
    label: str = "",
    tell: Tell = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    keep: Keep = lambda run: None,
) -> Run | None:
    """Profile a program of the user's and store it as a capture; a dry request stores nothing."""
    profiled = profile(request, tell=tell, show_plan=show_plan)
    if request.is_dry:
        return None
    with interrupts_later():
        run = results.write_run(
            label=f"profile-{script_name(request.program)}",
            asked={
                "command": "profile",
                "program": list(request.program),
                "label": label,
                "profile": request.to_dict(),
            },
            found={**found_of(request, profiled, None), "kind": PROGRAM},
            provenance=collect(),
            tables=tables_of(profiled),
        )
        keep(run)
    return run


def script_name(program: Sequence[str]) -> str:
    """What a user would call it: `train.py` of `python -u train.py --lr 0.1`."""
    scripts = [Path(part).name for part in program if part.endswith((".py", ".sh"))]
    return scripts[0] if scripts else Path(program[0]).name


def _store(
    results: ResultsFolder,
    asked: dict[str, Any],
    found: dict[str, Any],
    keep: Keep,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> Run:
    model = str(asked["model"]).rpartition("/")[2]
    with interrupts_later():  # what is stored is told
        run = results.write_run(
            label=f"profile-{model}-bs{asked['batch_size']}",
            asked=asked,
            found=found,
            provenance=collect(),
            tables=tables or {},
        )
        keep(run)
    return run

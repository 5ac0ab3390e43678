"""Profiles in a results folder: of a stored run, a success or the reason for none; of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import PROGRAM, sums
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.worker import Task, measure_task, run_request
from ridgeline.profile.checks import need_cuda
from ridgeline.profile.operators import NO_MODULES
from ridgeline.profile.processes import Tell
from ridgeline.profile.profiling import Standby, profile
from ridgeline.profile.request import Plan, ProfiledStep, Request, request_of
from ridgeline.profile.self_test import doubts
from ridgeline.profile.trace import by_operator, in_all
from ridgeline.provenance import collect
from ridgeline.records import (
    Failure,
    ProfileRequest,
    ProfileSummary,
    WorkloadSpec,
)
from ridgeline.settings import Settings
from ridgeline.signals import interrupts_later
from ridgeline.store import MeasuredRun, ResultsFolder, Run, StoredProfile, run_label
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

Keep = Callable[[Run], None]  # hears of what is stored, at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """A counted step."""

    run_id: str
    of_run: str  # the unwatched run of the same step
    result: ProfileSummary
    kernels: pd.DataFrame
    problems: tuple[str, ...] = ()  # with counting what the model must do

    @property
    def totals(self) -> Mapping[str, float | None]:
        """Executed FLOPs by kind and bytes by level; None where it was not counted."""
        return self.result.totals

    def __str__(self) -> str:
        result = self.result
        return (
            f"{result.launches or 0:.0f} kernels, {format_time(result.kernel_time_s or 0.0)} in a "
            f"step of {format_time(result.step_time_s or 0.0)}; {self.run_id}"
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
    run_id = results.save_run(
        run_label("run", spec.model, spec.batch_size),
        run_request(task),
        measured.result,
        collect(),
        tables=measured.tables,
        log=measured.log,
    )
    made = profile_run(results, results.read_run(run_id), task, options)
    assert made is not None
    kernels = results.read_table(made.run_id, "kernels")
    return ProfileResult(run_id=made.run_id, of_run=run_id, result=made.result, kernels=kernels)


def profile_run(
    results: ResultsFolder,
    run: MeasuredRun,
    task: Task,
    options: Mapping[str, Any],
    *,
    label: str = "",
    tell: Tell = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    keep: Keep = lambda run: None,
    standby: Standby | None = None,
) -> StoredProfile | None:
    """Profile the step of a run and store what came of it or why nothing did; a dry one nothing."""
    wished = Request(task=task, **options).to_dict()
    stored = profile_request(task, run, label, wished)
    try:
        request = request_of(run, task, **options)
        if standby is not None and standby.request.device == request.device:
            profiled = standby.profile(show_plan, memory_bytes=request.memory_bytes)
        else:  # there is none, or it took another device for the first one
            profiled = profile(request, tell=tell, show_plan=show_plan)
    except RidgelineError as error:
        if not options.get("is_dry"):
            _store(results, stored, failed_profile(run, error), keep)
        raise
    if request.is_dry:
        return None
    return _store(
        results, stored, profile_summary(request, profiled, run), keep, tables_of(profiled)
    )


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
    stored = {
        "command": "profile",
        "program": list(request.program),
        "label": label,
        "profile": request.to_dict(),
    }
    with interrupts_later():
        run_id = results.save_run(
            run_label("profile", script_name(request.program)),
            stored,
            {**profile_summary(request, profiled, None), "kind": PROGRAM},
            collect(),
            tables=tables_of(profiled),
        )
        run = results.read_run(run_id)
        keep(run)
    return run


def script_name(program: Sequence[str]) -> str:
    """What a user would call it: `train.py` of `python -u train.py --lr 0.1`."""
    scripts = [Path(part).name for part in program if part.endswith((".py", ".sh"))]
    return scripts[0] if scripts else Path(program[0]).name


def _store(
    results: ResultsFolder,
    request: ProfileRequest,
    result: Failure | Mapping[str, Any],
    keep: Keep,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> StoredProfile:
    label = run_label("profile", request.model, request.batch_size)
    with interrupts_later():  # what is stored is shown
        run_id = results.save_run(label, request, result, collect(), tables=tables or {})
        run: StoredProfile = results.read_run(run_id)
        keep(run)
    return run


def profile_request(
    task: Task, run: MeasuredRun, label: str = "", options: Mapping[str, Any] | None = None
) -> ProfileRequest:
    """The request of a run, which run it was, and how its step was to be profiled."""
    values = {**vars(run_request(task, label=label)), "command": "profile"}
    return ProfileRequest(**values, of_run=run.run_id, profile=options or {})


def failed_profile(run: MeasuredRun, error: RidgelineError) -> Failure:
    """What is kept of a profile that did not come about."""
    device = run.result.device_name
    return Failure(reason=error.problem, hint=error.hint, device_name=device, backend="cuda")


def profile_summary(
    request: Request, profiled: ProfiledStep, run: MeasuredRun | None
) -> dict[str, Any]:
    """What came out, without the kernels themselves."""
    kernels, copies = kernels_of(profiled), copies_of(profiled)
    step_s = _step_s(run, profiled)
    time_s = float(kernels["time_s"].sum())
    busy_s = time_s if profiled.busy_s is None else profiled.busy_s / profiled.steps
    plan = profiled.plan
    return {
        "status": "ok",
        "provenance": "counter" if request.tier == "counters" else "measured",
        "device_name": run.result.device_name if run is not None else request.device or None,
        "backend": "cuda",
        "precision": run.result.precision if run is not None else None,
        "tier": request.tier,
        "level": request.level,
        "tool": profiled.tool or None,
        "tool_version": profiled.tool_version or None,
        "iters": profiled.steps,
        "kernel_time_s": time_s,
        "step_time_s": step_s,
        "busy_time_s": busy_s if profiled.busy_s is not None else None,
        "gap_s": max(step_s - busy_s, 0.0) if step_s is not None else None,
        "launches": float(kernels["launches"].sum()),
        "copies": None if copies is None else in_all(copies),
        "attributed_share": _share(kernels, kernels["phase"].ne("")),
        "layer_share": _share(
            kernels, kernels["layer"].ne("") & ~kernels["layer"].isin(NO_MODULES)
        ),
        "phases": _phases(kernels),
        "totals": sums(kernels),
        "plan": plan.to_dict() if plan is not None else None,
        "cost": {
            "planned_s": profiled.planned_s,
            "counted_s": profiled.counted_s,
            "taken_s": profiled.taken_s,
            "standby_s": profiled.standby_s,
            "passes": plan.passes if plan is not None else 0,
        },
        "self_test": _self_test(profiled),
        "warnings": list(profiled.warnings),
    }


def per_step(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The kernels of one step, on average over several."""
    if steps == 1:
        return kernels
    amounts = [
        name
        for name in map(str, kernels)
        if name.startswith("flops_") or name.endswith(("_bytes", "_s"))
    ]
    table = kernels.copy()
    table[amounts] = table[amounts] / steps
    table["launches"] = table["launches"] / steps
    return table


def kernels_of(profiled: ProfiledStep) -> pd.DataFrame:
    """The kernels of one step."""
    return per_step(profiled.kernels, profiled.steps)


def copies_of(profiled: ProfiledStep) -> pd.DataFrame | None:
    """What the driver copies in one step, by operator; None where nobody looked."""
    return None if profiled.copies is None else by_operator(profiled.copies, profiled.steps)


def tables_of(profiled: ProfiledStep) -> dict[str, pd.DataFrame]:
    """What is kept of it as tables."""
    tables = {"kernels": kernels_of(profiled), "copies": copies_of(profiled)}
    return {name: table for name, table in tables.items() if table is not None}


def _step_s(run: MeasuredRun | None, profiled: ProfiledStep) -> float | None:
    """Of the unprofiled run; without one, of the marked steps before the one that was traced."""
    if run is None:
        return profiled.step_time_s
    return run.result.step_time_s.median


def _share(kernels: pd.DataFrame, is_known: pd.Series) -> float:
    whole_s = float(kernels["time_s"].sum())
    return float(kernels.loc[is_known, "time_s"].sum()) / whole_s if whole_s else 0.0


def _phases(kernels: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    flops = [name for name in map(str, kernels) if name.startswith("flops_")]
    return {
        str(phase): {
            "launches": float(rows["launches"].sum()),
            "time_s": float(rows["time_s"].sum()),
            "flops": float(rows[flops].sum().sum()) if flops else None,
        }
        for phase, rows in kernels.groupby("phase", sort=False)
        if phase
    }


def _self_test(profiled: ProfiledStep) -> dict[str, Any] | None:
    if profiled.plan is None:
        return None
    ratios = profiled.ratios
    products = [ratio for name, ratio in ratios.items() if name.startswith("product")]
    return {
        "copy_ratio": ratios.get("copy"),
        "product_ratio": max(products, key=lambda r: abs(r - 1)) if products else None,
        "ratios": ratios,
        "is_trusted": not doubts(ratios),
    }

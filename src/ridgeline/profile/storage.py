"""Profiles in a results folder: of a stored run, a success or the reason for none; of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import PROGRAM, sums
from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task, run_request
from ridgeline.profile.processes import OnProgress
from ridgeline.profile.profiling import profile
from ridgeline.profile.request import Plan, ProfiledStep, Request, request_for_run
from ridgeline.profile.step_kernels import AMOUNTS, doubt_ratios, sum_copies
from ridgeline.provenance import collect
from ridgeline.records import (
    CaptureRequest,
    CopyTotals,
    Failure,
    ProfileCost,
    ProfileRequest,
    ProfileSummary,
    SelfTest,
)
from ridgeline.signals import interrupts_later
from ridgeline.store import MeasuredRun, ResultsFolder, Run
from ridgeline.tracing import GRADIENTS, LOSS, OPTIMIZER
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

OnStored = Callable[[Run], None]  # is called with what is stored, at once
_NO_MODULES = (LOSS, GRADIENTS, OPTIMIZER)  # parts of a step that stand where a layer would


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """A counted step."""

    run_id: str
    of_run: str  # the unprofiled run of the same step
    summary: ProfileSummary
    kernels: pd.DataFrame
    problems: tuple[str, ...] = ()  # with counting what the model must do

    @property
    def totals(self) -> Mapping[str, float | None]:
        """Executed FLOPs by kind and bytes by level; None where it was not counted."""
        return self.summary.totals

    def __str__(self) -> str:
        launches = self.summary.launches or 0.0
        kernel_s, step_s = self.summary.kernel_time_s or 0.0, self.summary.step_time_s or 0.0
        return (
            f"{launches:.0f} kernels, {format_time(kernel_s)} in a step of "
            f"{format_time(step_s)}; {self.run_id}"
        )


def profile_run(
    results: ResultsFolder,
    run: MeasuredRun,
    task: Task,
    options: Mapping[str, Any],
    *,
    label: str = "",
    on_progress: OnProgress = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    on_stored: OnStored = lambda run: None,
) -> Run | None:
    """Profile the step of a run and store what came of it or why nothing did; a dry one nothing."""
    stored_request = _profile_request(run, task, options, label)
    name = f"{task.spec.model.rpartition('/')[2]}-bs{task.spec.batch_size}"
    try:
        request = request_for_run(run, task, **options)
        profiled = profile(request, on_progress, show_plan)
    except RidgelineError as error:
        if not options.get("is_dry"):
            failure = Failure(
                reason=error.problem, hint=error.hint, device_name=run.result.device_name,
                backend="cuda",
            )  # fmt: skip
            _store(results, name, stored_request, failure, {}, on_stored)
        raise
    if request.is_dry:
        return None
    summary = summarise(request, profiled, run)
    return _store(results, name, stored_request, summary, tables_of(profiled), on_stored)


def profile_program(
    results: ResultsFolder,
    request: Request,
    *,
    label: str = "",
    on_progress: OnProgress = lambda what: None,
    show_plan: Callable[[Plan], None] = lambda plan: None,
    on_stored: OnStored = lambda run: None,
) -> Run | None:
    """Profile a program of the user's and store it as a capture; a dry request stores nothing."""
    profiled = profile(request, on_progress, show_plan)
    if request.is_dry:
        return None
    stored_request = CaptureRequest(
        command="profile", program=request.program, label=label, profile=request.options
    )  # fmt: skip
    summary = summarise(request, profiled, None)
    name, tables = script_name(request.program), tables_of(profiled)
    return _store(results, name, stored_request, summary, tables, on_stored)


def script_name(program: Sequence[str]) -> str:
    """What a user would call it: `train.py` of `python -u train.py --lr 0.1`."""
    scripts = [Path(part).name for part in program if part.endswith((".py", ".sh"))]
    return scripts[0] if scripts else Path(program[0]).name


def _profile_request(
    run: MeasuredRun, task: Task, options: Mapping[str, Any], label: str
) -> ProfileRequest:
    """The request of a run, which run it was, and how its step is counted."""
    step = vars(run_request(task, label=label)) | {"command": "profile"}
    counted = Request(task=task, **options).options
    return ProfileRequest(**step, of_run=run.run_id, profile=counted)


def _store(
    results: ResultsFolder,
    name: str,
    request: ProfileRequest | CaptureRequest,
    result: ProfileSummary | Failure,
    tables: Mapping[str, pd.DataFrame],
    on_stored: OnStored,
) -> Run:
    with interrupts_later():  # what is stored is also reported
        run_id = results.save_run(f"profile-{name}", request, result, collect(), tables=tables)
        run = results.read_run(run_id)
        on_stored(run)
    return run


def summarise(request: Request, profiled: ProfiledStep, run: MeasuredRun | None) -> ProfileSummary:
    """What came out, without the kernels themselves. `run` is the unprofiled one of the step."""
    tables = tables_of(profiled)
    kernels, copies = tables["kernels"], tables.get("copies")
    time_s = float(kernels["time_s"].sum())
    busy_s = None if profiled.busy_s is None else profiled.busy_s / profiled.steps
    # without a run, of the marked steps before the one that was traced
    step_s = profiled.step_time_s if run is None else run.result.step_time_s.median
    layer = kernels["layer"]
    return ProfileSummary(
        status="ok",
        provenance="counter" if request.tier == "counters" else "measured",
        device_name=request.device or None if run is None else run.result.device_name,
        backend="cuda",
        precision=None if run is None else run.result.precision,
        kind=PROGRAM if request.task is None else None,
        tier=request.tier,
        level=request.level,
        tool=profiled.tool or None,
        tool_version=profiled.tool_version or None,
        iters=profiled.steps,
        kernel_time_s=time_s,
        step_time_s=step_s,
        busy_time_s=busy_s,
        gap_s=None if step_s is None else max(step_s - (time_s if busy_s is None else busy_s), 0.0),
        launches=float(kernels["launches"].sum()),
        copies=None if copies is None else _total_copies(copies),
        attributed_share=_time_share(kernels, kernels["phase"].ne("")),
        layer_share=_time_share(kernels, layer.ne("") & ~layer.isin(_NO_MODULES)),
        phases=_sum_phases(kernels),
        totals=sums(kernels),
        plan=None if profiled.plan is None else profiled.plan.to_dict(),
        cost=ProfileCost(
            planned_s=0.0 if profiled.plan is None else profiled.plan.time_s,
            counted_s=profiled.counted_s,
            taken_s=profiled.taken_s,
            passes=0 if profiled.plan is None else profiled.plan.passes,
        ),
        self_test=_summarise_self_test(profiled),
        warnings=profiled.warnings,
    )


def tables_of(profiled: ProfiledStep) -> dict[str, pd.DataFrame]:
    """The kernels and the copies of one step; without a trace there are no copies."""
    tables = {"kernels": average_kernels(profiled.kernels, profiled.steps)}
    if profiled.copies is not None:
        tables["copies"] = sum_copies(profiled.copies, profiled.steps)
    return tables


def average_kernels(kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The kernels of one step, on average over several."""
    if steps == 1:
        return kernels
    amounts = [
        name
        for name in map(str, kernels)
        if name.startswith("flops_") or name.endswith(("_bytes", "_s")) or name == "launches"
    ]
    return kernels.assign(**{name: kernels[name] / steps for name in amounts})


def _total_copies(copies: pd.DataFrame) -> CopyTotals:
    return CopyTotals(**{name: float(copies[name].sum()) for name in AMOUNTS})


def _time_share(kernels: pd.DataFrame, is_known: pd.Series) -> float:
    whole_s = float(kernels["time_s"].sum())
    return float(kernels.loc[is_known, "time_s"].sum()) / whole_s if whole_s else 0.0


def _sum_phases(kernels: pd.DataFrame) -> dict[str, dict[str, float | None]]:
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


def _summarise_self_test(profiled: ProfiledStep) -> SelfTest | None:
    if profiled.plan is None:
        return None
    ratios = profiled.ratios
    products = [ratio for name, ratio in ratios.items() if name.startswith("product")]
    return SelfTest(
        copy_ratio=ratios.get("copy"),
        product_ratio=max(products, key=lambda r: abs(r - 1)) if products else None,
        ratios=ratios,
        is_trusted=not doubt_ratios(ratios),
    )

"""What came out of a profile, and as plain values: what a run folder keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import sums
from ridgeline.errors import RidgelineError
from ridgeline.measure.tasks import Task, question
from ridgeline.profile.copies import by_operator, in_all
from ridgeline.profile.operators import NO_MODULES
from ridgeline.profile.plan import Plan
from ridgeline.profile.request import Request
from ridgeline.profile.self_test import doubts
from ridgeline.profile.step_mark import DISTINCT

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.store import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """What came out."""

    kernels: pd.DataFrame
    steps: int = 1  # that they are the kernels of
    plan: Plan | None  # None: no counters, or a program without marks
    taken_s: float = 0.0  # all of it, getting ready included
    standby_s: float = 0.0  # before that: its processes loaded, and the run was measured
    counted_s: float = 0.0  # of it, the counting: what plan.time_s foretells
    step_time_s: float | None = None  # of marked steps that nobody looked at
    busy_s: float | None = None  # of all steps, in which at least one kernel or copy ran
    copies: pd.DataFrame | None = None  # of all steps; None: there was no trace
    ratios: Mapping[str, float] = field(default_factory=dict)  # of the self-test
    tool: str = ""  # that read the counters
    tool_version: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def planned_s(self) -> float:
        return self.plan.time_s if self.plan is not None else 0.0


def asked_of(task: Task, run: Run, label: str = "") -> dict[str, Any]:
    """The question of a run, and which run it was."""
    return {**question(task, label=label), "command": "profile", "of_run": run.run_id}


def failed(run: Run, error: RidgelineError) -> dict[str, Any]:
    """What is kept of a profile that did not come about."""
    return {
        "status": "failed",
        "reason": error.problem,
        "hint": error.hint,
        "device_name": run.found.get("device_name"),
        "backend": "cuda",
    }


def found_of(request: Request, profiled: ProfiledStep, run: Run | None) -> dict[str, Any]:
    """What came out, without the kernels themselves."""
    kernels, copies = kernels_of(profiled), copies_of(profiled)
    step_s = _step_s(run, profiled)
    time_s = float(kernels["time_s"].sum())
    busy_s = time_s if profiled.busy_s is None else profiled.busy_s / profiled.steps
    plan = profiled.plan
    return {
        "status": "ok",
        "provenance": "counter" if request.tier == "counters" else "measured",
        "device_name": run.found.get("device_name") if run is not None else request.device or None,
        "backend": "cuda",
        "precision": run.found.get("precision") if run is not None else None,
        "tier": request.tier,
        "level": request.level,
        "tool": profiled.tool or None,
        "tool_version": profiled.tool_version or None,
        "is_deduplicated": plan is not None and plan.picks == DISTINCT,
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


def _step_s(run: Run | None, profiled: ProfiledStep) -> float | None:
    """Of the unprofiled run; without one, of the marked steps before the one that was traced."""
    if run is None:
        return profiled.step_time_s
    return float(run.found["step_time_s"]["median"])


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

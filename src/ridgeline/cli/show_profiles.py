"""Profiles as tables in the terminal, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ridgeline.captures.capture import BYTES, FLOPS, sources_of
from ridgeline.cli.render_captures import MEMORIES, NOT_COLLECTED, flops_title
from ridgeline.cli.tables import Grid, print_grid, screen
from ridgeline.plain import plain_text
from ridgeline.records import CopyTotals, ProfileRequest, ProfileSummary
from ridgeline.report.profiled import describe_overlap
from ridgeline.roofline.reconcile import NO_PHASE
from ridgeline.serialize import to_dict
from ridgeline.store import ResultsFolder, Run
from ridgeline.units import format_bytes, format_flops, format_percent, format_time

PHASES = ("forward", "backward", "optimizer")


PLAIN = (  # of a profile, as they are stored
    "status", "reason", "tier", "level", "tool", "launches", "kernel_time_s", "busy_time_s",
    "step_time_s", "gap_s", "copies", "attributed_share", "layer_share",
)  # fmt: skip


def as_dict(run: Run) -> dict[str, Any]:
    """A profile in short; what was not counted is None."""
    result: ProfileSummary = run.result
    request = run.request if isinstance(run.request, ProfileRequest) else None
    stored = to_dict(result)
    if result.status != "ok":
        stored |= dict.fromkeys(("phases", "cost"))
    return {
        "run_id": run.run_id,
        "of_run": request.of_run if request else None,
        "model": request.model if request else ", ".join(sources_of(run)),
        "batch_size": request.batch_size if request else None,
        "mode": request.mode if request else None,
        "precision": _precision(run),
        **{name: stored[name] for name in PLAIN},
        "flops": {name: result.totals.get(name) for name in FLOPS},
        **{name: result.totals.get(name) for name in BYTES},
        **{name: stored[name] for name in ("phases", "self_test", "cost", "plan")},
        "warnings": list(result.warnings),
    }


def _precision(run: Run) -> str | None:
    is_of_run = isinstance(run.request, ProfileRequest)
    return run.result.precision or (run.request.precision if is_of_run else None)


def show(profiles: Sequence[Run], results: ResultsFolder, *, quiet: bool) -> None:
    """What the hardware did, phase by phase, and how it compares with what had to be done."""
    done = [run for run in profiles if run.result.status == "ok"]
    kinds = [name for name in FLOPS if any(_total(run, name) for run in done)]
    header = ["profile", "part", "kernels", "kernel time", *(flops_title(name) for name in kinds)]
    memories = [name for name, column in MEMORIES.items() if any(_total(r, column) for r in done)]
    memories = memories or ["DRAM"]
    header += [*memories, "executed / model"]
    ratios = _ratios(done, results)
    rows: list[list[str]] = []
    for run in done:
        rows += _rows(run, kinds, memories, ratios.get(_parent(run), {}), results)
    print_grid(screen(), Grid(header=header, rows=rows, text_columns=2))
    for run in done:
        _show_times(run, quiet=quiet)


def _parent(run: Run) -> str:
    """The run that was profiled, if it was one."""
    return run.request.of_run if isinstance(run.request, ProfileRequest) else ""


def _rows(
    run: Run,
    kinds: Sequence[str],
    memories: Sequence[str],
    model: dict[str, str],
    results: ResultsFolder,
) -> list[list[str]]:
    kernels = results.read_table(run.run_id, "kernels")
    rows = []
    for part in ("step", *PHASES, ""):
        mine = kernels if part == "step" else kernels[kernels["phase"].eq(part)]
        if not len(mine):
            continue
        name = _name(run) if part == "step" else ""
        rows.append([
            name,
            part or "(not attributed)",
            f"{mine['launches'].sum():,.0f}",
            format_time(float(mine["time_s"].sum())),
            *(_amount(mine, FLOPS[kind], format_flops) for kind in kinds),
            *(_amount(mine, MEMORIES[name], format_bytes) for name in memories),
            model.get(part or NO_PHASE, NOT_COLLECTED),
        ])  # fmt: skip
    return rows


def _amount(kernels: Any, column: str, form: Any) -> str:
    if column not in kernels or kernels[column].isna().all():
        return NOT_COLLECTED
    return str(form(float(kernels[column].sum())))


def _ratios(done: Sequence[Run], results: ResultsFolder) -> dict[str, dict[str, str]]:
    """Executed over model FLOPs of the step and its phases, where the model was counted."""
    from ridgeline.report.study import read_study
    from ridgeline.report.text import number

    parents = [parent for run in done if (parent := _parent(run))]
    if not parents:
        return {}
    study = read_study(results, run_ids=parents)
    ratios: dict[str, dict[str, str]] = {}
    if study.reconciled.empty:  # a model that could not be counted
        return ratios
    coarse = study.reconciled[study.reconciled["grain"].isin(["step", "phase"])]
    for run_id, table in coarse.groupby("run_id"):
        ratios[str(run_id)] = {
            ("step" if row["grain"] == "step" else str(row["name"])): f"{ratio:.3f}"
            for row in table.to_dict("records")
            if (ratio := number(row["flops_ratio"])) is not None
        }
    return ratios


def _show_times(run: Run, *, quiet: bool) -> None:
    """Times, the gap, what is not known and how far the counters can be trusted."""
    result: ProfileSummary = run.result
    kernel_s, step_s, gap_s = result.kernel_time_s or 0.0, result.step_time_s, result.gap_s or 0.0
    text = f"{_name(run)}: kernels {format_time(kernel_s)}"
    copies = result.copies or CopyTotals()
    if copies.launches:
        count = f"{copies.launches:g} copies and fills by the driver"
        text += f", {count} {format_time(copies.time_s)}"
    overlap = describe_overlap(kernel_s + copies.time_s, result.busy_time_s)
    text += f" ({overlap})" if overlap else ""
    if step_s:
        nothing = "either" if copies.launches else "a kernel"
        text += (
            f" in a step of {format_time(step_s)}; {format_time(gap_s)} "
            f"({format_percent(gap_s / step_s)}) without {nothing}: the host launches, or waits"
        )
    print(plain_text(text))
    lost = format_percent(1 - (result.attributed_share or 0.0))
    print(f"  kernel time that no phase is known for: {lost}")
    if result.self_test:
        ratios = ", ".join(f"{name} {r:.3f}" for name, r in result.self_test.ratios.items())
        print(f"  counted over true, on work of known size: {ratios}")
        cost = result.cost
        planned, taken = format_time(cost.planned_s), format_time(cost.counted_s)
        whole = format_time(cost.taken_s)
        print(f"  counting took {taken} (planned {planned}), {whole} with getting ready")
    for warning in () if quiet else result.warnings:
        print(f"note: {_name(run)}: {plain_text(warning)}", file=sys.stderr)


def _name(run: Run) -> str:
    request = run.request
    if not isinstance(request, ProfileRequest):
        return plain_text(", ".join(sources_of(run)))
    return plain_text(f"{request.model}, batch {request.batch_size}, {_precision(run)}")


def _total(run: Run, name: str) -> float:
    return float(run.result.totals.get(name) or 0.0)

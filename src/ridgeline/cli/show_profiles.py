"""Profiles as tables in the terminal, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ridgeline.captures.capture import BYTES, FLOPS, sources_of
from ridgeline.cli.show_captures import MEMORIES, NOT_COLLECTED, flops_title
from ridgeline.cli.tables import Grid, print_grid, screen
from ridgeline.plain import plain_text
from ridgeline.report.executed import describe_overlap
from ridgeline.roofline.reconcile import NO_PHASE
from ridgeline.store import ResultsFolder, Run
from ridgeline.units import format_bytes, format_flops, format_percent, format_time

PHASES = ("forward", "backward", "optimizer")


def as_dict(run: Run) -> dict[str, Any]:
    """A profile in short; what was not counted is None."""
    asked, found = run.asked, run.found
    totals = found.get("totals") or {}
    return {
        "run_id": run.run_id,
        "of_run": asked.get("of_run"),
        "model": asked.get("model") or ", ".join(sources_of(run)),
        "batch_size": asked.get("batch_size"),
        "mode": asked.get("mode"),
        "precision": found.get("precision") or asked.get("precision"),
        **{name: found.get(name) for name in (
            "status", "reason", "tier", "level", "tool", "launches", "kernel_time_s",
            "busy_time_s", "step_time_s", "gap_s", "copies", "attributed_share", "layer_share",
        )},
        "flops": {name: totals.get(name) for name in FLOPS},
        **{name: totals.get(name) for name in BYTES},
        **{name: found.get(name) for name in ("phases", "self_test", "cost", "plan")},
        "warnings": found.get("warnings") or [],
    }  # fmt: skip


def show(profiles: Sequence[Run], results: ResultsFolder, *, quiet: bool) -> None:
    """What the hardware did, phase by phase, and how it compares with what had to be done."""
    done = [run for run in profiles if run.found["status"] == "ok"]
    kinds = [name for name in FLOPS if any(_total(run, name) for run in done)]
    header = ["profile", "part", "kernels", "kernel time", *(flops_title(name) for name in kinds)]
    memories = [name for name, column in MEMORIES.items() if any(_total(r, column) for r in done)]
    header += [*(memories or ["DRAM"]), "executed / model"]
    model = _ratios(done, results)
    rows: list[list[str]] = []
    for run in done:
        rows += _rows(
            run, kinds, memories or ["DRAM"], model.get(str(run.asked.get("of_run")), {}), results
        )
    print_grid(screen(), Grid(header=header, rows=rows, text_columns=2))
    for run in done:
        _tell(run, quiet=quiet)


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

    parents = [str(run.asked["of_run"]) for run in done if run.asked.get("of_run")]
    if not parents:
        return {}
    study = read_study(results, run_ids=parents)
    found: dict[str, dict[str, str]] = {}
    if study.reconciled.empty:  # a model that could not be counted
        return found
    coarse = study.reconciled[study.reconciled["grain"].isin(["step", "phase"])]
    for run_id, table in coarse.groupby("run_id"):
        found[str(run_id)] = {
            ("step" if row["grain"] == "step" else str(row["name"])): f"{ratio:.3f}"
            for row in table.to_dict("records")
            if (ratio := number(row["flops_ratio"])) is not None
        }
    return found


def _tell(run: Run, *, quiet: bool) -> None:
    """Times, the gap, what is not known and how far the counters can be trusted."""
    found = run.found
    kernel_s, step_s = found["kernel_time_s"], found["step_time_s"]
    text = f"{_name(run)}: kernels {format_time(kernel_s)}"
    copies = found.get("copies") or {"launches": 0, "time_s": 0.0}
    if copies["launches"]:
        count = f"{copies['launches']:g} copies and fills by the driver"
        text += f", {count} {format_time(copies['time_s'])}"
    overlap = describe_overlap(kernel_s + copies["time_s"], found.get("busy_time_s"))
    text += f" ({overlap})" if overlap else ""
    if step_s:
        gap = format_percent(found["gap_s"] / step_s)
        nothing = "either" if copies["launches"] else "a kernel"
        text += (
            f" in a step of {format_time(step_s)}; {format_time(found['gap_s'])} ({gap}) without "
            f"{nothing}: the host launches, or waits"
        )
    print(plain_text(text))
    lost = format_percent(1 - found["attributed_share"])
    print(f"  kernel time that no phase is known for: {lost}")
    tested = found.get("self_test")
    if tested:
        ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in tested["ratios"].items())
        print(f"  counted over true, on work of known size: {ratios}")
        cost = found["cost"]
        planned, taken = format_time(cost["planned_s"]), format_time(cost["counted_s"])
        whole = format_time(cost["taken_s"])
        print(f"  counting took {taken} (planned {planned}), {whole} with getting ready")
    if not quiet:
        for warning in found.get("warnings") or ():
            print(f"note: {_name(run)}: {plain_text(warning)}", file=sys.stderr)


def _name(run: Run) -> str:
    asked = run.asked
    if asked.get("model") is None:
        return plain_text(", ".join(sources_of(run)))
    precision = run.found.get("precision") or asked.get("precision")
    return plain_text(f"{asked['model']}, batch {asked['batch_size']}, {precision}")


def _total(run: Run, name: str) -> float:
    return float((run.found.get("totals") or {}).get(name) or 0.0)

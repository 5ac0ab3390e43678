"""Profiles and captures as tables in the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.captures.capture import BYTES, FLOPS, Capture, mean_shares, sources_of, total
from ridgeline.cli.messages import show_notes
from ridgeline.cli.tables import NOT_KNOWN, Grid, format_known, print_grid, print_text
from ridgeline.pipeline.import_captures import name_files
from ridgeline.plain import plain_text
from ridgeline.records import ProfileRequest, ProfileSummary
from ridgeline.report.executed import describe_times, describe_trust, make_executed
from ridgeline.roofline.reconcile import NO_PHASE
from ridgeline.serialize import to_dict
from ridgeline.store import ResultsFolder, Run
from ridgeline.units import format_bytes, format_flops, format_percent, format_time

PARTS = ("step", "forward", "backward", "optimizer", "")
PLAIN = (  # of a profile, as they are stored
    "status", "reason", "tier", "level", "tool", "launches", "kernel_time_s", "busy_time_s",
    "step_time_s", "gap_s", "copies", "attributed_share", "layer_share",
)  # fmt: skip
MEMORIES = {"DRAM": "dram_bytes", "L2": "l2_bytes", "L1": "l1_bytes"}
SHARES = {"SM, of peak": "sm_peak_share", "DRAM, of peak": "dram_peak_share"}
Columns = dict[str, tuple[str, Callable[[float], str]]]  # title: column of a table, its format


def _choose_columns(
    is_known: Callable[[str], bool], *, memories: Sequence[str] = tuple(MEMORIES)
) -> Columns:
    """The kinds of FLOPs that are known of any, and levels of memory."""
    flops = {
        name.replace("_", " "): (column, format_flops)
        for name, column in FLOPS.items()
        if is_known(name)
    }
    return {**flops, **{name: (MEMORIES[name], format_bytes) for name in memories}}


# ---------------------------------------------------------------- captures


def print_captures(captures: Sequence[Capture], label: str | None = None) -> None:
    """A row per capture, by its label; several of one label also have their files' names."""
    columns = _choose_columns(
        lambda name: any(total(one.kernels, FLOPS[name]) is not None for one in captures)
    )
    means = [mean_shares(one.kernels) for one in captures]
    shares = [title for title, name in SHARES.items() if any(one[name] for one in means)]
    rows = []
    for capture, mean in zip(captures, means, strict=True):
        files = name_files(capture)
        is_one = len(captures) == 1
        title = (label if is_one else f"{label} ({files})") if label else files
        known = [format_known(total(capture.kernels, c), form) for c, form in columns.values()]
        known += [format_known(mean[SHARES[title]], format_percent) for title in shares]
        time = format_known(capture.kernel_time_s, format_time)
        rows.append([title, capture.device or NOT_KNOWN, f"{capture.launches:,}", time, *known])
    header = ["capture", "device", "kernels", "kernel time", *columns, *shares]
    spare = ("device", "L1", "L2", *shares)
    print_grid(Grid(header=header, rows=rows, text_columns=2, spare=spare))


# ---------------------------------------------------------------- profiles


def profile_to_json(run: Run) -> dict[str, Any]:
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


def show_profiles(profiles: Sequence[Run], results: ResultsFolder, *, quiet: bool) -> None:
    """What the hardware did, phase by phase, and how it compares with what had to be done."""
    done = [run for run in profiles if run.result.status == "ok"]

    def is_known(name: str) -> bool:
        return any(run.result.totals.get(name) for run in done)

    memories = [name for name, column in MEMORIES.items() if is_known(column)]
    columns = _choose_columns(is_known, memories=memories or ["DRAM"])
    ratios = _read_ratios(done, results)
    rows = [
        row
        for run in done
        for row in _list_parts(run, columns, ratios.get(_parent(run), {}), results)
    ]
    header = ["profile", "part", "kernels", "kernel time", *columns, "executed / model"]
    print_grid(Grid(header=header, rows=rows, text_columns=2))
    for run in done:
        _show_times(run, results)
        show_notes(() if quiet else (f"{_name(run)}: {text}" for text in run.result.warnings))


def _parent(run: Run) -> str:
    """The run that was profiled, if it was one."""
    return run.request.of_run if isinstance(run.request, ProfileRequest) else ""


def _list_parts(
    run: Run, columns: Columns, ratios: dict[str, str], results: ResultsFolder
) -> list[list[str]]:
    """A row for the step and for each of its phases that has kernels."""
    kernels = results.read_table(run.run_id, "kernels")
    rows = []
    for part in PARTS:
        mine = kernels if part == "step" else kernels[kernels["phase"].eq(part)]
        if len(mine):
            rows.append([
                _name(run) if part == "step" else "",
                part or "(not attributed)",
                f"{mine['launches'].sum():,.0f}",
                format_time(float(mine["time_s"].sum())),
                *(format_known(total(mine, column), form) for column, form in columns.values()),
                ratios.get(part or NO_PHASE, NOT_KNOWN),
            ])  # fmt: skip
    return rows


def _read_ratios(done: Sequence[Run], results: ResultsFolder) -> dict[str, dict[str, str]]:
    """Executed over model FLOPs of the step and its phases, where the model was counted."""
    from ridgeline.report.study import read_study
    from ridgeline.report.text import number

    ratios: dict[str, dict[str, str]] = {}
    parents = [parent for run in done if (parent := _parent(run))]
    reconciled = read_study(results, run_ids=parents).reconciled if parents else None
    if reconciled is None or reconciled.empty:  # a model that could not be counted
        return ratios
    coarse = reconciled[reconciled["grain"].isin(["step", "phase"])]
    for row in coarse.to_dict("records"):
        ratio = number(row["flops_ratio"])
        if ratio is not None:
            part = "step" if row["grain"] == "step" else str(row["name"])
            ratios.setdefault(str(row["run_id"]), {})[part] = f"{ratio:.3f}"
    return ratios


def _show_times(run: Run, results: ResultsFolder) -> None:
    """Times, the gap, how far the counters can be trusted, and what counting took."""
    kernels = results.read_table(run.run_id, "kernels")
    one = make_executed(run.run_id, run, kernels, run.result.step_time_s)
    for text in filter(None, (describe_times(one), describe_trust(one))):
        print_text(f"{_name(run)}: {text}")
    cost = run.result.cost
    if run.result.self_test:
        planned, counted, whole = map(format_time, (cost.planned_s, cost.counted_s, cost.taken_s))
        print_text(f"  counting took {counted} (planned {planned}), {whole} with getting ready")


def _name(run: Run) -> str:
    request = run.request
    if not isinstance(request, ProfileRequest):
        return plain_text(", ".join(sources_of(run)))
    return plain_text(f"{request.model}, batch {request.batch_size}, {_precision(run)}")

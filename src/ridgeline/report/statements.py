"""All statements on a study; here those on counters, contradictions and trust in the times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ridgeline.report.analysis import ANALYSIS_PARTS, BOTH, MEASURED, TOPICS, Statement
from ridgeline.report.analysis_gap import GAP_PARTS
from ridgeline.report.configurations import Case, cases, find_misfits
from ridgeline.report.executed import TRUSTED, Profiled, describe_gap, profiled
from ridgeline.report.study import BUSY, GRAPH_MODES, Study
from ridgeline.report.text import counted, number, records, some, times
from ridgeline.roofline.causes import AGREE
from ridgeline.units import format_bytes, format_percent, format_time

COUNTER, WITH_TIME = "static and counter", "measured and counter"
DOUBTED = 0.02  # of the kernels' time that belongs to no phase is worth a word
REPEATS_DIFFER = 0.05  # between the slowest and the fastest, as a share of the fastest
SLOW_STEPS = 0.05  # by which the mean step is above the median
CAUSE = "likely cause: "
MEMORY_BAND = (0.5, 2.0)  # measured over counted: caches of the library explain less


def analyse(study: Study, found: Sequence[Case] | None = None) -> tuple[Statement, ...]:
    """All statements that the data supports, in the order of TOPICS.

    `found` are the cases of the study, from who has them already.
    """
    found = cases(study) if found is None else found
    parts = (
        *ANALYSIS_PARTS, *GAP_PARTS, executed_work, launch_gaps, trust_in_counters, contradictions,
        memory, trust,
    )  # fmt: skip
    statements = [statement for part in parts for statement in part(study, found)]
    order = list(TOPICS)
    return tuple(sorted(statements, key=lambda statement: order.index(statement.topic)))


def executed_work(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """How far the executed FLOPs and bytes of each profiled step are from the model's."""
    if study.reconciled.empty:
        return
    steps = study.reconciled[study.reconciled["grain"].eq("step")]
    names = _names(found)
    for row in records(steps):
        flops = _compared(row, "flops_ratio", "cause", "where", "executes {} the model's FLOPs")
        moved = _compared(row, "bytes_ratio", "bytes_cause", "bytes_where",
                          "moves {} the bytes of its operators from and to DRAM")  # fmt: skip
        told = [part for part in (flops, moved) if part]
        run_id = str(row["run_id"])
        if told and run_id in names:
            products = number(row["products_ratio"])
            alone = "" if products is None else f" (products alone: {times(products)})"
            text = f"{names[run_id]}: a step {told[0]}{alone if flops else ''}"
            text += f", and {told[1]}" if len(told) > 1 else ""
            yield Statement(topic="executed", text=f"{text}.", provenance=COUNTER,
                            run_ids=(run_id,))  # fmt: skip


def _compared(row: dict[str, object], ratio: str, cause: str, where: str, text: str) -> str:
    known = number(row[ratio])
    if known is None:
        return ""
    told = text.format(times(known))
    why = str(row[cause])
    if why == AGREE:
        return told
    place = f", most of it in {row[where]}" if row[where] else ""
    return f"{told} ({why}{place})"


def launch_gaps(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Kernel time beside step time."""
    names = _names(found)
    for one in profiled(study):
        told = describe_gap(one)
        if told and one.run_id in names:
            yield Statement(topic="gap", text=f"{names[one.run_id]}: {told}.",
                            provenance=WITH_TIME, run_ids=(one.run_id,))  # fmt: skip


def trust_in_counters(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Profiles whose self-test failed, or that leave much of the time without a place."""
    names = _names(found)
    for one in profiled(study):
        told = _doubts(one)
        if told and one.run_id in names:
            yield Statement(topic="stability", text=f"{names[one.run_id]}: {'; '.join(told)}.",
                            provenance=WITH_TIME, run_ids=(one.run_id,))  # fmt: skip


def _doubts(one: Profiled) -> list[str]:
    found = []
    if one.is_trusted is False:
        found.append(
            f"the self-test of the counters is out of {TRUSTED}, so their numbers are doubtful"
        )
    if one.attributed_share is not None and one.attributed_share < 1 - DOUBTED:
        missing = 100 * (1 - one.attributed_share)
        found.append(f"{missing:.1f} % of the kernels' time belongs to no phase that is known")
    return found


def _names(found: Sequence[Case]) -> dict[str, str]:
    return {run_id: f"{case.title} on {case.env}" for case in found for run_id in case.run_ids}


def contradictions(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """What the physics gate flagged, with its likely cause."""
    points = study.points
    if len(points) and "flag" in points:
        flagged = points[points["flag"].fillna("").ne("")]
        causes = flagged["flag"].map(lambda flag: str(flag).partition(CAUSE)[2])
        for (env, cause), rows in flagged.groupby(["env", causes], sort=False):
            first = max(records(rows), key=lambda row: number(row["efficiency"]) or 0.0)
            where = f"{first['name']} of {first['model']}, batch {first['batch_size']}"
            what = str(first["flag"]).partition(f"; {CAUSE}")[0]
            many = "is flagged" if len(rows) == 1 else "are flagged"
            yield Statement(
                topic="physics",
                text=f"On {env}, {counted(len(rows), 'point')} {many}; the farthest out is {where}"
                f" ({what}). Likely cause: {cause}.",
                provenance=BOTH,
                run_ids=tuple(dict.fromkeys(rows["run_id"])),
            )
    titles = {run_id: case.title for case in found for run_id in case.run_ids}
    for row in records(study.runs):
        for name in ("flag", "clock_flag"):
            text, run_id = row.get(name), str(row["run_id"])
            if isinstance(text, str) and text:
                yield Statement(topic="physics", text=f"{titles[run_id]} on {row['env']}: {text}.",
                                provenance=MEASURED, run_ids=(run_id,))  # fmt: skip


def memory(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """A GPU's peak memory that is far from the one that was counted."""
    for case in found:
        measured = number(case.run.get("peak_memory_bytes"))
        counted_bytes = number(case.run.get("counted_peak_bytes"))
        if not case.is_gpu or not measured or not counted_bytes:
            continue
        ratio = measured / counted_bytes
        if MEMORY_BAND[0] <= ratio <= MEMORY_BAND[1]:
            continue
        reserved = number(case.run.get("reserved_memory_bytes"))
        text = (
            f"{case.title} on {case.env}: the peak of allocated memory, {format_bytes(measured)},"
            f" is {times(ratio)} the counted {format_bytes(counted_bytes)}"
        )
        if reserved and case.settings.get("compile") in GRAPH_MODES:
            text += (
                "; likely cause: what a CUDA graph keeps for itself is not in that peak"
                f" ({format_bytes(reserved)} were reserved)"
            )
        yield Statement(topic="physics", text=f"{text}.", provenance=BOTH, run_ids=(case.run_id,))


def trust(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Repeats that differ, steps that straggle, runs with warnings."""
    for case in found:
        low, high = min(case.step_times_s), max(case.step_times_s)
        if high > (1 + REPEATS_DIFFER) * low:
            yield Statement(
                topic="stability",
                text=f"{counted(len(case.run_ids), 'run')} of {case.title} on {case.env} took"
                f" {format_time(low)} to {format_time(high)} a step, {times(high / low)} apart;"
                f" this report uses {format_time(case.step_s)}.",
                provenance=MEASURED,
                run_ids=case.run_ids,
            )
        mean_s = number(case.run.get("step_mean_s"))
        if mean_s is not None and mean_s > (1 + SLOW_STEPS) * case.step_s:
            yield Statement(
                topic="stability",
                text=f"{case.title} on {case.env}: the mean step ({format_time(mean_s)}) is"
                f" {format_percent(mean_s / case.step_s - 1)} above the median"
                f" ({format_time(case.step_s)}), so a few steps were slow; throughput here is that"
                " of the median step.",
                provenance=MEASURED,
                run_ids=(case.run_id,),
            )
    yield from _disturbed(study, found)
    yield from _misfits(study, found)
    yield from _warned(study)


def _disturbed(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Runs during which the machine was busy."""
    busy = study.disturbed
    for case in found:
        if case.run_id in busy:
            yield Statement(
                topic="stability",
                text=f"{case.title} on {case.env}: {BUSY} ({busy[case.run_id]}). Differences from"
                " other runs may come from that, and no hypothesis is tested on it.",
                provenance=MEASURED,
                run_ids=(case.run_id,),
            )


def _misfits(study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Runs whose layers do not add up to their step."""
    names = {run_id: case.title for case in found for run_id in case.run_ids}
    wrong = find_misfits(study)
    off = [run_id for run_id in names if run_id in wrong]
    if off:
        yield Statement(
            topic="stability",
            text=f"Nothing is said here about the layers of {some([names[r] for r in off])}: their"
            " times do not add up to the step that they are part of.",
            provenance=MEASURED,
            run_ids=tuple(off),
        )


def _warned(study: Study) -> Iterable[Statement]:
    if study.runs.empty or "warnings" not in study.runs:
        return
    warned = study.runs[study.runs["warnings"].fillna(0).gt(0)]
    if len(warned):
        yield Statement(
            topic="stability",
            text=f"{counted(len(warned), 'run')} of {len(study.runs)} came with warnings, which are"
            " listed with the measurements.",
            provenance=MEASURED,
            run_ids=tuple(warned["run_id"]),
        )

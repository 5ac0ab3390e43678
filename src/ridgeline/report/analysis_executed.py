"""The analysis of hardware counters: executed against model work, and the launch gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ridgeline.report.analysis import Statement
from ridgeline.report.cases import Case
from ridgeline.report.executed import TRUSTED, Profiled, gap_told, profiled
from ridgeline.report.study import Study
from ridgeline.report.text import number, records, times
from ridgeline.roofline.causes import AGREE

COUNTER, WITH_TIME = "static and counter", "measured and counter"
DOUBTED = 0.02  # of the kernels' time that belongs to no phase is worth a word


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
        told = gap_told(one)
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


EXECUTED_PARTS: tuple[Callable[[Study, Sequence[Case]], Iterable[Statement]], ...] = (
    executed_work, launch_gaps, trust_in_counters,
)  # fmt: skip

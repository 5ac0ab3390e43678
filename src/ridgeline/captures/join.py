"""Several files of one capture, joined by process and launch number.

Two files belong together if they have different metrics of the same launches, and the same values
where they have the same metric; or the same metrics of different launches of one process. Other
files are captures of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ridgeline.captures.capture import Capture
from ridgeline.captures.counters import LAUNCH, Counters, Part
from ridgeline.captures.reading_log import ReadingLog
from ridgeline.captures.to_capture import to_capture
from ridgeline.errors import RidgelineError

BETWEEN = " + "  # the names of files that were joined
ROUNDED = 0.01  # of a value: pages show it with fewer digits
_SAME_LAUNCH = [*LAUNCH, "grid", "block", "compute_capability", "launches"]


def join_captures(parts: Sequence[Part]) -> tuple[list[Capture], list[RidgelineError]]:
    """A capture for each group of files that belong together; and the refusals."""
    captures, refusals = [], []
    for part in join_parts(parts):
        try:
            captures.append(part if isinstance(part, Capture) else to_capture(part))
        except RidgelineError as error:
            refusals.append(error)
    return captures, refusals


def join_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts, with those that belong together as one, in the place of the first."""
    joined: list[Part] = []
    for part in parts:
        for place, other in enumerate(joined):
            if isinstance(part, Capture) or isinstance(other, Capture):
                continue
            if are_more_launches(other, part) or are_more_metrics(other, part):
                joined[place] = _merge(other, part)
                break
        else:
            joined.append(part)
    return joined


def are_more_launches(a: Counters, b: Counters) -> bool:
    """Whether both have the same metrics, of different launches of one process."""
    processes = [part.kernels[["host", "process_id"]].drop_duplicates() for part in (a, b)]
    if a.metric_names != b.metric_names or a.kind != b.kind or any(len(p) > 1 for p in processes):
        return False
    is_same = processes[0].values.tolist() == processes[1].values.tolist()
    has_process = bool(processes[0]["process_id"].iloc[0])
    return is_same and has_process and set(a.kernels["id"]).isdisjoint(b.kernels["id"])


def are_more_metrics(a: Counters, b: Counters) -> bool:
    """Whether each has metrics that the other lacks, of the same launches."""
    if a.file == b.file or a.metric_names == b.metric_names or len(a.kernels) != len(b.kernels):
        return False
    is_same = a.kernels[_SAME_LAUNCH].equals(b.kernels[_SAME_LAUNCH])
    return is_same and bool(a.kernels["process_id"].ne("").all()) and _have_same_values(a, b)


def _have_same_values(a: Counters, b: Counters) -> bool:
    """Whether metrics that both have agree: another run of a program has other times."""
    shared = sorted(a.metric_names & b.metric_names)
    difference = (a.metrics[shared] - b.metrics[shared]).abs()
    return not bool((difference > ROUNDED * a.metrics[shared].abs()).any(axis=None))


def _merge(a: Counters, b: Counters) -> Counters:
    """One table with the launches and metrics of both; of a metric of both the first's values."""
    import pandas as pd

    if are_more_metrics(a, b):
        added = [name for name in b.metrics.columns if name not in a.metric_names]
        first = [name for name in a.metrics.columns if name not in added]
        metrics = pd.concat([a.metrics[first], b.metrics[added]], axis=1)
        kernels = a.kernels.mask(a.kernels == "", b.kernels)  # a device that only one has
    else:
        kernels = pd.concat([a.kernels, b.kernels], ignore_index=True)
        order = kernels["id"].astype(int).sort_values(kind="stable").index
        kernels = kernels.loc[order].reset_index(drop=True)
        metrics = pd.concat([a.metrics, b.metrics], ignore_index=True)
        metrics = metrics.loc[order].reset_index(drop=True)
    return replace(
        a,
        file=f"{a.file}{BETWEEN}{b.file}",
        kernels=kernels,
        metrics=metrics,
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
        invalid=(*a.invalid, *b.invalid),
        unusable=(*a.unusable, *b.unusable),
        has_rules=a.has_rules or b.has_rules,
        log=ReadingLog(
            messages=[*a.log.messages, *b.log.messages],
            skipped=a.log.skipped + b.log.skipped,
            is_cut=a.log.is_cut or b.log.is_cut,
            has_other_table=a.log.has_other_table or b.log.has_other_table,
        ),
    )

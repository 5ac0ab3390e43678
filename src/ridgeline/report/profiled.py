"""What a profile says of one run: times, the launch gap, and how far the counters are trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.profile.request import TOOL_NAMES
from ridgeline.profile.step_kernels import TOLERANCE
from ridgeline.records import ProfileSummary
from ridgeline.report.executed import flops_by_roof
from ridgeline.report.stored import COUNTERS, TIME
from ridgeline.report.study import Study
from ridgeline.report.text import listed, number, three_digits
from ridgeline.store import StoredCapture, StoredProfile
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd

TRUSTED = f"±{100 * TOLERANCE:.0f} %"  # of the truth, in the self-test
OVERLAP = 0.005  # of the kernels' time: what may be rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What a profile found about one run. What is not known is None."""

    run_id: str
    profile_id: str  # the stored profile; "" where the run has kernels of its own
    result: ProfileSummary
    launches: int | None
    kernel_time_s: float | None
    step_time_s: float
    flops_by_roof: Mapping[str, float]
    dram_bytes: float | None
    l2_bytes: float | None
    l1_bytes: float | None

    @property
    def tier(self) -> str:
        """`counters` or `time`."""
        return self.result.tier or (COUNTERS if self.flops_by_roof else TIME)

    @property
    def gap_s(self) -> float | None:
        """In which nothing runs; kernels of several streams may run at once."""
        if self.kernel_time_s is None:
            return None
        return max(0.0, self.step_time_s - (self.result.busy_time_s or self.kernel_time_s))

    @property
    def is_trusted(self) -> bool | None:
        return self.result.self_test.is_trusted if self.result.self_test else None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings


def profiled(study: Study) -> list[Profiled]:
    """The runs whose kernels are known, in the order of the runs."""
    if study.kernels.empty or study.runs.empty:
        return []
    tables = dict(iter(study.kernels.groupby("run_id", sort=False)))
    steps = zip(study.runs["run_id"], study.runs["step_median_s"], strict=True)
    return [
        _profiled(run_id, study.profiles.get(run_id), tables[run_id], float(step_s))
        for run_id, step_s in steps
        if run_id in tables
    ]


def programs(study: Study) -> dict[str, Profiled]:
    """The captures that are programs which were profiled here, by their run."""
    if study.kernels.empty:
        return {}
    tables = dict(iter(study.kernels.groupby("run_id", sort=False)))
    return {
        run.run_id: _profiled(run.run_id, run, tables[run.run_id], run.result.step_time_s)
        for run in study.raw_captures
        if run.result.tier and run.run_id in tables
    }


def _profiled(
    run_id: str,
    profile: StoredProfile | StoredCapture | None,
    kernels: pd.DataFrame,
    step_s: float | None,
) -> Profiled:
    result = profile.result if profile is not None else ProfileSummary(status="ok")
    moved = {
        f"{level}_bytes": number(kernels[f"{level}_bytes"].sum(min_count=1))
        if f"{level}_bytes" in kernels else None
        for level in ("dram", "l2", "l1")
    }  # fmt: skip
    return Profiled(
        run_id=run_id,
        profile_id=profile.run_id if profile is not None else "",
        result=result,
        launches=whole(kernels["launches"].sum()),
        kernel_time_s=result.kernel_time_s or number(kernels["time_s"].sum()),
        step_time_s=math.nan if step_s is None else step_s,
        flops_by_roof=flops_by_roof(kernels),
        **moved,
    )


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else round(known)


def describe_trust(one: Profiled) -> str:
    """Self-test, attribution and shortcuts of a profile, in a sentence or two."""
    result, test, parts = one.result, one.result.self_test, []
    if tool := TOOL_NAMES.get(result.tool or ""):
        parts.append(f"the counters were read by {tool} {result.tool_version or ''}".rstrip())
    ratios = {"copy": test.copy_ratio, "product": test.product_ratio} if test else {}
    tested = [f"a {what} counted {three_digits(ratio)}"
              for what, ratio in ratios.items() if ratio is not None]  # fmt: skip
    if tested:
        doubt = "" if one.is_trusted else f": outside {TRUSTED}, so doubt these counters"
        parts.append(f"self-test: {listed(tested)} of the truth{doubt}")
    if result.attributed_share is not None:
        layers = result.layer_share
        parts.append(
            f"{format_percent(result.attributed_share)} of the kernels' time is attributed to a"
            f" phase{'' if layers is None else f', {format_percent(layers)} to a layer'}"
        )
    if result.is_deduplicated:
        parts.append("operators of the same work were counted once, for all of them")
    if one.tier == TIME:
        parts.append("times only: no counter was read")
    return "; ".join(parts)


def describe_gap(one: Profiled) -> str:
    """Kernel time and step time side by side, and what lies between, where both are known."""
    if one.kernel_time_s is None or math.isnan(one.step_time_s):
        return ""
    result = one.result
    return launch_gap(
        one.kernel_time_s, one.step_time_s, one.launches,
        busy_s=result.busy_time_s, copy_s=result.copies.time_s if result.copies else None,
    )  # fmt: skip


def launch_gap(
    kernel_s: float,
    step_s: float,
    launches: int | None,
    *,
    busy_s: float | None = None,
    copy_s: float | None = None,
) -> str:
    """`busy_s`: in which at least one kernel or copy ran, where that is known."""
    overlap = describe_overlap(kernel_s + (copy_s or 0.0), busy_s)
    text = f"kernels take {format_time(kernel_s)} ({launches} launches)"
    text += f" and copies {format_time(copy_s)}" if copy_s else ""
    text += f", {overlap}," if overlap else ""
    text += f" of a step of {format_time(step_s)}"
    gap_s = step_s - (busy_s or kernel_s)
    if gap_s < 0:
        return f"{text}: {'kernels overlap, or ' if busy_s is None else ''}the two runs differ"
    return (
        f"{text}; the other {format_time(gap_s)} ({format_percent(gap_s / step_s)}) is"
        " launch overhead and waiting for the host, which no roof shows"
    )


def describe_overlap(together_s: float, busy_s: float | None) -> str:
    """How much of the device's time kernels and copies take that run at the same time."""
    if busy_s is None or busy_s > (1 - OVERLAP) * together_s:
        return ""
    return f"some at the same time: {format_time(busy_s)} on the clock"

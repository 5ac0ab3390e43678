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
    tier: str  # "counters" or "time"
    launches: int | None
    kernel_time_s: float | None
    busy_time_s: float | None  # in which at least one kernel or copy ran
    copy_time_s: float | None  # of the driver's copies, which are no kernels
    step_time_s: float
    flops_by_roof: Mapping[str, float]
    dram_bytes: float | None
    l2_bytes: float | None
    l1_bytes: float | None
    attributed_share: float | None  # of the kernels' time: to a phase or a layer
    layer_share: float | None  # to a layer
    copy_ratio: float | None  # the self-test: counted over true bytes
    product_ratio: float | None  # and FLOPs
    is_trusted: bool | None
    is_deduplicated: bool
    tool: str  # that read the counters, and its version; "" of older profiles
    warnings: tuple[str, ...]
    profile_id: str  # the stored profile; "" where the run has kernels of its own

    @property
    def gap_s(self) -> float | None:
        """In which nothing runs; kernels of several streams may run at once."""
        if self.kernel_time_s is None:
            return None
        return max(0.0, self.step_time_s - (self.busy_time_s or self.kernel_time_s))


def profiled(study: Study) -> list[Profiled]:
    """The runs whose kernels are known, in the order of the runs."""
    if study.kernels.empty or study.runs.empty:
        return []
    steps = dict(zip(study.runs["run_id"], study.runs["step_median_s"], strict=True))
    tables = dict(iter(study.kernels.groupby("run_id", sort=False)))
    return [
        _profiled(run_id, study.profiles.get(run_id), tables[run_id], float(step_s))
        for run_id, step_s in steps.items()
        if run_id in tables
    ]


def programs(study: Study) -> dict[str, Profiled]:
    """The captures that are programs which were profiled here, by their run."""
    if study.kernels.empty:
        return {}
    tables = dict(iter(study.kernels.groupby("run_id", sort=False)))
    return {
        run.run_id: _profiled(
            run.run_id,
            run,
            tables[run.run_id],
            math.nan if run.result.step_time_s is None else run.result.step_time_s,
        )
        for run in study.raw_captures
        if run.result.tier and run.run_id in tables
    }


def _profiled(
    run_id: str,
    profile: StoredProfile | StoredCapture | None,
    kernels: pd.DataFrame,
    step_s: float,
) -> Profiled:
    result = profile.result if profile is not None else ProfileSummary(status="ok")
    test = result.self_test
    flops = flops_by_roof(kernels)
    return Profiled(
        run_id=run_id,
        tier=result.tier or (COUNTERS if flops else TIME),
        launches=whole(kernels["launches"].sum()),
        kernel_time_s=result.kernel_time_s or number(kernels["time_s"].sum()),
        busy_time_s=result.busy_time_s,
        copy_time_s=result.copies.time_s if result.copies else None,
        step_time_s=step_s,
        flops_by_roof=flops,
        dram_bytes=_moved(kernels, "dram_bytes"),
        l2_bytes=_moved(kernels, "l2_bytes"),
        l1_bytes=_moved(kernels, "l1_bytes"),
        attributed_share=result.attributed_share,
        layer_share=result.layer_share,
        copy_ratio=test.copy_ratio if test else None,
        product_ratio=test.product_ratio if test else None,
        is_trusted=test.is_trusted if test else None,
        is_deduplicated=result.is_deduplicated,
        tool=_name_tool(result),
        warnings=result.warnings,
        profile_id=profile.run_id if profile is not None else "",
    )


def _name_tool(result: ProfileSummary) -> str:
    name = TOOL_NAMES.get(result.tool or "", "")
    return " ".join(filter(None, (name, result.tool_version or ""))) if name else ""


def _moved(kernels: pd.DataFrame, level: str) -> float | None:
    return number(kernels[level].sum(min_count=1)) if level in kernels else None


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else round(known)


def describe_trust(one: Profiled) -> str:
    """Self-test, attribution and shortcuts of a profile, in a sentence or two."""
    parts = [f"the counters were read by {one.tool}"] if one.tool else []
    tested = [f"a {what} counted {three_digits(ratio)}" for what, ratio
              in (("copy", one.copy_ratio), ("product", one.product_ratio))
              if ratio is not None]  # fmt: skip
    if tested:
        verdict = (
            "" if one.is_trusted is not False else f": outside {TRUSTED}, so doubt these counters"
        )
        parts.append(f"self-test: {listed(tested)} of the truth{verdict}")
    if one.attributed_share is not None:
        layers = ""
        if one.layer_share is not None:
            layers = f", {format_percent(one.layer_share)} to a layer"
        parts.append(f"{format_percent(one.attributed_share)} of the kernels' time is attributed to"
                     f" a phase{layers}")  # fmt: skip
    if one.is_deduplicated:
        parts.append("operators of the same work were counted once, for all of them")
    if one.tier == TIME:
        parts.append("times only: no counter was read")
    return "; ".join(parts)


def describe_gap(one: Profiled) -> str:
    """Kernel time and step time side by side, and what lies between, where both are known."""
    if one.kernel_time_s is None or math.isnan(one.step_time_s):
        return ""
    return launch_gap(
        one.kernel_time_s, one.step_time_s, one.launches,
        busy_s=one.busy_time_s, copy_s=one.copy_time_s,
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
    count = f"{launches} launches" if launches else "all together"
    overlap = describe_overlap(kernel_s + (copy_s or 0.0), busy_s)
    what = f"kernels take {format_time(kernel_s)} ({count}"
    if copy_s:
        what += f") and copies {format_time(copy_s)}" + (f" ({overlap})" if overlap else "")
    else:
        what += f", {overlap})" if overlap else ")"
    text = f"{what} of a step of {format_time(step_s)}"
    if (busy_s or kernel_s) > step_s:
        return f"{text}: {'kernels overlap, or ' if busy_s is None else ''}the two runs differ"
    gap_s = step_s - (busy_s or kernel_s)
    return (
        f"{text}; the other {format_time(gap_s)} ({format_percent(gap_s / step_s)}) is"
        " launch overhead and waiting for the host, which no roof shows"
    )


def describe_overlap(together_s: float, busy_s: float | None) -> str:
    """How much of the device's time kernels and copies take that run at the same time."""
    if busy_s is None or busy_s > (1 - OVERLAP) * together_s:
        return ""
    return f"some at the same time: {format_time(busy_s)} on the clock"

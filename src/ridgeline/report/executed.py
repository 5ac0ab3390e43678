"""What the hardware did: kernels and captures as tables; times and trust in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import sources_of
from ridgeline.profile.request import TOOL_NAMES
from ridgeline.profile.step_kernels import TOLERANCE
from ridgeline.records import ProfileSummary
from ridgeline.report.stored import COUNTERS, TIME
from ridgeline.report.text import listed, number, records, three_digits, times
from ridgeline.roofline.causes import AGREE, PARTLY, UNEXPLAINED, UNKNOWN
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.work import OPTIMIZER, family
from ridgeline.store import StoredCapture, StoredProfile
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd


TRUSTED = f"±{100 * TOLERANCE:.0f} %"  # of the truth, in the self-test
COUNTED_LEVELS = ("dram", "l2", "l1")  # memory levels with a total
OVERLAP = 0.005  # of the kernels' time: what may be rounding
OPTIMIZER_PHASE = "optimizer"
AMOUNTS = ("launches", "time_s", "flops", "dram_bytes", "l2_bytes", "l1_bytes")
WORTH_A_WORD = 0.1  # by which executed work differs from the model's
NO_WORDS = (AGREE, UNKNOWN, PARTLY, UNEXPLAINED, "not attributed", "no model work", "no counter")
CAPTURE_COLUMNS = (
    "run_id", "label", "env", "device_name", "files", "format", "busy_time_s", "copy_time_s",
    "step_time_s", "warnings", "timestamp", "command",
)  # fmt: skip


def run_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel, its launches added up, the longest first; sums of what is known.

    Adds `family` (work.py), `phases` and `layers` (how many), and `share` of all kernels'
    time.
    """
    columns = flops_columns(kernels)
    table = kernels.assign(
        launches=kernels["launches"].fillna(1) if "launches" in kernels else 1,
        flops=kernels[columns].astype(float).sum(axis=1, min_count=1),
    )
    named = [name for name in map(str, kernels) if name.endswith(".sum")]  # by the user
    amounts = [name for name in (*AMOUNTS, *columns, *named) if name in table]
    sums = table.groupby("kernel", sort=False)[amounts].sum(min_count=1)
    for name in ("layer", "phase"):
        if name in table:
            known = table[table[name].fillna("").ne("")]
            sums[f"{name}s"] = known.groupby("kernel")[name].nunique()
    sums = sums.reset_index().sort_values("time_s", ascending=False, kind="stable")
    sums.insert(1, "family", [family(str(name)) for name in sums["kernel"]])
    return sums.assign(share=sums["time_s"] / sums["time_s"].sum()).reset_index(drop=True)


def with_optimizer_kernels(layers: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Layer times with the optimizer's kernels instead of its time.

    A loss scaler waits for the device inside the optimizer, so that it cannot be held back and its
    time has the host's gaps in it, unlike that of all other layers.
    """
    if "phase" not in kernels:
        return layers
    mine = kernels[kernels["phase"].eq(OPTIMIZER_PHASE)]
    time_s = float(mine["time_s"].sum())
    is_optimizer = layers["layer"].eq(OPTIMIZER) & (layers["time_s"] > time_s)
    if not time_s or not is_optimizer.any():
        return layers
    return layers.assign(time_s=layers["time_s"].mask(is_optimizer, time_s))


def captures_table(captures: Sequence[StoredCapture], points: pd.DataFrame) -> pd.DataFrame:
    """A row per capture that has kernels, with the columns of its point."""
    import pandas as pd

    whole = points[points["grain"].eq("capture")]
    known = {str(row["run_id"]): row for row in records(whole)}
    rows = [_describe_row(run, known[run.run_id]) for run in captures if run.run_id in known]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*CAPTURE_COLUMNS, *whole.columns])))


def _describe_row(run: StoredCapture, point: Mapping[str, Any]) -> dict[str, Any]:
    result = run.result
    return {
        **point,
        "device_name": result.device_name or "",
        "files": ", ".join(sources_of(run)),
        "format": result.kind or "",
        "busy_time_s": result.busy_time_s,
        "copy_time_s": result.copies.time_s if result.copies else None,
        "step_time_s": result.step_time_s,
        "warnings": "\n".join(result.warnings),
        "timestamp": run.made.time or None,
        "command": shlex.join(run.made.command),
    }


def why_executed(reconciled: pd.DataFrame | None) -> dict[str, str]:
    """Of each layer and phase that differs and whose cause is known: `executes 1.33 times …`."""
    texts: dict[str, str] = {}
    for row in records(reconciled) if reconciled is not None else ():
        parts = []
        flops, moved = number(row["flops_ratio"]), number(row["bytes_ratio"])
        if flops and abs(flops - 1) >= WORTH_A_WORD and row["cause"] not in NO_WORDS:
            parts.append(f"executes {times(flops)} the model's FLOPs ({row['cause']})")
        if moved and moved >= 1 + WORTH_A_WORD and row["bytes_cause"] not in NO_WORDS:
            # less, which a cache spares, is no reason to be slow
            parts.append(f"moves {times(moved)} the bytes of its operators ({row['bytes_cause']})")
        if parts:
            texts[str(row["name"])] = " and ".join(parts)
    return texts


def flops_by_roof(kernels: pd.DataFrame) -> dict[str, float]:
    """Executed FLOPs by roof (`fp16 matrix`), the largest first; those that were counted."""
    sums = {name: number(kernels[name].sum(min_count=1)) for name in flops_columns(kernels)}
    known = {" ".join(roof_of(name)): value for name, value in sums.items() if value}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


# ---------------------------------------------------------------- one run or capture


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What a profiled run or a capture executed. What is not known is None."""

    run_id: str
    profile_id: str  # where it is stored; "" where the run has kernels of its own
    result: ProfileSummary
    launches: int
    kernel_time_s: float | None
    step_time_s: float | None  # of an imported capture, nobody timed it
    flops_by_roof: Mapping[str, float]
    bytes_by_level: Mapping[str, float | None]

    @property
    def tier(self) -> str:
        """`counters` or `time`."""
        return self.result.tier or (COUNTERS if self.flops_by_roof else TIME)

    @property
    def gap_s(self) -> float | None:
        """In which nothing runs; kernels of several streams may run at once."""
        if self.kernel_time_s is None or self.step_time_s is None:
            return None
        return max(0.0, self.step_time_s - (self.result.busy_time_s or self.kernel_time_s))

    @property
    def has_counters(self) -> bool:
        return bool(self.flops_by_roof) or self.bytes_by_level["dram"] is not None


def make_executed(
    run_id: str,
    profile: StoredProfile | StoredCapture | None,
    kernels: pd.DataFrame,
    step_s: float | None,
) -> Executed:
    """What a profile or capture executed, by its table of kernels."""
    result = profile.result if profile is not None else ProfileSummary(status="ok")
    moved = kernels.reindex(columns=[f"{level}_bytes" for level in COUNTED_LEVELS])
    sums = map(number, moved.astype(float).sum(min_count=1))
    return Executed(
        run_id=run_id,
        profile_id=profile.run_id if profile is not None else "",
        result=result,
        launches=round(float(kernels["launches"].sum())),
        kernel_time_s=result.kernel_time_s or number(kernels["time_s"].sum()),
        step_time_s=step_s,
        flops_by_roof=flops_by_roof(kernels),
        bytes_by_level=dict(zip(COUNTED_LEVELS, sums, strict=True)),
    )


# ---------------------------------------------------------------- in words


def describe_capture(one: Executed, row: Mapping[str, Any]) -> str:
    """How near a capture, a row of study.captures, is to its roofs."""
    text = f"{row['label']}, on {row['env']}: {describe_times(one)}."
    reached = number(row["efficiency"])
    if reached is None:
        return text
    they = "It reaches" if one.launches == 1 else "They reach"
    return f"{text} {they} {format_percent(reached)} of what the roofs allow."


def describe_times(one: Executed) -> str:
    """Kernels beside their step; of a capture whose step was not timed, the kernels alone."""
    if one.kernel_time_s is not None and one.step_time_s:
        return _describe_gap(one, one.kernel_time_s, one.step_time_s)
    taken = "an unknown time" if one.kernel_time_s is None else format_time(one.kernel_time_s)
    if one.launches == 1:
        return f"1 kernel launch takes {taken} (the step around it was not timed)"
    return (
        f"{si(one.launches)} kernel launches take {taken} together (the sum of their times; the"
        " step around them was not timed)"
    )


def describe_trust(one: Executed) -> str:
    """Self-test, attribution and shortcuts of a profile, in a sentence or two."""
    result, test, parts = one.result, one.result.self_test, []
    if tool := TOOL_NAMES.get(result.tool or ""):
        parts.append(f"the counters were read by {tool} {result.tool_version or ''}".rstrip())
    ratios = {"copy": test.copy_ratio, "product": test.product_ratio} if test else {}
    tested = [f"a {what} counted {three_digits(ratio)}"
              for what, ratio in ratios.items() if ratio is not None]  # fmt: skip
    if test and tested:
        doubt = "" if test.is_trusted else f": outside {TRUSTED}, so doubt these counters"
        parts.append(f"self-test: {listed(tested)} of the truth{doubt}")
    if result.attributed_share is not None:
        phases, layers = format_percent(result.attributed_share), result.layer_share
        to_layers = "" if layers is None else f", {format_percent(layers)} to a layer"
        parts.append(f"{phases} of the kernels' time is attributed to a phase{to_layers}")
    if one.tier == TIME:
        parts.append("times only: no counter was read")
    return "; ".join(parts)


def _describe_gap(one: Executed, kernel_s: float, step_s: float) -> str:
    """Kernel time and step time side by side, and what lies between."""
    busy_s, copies = one.result.busy_time_s, one.result.copies
    copy_s = copies.time_s if copies else 0.0
    is_overlapping = busy_s is not None and busy_s <= (1 - OVERLAP) * (kernel_s + copy_s)
    text = f"kernels take {format_time(kernel_s)} ({one.launches} launches)"
    text += f" and copies {format_time(copy_s)}" if copy_s else ""
    if busy_s and is_overlapping:
        text += f", some at the same time: {format_time(busy_s)} on the clock,"
    text += f" of a step of {format_time(step_s)}"
    gap_s = step_s - (busy_s or kernel_s)
    if gap_s < 0:
        return f"{text}: {'kernels overlap, or ' if busy_s is None else ''}the two runs differ"
    return (
        f"{text}; the other {format_time(gap_s)} ({format_percent(gap_s / step_s)}) is"
        " launch overhead and waiting for the host, which no roof shows"
    )

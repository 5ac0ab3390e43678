"""What the hardware did, as tables: kernels by name, captures, work by precision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.captures.storage import sources_of
from ridgeline.profile.metrics import TOOL_NAMES
from ridgeline.profile.self_test import TOLERANCE
from ridgeline.report.profiles import COUNTERS, TIME
from ridgeline.report.repeat import capture_command
from ridgeline.report.text import listed, number, records, three_digits
from ridgeline.roofline.causes import AGREE, PARTLY, UNEXPLAINED, UNKNOWN
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.kernel_names import family
from ridgeline.roofline.work import OPTIMIZER
from ridgeline.store import Run
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.report.study import Study

OPTIMIZER_PHASE = "optimizer"
AMOUNTS = ("launches", "time_s", "flops", "dram_bytes", "l2_bytes", "l1_bytes")
TRUSTED = f"±{100 * TOLERANCE:.0f} %"  # of the truth, in the self-test
OVERLAP = 0.005  # of the kernels' time: what may be rounding
WORTH_A_WORD = 0.1  # by which executed work differs from the model's
NO_WORDS = (AGREE, UNKNOWN, PARTLY, UNEXPLAINED, "not attributed", "no model work", "no counter")
# what counting each kind of work once cost, in profiles of versions that could (docs/results)
SHORTCUT = "FLOPs of a measured step were the same so, DRAM bytes within 2.4 %"
CAPTURE_COLUMNS = (
    "run_id", "label", "env", "device_name", "files", "format", "busy_time_s", "copy_time_s",
    "step_time_s", "warnings", "timestamp", "command",
)  # fmt: skip


def run_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel, its launches added up, the longest first; sums of what is known.

    Adds `family` (kernel_names.py), `phases` and `layers` (how many), and `share` of all kernels'
    time.
    """
    columns = flops_columns(kernels)
    table = kernels.assign(
        launches=kernels["launches"].fillna(1) if "launches" in kernels else 1,
        flops=kernels[columns].astype(float).sum(axis=1, min_count=1),
    )
    amounts = [name for name in (*AMOUNTS, *columns) if name in table]
    same = table.groupby("kernel", sort=False)
    found = same[amounts].sum(min_count=1)
    for name, told in (("layer", "layers"), ("phase", "phases")):
        if name in table:
            found[told] = table[table[name].fillna("").ne("")].groupby("kernel")[name].nunique()
    found = found.reset_index().sort_values("time_s", ascending=False, kind="stable")
    found.insert(1, "family", [family(str(name)) for name in found["kernel"]])
    return found.assign(share=found["time_s"] / found["time_s"].sum()).reset_index(drop=True)


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


def captures_table(captures: Sequence[Run], points: pd.DataFrame) -> pd.DataFrame:
    """A row per capture that has kernels, with the columns of its point."""
    import pandas as pd

    whole = points[points["grain"].eq("capture")]
    known = {str(row["run_id"]): row for row in records(whole)}
    rows = [_capture_row(run, known[run.run_id]) for run in captures if run.run_id in known]
    table = pd.DataFrame(rows, columns=list(CAPTURE_COLUMNS))
    told = [name for name in whole.columns if name not in ("env", "label")]
    return table.merge(whole[told], on="run_id", how="left")


def _capture_row(run: Run, point: Mapping[str, Any]) -> dict[str, Any]:
    found = run.found
    return {
        "run_id": run.run_id,
        "label": point["label"],
        "env": point["env"],
        "device_name": found.get("device_name") or "",
        "files": ", ".join(sources_of(run)),
        "format": found.get("kind") or "",
        "busy_time_s": found.get("busy_time_s"),
        "copy_time_s": copy_time_s(found),
        "step_time_s": found.get("step_time_s"),
        "warnings": "\n".join(map(str, found.get("warnings") or ())),
        "timestamp": run.provenance.get("time"),
        "command": capture_command(run),
    }


def why_executed(reconciled: pd.DataFrame | None) -> dict[str, str]:
    """Of each layer and phase that differs and whose cause is known: `executes 1.33 times …`."""
    if reconciled is None:
        return {}
    found = {}
    for row in records(reconciled):
        parts = [
            _differs(row, "flops_ratio", "cause", "executes", "the model's FLOPs"),
            _differs(row, "bytes_ratio", "bytes_cause", "moves", "the bytes of its operators"),
        ]
        told = " and ".join(part for part in parts if part)
        if told:
            found[str(row["name"])] = told
    return found


def _differs(row: Mapping[str, Any], ratio: str, cause: str, does: str, what: str) -> str:
    times, why = number(row[ratio]), str(row[cause])
    if times is None or abs(times - 1) < WORTH_A_WORD or why in NO_WORDS:
        return ""
    if does == "moves" and times < 1:  # what a cache spares is no reason to be slow
        return ""
    return f"{does} {three_digits(times)} times {what} ({why})"


def flops_by_roof(kernels: pd.DataFrame) -> dict[str, float]:
    """Executed FLOPs by roof (`fp16 matrix`), the largest first; those that were counted."""
    sums = {name: number(kernels[name].sum(min_count=1)) for name in flops_columns(kernels)}
    known = {" ".join(roof_of(name)): value for name, value in sums.items() if value}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


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
    found = {}
    for run in study.raw_captures:
        if run.found.get("tier") and run.run_id in tables:
            step_s = number(run.found.get("step_time_s"))
            step_s = math.nan if step_s is None else step_s  # of one without marks
            found[run.run_id] = _profiled(run.run_id, run, tables[run.run_id], step_s)
    return found


def _profiled(run_id: str, profile: Run | None, kernels: pd.DataFrame, step_s: float) -> Profiled:
    found = profile.found if profile is not None else {}
    test = found.get("self_test") or {}
    flops = flops_by_roof(kernels)
    return Profiled(
        run_id=run_id,
        tier=str(found.get("tier") or (COUNTERS if flops else TIME)),
        launches=whole(kernels["launches"].sum()),
        kernel_time_s=number(found.get("kernel_time_s")) or number(kernels["time_s"].sum()),
        busy_time_s=number(found.get("busy_time_s")),
        copy_time_s=copy_time_s(found),
        step_time_s=step_s,
        flops_by_roof=flops,
        dram_bytes=_moved(kernels, "dram_bytes"),
        l2_bytes=_moved(kernels, "l2_bytes"),
        l1_bytes=_moved(kernels, "l1_bytes"),
        attributed_share=number(found.get("attributed_share")),
        layer_share=number(found.get("layer_share")),
        copy_ratio=number(test.get("copy_ratio")),
        product_ratio=number(test.get("product_ratio")),
        is_trusted=test.get("is_trusted"),
        is_deduplicated=bool(found.get("is_deduplicated")),
        tool=_tool(found),
        warnings=tuple(map(str, found.get("warnings") or ())),
        profile_id=profile.run_id if profile is not None else "",
    )


def _tool(found: Mapping[str, Any]) -> str:
    name = TOOL_NAMES.get(str(found.get("tool") or ""), "")
    return " ".join(filter(None, (name, str(found.get("tool_version") or "")))) if name else ""


def _moved(kernels: pd.DataFrame, level: str) -> float | None:
    return number(kernels[level].sum(min_count=1)) if level in kernels else None


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else round(known)


def trust_told(one: Profiled) -> str:
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
        parts.append("operators that do the same work (on inputs of the same shapes, types and"
                     " layouts; element by element: on as many) were counted once, and the counters"
                     f" taken for all of them ({SHORTCUT})")  # fmt: skip
    if one.tier == TIME:
        parts.append("times only: no counter was read")
    return "; ".join(parts)


def gap_told(one: Profiled) -> str:
    """Kernel time and step time side by side, and what lies between, where both are known."""
    if one.kernel_time_s is None or math.isnan(one.step_time_s):
        return ""
    return launch_gap(
        one.kernel_time_s, one.step_time_s, one.launches,
        busy_s=one.busy_time_s, copy_s=one.copy_time_s,
    )  # fmt: skip


def copy_time_s(found: Mapping[str, Any]) -> float | None:
    """What the driver's copies of a profiled step take; None where nobody looked."""
    return number((found.get("copies") or {}).get("time_s"))


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
    overlap = overlap_told(kernel_s + (copy_s or 0.0), busy_s)
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


def overlap_told(together_s: float, busy_s: float | None) -> str:
    """How much of the device's time kernels and copies take that run at the same time."""
    if busy_s is None or busy_s > (1 - OVERLAP) * together_s:
        return ""
    return f"some at the same time: {format_time(busy_s)} on the clock"

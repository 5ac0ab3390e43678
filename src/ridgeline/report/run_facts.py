"""What the join needs to know of one stored run."""

from __future__ import annotations

from typing import Any

from ridgeline.measure.advice import is_processor_shared
from ridgeline.measure.statistics import is_disturbed
from ridgeline.report.configuration import MADE_UP
from ridgeline.roofline.findings import LAYERS_OFF, Setting
from ridgeline.roofline.points import Measured
from ridgeline.store import Run
from ridgeline.units import format_percent

GRAPH_MODES = ("reduce-overhead", "max-autotune")
TOO_WIDE = 0.5  # of the median; chosen, not calibrated: host-bound steps of an H200 moved by 30 %


def measured_facts(run: Run, profile: Run | None = None) -> Measured:
    """What a roofline needs of a stored run, and of its profile."""
    asked, found = run.asked, run.found
    split = found.get("split_s") or {}
    compiled = asked.get("compile")
    layers = found.get("layers") or {}
    return Measured(
        run_id=run.run_id,
        model=str(asked["model"]),
        mode=str(asked["mode"]),
        precision=str(found["precision"]),
        batch_size=int(asked["batch_size"]),
        label=str(asked.get("label") or ""),
        step_time_s=float(found["step_time_s"]["median"]),
        phase_times_s={
            phase: float(split[phase]["median"])
            for phase in ("forward", "backward", "optimizer")
            if phase in split and split[phase]["median"]
        },
        kernel_launches=_whole(_step_kernels(run, profile).get("kernels")),
        parts=parts_of(run),
        is_compiled=bool(compiled),
        is_graph=compiled in GRAPH_MODES,
        layers_without_gaps="gaps" in str(layers.get("clock") or ""),
    )


def setting_of(run: Run, profile: Run | None = None) -> Setting:
    """What has been tried, and what the findings rest on."""
    asked, found = run.asked, run.found
    kernels = _step_kernels(run, profile)
    is_cpu = found.get("backend") == "cpu"
    usage, iters = (found.get("timed_usage") or {}) if is_cpu else {}, found.get("iters")
    return Setting(
        precision=str(found["precision"]),
        is_compiled=bool(asked.get("compile")),
        is_channels_last=bool(asked.get("channels_last")),
        is_tuned=bool(asked.get("cudnn_benchmark")),
        batch_size=_whole(asked.get("batch_size")),
        step_time_s=float(found["step_time_s"]["median"]),
        kernel_time_s=kernels.get("time_s"),
        kernel_launches=_whole(kernels.get("kernels")),
        layer_sum_s=(found.get("layers") or {}).get("sum_s"),
        system_s=usage["system_time_s"] / iters if usage.get("system_time_s") and iters else None,
        cores=float(usage.get("cores") or 1.0),
    )


def disturbance(run: Run) -> str:
    """Why the steps of a run are to be doubted: the machine was busy. Empty if it was not.

    Real data may come in bursts: only steps that read none are expected to be alike.
    """
    found = run.found
    usage, step = found.get("timed_usage") or {}, found["step_time_s"]
    if found.get("backend") == "cpu" and is_processor_shared(
        cores=usage.get("cores") or 0.0,
        threads=found.get("threads") or 0,
        elapsed_s=usage.get("elapsed_s") or 0.0,
        involuntary_switches=usage.get("involuntary_switches") or 0,
    ):
        return "other programs had the processor"
    reads_data = run.asked.get("data") not in MADE_UP
    if not reads_data and is_disturbed(median=step["median"], mean=step["mean"]):
        ratio = step["mean"] / step["median"]
        return f"some steps were held up: their mean is {ratio:.2f} times their median"
    if not reads_data and (step.get("spread") or 0.0) > TOO_WIDE:
        wide = format_percent(step["spread"])
        return f"steps vary: the middle 80 % of them span {wide} of the median"
    return ""


def _step_kernels(run: Run, profile: Run | None) -> dict[str, Any]:
    """Time and number of a step's kernels. A profile knows them better.

    Runs of older versions counted copies by the driver as kernels.
    """
    if profile is None or not profile.found.get("kernel_time_s"):
        return run.found.get("kernels") or {}
    time_s = profile.found.get("busy_time_s") or profile.found["kernel_time_s"]
    return {"time_s": time_s, "kernels": profile.found.get("launches")}


def device_of(run: Run) -> str:
    """`cpu`, `mps`, `cuda:0`."""
    kind = str(run.found.get("backend"))
    return f"cuda:{run.asked.get('device') or 0}" if kind == "cuda" else kind


def threads_of(run: Run) -> int | None:
    """Threads of the operators on a CPU; None on other devices, and where nobody wrote it down."""
    return _whole(run.found.get("threads")) if run.found.get("backend") == "cpu" else None


def parts_of(run: Run) -> int:
    """Batches of a step; inference has no optimizer to gather for."""
    if run.asked.get("mode") != "train":
        return 1
    return int(run.asked.get("grad_accum_steps") or 1)


def layers_add_up(run: Run) -> bool:
    """Whether the layers of a run add up to its step.

    A device's own times are without the gaps between kernels, and may be less.
    """
    told = run.found.get("layers") or {}
    difference = told.get("difference")
    if difference is None:
        return True
    may_be_less = "gaps" in str(told.get("clock") or "")
    return bool(difference < LAYERS_OFF and (may_be_less or difference > -LAYERS_OFF))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)

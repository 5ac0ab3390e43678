"""What the join needs to know of one stored run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from ridgeline.findings import LAYERS_OFF, Setting
from ridgeline.measure.advice import is_processor_shared
from ridgeline.measure.statistics import is_disturbed
from ridgeline.provenance import speed_variables
from ridgeline.records import KernelTime, RunRequest, RunResult
from ridgeline.roofline.points import MeasuredStep
from ridgeline.store import MeasuredRun, StoredCapture, StoredProfile
from ridgeline.units import format_percent

GRAPH_MODES = ("reduce-overhead", "max-autotune")
LOADING = ("workers", "pin_memory", "prefetch_factor", "augment")  # settings of data that is read
SYNTHETIC = ("synthetic", "synthetic-host", None)  # inputs that nobody has to read
# Variables that say where something is, or which of several equal devices is used. They are stored
# and shown, and runs that differ in them alone are repeats.
NO_SETTINGS = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME",
    "KMP_DUPLICATE_LIB_OK", "TORCH_WARM_POOL",  # torch itself sets the last three
)  # fmt: skip
TOO_WIDE = 0.5  # of the median; chosen, not calibrated: host-bound steps of an H200 moved by 30 %


def measured_facts(run: MeasuredRun, profile: StoredProfile | None = None) -> MeasuredStep:
    """What a roofline needs of a stored run, and of its profile."""
    request, result = run.request, run.result
    split = result.split_s
    kernels = _step_kernels(run, profile)
    return MeasuredStep(
        run_id=run.run_id,
        model=request.model,
        mode=request.mode,
        precision=result.precision,
        batch_size=request.batch_size,
        label=request.label,
        step_time_s=float(result.step_time_s.median),
        phase_times_s={
            phase: float(split[phase].median)
            for phase in ("forward", "backward", "optimizer")
            if phase in split and split[phase].median
        },
        kernel_launches=_round(kernels.kernels),
        parts=parts_of(run),
        is_compiled=bool(request.compile),
        is_graph=request.compile in GRAPH_MODES,
        layers_without_gaps=_has_no_gaps(run),
    )


def setting_of(run: MeasuredRun, profile: StoredProfile | None = None) -> Setting:
    """What has been tried, and what the findings rest on."""
    request, result = run.request, run.result
    kernels = _step_kernels(run, profile)
    usage = result.timed_usage if result.backend == "cpu" else None
    return Setting(
        precision=result.precision,
        is_compiled=bool(request.compile),
        is_channels_last=request.channels_last,
        is_tuned=request.cudnn_benchmark,
        batch_size=request.batch_size,
        step_time_s=float(result.step_time_s.median),
        kernel_time_s=kernels.time_s,
        kernel_launches=_round(kernels.kernels),
        layer_sum_s=result.layers.sum_s if result.layers else None,
        system_s=usage.system_time_s / result.iters if usage and usage.system_time_s else None,
        cores=float(usage.cores or 1.0) if usage else 1.0,
    )


def disturbance(run: MeasuredRun) -> str:
    """Why the steps of a run are to be doubted: the machine was busy. Empty if it was not.

    Real data may come in bursts: only steps that read none are expected to be alike.
    """
    usage, step = run.result.timed_usage, run.result.step_time_s
    if (
        usage
        and run.result.backend == "cpu"
        and is_processor_shared(
            cores=usage.cores,
            threads=run.result.threads or 0,
            elapsed_s=usage.elapsed_s,
            involuntary_switches=usage.involuntary_switches,
        )
    ):
        return "other programs had the processor"
    reads_data = run.request.data not in SYNTHETIC
    if not reads_data and is_disturbed(median=step.median, mean=step.mean):
        ratio = step.mean / step.median
        return f"some steps were held up: their mean is {ratio:.2f} times their median"
    if not reads_data and (step.spread or 0.0) > TOO_WIDE:
        wide = format_percent(step.spread or 0.0)
        return f"steps vary: the middle 80 % of them span {wide} of the median"
    return ""


def _step_kernels(run: MeasuredRun, profile: StoredProfile | None) -> KernelTime:
    """Time and number of a step's kernels. A profile knows them better.

    Runs of older versions counted copies by the driver as kernels.
    """
    if profile is None or not profile.result.kernel_time_s:
        return run.result.kernels or KernelTime()
    time_s = profile.result.busy_time_s or profile.result.kernel_time_s
    return KernelTime(time_s=time_s, kernels=profile.result.launches)


def device_of(run: MeasuredRun | StoredCapture) -> str:
    """`cpu`, `mps`, `cuda:0`. A capture does not know its number."""
    kind = run.result.backend or "cuda"
    number = run.request.device if isinstance(run.request, RunRequest) else 0
    return f"cuda:{number}" if kind == "cuda" else kind


def threads_of(run: MeasuredRun | StoredCapture) -> int | None:
    """Threads of the operators on a CPU; None on other devices, and where it is not stored."""
    if not isinstance(run.result, RunResult) or run.result.backend != "cpu":
        return None
    return run.result.threads


def parts_of(run: MeasuredRun) -> int:
    """Batches of a step; inference has no optimizer to gather for."""
    return run.request.grad_accum_steps if run.request.mode == "train" else 1


def layers_add_up(run: MeasuredRun) -> bool:
    """Whether the layers of a run add up to its step.

    A device's own times are without the gaps between kernels, and may be less.
    """
    difference = run.result.layers.difference if run.result.layers else None
    if difference is None:
        return True
    return difference < LAYERS_OFF and (_has_no_gaps(run) or difference > -LAYERS_OFF)


def _has_no_gaps(run: MeasuredRun) -> bool:
    layers = run.result.layers
    return layers is not None and "gaps" in (layers.clock or "")


def _round(value: float | None) -> int | None:
    return None if value is None else round(value)


def config_text(config: Any) -> str:
    """What a model was configured with, as a cell: the same text for the same sizes."""
    if not isinstance(config, Mapping) or not config:
        return ""
    return json.dumps(config, sort_keys=True, default=str)


def environment_text(environment: Mapping[str, str]) -> str:
    """`OMP_NUM_THREADS=1 OMP_PROC_BIND=true`, as a shell takes it; only what is a setting."""
    recorded = speed_variables(environment)
    return " ".join(
        f"{name}={shlex.quote(str(value))}"
        for name, value in recorded.items()
        if name not in NO_SETTINGS
    )

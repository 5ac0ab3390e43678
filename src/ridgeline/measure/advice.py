"""What a reader of a measurement should know: warnings that say by how much and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.measure import statistics
from ridgeline.settings import Settings, option
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    from torch import Tensor

    from ridgeline.measure.measurement import Measurement

BUSY_ENOUGH = 0.9
SUM_TOLERANCE = 0.05
DATA_SHARE = 0.1
CORES_ENOUGH, SWITCHES_PER_S, LONG_ENOUGH_S = 0.8, 30.0, 0.5
SAME_STEPS = 0.03  # a pass whose steps differ by more ran something else
SHORT_S = 1e-4  # of a step per module


def warnings(measured: Measurement, loss: Tensor | None) -> list[str]:
    """All of them, the most important first."""
    return [
        *measured.precision.warnings,
        *_busy(measured),
        *_data(measured),
        *_steadiness(measured),
        *_neighbours(measured),
        *_throttling(measured),
        *_settings(measured),
        *_loss(measured, loss),
        *_energy(measured),
        *_layers(measured),
    ]


def _busy(measured: Measurement) -> list[str]:
    busy, kernels = measured.busy_fraction, measured.kernels
    if busy is None or kernels is None or busy >= BUSY_ENOUGH:
        return []
    works = (
        f"the GPU works {format_time(kernels.time_s or 0.0)} of a "
        f"{format_time(measured.step_time.median)} step ({format_percent(busy)})"
    )
    if _data(measured):
        return [f"{works}; for much of the rest it waits for data"]
    graphs = measured.settings.compile == "reduce-overhead"
    remedy = "" if graphs else " or --compile-mode reduce-overhead (CUDA graphs)"
    return [
        f"{works}: for the rest it waits for the host, which launches {kernels.kernels:.0f} "
        f"kernels a step; a larger batch{remedy} closes that gap"
    ]


def _data(measured: Measurement) -> list[str]:
    waits = sum(measured.timing.device.phases_s.get("data", ()))
    share = waits / sum(measured.timing.device.steps_s)
    if measured.settings.is_synthetic or share <= DATA_SHARE:
        return []
    more = max(2, 2 * measured.settings.workers)
    return [
        f"{format_percent(share)} of a step is spent waiting for data; "
        f"try `ridgeline run … --workers {more} --pin-memory`, or time the model alone with "
        "`ridgeline run … --data synthetic`"
    ]


def _steadiness(measured: Measurement) -> list[str]:
    messages = statistics.advice(measured.timing.device.steps_s)
    if measured.warmup.is_steady is None:
        messages.append(
            f"too few warm-up steps ({len(measured.warmup.times_s)}) to tell whether times are "
            "steady; try `ridgeline run … --warmup-iters 10`"
        )
    if measured.warmup.is_steady is False:
        messages.append(
            f"times were not steady after {len(measured.warmup.times_s)} warm-up steps; "
            f"try `ridgeline run … --warmup-iters {3 * len(measured.warmup.times_s)}`"
        )
    return messages


def _neighbours(measured: Measurement) -> list[str]:
    """Steady times may be steadily wrong, where others had the processor all the while."""
    usage, threads = measured.timing.usage, measured.threads
    is_shared = measured.backend.kind == "cpu" and is_processor_shared(
        cores=usage.cores, threads=threads or 0, elapsed_s=usage.elapsed_s,
        involuntary_switches=usage.involuntary_switches,
    )  # fmt: skip
    if not is_shared:
        return []
    taken_away = usage.involuntary_switches / usage.elapsed_s
    return [
        f"other programs had the processor: steps used {usage.cores:.1f} of {threads} cores and "
        f"were interrupted {taken_away:.0f} times a second; close them and measure again"
    ]


def is_processor_shared(
    *, cores: float, threads: float, elapsed_s: float, involuntary_switches: float
) -> bool:
    """Whether other programs had the processor: steps got less of it, and were interrupted."""
    if not threads or elapsed_s < LONG_ENOUGH_S:
        return False
    return cores <= CORES_ENOUGH * threads and involuntary_switches >= SWITCHES_PER_S * elapsed_s


def _throttling(measured: Measurement) -> list[str]:
    reasons = measured.during.throttle_reasons
    if not reasons:
        return []
    return [
        f"the clock was held down during the measurement: {', '.join(reasons)}; "
        "these are times at that limit, not the best of the device"
    ]


def _settings(measured: Measurement) -> list[str]:
    settings, kind = measured.settings, measured.backend.kind
    optimizer_options = {
        "--optimizer": settings.optimizer != Settings().optimizer,
        **{option(name): True for name in settings.optimizer_options},
    }
    ignored = {
        "--nvtx": settings.nvtx and kind != "cuda",
        "--cudnn-benchmark": settings.cudnn_benchmark and kind != "cuda",
        "--workers": settings.workers > 0 and settings.is_synthetic,
        "--prefetch-factor": settings.prefetch_factor is not None and settings.is_synthetic,
        "--no-augment": not settings.augment and settings.is_synthetic,
        "--pin-memory": settings.pin_memory and (kind != "cuda" or settings.data == "synthetic"),
        "--grad-accum-steps": settings.grad_accum_steps > 1 and measured.spec.mode == "infer",
        **{
            name: is_set and measured.spec.mode == "infer"
            for name, is_set in optimizer_options.items()
        },
        "--channels-last": settings.channels_last and not _has_images(measured),
    }
    messages = [f"{name} has no effect in this run" for name, is_idle in ignored.items() if is_idle]
    if settings.deterministic:
        names = [line for line in measured.log if "deterministic" in line]
        messages += [f"not deterministic after all: {line}" for line in names]
    if settings.compile is not None and measured.layers is not None:
        messages.append("layers were timed without torch.compile: a compiled model has no layers")
    return messages


def _has_images(measured: Measurement) -> bool:
    return "input_size" in measured.workload.describe


def _loss(measured: Measurement, loss: Tensor | None) -> list[str]:
    if loss is None or bool(loss.isfinite().all()):
        return []
    if measured.spec.mode == "infer":
        return ["the output has numbers that are not finite; times are not affected"]
    return [
        "the loss is no longer a finite number; times are not affected, but the numbers are not a "
        "training: try a smaller rate, `ridgeline run … --lr 0.001`"
    ]


def _energy(measured: Measurement) -> list[str]:
    energy, settings = measured.energy, measured.settings
    if energy is None and (settings.energy or settings.layer_energy):
        reasons = "; ".join(measured.energy_reasons) or "there is none"
        return [f"energy was asked for, and no meter can be read: {reasons}"]
    if energy is None:
        return []
    messages = list(energy.warnings)
    step_s = energy.step_time_s or measured.step_time.median
    off = step_s / measured.step_time.median - 1
    if abs(off) > SAME_STEPS:
        messages.append(
            f"steps took {format_percent(abs(off))} {'longer' if off > 0 else 'less'} while energy "
            f"was measured ({format_time(step_s)}): the joules belong to those steps"
        )
    layers = measured.layer_energies.values()
    missed = sum(not all(one.has_reached_target for one in calls) for calls in layers)
    if missed:
        messages.append(
            f"the joules of {missed} of {len(measured.layer_energies)} layers are less certain "
            "than 5 %: the column energy_interval_j says how much"
        )
    if settings.layer_energy and not measured.layer_energies:
        messages.append("no layer could be repeated alone: there are no joules of layers")
    return messages


def _layers(measured: Measurement) -> list[str]:
    layers = measured.layers
    if layers is None or measured.settings.compile is not None:
        return []
    step_s = measured.step_time.median
    off = layers.sum_s / step_s - 1
    if abs(off) <= SUM_TOLERANCE or (layers.is_held_back and off < 0):
        return []  # a GPU's sum leaves out its idle time, as it should
    text = f"the layers add up to {format_percent(abs(off))} {'more' if off > 0 else 'less'} than "
    text += "an unprofiled step"
    if off > 0 and step_s / max(1, len(layers.seen)) < SHORT_S:
        return [f"{text}: watching costs microseconds per module, which shows in steps this short"]
    return [f"{text}; close other programs and try again"]

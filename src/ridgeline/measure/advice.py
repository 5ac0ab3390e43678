"""What a reader of a measurement should know: warnings that say by how much and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ridgeline.machine.sampling import drift, spread
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    from ridgeline.measure.run_record import Measurement

BUSY_ENOUGH = 0.9
SUM_TOLERANCE = 0.05
DATA_SHARE = 0.1
CORES_ENOUGH, SWITCHES_PER_S, LONG_ENOUGH_S = 0.8, 30.0, 0.5
SAME_STEPS = 0.03  # a pass whose steps differ by more ran something else
WIDE = 0.10  # 10th to 90th percentile over the median: above it the samples are called unstable
DRIFT = 0.03  # later half over earlier half
LEAST = 5  # fewer samples than this say little about stability


def warnings(measured: Measurement) -> list[str]:
    """All of them, the most important first."""
    rules = (
        _busy, _data, _stability, _warmup, _neighbours, _throttling, _settings, _loss,
        _energy, _layers,
    )  # fmt: skip
    return [*measured.case.precision.warnings, *(text for rule in rules for text in rule(measured))]


def _busy(measured: Measurement) -> Iterator[str]:
    busy, kernels = measured.result.busy_fraction, measured.result.kernels
    if busy is None or kernels is None or busy >= BUSY_ENOUGH:
        return
    works = (
        f"the GPU works {format_time(kernels.time_s or 0.0)} of a "
        f"{format_time(measured.result.step_time_s.median)} step ({format_percent(busy)})"
    )
    if any(_data(measured)):
        yield f"{works}; for much of the rest it waits for data"
        return
    graphs = measured.case.settings.compile == "reduce-overhead"
    remedy = "" if graphs else " or --compile-mode reduce-overhead (CUDA graphs)"
    yield (
        f"{works}: for the rest it waits for the host, which launches {kernels.kernels:.0f} "
        f"kernels a step; a larger batch{remedy} closes that gap"
    )


def _data(measured: Measurement) -> Iterator[str]:
    settings, times = measured.case.settings, measured.timing.device
    share = sum(times.phases_s.get("data", ())) / sum(times.steps_s)
    if share > DATA_SHARE and not settings.is_synthetic:
        yield (
            f"{format_percent(share)} of a step is spent waiting for data; "
            f"try `ridgeline run … --workers {max(2, 2 * settings.workers)} --pin-memory`"
            ", or time the model alone with `ridgeline run … --data synthetic`"
        )


def _stability(measured: Measurement) -> Iterator[str]:
    samples = measured.timing.device.steps_s
    if len(samples) < LEAST:
        return
    if (wide := spread(samples)) > WIDE:
        yield (
            f"step times are unstable: the middle 80 % of them span {format_percent(wide)} of the "
            "median; close other programs, and see with `ridgeline run … --repeats 3` how far "
            "medians move"
        )
    if abs(moved := drift(samples)) > DRIFT:
        yield (
            f"steps became {format_percent(abs(moved))} {'slower' if moved > 0 else 'faster'} "
            "during the measurement; warm up longer with `ridgeline run … --warmup-iters`, and "
            "look at clocks and temperature"
        )


def _warmup(measured: Measurement) -> Iterator[str]:
    steps = len(measured.result.warmup.times_s)
    if measured.result.warmup.is_steady is None:
        yield (
            f"too few warm-up steps ({steps}) to tell whether times are steady; try "
            "`ridgeline run … --warmup-iters 10`"
        )
    if measured.result.warmup.is_steady is False:
        yield (
            f"times were not steady after {steps} warm-up steps; try "
            f"`ridgeline run … --warmup-iters {3 * steps}`"
        )


def _neighbours(measured: Measurement) -> Iterator[str]:
    """Steady times may be steadily wrong, where others had the processor all the while."""
    usage, threads = measured.timing.usage, measured.result.threads
    if measured.result.backend == "cpu" and is_processor_shared(
        cores=usage.cores, threads=threads or 0, elapsed_s=usage.elapsed_s,
        involuntary_switches=usage.involuntary_switches,
    ):  # fmt: skip
        taken_away = usage.involuntary_switches / usage.elapsed_s
        yield (
            f"other programs had the processor: steps used {usage.cores:.1f} of {threads} cores "
            f"and were interrupted {taken_away:.0f} times a second; close them and measure again"
        )


def is_processor_shared(
    *, cores: float, threads: float, elapsed_s: float, involuntary_switches: float
) -> bool:
    """Whether other programs had the processor: steps got less of it, and were interrupted."""
    if not threads or elapsed_s < LONG_ENOUGH_S:
        return False
    return cores <= CORES_ENOUGH * threads and involuntary_switches >= SWITCHES_PER_S * elapsed_s


def _throttling(measured: Measurement) -> Iterator[str]:
    if reasons := measured.result.conditions.during.throttle_reasons:
        yield (
            f"the clock was held down during the measurement: {', '.join(reasons)}; "
            "these are times at that limit, not the best of the device"
        )


def _settings(measured: Measurement) -> Iterator[str]:
    from ridgeline.measure.step import idle_options  # here: views use this module without torch

    settings, has_images = measured.case.settings, "input_size" in measured.result.describe
    for name in idle_options(
        settings, measured.result.backend, measured.case.spec.mode, has_images=has_images
    ):
        yield f"{name} has no effect in this run"
    if settings.deterministic:
        lines = [line for line in measured.log if "deterministic" in line]
        yield from (f"not deterministic after all: {line}" for line in lines)
    if settings.compile is not None and measured.layers is not None:
        yield "layers were timed without torch.compile: a compiled model has no layers"


def _loss(measured: Measurement) -> Iterator[str]:
    if not measured.is_loss_finite:
        yield (
            "the loss is no longer a finite number; times are not affected, but the numbers are "
            "not a training: try a smaller rate, `ridgeline run … --lr 0.001`"
        )


def _energy(measured: Measurement) -> Iterator[str]:
    from ridgeline.measure.layer_energy import is_certain

    energy, settings = measured.result.energy, measured.case.settings
    if energy is None:
        if settings.energy or settings.layer_energy:
            reasons = "; ".join(measured.result.energy_reasons) or "there is none"
            yield f"energy was asked for, and no meter can be read: {reasons}"
        return
    yield from energy.warnings
    step_s = energy.step_time_s or measured.result.step_time_s.median
    off = step_s / measured.result.step_time_s.median - 1
    if abs(off) > SAME_STEPS:
        yield (
            f"steps took {format_percent(abs(off))} {'longer' if off > 0 else 'less'} while energy "
            f"was measured ({format_time(step_s)}): the joules belong to those steps"
        )
    layers = measured.layer_energies
    if missed := sum(not all(map(is_certain, calls)) for calls in layers.values()):
        yield (
            f"the joules of {missed} of {len(layers)} layers are less certain than 5 %: the "
            "column energy_interval_j says how much"
        )
    if settings.layer_energy and not layers:
        yield "no layer could be repeated alone: there are no joules of layers"


def _layers(measured: Measurement) -> Iterator[str]:
    layers = measured.layers
    if layers is None or measured.case.settings.compile is not None:
        return
    step_s = measured.result.step_time_s.median
    off = layers.sum_s / step_s - 1
    if abs(off) <= SUM_TOLERANCE or (layers.is_held_back and off < 0):
        return  # a GPU's sum leaves out its idle time, as it should
    yield (
        f"the layers add up to {format_percent(abs(off))} {'more' if off > 0 else 'less'} than an "
        "unprofiled step: close other programs, or watching takes long in steps this short"
    )

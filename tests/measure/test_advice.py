"""Every warning of a measurement, in full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.measure.measured import energy_window, measured, timing_of

from ridgeline.measure.advice import warnings
from ridgeline.measure.backends import Precision
from ridgeline.measure.energy import summarise_windows
from ridgeline.measure.layers import LayerTimes, Seen
from ridgeline.measure.run_record import Measurement
from ridgeline.measure.timing import WarmUp
from ridgeline.records import Conditions, EnergyResult, KernelTime, Usage
from ridgeline.settings import Settings

IMAGES = {"input_size": (32, 32)}


def layers_of(time_s: float, is_held_back: bool = False, modules: int = 1) -> LayerTimes:
    return LayerTimes(
        samples_s={("(model)", "forward"): (time_s,)}, steps_s=(time_s,),
        seen={str(number): Seen(calls=1) for number in range(modules)}, is_held_back=is_held_back,
    )  # fmt: skip


def energy_of(*messages: str, step_time_s: float = 1.0) -> EnergyResult:
    """Of two windows of ten steps."""
    length_s = 10 * step_time_s
    windows = tuple(
        energy_window(start_s=n * length_s, end_s=(n + 1) * length_s, steps=10, mean_power_w=100.0)
        for n in range(2)
    )
    return replace(summarise_windows(windows, samples_per_step=2), warnings=messages)


def repeated(*, is_narrow: bool) -> EnergyResult:
    """Six windows of 5 J a call; the interval is 4 % or 8 % wide."""
    interval_j = (4.9, 5.1) if is_narrow else (4.8, 5.2)
    return EnergyResult(energy_j_per_step=5.0, interval_j_per_step=interval_j)


KERNELS = KernelTime(time_s=0.25, kernels=123.4, steps=3)
PHOTOS, WITH_DATA = Settings(data="photos"), timing_of(*[1.0] * 10, data_s=0.25)
COMPILED = Settings(compile="default", layers=True)
NARROW, WIDE = (repeated(is_narrow=True),), (repeated(is_narrow=False),)
NOT_DETERMINISTIC = "UserWarning: cumsum is not deterministic"


@pytest.mark.parametrize(
    ("measurement", "start"),
    [
        (
            measured(precision=Precision(requested="amp", used="fp32", warnings=("no amp",))),
            "no amp",
        ),
        (
            measured("cuda", kernels=KERNELS),
            "the GPU works 250 ms of a 1 s step (25.0 %): for the rest it waits for the host, "
            "which launches 123 kernels a step; a larger batch or --compile-mode reduce-overhead ",
        ),
        (
            measured("cuda", kernels=KERNELS, settings=Settings(compile="reduce-overhead")),
            "the GPU works 250 ms of a 1 s step (25.0 %): for the rest it waits for the host, "
            "which launches 123 kernels a step; a larger batch closes that gap",
        ),
        (
            measured(timing=WITH_DATA, settings=PHOTOS),
            "25.0 % of a step is spent waiting for data; try `ridgeline run … --workers 2 ",
        ),
        (
            measured(timing=timing_of(*[1.0, 1.2] * 10)),
            "step times are unstable: the middle 80 % of them span 18.2 % of the median;",
        ),
        (
            measured(warmup=WarmUp(times_s=(1.0,) * 12, is_steady=False)),
            "times were not steady after 12 warm-up steps; try `ridgeline run … --warmup-iters 36`",
        ),
        (
            measured(warmup=WarmUp(times_s=(1.0,), is_steady=None)),
            "too few warm-up steps (1) to tell whether times are steady;",
        ),
        (
            measured(during=Conditions(throttle_reasons=("power cap", "heat"))),
            "the clock was held down during the measurement: power cap, heat;",
        ),
        (measured(settings=Settings(nvtx=True)), "--nvtx has no effect"),
        (measured(mode="infer", settings=Settings(lr=0.1)), "--lr has no effect"),
        (measured(settings=Settings(channels_last=True)), "--channels-last has no effect"),
        (
            measured(settings=Settings(pin_memory=True, data="synthetic-host")),
            "--pin-memory has no effect",
        ),
        (
            measured(settings=Settings(layer_energy=True), energy_reasons=("one", "two")),
            "energy was asked for, and no meter can be read: one; two",
        ),
        (
            measured(settings=Settings(deterministic=True), log=[NOT_DETERMINISTIC, "another"]),
            "not deterministic after all: UserWarning: cumsum is not deterministic",
        ),
        (
            measured(settings=COMPILED, layers=layers_of(2.0)),  # not held against the step
            "layers were timed without torch.compile: a compiled model has no layers",
        ),
        (
            measured(layers=layers_of(1.25)),
            "the layers add up to 25.0 % more than an unprofiled step: close other programs",
        ),
        (
            measured(energy=energy_of(step_time_s=1.25)),
            "steps took 25.0 % longer while energy was measured (1.25 s): the joules belong to ",
        ),
        (
            measured(
                energy=energy_of(),
                layer_energies={"0": NARROW, "1": NARROW + WIDE, "2": WIDE + WIDE},
            ),
            "the joules of 2 of 3 layers are less certain than 5 %:",
        ),
        (
            measured(energy=energy_of(), settings=Settings(layer_energy=True)),
            "no layer could be repeated alone: there are no joules of layers",
        ),
        (measured(is_loss_finite=False), "the loss is no longer a finite number;"),
    ],
)
def test_one_warning(measurement: Measurement, start: str) -> None:
    (text,) = warnings(measurement)
    assert text.startswith(start)


@pytest.mark.parametrize(
    "measurement",
    [
        measured(),
        measured("cuda", kernels=KernelTime(time_s=0.9, kernels=100, steps=3)),
        measured(timing=WITH_DATA),  # the data is synthetic
        measured(timing=timing_of(*[1.0] * 10, data_s=0.1), settings=PHOTOS),
        measured("cuda", settings=Settings(nvtx=True, cudnn_benchmark=True)),
        measured("cuda", settings=Settings(pin_memory=True, data="synthetic-host")),
        measured(settings=Settings(channels_last=True), describe=IMAGES),
        measured(settings=Settings(deterministic=True), log=["another"]),
        measured(log=[NOT_DETERMINISTIC]),
        measured(layers=layers_of(1.04)),
        measured("cuda", layers=layers_of(0.5, is_held_back=True)),  # without its idle time
        measured(energy=energy_of(step_time_s=1.029)),
        measured(energy=energy_of(step_time_s=0.971)),
        measured(
            settings=Settings(layer_energy=True), energy=energy_of(), layer_energies={"0": NARROW}
        ),
    ],
)
def test_what_is_let_be(measurement: Measurement) -> None:
    assert warnings(measurement) == []


def test_warnings_of_the_meter_are_passed_on_and_the_most_important_come_first() -> None:
    given: dict[str, Any] = {
        "precision": Precision(requested="amp", used="fp32", warnings=("first",)),
        "during": Conditions(throttle_reasons=("heat",)),
        "settings": Settings(nvtx=True),
        "layers": layers_of(2.0),
        "energy": energy_of("the meter is odd", step_time_s=2.0),
        "is_loss_finite": False,
    }

    said = warnings(measured(**given))

    assert [text.split(":")[0].split(";")[0] for text in said] == [
        "first",
        "the clock was held down during the measurement",
        "--nvtx has no effect in this run",
        "the loss is no longer a finite number",
        "the meter is odd",
        "steps took 100.0 % longer while energy was measured (2 s)",
        "the layers add up to 100.0 % more than an unprofiled step",
    ]


@pytest.mark.parametrize(
    ("cores", "switches", "is_said"), [(1.0, 300, True), (1.9, 300, False), (1.0, 10, False)]
)
def test_a_processor_that_others_had(cores: float, switches: int, is_said: bool) -> None:
    # given ten seconds in which torch could have used two cores
    usage = Usage(cores=cores, elapsed_s=10.0, involuntary_switches=switches)
    timing = replace(timing_of(*[1.0] * 10), usage=usage)
    text = (
        "other programs had the processor: steps used 1.0 of 2 cores and were interrupted 30 times "
        "a second; close them and measure again"
    )
    assert warnings(measured(timing=timing, threads=2)) == ([text] if is_said else [])

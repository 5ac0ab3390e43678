"""Every warning of a measurement, in full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.measure.measured import energy_window, measured, timing_of

from ridgeline.measure.advice import warnings
from ridgeline.measure.energy import summarise_windows
from ridgeline.measure.layers import LayerTimes, Seen
from ridgeline.measure.precision import Precision
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


def test_nothing_is_said_where_nothing_is_amiss() -> None:
    assert warnings(measured()) == []


@pytest.mark.parametrize(
    ("measurement", "text"),
    [
        (
            measured(
                precision=Precision(requested="amp", used="fp32", warnings=("amp is not used",))
            ),
            "amp is not used",
        ),
        (
            measured("cuda", kernels=KernelTime(time_s=0.25, kernels=123.4, steps=3)),
            "the GPU works 250 ms of a 1 s step (25.0 %): for the rest it waits for the host, "
            "which launches 123 kernels a step; a larger batch or --compile-mode reduce-overhead "
            "(CUDA graphs) closes that gap",
        ),
        (
            measured(
                "cuda",
                kernels=KernelTime(time_s=0.25, kernels=123.4, steps=3),
                settings=Settings(compile="reduce-overhead"),
            ),
            "the GPU works 250 ms of a 1 s step (25.0 %): for the rest it waits for the host, "
            "which launches 123 kernels a step; a larger batch closes that gap",
        ),
        (
            measured(timing=timing_of(*[1.0] * 10, data_s=0.25), settings=Settings(data="photos")),
            "25.0 % of a step is spent waiting for data; try `ridgeline run … --workers 2 "
            "--pin-memory`, or time the model alone with `ridgeline run … --data synthetic`",
        ),
        (
            measured(timing=timing_of(*[1.0, 1.2] * 10)),
            "step times are unstable: the middle 80 % of them span 18.2 % of the median; close "
            "other programs, and see with `ridgeline run … --repeats 3` how far medians move",
        ),
        (
            measured(warmup=WarmUp(times_s=(1.0,) * 12, is_steady=False)),
            "times were not steady after 12 warm-up steps; try `ridgeline run … --warmup-iters 36`",
        ),
        (
            measured(warmup=WarmUp(times_s=(1.0,), is_steady=None)),
            "too few warm-up steps (1) to tell whether times are steady; try "
            "`ridgeline run … --warmup-iters 10`",
        ),
        (
            measured(during=Conditions(throttle_reasons=("power cap", "heat"))),
            "the clock was held down during the measurement: power cap, heat; these are times at "
            "that limit, not the best of the device",
        ),
        (measured(settings=Settings(nvtx=True)), "--nvtx has no effect in this run"),
        (measured(mode="infer", settings=Settings(lr=0.1)), "--lr has no effect in this run"),
        (
            measured(
                settings=Settings(layer_energy=True), energy_reasons=("no counters", "no sensor")
            ),
            "energy was asked for, and no meter can be read: no counters; no sensor",
        ),
        (
            measured(settings=Settings(pin_memory=True, data="synthetic-host")),
            "--pin-memory has no effect in this run",
        ),
        (
            measured(settings=Settings(channels_last=True)),
            "--channels-last has no effect in this run",
        ),
        (
            measured(
                settings=Settings(deterministic=True),
                log=["UserWarning: cumsum is not deterministic", "UserWarning: something else"],
            ),
            "not deterministic after all: UserWarning: cumsum is not deterministic",
        ),
        (
            measured(settings=Settings(compile="default", layers=True), layers=layers_of(1.0)),
            "layers were timed without torch.compile: a compiled model has no layers",
        ),
        (
            measured(layers=layers_of(1.25)),
            "the layers add up to 25.0 % more than an unprofiled step; close other "
            "programs and try again",
        ),
        (
            measured(layers=layers_of(1.25, modules=20_000)),  # 50 µs a module
            "the layers add up to 25.0 % more than an unprofiled step: watching costs "
            "microseconds per module, which shows in steps this short",
        ),
        (
            measured(energy=energy_of(step_time_s=1.25)),
            "steps took 25.0 % longer while energy was measured (1.25 s): the joules belong to "
            "those steps",
        ),
        (
            measured(
                energy=energy_of(),
                layer_energies={
                    "0": (repeated(is_narrow=True),),
                    "1": (repeated(is_narrow=True), repeated(is_narrow=False)),
                    "2": (repeated(is_narrow=False),) * 2,
                },
            ),
            "the joules of 2 of 3 layers are less certain than 5 %: the column energy_interval_j "
            "says how much",
        ),
        (
            measured(energy=energy_of(), settings=Settings(layer_energy=True)),
            "no layer could be repeated alone: there are no joules of layers",
        ),
    ],
)
def test_one_warning(measurement: Measurement, text: str) -> None:
    assert warnings(measurement) == [text]


@pytest.mark.parametrize(
    "measurement",
    [
        measured("cuda", kernels=KernelTime(time_s=0.9, kernels=100, steps=3)),
        measured(timing=timing_of(*[1.0] * 10, data_s=0.5)),  # the data is synthetic
        measured(timing=timing_of(*[1.0] * 10, data_s=0.1), settings=Settings(data="photos")),
        measured("cuda", settings=Settings(nvtx=True, cudnn_benchmark=True)),
        measured("cuda", settings=Settings(pin_memory=True, data="synthetic-host")),
        measured(settings=Settings(channels_last=True), describe=IMAGES),
        measured(settings=Settings(deterministic=True), log=["UserWarning: something else"]),
        measured(log=["UserWarning: cumsum is not deterministic"]),
        measured(layers=layers_of(1.04)),
        measured("cuda", layers=layers_of(0.5, is_held_back=True)),  # without its idle time
        measured(energy=energy_of()),
        measured(energy=energy_of(step_time_s=1.029)),
        measured(energy=energy_of(step_time_s=0.971)),
        measured(
            settings=Settings(layer_energy=True),
            energy=energy_of(),
            layer_energies={"0": (repeated(is_narrow=True),)},
        ),
    ],
)
def test_what_is_let_be(measurement: Measurement) -> None:
    assert warnings(measurement) == []


def test_a_gpu_that_waits_for_data_is_not_told_to_launch_less() -> None:
    waits = measured(
        "cuda", timing=timing_of(*[1.0] * 10, data_s=0.25), settings=Settings(data="photos"),
        kernels=KernelTime(time_s=0.5, kernels=123.4, steps=3),
    )  # fmt: skip

    assert warnings(waits) == [
        "the GPU works 500 ms of a 1 s step (50.0 %); for much of the rest it waits for data",
        "25.0 % of a step is spent waiting for data; try `ridgeline run … --workers 2 "
        "--pin-memory`, or time the model alone with `ridgeline run … --data synthetic`",
    ]


def test_layers_of_a_compiled_model_are_not_held_against_its_step() -> None:
    asked = Settings(compile="default", layers=True)

    assert warnings(measured(settings=asked, layers=layers_of(2.0))) == [
        "layers were timed without torch.compile: a compiled model has no layers"
    ]


def test_a_loss_that_is_no_number() -> None:
    assert warnings(measured(is_loss_finite=False)) == [
        "the loss is no longer a finite number; times are not affected, but the numbers are not a "
        "training: try a smaller rate, `ridgeline run … --lr 0.001`"
    ]


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

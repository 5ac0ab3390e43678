"""Joules of every layer: each is repeated alone until the sensor has seen enough of it.

A layer lasts microseconds and a sensor answers every 20 to 100 ms: nothing can be read off during
one call. Repeated alone, with its input in the network, a layer finds its data in caches that it
would share there, and draws what it draws under its own load; `attribution` says so. Layers that
are alike (the same kind, settings and input) are repeated once and share the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from ridgeline.measure.energy import integrate_windows, sampled_watts
from ridgeline.measure.marks import NoMarks
from ridgeline.measure.power import Pass, PowerSamples, power_samples
from ridgeline.measure.statistics import median_interval
from ridgeline.measure.step import Stepper
from ridgeline.measure.tensors import with_tensors
from ridgeline.measure.timing import OnProgress
from ridgeline.records import EnergyWindowResult
from ridgeline.sensors.meter import Meters
from ridgeline.sensors.sampler import FAST_S, Sampler
from ridgeline.tracing.modules import tensors_in

REFRESHES = 10  # in a window
DEFAULT_REFRESH_S = 0.1
LEAST_WINDOWS = 6  # fewer have no interval
LEAST_WINDOW_S = 0.2
LEAD_REFRESHES = 3
BATCH_S = 0.05  # the device is waited for so often: not for every call, nor for millions at once
ALONE = "repeated alone"


# ---------------------------------------------------------------- one call, repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedEnergy:
    """The energy of one call, from windows of many calls; a window's steps are calls."""

    windows: tuple[EnergyWindowResult, ...]
    interval_j_per_call: tuple[float, float] | None  # of the median, 95 %, by bootstrap
    target: float  # how narrow the interval was to be, as a share of the median
    calls_per_batch: int
    power: PowerSamples | None
    attribution: str = ALONE

    @property
    def energy_j_per_call(self) -> float:
        """The median of the windows'."""
        return median(window.energy_j_per_step for window in self.windows)

    @property
    def time_s_per_call(self) -> float:
        return median(window.duration_s / window.steps for window in self.windows)

    @property
    def has_reached_target(self) -> bool:
        interval, enough = self.interval_j_per_call, len(self.windows) >= LEAST_WINDOWS
        return enough and is_narrow(interval, self.target * self.energy_j_per_call)


def repeat_energy(
    call: Callable[[], object],
    sync: Callable[[], object],
    meters: Meters,
    *,
    refresh_s: float,
    target: float = 0.05,
    limit_s: float = 10.0,
    batch_s: float = BATCH_S,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
) -> RepeatedEnergy | None:
    """Repeat a call until the 95 % interval of its joules is narrower than `target`, or time is up.

    `refresh_s` is the sensor's, as measured with the whole step. None where no meter answers.
    """
    if not meters.available:
        return None
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)
    loop = _Loop(call, sync, clock, batch_s)
    length_s = min(max(REFRESHES * refresh_s, LEAST_WINDOW_S), limit_s / LEAST_WINDOWS)
    with sampler:
        loop.calibrate()
        loop.run_for(LEAD_REFRESHES * refresh_s)
        passes = _run_windows(loop, meters, sampler, length_s, target, limit_s)
    energies = integrate_windows(meters, sampler.readings, passes)
    if energies.meter is None:
        return None
    return RepeatedEnergy(
        windows=energies.windows,
        interval_j_per_call=median_interval(energies.each_j),
        target=target,
        calls_per_batch=loop.calls_per_batch,
        power=power_samples(sampled_watts(sampler.readings, passes)),
    )


class _Loop:
    """Calls in batches; the device is waited for once a batch."""

    def __init__(
        self,
        call: Callable[[], object],
        sync: Callable[[], object],
        clock: Callable[[], float],
        batch_s: float,
    ) -> None:
        self._call, self._sync, self.clock, self._batch_s = call, sync, clock, batch_s
        self.calls_per_batch = 1

    def calibrate(self) -> None:
        """Find how many calls fill a batch; this is the warm-up, too.

        The fastest of three batches counts: one that is slow by accident, as the first is when it
        compiles, would leave batches of a single call, and the device waiting after each.
        """
        while (taken_s := min(self._batch() for _ in range(3))) < self._batch_s / 2:
            growth = min(self._batch_s / max(taken_s, 1e-9), 100.0)
            self.calls_per_batch = max(2, round(growth)) * self.calls_per_batch

    def run_for(self, duration_s: float) -> int:
        """Batches for at least so long; how many calls they were."""
        calls, start_s = 0, self.clock()
        while self.clock() - start_s < duration_s:
            self._batch()
            calls += self.calls_per_batch
        return calls

    def _batch(self) -> float:
        start_s = self.clock()
        for _ in range(self.calls_per_batch):
            self._call()
        self._sync()
        return self.clock() - start_s


def _run_windows(
    loop: _Loop, meters: Meters, sampler: Sampler, length_s: float, target: float, limit_s: float
) -> list[Pass]:
    """Windows until they agree or the limit is reached."""
    passes: list[Pass] = []
    began_s = loop.clock()
    while True:
        start_s = loop.clock()
        calls = loop.run_for(length_s)
        passes.append(
            Pass(name=f"window {len(passes) + 1}", start_s=start_s, end_s=loop.clock(), steps=calls)
        )
        if len(passes) < LEAST_WINDOWS:
            continue
        each_j = integrate_windows(meters, sampler.readings, passes).each_j
        is_late = loop.clock() + length_s - began_s > limit_s
        if is_late or not each_j or is_narrow(median_interval(each_j), target * median(each_j)):
            return passes


def is_narrow(interval: tuple[float, float] | None, width: float) -> bool:
    return interval is not None and interval[1] - interval[0] <= width


# ---------------------------------------------------------------- every layer of a network


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """A layer and its arguments in a step."""

    path: str
    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def workload_key(self) -> tuple[Any, ...]:
        """Equal for layers that do the same work."""
        tensors = tensors_in((self.args, self.kwargs))
        forms = [(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors]
        weights = [tuple(weight.shape) for weight in self.layer.parameters()]
        return (type(self.layer), self.layer.extra_repr(), *weights, *forms)


def measure_layer_energies(
    stepper: Stepper,
    meters: Meters,
    *,
    refresh_s: float | None,
    on_progress: OnProgress = lambda done, total: None,
    limit_s: float = 10.0,
) -> dict[str, tuple[RepeatedEnergy, ...]]:
    """Joules of every call of each layer in a step; one that cannot be repeated is left out."""
    captured = capture_layer_calls(replace(stepper, model=stepper.module))
    distinct = {one.workload_key: one for one in captured}
    measured: dict[tuple[Any, ...], RepeatedEnergy | None] = {}
    for number, (key, one) in enumerate(distinct.items(), start=1):
        with make_repeatable(one, stepper) as call:
            measured[key] = call and repeat_energy(
                call,
                stepper.backend.synchronize,
                meters,
                refresh_s=refresh_s or DEFAULT_REFRESH_S,
                limit_s=limit_s,
            )
        on_progress(number, len(distinct))
    calls: dict[str, list[RepeatedEnergy | None]] = {}
    for one in captured:
        calls.setdefault(one.path, []).append(measured[one.workload_key])
    known = {path: tuple(one for one in each if one is not None) for path, each in calls.items()}
    return {path: each for path, each in known.items() if len(each) == len(calls[path])}


def capture_layer_calls(stepper: Stepper) -> list[CapturedCall]:
    """Every call of every module without children, in one step."""
    calls: list[CapturedCall] = []

    def capture_calls_of(path: str, layer: nn.Module) -> Any:
        def keep(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls.append(CapturedCall(path=path, layer=layer, args=args, kwargs=kwargs))

        return layer.register_forward_pre_hook(keep, with_kwargs=True)

    with ExitStack() as stack:
        for path, layer in stepper.module.named_modules():
            if next(layer.children(), None) is None:
                stack.callback(capture_calls_of(path, layer).remove)
        stepper.step(NoMarks())
    return calls


@contextmanager
def make_repeatable(one: CapturedCall, stepper: Stepper) -> Iterator[Callable[[], object] | None]:
    """A call of the layer, with its backward when training; None if it cannot be called alone."""
    call = _training_call(one, stepper) if stepper.optimizer is not None else _call(one, stepper)
    in_place = stepper.optimizer is not None and getattr(one.layer, "inplace", None)
    if in_place:  # what autograd is asked about must not be overwritten
        one.layer.inplace = False  # type: ignore[assignment]
    try:
        call()
        works = True
    except Exception:  # a layer of a user's own fails in its own way
        works = False
    try:
        yield call if works else None
    finally:
        if in_place:
            one.layer.inplace = in_place


def _call(one: CapturedCall, stepper: Stepper) -> Callable[[], object]:
    def call() -> object:
        with torch.inference_mode(), stepper.precision.autocast(stepper.backend):
            return one.layer(*one.args, **one.kwargs)

    return call


def _training_call(one: CapturedCall, stepper: Stepper) -> Callable[[], object]:
    args, kwargs = _detach(one.args), _detach(one.kwargs)
    leaves = [t for t in tensors_in((args, kwargs)) if t.requires_grad]
    leaves += [weight for weight in one.layer.parameters() if weight.requires_grad]

    def call() -> object:
        with stepper.precision.autocast(stepper.backend):
            output = one.layer(*args, **kwargs)
        ends = [t for t in tensors_in(output) if t.requires_grad]
        if not ends:
            return output
        starts = [torch.ones_like(t) for t in ends]
        return torch.autograd.grad(ends, leaves, starts, allow_unused=True)

    return call


def _detach(value: Any) -> Any:
    """The same tensors without their history; what needed a gradient still does."""
    return with_tensors(value, lambda t: t.detach().requires_grad_(t.requires_grad))

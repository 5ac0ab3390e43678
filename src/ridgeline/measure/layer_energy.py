"""Joules of every layer: each is repeated alone until the sensor has seen enough of it.

A layer lasts microseconds and a sensor answers every 20 to 100 ms: nothing can be read off during
one call. Repeated alone, with its input in the network, a layer finds its data in caches that it
would share there, and draws what it draws under its own load; the table says so. Layers that
are alike (the same kind, settings and input) are repeated once and share the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from ridgeline.measure.energy import CallLoop, Pass, evaluate_passes, take_pass
from ridgeline.measure.step import Stepper
from ridgeline.measure.timing import NoMarks, OnProgress
from ridgeline.records import EnergyResult
from ridgeline.sensors.sampler import FAST_S, Meters, Sampler
from ridgeline.tracing.tracker import tensors_in

REFRESHES = 10  # in a window
DEFAULT_REFRESH_S = 0.1
LEAST_WINDOWS = 6  # fewer have no interval
LEAST_WINDOW_S = 0.2
LEAD_REFRESHES = 3
BATCH_S = 0.05  # the device is waited for so often: not for every call, nor for millions at once
TARGET = 0.05  # how narrow the interval of a layer's joules is to be, as a share of the median
LIMIT_S = 10.0


# ---------------------------------------------------------------- one call, repeated


def repeat_energy(
    call: Callable[[], object],
    synchronize: Callable[[], object],
    meters: Meters,
    *,
    refresh_s: float,
    target: float = TARGET,
    limit_s: float = LIMIT_S,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
) -> EnergyResult | None:
    """Repeat a call until the 95 % interval of its joules is narrower than `target`, or time is up.

    A step of the result is a call. `refresh_s` is the sensor's, as measured with the whole step.
    None where no meter answers.
    """
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)
    loop = CallLoop(call, synchronize, clock)
    length_s = min(max(REFRESHES * refresh_s, LEAST_WINDOW_S), limit_s / LEAST_WINDOWS)
    passes: list[Pass] = []
    with sampler:
        loop.calibrate(BATCH_S)
        loop.run_for(LEAD_REFRESHES * refresh_s)
        end_s = clock() + limit_s
        while True:
            name = f"window {len(passes) + 1}"
            passes.append(take_pass(name, loop.run_for, length_s, clock))
            if len(passes) < LEAST_WINDOWS:
                continue
            energy = evaluate_passes(meters, sampler.readings, passes, 1).energy
            if energy is None or is_certain(energy, target) or clock() + length_s > end_s:
                return energy


def is_certain(energy: EnergyResult, target: float = TARGET) -> bool:
    """Whether the 95 % interval of the median is narrow."""
    interval, middle_j = energy.interval_j_per_step, energy.energy_j_per_step
    return bool(interval and middle_j and interval[1] - interval[0] <= target * middle_j)


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
    limit_s: float = LIMIT_S,
) -> dict[str, tuple[EnergyResult, ...]]:
    """Joules of every call of each layer in a step; one that cannot be repeated is left out."""
    captured = capture_layer_calls(replace(stepper, model=stepper.module))
    distinct = {one.workload_key: one for one in captured}
    measured: dict[tuple[Any, ...], EnergyResult | None] = {}
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
    calls: dict[str, list[EnergyResult | None]] = {}
    for one in captured:
        calls.setdefault(one.path, []).append(measured[one.workload_key])
    known = {path: tuple(one for one in each if one is not None) for path, each in calls.items()}
    return {path: each for path, each in known.items() if len(each) == len(calls[path])}


def capture_layer_calls(stepper: Stepper) -> list[CapturedCall]:
    """Every call of every module without children, in one step."""
    calls: list[CapturedCall] = []

    def keep(path: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(CapturedCall(path=path, layer=layer, args=args, kwargs=kwargs))

    with ExitStack() as stack:
        for path, layer in stepper.module.named_modules():
            if next(layer.children(), None) is None:
                hook = layer.register_forward_pre_hook(partial(keep, path), with_kwargs=True)
                stack.callback(hook.remove)
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
    return tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), value)

"""Joules of every layer, each repeated alone with what it was given in the network.

Layers that are alike (the same kind, settings and input) are repeated once and share the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ridgeline.measure.layer_energy import RepeatedEnergy, repeat_energy
from ridgeline.measure.marks import NoMarks
from ridgeline.measure.step import Stepper
from ridgeline.measure.tensors import tensors_in, with_tensors
from ridgeline.measure.timing import Tell
from ridgeline.sensors.meter import Meters

DEFAULT_REFRESH_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A layer and what it was called with."""

    path: str
    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def likeness(self) -> tuple[Any, ...]:
        """Equal for layers that do the same work."""
        given = tensors_in((self.args, self.kwargs))
        forms = [(tuple(t.shape), t.dtype, t.requires_grad) for t in given]
        weights = [tuple(weight.shape) for weight in self.layer.parameters()]
        return (type(self.layer), self.layer.extra_repr(), *weights, *forms)


def layer_energies(
    stepper: Stepper,
    meters: Meters,
    *,
    refresh_s: float | None,
    tell: Tell = lambda done, total: None,
    limit_s: float = 10.0,
) -> dict[str, tuple[RepeatedEnergy, ...]]:
    """Joules of every call of each layer in a step; one that cannot be repeated is left out."""
    given = what_layers_are_given(replace(stepper, model=stepper.module))
    distinct = {one.likeness: one for one in given}
    measured: dict[tuple[Any, ...], RepeatedEnergy | None] = {}
    for number, (likeness, one) in enumerate(distinct.items(), start=1):
        with repeating(one, stepper) as call:
            measured[likeness] = call and repeat_energy(
                call,
                stepper.backend.synchronize,
                meters,
                refresh_s=refresh_s or DEFAULT_REFRESH_S,
                limit_s=limit_s,
            )
        tell(number, len(distinct))
    calls: dict[str, list[RepeatedEnergy | None]] = {}
    for one in given:
        calls.setdefault(one.path, []).append(measured[one.likeness])
    known = {path: tuple(one for one in each if one is not None) for path, each in calls.items()}
    return {path: each for path, each in known.items() if len(each) == len(calls[path])}


def what_layers_are_given(stepper: Stepper) -> list[Given]:
    """Every call of every module without children, in one step."""
    given: list[Given] = []
    with ExitStack() as stack:
        for path, layer in stepper.module.named_modules():
            if next(layer.children(), None) is None:
                stack.callback(_keep(path, layer, given).remove)
        stepper.step(NoMarks())
    return given


def _keep(path: str, layer: nn.Module, given: list[Given]) -> Any:
    def keep(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given.append(Given(path=path, layer=layer, args=args, kwargs=kwargs))

    return layer.register_forward_pre_hook(keep, with_kwargs=True)


@contextmanager
def repeating(one: Given, stepper: Stepper) -> Iterator[Callable[[], object] | None]:
    """A call of the layer, with its backward when training; None if it cannot be called alone."""
    call = _training_call(one, stepper) if stepper.optimizer is not None else _call(one, stepper)
    in_place = stepper.optimizer is not None and getattr(one.layer, "inplace", None)
    if in_place:  # what autograd is asked about must not be overwritten
        one.layer.inplace = False  # type: ignore[assignment]
    try:
        call()
        works = True
    except Exception:  # a layer of somebody else's fails in its own way
        works = False
    try:
        yield call if works else None
    finally:
        if in_place:
            one.layer.inplace = in_place


def _call(one: Given, stepper: Stepper) -> Callable[[], object]:
    def call() -> object:
        with torch.inference_mode(), stepper.precision.autocast(stepper.backend):
            return one.layer(*one.args, **one.kwargs)

    return call


def _training_call(one: Given, stepper: Stepper) -> Callable[[], object]:
    args, kwargs = _cut_off(one.args), _cut_off(one.kwargs)
    wanted = [t for t in tensors_in((args, kwargs)) if t.requires_grad]
    wanted += [weight for weight in one.layer.parameters() if weight.requires_grad]

    def call() -> object:
        with stepper.precision.autocast(stepper.backend):
            output = one.layer(*args, **kwargs)
        ends = [t for t in tensors_in(output) if t.requires_grad]
        if not ends:
            return output
        starts = [torch.ones_like(t) for t in ends]
        return torch.autograd.grad(ends, wanted, starts, allow_unused=True)

    return call


def _cut_off(value: Any) -> Any:
    """The same tensors without their history; what needed a gradient still does."""
    return with_tensors(value, lambda t: t.detach().requires_grad_(t.requires_grad))

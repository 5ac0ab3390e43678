"""What is exported: a module, and its inputs at any batch size and sequence length."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export.settings import check_mode
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import Inputs, Workload, resolve

LEAST_SEQ_LEN = 4  # its half is not 1, which torch takes for a constant
SMALL = 0.02  # the spread that transformers' libraries start weights with

Feed = Callable[[int, int | None], Inputs]  # batch size, tokens (None: as asked) → inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to export, with all it needs to be traced and tried."""

    name: str
    mode: str
    build: Callable[[], nn.Module]
    feed: Feed
    batch_size: int
    seq_len: int | None = None  # None: the model has no sequence that can be chosen
    other_seq_len: int | None = None  # one more that it takes

    def __post_init__(self) -> None:
        check_mode(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a module: its arguments in the order of its signature, and their names."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]  # of the positional arguments

    def named(self) -> dict[str, Any]:
        return {**dict(zip(self.names, self.args, strict=True)), **self.kwargs}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name: `images`, or `images_0` for those inside an argument."""
        return dict(
            pair for name, value in self.named().items() for pair in tensors_in(name, value)
        )

    def changed(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same call with other tensors."""
        args, kwargs = (_with_tensors(value, change) for value in (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors().items()}


def call(module: nn.Module, inputs: Inputs) -> Call:
    """The inputs as the module takes them."""
    parameters = inspect.signature(module.forward).parameters.values()
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p.name for p in parameters if p.kind in ordered]
    extra = [f"input_{n}" for n in range(len(positional), len(inputs.args))]
    order = {p.name: n for n, p in enumerate(parameters)}
    kwargs = dict(sorted(inputs.kwargs.items(), key=lambda item: order.get(item[0], len(order))))
    names = tuple([*positional, *extra][: len(inputs.args)])
    return Call(args=inputs.args, kwargs=kwargs, names=names)


def tensors_in(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an argument or a result, by the names of where they are in it."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(f"{name}_{key}" if name else str(key), item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from tensors_in(f"{name}_{number}" if name else str(number), item)


def _with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An argument with its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _with_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item, change) for item in value)
    return value


# ---------------------------------------------------------------- from a name


def named_subject(spec: WorkloadSpec) -> Subject:
    """The model that `spec` names."""
    workload = resolve(spec)
    seq_len, other = _sequences(spec, workload)
    return Subject(
        name=spec.model,
        mode=spec.mode,
        build=lambda: _built(workload),
        feed=lambda batch, tokens: _fed(spec, workload, batch, tokens),
        batch_size=spec.batch_size,
        seq_len=seq_len,
        other_seq_len=other,
    )


def _fed(spec: WorkloadSpec, workload: Workload, batch: int, tokens: int | None) -> Inputs:
    if tokens is not None:
        workload = resolve(replace(spec, seq_len=tokens))
    with torch.device("cpu"):
        return workload.inputs(batch)


def _sequences(spec: WorkloadSpec, workload: Workload) -> tuple[int | None, int | None]:
    """The tokens of the input, and another number that the model takes; None where it has none.

    Half of it, since a model may have no place for more.
    """
    described = workload.describe.get("seq_len")
    seq_len = spec.seq_len or (described if isinstance(described, int) else None)
    if seq_len is None or seq_len < LEAST_SEQ_LEN:
        return None, None
    with suppress(RidgelineError):
        resolve(replace(spec, seq_len=seq_len // 2))
        return seq_len, seq_len // 2
    return None, None


def _built(workload: Workload) -> nn.Module:
    """On the CPU. Weights that a library starts at zero are made random: else the answer is zero.

    The weights of a file of the user's own are his.
    """
    with torch.device("cpu"):
        module = workload.build()
    if workload.source != "file":
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if weight.any():
                    continue
                if weight.ndim > 1:
                    weight.normal_(std=SMALL)
                elif weight.ndim == 1 and name.split(".")[-1] == "weight":  # the scale of a norm
                    weight.normal_(mean=1, std=SMALL)
    return module


# ---------------------------------------------------------------- from a module


def module_subject(model: nn.Module, inputs: Any, mode: str) -> Subject:
    """A module with its inputs; another batch is made of the same samples."""
    given = _as_inputs(model, inputs)
    size = _batch_size(given)
    return Subject(
        name=type(model).__name__,
        mode=mode,
        build=lambda: copy.deepcopy(model).cpu().train(mode == "train"),
        feed=lambda batch, tokens: _resized(given, size, batch),
        batch_size=size,
    )


def _as_inputs(model: nn.Module, inputs: Any) -> Inputs:
    if not isinstance(model, nn.Module):
        raise RidgelineError(
            f"a {type(model).__name__} cannot be exported",
            hint="pass a model's name or a torch.nn.Module",
        )
    if inputs is None:
        raise RidgelineError(
            f"{type(model).__name__} needs inputs",
            hint="pass inputs=: a tensor, a tuple of arguments or a dictionary of keywords",
        )
    if isinstance(inputs, dict):
        return Inputs(kwargs=inputs)
    return Inputs(args=tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,))


def _batch_size(inputs: Inputs) -> int:
    """The first side of the first tensor."""
    found = [t for _, t in tensors_in("", [inputs.args, inputs.kwargs]) if t.ndim]
    return int(found[0].shape[0]) if found else 1


def _resized(inputs: Inputs, size: int, batch: int) -> Inputs:
    def resized(tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu()
        is_batched = tensor.ndim > 0 and tensor.shape[0] == size
        return tensor[torch.arange(batch) % size] if is_batched else tensor

    args, kwargs = (_with_tensors(value, resized) for value in (inputs.args, inputs.kwargs))
    return Inputs(args=args, kwargs=kwargs)

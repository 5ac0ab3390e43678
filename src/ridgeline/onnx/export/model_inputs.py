"""A model to export: its module, its inputs at any batch and sequence length, its open axes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import Inputs, Workload, resolve

LEAST_SEQ_LEN = 4  # its half is not 1, which torch takes for a constant
SMALL = 0.02  # the spread that transformers' libraries start weights with

BATCH, SEQUENCE = "batch", "sequence"  # names of open dimensions
LEAST_OPEN = 2  # torch takes a size of 1 for a constant

Shapes = Mapping[str, tuple[int, ...]]  # of each input, by name
Axes = dict[str, dict[int, str]]  # input → axis → name of the dimension
Feed = Callable[[int, int | None], Inputs]  # batch size, tokens (None: as asked) → inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportModel:
    """A model to export, with all it needs to be traced and tried."""

    name: str
    build: Callable[[], nn.Module]
    feed: Feed
    batch_size: int
    seq_len: int | None = None  # None: the model has no sequence that can be chosen
    other_seq_len: int | None = None  # one more that it takes

    @property
    def traced_batch(self) -> int:
        """The batch of an export that leaves it open."""
        return max(self.batch_size, LEAST_OPEN)


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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors().items()}


def make_call(module: nn.Module, inputs: Inputs) -> Call:
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


# ---------------------------------------------------------------- from a name


def model_by_name(spec: WorkloadSpec) -> ExportModel:
    """The model that `spec` names."""
    workload = resolve(spec)
    seq_len, other = _sequence_lengths(spec, workload)
    return ExportModel(
        name=spec.model,
        build=lambda: _build(workload),
        feed=lambda batch, tokens: _make_inputs(spec, workload, batch, tokens),
        batch_size=spec.batch_size,
        seq_len=seq_len,
        other_seq_len=other,
    )


def _make_inputs(spec: WorkloadSpec, workload: Workload, batch: int, tokens: int | None) -> Inputs:
    if tokens is not None:
        workload = resolve(replace(spec, seq_len=tokens))
    with torch.device("cpu"):
        return workload.inputs(batch)


def _sequence_lengths(spec: WorkloadSpec, workload: Workload) -> tuple[int | None, int | None]:
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


def _build(workload: Workload) -> nn.Module:
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


def model_of_module(model: nn.Module, inputs: Any) -> ExportModel:
    """A module with its inputs; another batch is made of the same samples."""
    example = _as_inputs(model, inputs)
    size = _batch_size(example)
    return ExportModel(
        name=type(model).__name__,
        build=lambda: copy.deepcopy(model).cpu().eval(),
        feed=lambda batch, tokens: _resize(example, size, batch),
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
    return Inputs.of(inputs)


def _batch_size(inputs: Inputs) -> int:
    """The first side of the first tensor."""
    tensors = (t for _, t in tensors_in("", [inputs.args, inputs.kwargs]) if t.ndim)
    return next((int(t.shape[0]) for t in tensors), 1)


def _resize(inputs: Inputs, size: int, batch: int) -> Inputs:
    def resize(tensor: Tensor) -> Tensor:
        tensor = tensor.detach().cpu()
        is_batched = tensor.ndim > 0 and tensor.shape[0] == size
        return tensor[torch.arange(batch) % size] if is_batched else tensor

    args, kwargs = tree_map_only(Tensor, resize, (inputs.args, inputs.kwargs))
    return Inputs(args=args, kwargs=kwargs)


# ---------------------------------------------------------------- open axes


def find_open_axes(module: nn.Module, model: ExportModel) -> Axes:
    """The axes that are the batch or the sequence: those that differ in inputs of other sizes."""
    size = model.traced_batch
    shapes = make_call(module, model.feed(size, None)).shapes()
    larger = make_call(module, model.feed(size + 1, None)).shapes()
    batch = compare_shapes(shapes, larger, name=BATCH, size=size)
    if not names_in(batch) or model.other_seq_len is None or model.seq_len is None:
        return batch
    shorter = make_call(module, model.feed(size, model.other_seq_len)).shapes()
    sequence = compare_shapes(shapes, shorter, name=SEQUENCE, size=model.seq_len)
    return {
        key: dict(sorted({**sequence.get(key, {}), **axes}.items())) for key, axes in batch.items()
    }


def compare_shapes(shapes: Shapes, other: Shapes, *, name: str, size: int) -> Axes:
    """The axes that differ; none where the inputs are not the same tensors, as a list of images.

    An axis of `size` is called `name`; another that changes with it gets a name of its own.
    """
    ranks = [{key: len(shape) for key, shape in side.items()} for side in (shapes, other)]
    if ranks[0] != ranks[1]:
        return {}
    return {
        key: {
            axis: name if side == size else f"{key}_{name}"
            for axis, (side, changed) in enumerate(zip(shape, other[key], strict=True))
            if side != changed
        }
        for key, shape in shapes.items()
    }


def names_in(axes: Axes) -> tuple[str, ...]:
    """The dimensions that are open, each once."""
    return tuple(dict.fromkeys(name for axis in axes.values() for name in axis.values()))


def nest_axes(value: Any, key: str, axes: Axes) -> Any:
    """The axes in the form of the argument itself, as torch.export wants them."""
    if isinstance(value, dict):
        return {name: nest_axes(item, f"{key}_{name}", axes) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [nest_axes(item, f"{key}_{n}", axes) for n, item in enumerate(value)]
        return type(value)(items)
    return axes.get(key) or None

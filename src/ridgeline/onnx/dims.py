"""Open dimensions of a file: their names, which one is the batch, and the sizes put in for them.

A dimension may have no name: the second of input `x` is called `x_1`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_line

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto, ValueInfoProto

MOST_DIMS = 64  # of one tensor: numpy's own limit
LARGEST = 1 << 48  # far above any real side; the product of several still is a quick number
PLAIN_BATCH = ("batch", "batch_size", "batchsize")  # before names that only contain the word
NOT_BATCH = re.compile(
    r"seq|len|time|step|token|height|width|channel|feature|past|cache|frame", re.I
)

# ---------------------------------------------------------------- types that a file declares


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that are not also stored: older files list the weights among them."""
    stored = {t.name for t in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def tensor_type(kind: TypeProto) -> TypeProto.Tensor | None:
    """The tensor that a type describes, through optionals; None for all others."""
    while kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    return kind.tensor_type if kind.HasField("tensor_type") else None


def shape_of(kind: TypeProto, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A type's shape with the numbers put in; None where one is missing."""
    tensor = tensor_type(kind)
    if tensor is None or not tensor.HasField("shape") or len(tensor.shape.dim) > MOST_DIMS:
        return None
    shape = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param)
        if size is None or not 0 <= size <= LARGEST:
            return None
        shape.append(size)
    return tuple(shape)


def axis_name(value: str, index: int) -> str:
    """Our name for an open dimension that has none in the file."""
    return f"{value}_{index}"


# ---------------------------------------------------------------- names in messages


def quote_name(name: str) -> str:
    return f"'{plain_line(name)}'"


def dim_option(name: str, number: str = "N") -> str:
    """The option that gives a size, as a shell takes it: a name may have blanks and stars in it."""
    return plain_line(f"--dim {shlex.quote(f'{name}={number}')}")


# ---------------------------------------------------------------- sizes from the user


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of one input."""

    input: str
    index: int
    symbol: str  # empty where the file has a number
    size: int  # 0 where it has none


@dataclass(slots=True)
class DimBindings:
    """The dimensions with their numbers."""

    sizes: dict[str, int] = field(default_factory=dict)  # symbol → number
    numbers: dict[str, int] = field(default_factory=dict)  # of loops, nodes and single numbers
    batch_size: int = 1
    notes: list[str] = field(default_factory=list)


def check_sizes(dims: Mapping[str, int], batch_size: int | None) -> None:
    """A batch is 1 or more; other sizes may be 0: an empty cache, a loop that does not run."""
    options = [(f"--dim {name}", size, 0) for name, size in dims.items()]
    if batch_size is not None:
        options.append(("--batch-size", batch_size, 1))
    for option, size, least in options:
        if not isinstance(size, int) or not least <= size <= LARGEST:
            raise RidgelineError(
                f"{option}: {size!r} is not a valid size",
                hint=f"sizes are whole numbers from {least} to {LARGEST}",
            )


def name_dims(graph: GraphProto, dims: Mapping[str, int]) -> None:
    """Write our names for open dimensions that have none into the graph.

    An input without a shape gets as many dimensions as it has sizes: `x_0`, `x_1`, ….
    """
    for value in real_inputs(graph):
        kind = tensor_type(value.type)
        if kind is not None and not kind.HasField("shape"):
            indices = [n for n in range(MOST_DIMS) if axis_name(value.name, n) in dims]
            for _ in range(indices[-1] + 1 if indices else 0):
                kind.shape.dim.add()
        for index, dim in enumerate(kind.shape.dim if kind is not None else ()):
            if dim.dim_value < 0 or not (dim.HasField("dim_value") or dim.dim_param):
                dim.dim_param = axis_name(value.name, index)  # older exporters write -1


def bind_dims(graph: GraphProto, *, batch_size: int | None, dims: Mapping[str, int]) -> DimBindings:
    """Put numbers in for the open dimensions of the inputs; what is missing is asked for."""
    name_dims(graph, dims)
    axes = list(_axes(real_inputs(graph)))
    symbols = _symbols(axes)
    bound = DimBindings(
        sizes={name: dims[name] for name in symbols if name in dims},
        numbers={name: number for name, number in dims.items() if name not in symbols},
    )
    batch = _batch_symbol(axes)
    if batch is not None:
        _bind_batch(bound, batch, axes, batch_size)
    if missing := [name for name in symbols if name not in bound.sizes]:
        raise _missing_dims(missing, batch, axes)
    if batch is None:
        _check_fixed_batch(bound, axes, batch_size)
    return bound


def open_dims(graph: GraphProto) -> list[str]:
    """The names of the dimensions that the inputs leave open, each once."""
    name_dims(graph, {})
    return _symbols(_axes(real_inputs(graph)))


def _axes(inputs: Iterable[ValueInfoProto]) -> Iterator[Axis]:
    for value in inputs:
        kind = tensor_type(value.type)
        for index, dim in enumerate(kind.shape.dim if kind is not None else ()):
            yield Axis(value.name, index, dim.dim_param, dim.dim_value)


def _symbols(axes: Iterable[Axis]) -> list[str]:
    return list(dict.fromkeys(axis.symbol for axis in axes if axis.symbol))


def _batch_symbol(axes: list[Axis]) -> str | None:
    """The dimension that is called so; else the first of the first input that has any."""
    symbols = _symbols(axes)
    plain = [s for name in PLAIN_BATCH for s in symbols if s.lower() == name]
    if named := [*plain, *(s for s in symbols if "batch" in s.lower())]:
        return named[0]
    first = next((axis.symbol for axis in axes if axis.index == 0), "")
    return first if first and not NOT_BATCH.search(first) else None


def _bind_batch(bound: DimBindings, batch: str, axes: list[Axis], batch_size: int | None) -> None:
    by_name = bound.sizes.get(batch)
    if by_name is not None and batch_size is not None and by_name != batch_size:
        raise RidgelineError(
            f"--batch-size {batch_size} and {dim_option(batch, str(by_name))} name the same"
            " dimension",
            hint="give one of them",
        )
    size = batch_size if batch_size is not None else by_name
    if size is None:
        return
    if size < 1:
        raise RidgelineError(
            f"{dim_option(batch, str(size))}: this dimension is taken for the batch",
            hint="give 1 or more",
        )
    bound.sizes[batch] = bound.batch_size = size
    axis = next(axis for axis in axes if axis.symbol == batch)
    bound.notes.append(
        f"the batch of {size} is the dimension {quote_name(batch)}"
        f" (input {quote_name(axis.input)}, axis {axis.index})"
    )


def _check_fixed_batch(bound: DimBindings, axes: list[Axis], batch_size: int | None) -> None:
    """The batch is the first dimension of the first input, if that is a number."""
    first = next((axis for axis in axes if axis.index == 0), None)
    has = "has no batch dimension"
    if first is not None and not first.symbol:
        bound.batch_size, has = first.size, f"has a batch of {first.size}"
    if batch_size not in (None, bound.batch_size):
        raise RidgelineError(
            f"the file {has}, so the batch cannot be {batch_size}",
            hint="leave --batch-size out, or export the model with a dynamic batch dimension;"
            " --dim NAME=N gives any open dimension by its name",
        )


def _missing_dims(missing: list[str], batch: str | None, axes: list[Axis]) -> RidgelineError:
    """The error that names each missing dimension, where it is first, and the option for it."""
    first = {axis.symbol: axis for axis in reversed(axes)}
    listed = "; ".join(
        f"{plain_line(name)} (of {plain_line(first[name].input)}[{first[name].index}])"
        for name in missing
    )
    options = [
        f"--batch-size N (it is {quote_name(name)})" if name == batch else dim_option(name)
        for name in missing
    ]
    return RidgelineError(
        f"the file leaves {len(missing)} dimension{'s' * (len(missing) > 1)} open: {listed}",
        hint=f"give {' and '.join(options)}",
    )

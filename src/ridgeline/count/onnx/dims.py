"""Symbolic dimensions: their names, which one is the batch, and the numbers put in for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto, ValueInfoProto

BATCH_NAMES = frozenset({"n", "b", "bs", "bsz", "nb", "bsize"})
NOT_BATCH = re.compile(
    r"seq|len|time|step|token|height|width|channel|feature|past|cache|frame", re.I
)
LARGEST = 1 << 48  # far above any real side; the product of several still is a quick number


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of one input."""

    input: str
    index: int
    symbol: str  # empty where the file gives a number
    size: int  # 0 where it gives none


@dataclass(slots=True)
class Bound:
    """The dimensions with their numbers."""

    sizes: dict[str, int] = field(default_factory=dict)  # symbol → number
    batch_size: int = 1
    notes: list[str] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)  # given, and not a dimension: a loop's?


def bind(graph: GraphProto, *, batch_size: int | None, dims: Mapping[str, int]) -> Bound:
    """Put numbers in for the symbolic dimensions of the inputs; what is missing is asked for."""
    axes = list(_axes(real_inputs(graph)))
    _check_given(dims, batch_size)
    symbols = _symbols(axes)
    bound = Bound(sizes={name: dims[name] for name in symbols if name in dims})
    bound.unused = {name: size for name, size in dims.items() if name not in bound.sizes}
    batch = _batch_symbol(axes)
    fixed = _fixed_batch(axes)
    if batch is not None:
        _bind_batch(bound, batch, axes, batch_size)
    elif batch_size is not None and fixed is not None and fixed != batch_size:
        raise RidgelineError(
            f"the batch size is {fixed} in the file, not {batch_size}",
            hint="leave --batch-size out, or export the model with a dynamic batch dimension",
        )
    elif fixed is not None:
        bound.batch_size = fixed
    elif batch_size is not None:
        bound.batch_size = batch_size
    missing = [name for name in symbols if name not in bound.sizes]
    if missing:
        raise _missing(missing, batch, axes)
    return bound


def open_dims(graph: GraphProto) -> list[str]:
    """The names of the dimensions that the inputs leave open, each once."""
    return _symbols(_axes(real_inputs(graph)))


def _symbols(axes: Iterable[Axis]) -> list[str]:
    return list(dict.fromkeys(axis.symbol for axis in axes if axis.symbol))


def _bind_batch(bound: Bound, batch: str, axes: list[Axis], batch_size: int | None) -> None:
    given = bound.sizes.get(batch)
    if given is not None and batch_size is not None and given != batch_size:
        raise RidgelineError(
            f"--batch-size {batch_size} and --dim {batch}={given} name the same dimension",
            hint="give one of them",
        )
    size = batch_size if batch_size is not None else given
    if size is None:
        return
    bound.sizes[batch] = bound.batch_size = size
    where = next(axis for axis in axes if axis.symbol == batch)
    bound.notes.append(
        f"the batch of {size} is the dimension {batch!r}"
        f" (input {where.input!r}, axis {where.index})"
    )


def _missing(missing: list[str], batch: str | None, axes: list[Axis]) -> RidgelineError:
    places = {
        name: ", ".join(f"{a.input}[{a.index}]" for a in axes if a.symbol == name)
        for name in missing
    }
    listed = "; ".join(f"{name} (of {place})" for name, place in places.items())
    options = [
        f"--batch-size N (it is {name!r})" if name == batch else f"--dim {name}=N"
        for name in missing
    ]
    return RidgelineError(
        f"the file leaves {_count(len(missing), 'dimension')} open: {listed}",
        hint=f"give {' and '.join(options)}",
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _check_given(dims: Mapping[str, int], batch_size: int | None) -> None:
    for name, size in (("--batch-size", batch_size), *((f"--dim {n}", s) for n, s in dims.items())):
        if size is not None and not 0 < size <= LARGEST:
            raise RidgelineError(f"{name}: {size} is no size", hint="sizes are 1 or more")


def _axes(inputs: Iterable[ValueInfoProto]) -> Iterable[Axis]:
    for value in inputs:
        kind = tensor_type(value.type)
        if kind is None or not kind.HasField("shape"):
            continue
        for index, dim in enumerate(kind.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                yield Axis(value.name, index, "", dim.dim_value)
            else:
                yield Axis(value.name, index, dim.dim_param or unnamed(value.name, index), 0)


def unnamed(value: str, index: int) -> str:
    """The name we give to an open dimension that has none in the file."""
    return f"{value}_{index}"


def _batch_symbol(axes: list[Axis]) -> str | None:
    """The dimension that is called so; else the first of the first input that has any."""
    symbols = [axis.symbol for axis in axes if axis.symbol]
    named = [s for s in symbols if "batch" in s.lower()] or [
        s for s in symbols if s.lower() in BATCH_NAMES
    ]
    if named:
        return named[0]
    leading = [axis for axis in axes if axis.index == 0]
    if leading and leading[0].symbol and not NOT_BATCH.search(leading[0].symbol):
        return leading[0].symbol
    return None


def _fixed_batch(axes: list[Axis]) -> int | None:
    """The first dimension of the first input, where it is a number."""
    leading = [axis for axis in axes if axis.index == 0]
    return leading[0].size if leading and not leading[0].symbol else None


def real_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that are not also stored: older files list the weights among them."""
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in stored]


def tensor_type(kind: TypeProto) -> TypeProto.Tensor | None:
    """The tensor that a type describes, through optionals; None for sequences and maps."""
    while kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("tensor_type"):
        return kind.tensor_type
    if kind.HasField("sparse_tensor_type"):
        return kind.sparse_tensor_type
    return None


def shape_of(kind: TypeProto, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A type's shape with the numbers put in; None where one is missing."""
    tensor = tensor_type(kind)
    if tensor is None or not tensor.HasField("shape"):
        return None
    found = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, -1)
        if not 0 <= size <= LARGEST:
            return None
        found.append(size)
    return tuple(found)

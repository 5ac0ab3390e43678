"""Inputs of which the file does not even tell the rank: it is that of the sizes given for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.onnx.asking import option_for, quoted, shown
from ridgeline.onnx.declared import MOST_DIMS, item_type, real_inputs, unnamed

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

MOST_NAMED = 5


def unranked(values: Iterable[ValueInfoProto]) -> list[str]:
    """The names of those whose tensors, or whose items, may have any number of dimensions."""
    kinds = ((value.name, item_type(value.type)) for value in values)
    return [name for name, kind in kinds if kind is not None and not kind.HasField("shape")]


def rank_of(name: str) -> str:
    """The name we give to the number of dimensions of an input."""
    return f"{name}_rank"


def with_ranks(graph: GraphProto, dims: Mapping[str, int]) -> dict[str, int]:
    """Write ranks that are given into the graph, as open dimensions; the other numbers."""
    left = dict(dims)
    inputs = real_inputs(graph)
    symbols = _symbols(inputs)
    wanted = set(unranked(inputs))
    for value in inputs:
        rank = _given(value.name, left, symbols) if value.name in wanted else None
        kind = item_type(value.type)
        if rank is not None and kind is not None:
            kind.shape.SetInParent()
            for _ in range(rank):
                kind.shape.dim.add()
    return left


def _symbols(inputs: Iterable[ValueInfoProto]) -> set[str]:
    kinds = (item_type(value.type) for value in inputs)
    return {dim.dim_param for kind in kinds if kind is not None for dim in kind.shape.dim}


def _given(name: str, dims: dict[str, int], symbols: set[str]) -> int | None:
    """As said, or up to the last size that is given and means nothing else."""
    said = dims.pop(rank_of(name), None) if rank_of(name) not in symbols else None
    if said is not None:
        if said > MOST_DIMS:
            raise RidgelineError(
                f"--dim {shown(rank_of(name))}: {said} dimensions are too many",
                hint=f"{MOST_DIMS} are the most that are counted",
            )
        return said
    names = dims.keys() - symbols
    places = [n for n in range(MOST_DIMS) if unnamed(name, n) in names]
    return places[-1] + 1 if places else None


def missing_ranks(names: Sequence[str]) -> RidgelineError:
    """The error that asks for them."""
    listed, more = ", ".join(map(quoted, names[:MOST_NAMED])), len(names) - MOST_NAMED
    first, second = (option_for(unnamed(names[0], place)) for place in range(2))
    return RidgelineError(
        "the file does not tell the shape, not even the number of dimensions, of"
        f" {listed}" + (f" and {more} more" if more > 0 else ""),
        hint=f"give all sizes in order: {first} {second} and so on"
        f" ({option_for(rank_of(names[0]), '0')} if it is a single number)",
    )

"""What a file says of a value: its type, its shape, and our names for what has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ridgeline.onnx.expressions import size_of

if TYPE_CHECKING:
    from onnx import GraphProto, TensorShapeProto, TypeProto, ValueInfoProto

MOST_DIMS = 64  # of one tensor: numpy's own limit
LARGEST = 1 << 48  # far above any real side; the product of several still is a quick number


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


def item_type(kind: TypeProto) -> TypeProto.Tensor | None:
    """The tensor that a type describes, or that the items of a sequence are; None for maps."""
    while kind.HasField("optional_type") or kind.HasField("sequence_type"):
        is_optional = kind.HasField("optional_type")
        kind = kind.optional_type.elem_type if is_optional else kind.sequence_type.elem_type
    return tensor_type(kind)


def shape_of(kind: TypeProto, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A type's shape with the numbers put in; None where one is missing."""
    tensor = tensor_type(kind)
    if tensor is None or not tensor.HasField("shape") or len(tensor.shape.dim) > MOST_DIMS:
        return None
    found = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else size_of(dim.dim_param, sizes)
        if size is None or not 0 <= size <= LARGEST:
            return None
        found.append(size)
    return tuple(found)


def is_open(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dimension has no number; older exporters write -1 for that."""
    return not dim.HasField("dim_value") or dim.dim_value < 0


def length_of(value: str) -> str:
    """The name we give to the length of a sequence, which is in no file."""
    return f"{value}_length"


def unnamed(value: str, index: int) -> str:
    """The name we give to an open dimension that has none in the file."""
    return f"{value}_{index}"

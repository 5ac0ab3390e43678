"""The value of a Constant node, in whichever attribute it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.count.onnx.infer import from_array, make, stored
from ridgeline.count.onnx.node import Tensor, unknown_tensor

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto


def constant(node: NodeProto, name: str) -> Tensor:
    """The node's result: a value that is known, or its type alone where it is large or sparse."""
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor = stored(attribute.t)
            tensor.is_weight = False
            return tensor
        if attribute.name == "sparse_value":
            sparse = attribute.sparse_tensor
            return make(name, sparse.values.data_type, tuple(sparse.dims))
        if attribute.name in PLAIN:
            return from_array(name, PLAIN[attribute.name](attribute))
    return unknown_tensor(name)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


PLAIN: dict[str, Callable[[AttributeProto], np.ndarray[Any, Any]]] = {
    "value_int": lambda a: np.asarray(a.i, np.int64),
    "value_ints": lambda a: np.asarray(list(a.ints), np.int64),
    "value_float": lambda a: np.asarray(a.f, np.float32),
    "value_floats": lambda a: np.asarray(list(a.floats), np.float32),
    "value_string": lambda a: np.asarray(_text(a.s), object),
    "value_strings": lambda a: np.asarray([_text(s) for s in a.strings], object),
}

"""The value of a Constant node, in whichever attribute it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.onnx.infer import as_stored, from_array, stored, stored_sparse
from ridgeline.onnx.node import Tensor, unknown_tensor

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto


def constant(node: NodeProto, name: str) -> Tensor:
    """The node's result: stored in the file as an initializer is."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return stored(attribute.t)
        if attribute.name == "sparse_value":
            return stored_sparse(attribute.sparse_tensor)
        if attribute.name in PLAIN:
            return as_stored(from_array(name, PLAIN[attribute.name](attribute)), attribute)
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

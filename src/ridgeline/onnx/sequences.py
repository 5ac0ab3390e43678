"""Sequences of tensors: which tensors are in them, as far as the graph tells."""

from __future__ import annotations

import numpy as np

from ridgeline.onnx.dims import MOST_ITEMS
from ridgeline.onnx.dtypes import BOOL
from ridgeline.onnx.infer import from_array, make
from ridgeline.onnx.node import NodeCall, Tensor, unknown_tensor

Items = tuple[Tensor, ...]


def sequence(name: str, items: Items) -> Tensor:
    tensor = unknown_tensor(name)
    tensor.items = items
    return tensor


def sequence_result(call: NodeCall, name: str) -> Tensor | None:
    """The result of an operator on sequences; None where another rule must tell."""
    x = call.get(0)
    if call.op_type == "OptionalHasElement":
        return make(name, BOOL, ())
    if call.op_type == "SequenceConstruct":
        return sequence(name, call.inputs)
    if call.op_type == "SequenceEmpty":
        return sequence(name, ())
    if call.op_type == "SplitToSequence" and x is not None:
        return _split(call, x, name)
    if x is None:
        return None
    if call.op_type in ("Identity", "Optional", "OptionalGetElement") and x.items is not None:
        return sequence(name, x.items)
    if x.items is None and x.each is not None and call.op_type == "SequenceAt":
        return _at((x.each,), None, name)
    if x.items is None:
        return None
    if call.op_type == "SequenceLength":
        return from_array(name, np.asarray(len(x.items), np.int64))
    if call.op_type == "SequenceAt":
        return _at(x.items, call.get(1), name)
    if call.op_type in ("SequenceInsert", "SequenceErase"):
        return sequence(name, _changed(call, x.items))
    if call.op_type == "ConcatFromSequence":
        return _joined(call, x.items, name)
    return None


def _place(index: Tensor | None, default: int) -> int:
    if index is None or index.value is None:
        return default
    return int(index.value.ravel()[0])


def _at(items: Items, index: Tensor | None, name: str) -> Tensor:
    """The item at a place; where the place is not known, the first."""
    if not items:
        return unknown_tensor(name)
    place = _place(index, 0)
    found = items[place] if -len(items) <= place < len(items) else items[0]
    return Tensor(name, found.dims, found.elem, found.dtype, found.value)


def _changed(call: NodeCall, items: Items) -> Items:
    if call.op_type == "SequenceErase":
        place = _place(call.get(1), len(items) - 1) % max(len(items), 1)
        return items[:place] + items[place + 1 :]
    place = _place(call.get(2), len(items))
    return (*items[:place], call.given(1), *items[place:])


def _split(call: NodeCall, x: Tensor, name: str) -> Tensor | None:
    """Pieces along an axis: of given lengths, of one length, or of one element each."""
    if x.dims is None or not x.dims:
        return None
    axis = call.whole("axis", 0) % len(x.dims)
    total, split = x.dims[axis], call.get(1)
    if split is not None and split.value is None:
        return None
    keep = True
    if split is None and total > MOST_ITEMS:
        return None
    if split is None:
        lengths, keep = [1] * total, bool(call.whole("keepdims", 1))
    elif split.value is not None and split.value.ndim:
        lengths = [int(n) for n in split.value.ravel()]
    else:
        each = max(int(split.value), 1) if split.value is not None else 1
        if total // each > MOST_ITEMS:
            return None
        lengths = [each] * (total // each) + ([total % each] if total % each else [])
    if len(lengths) > MOST_ITEMS:
        return None
    pieces = []
    for n, length in enumerate(lengths):
        middle = (length,) if keep else ()
        pieces.append(make(f"{name}[{n}]", x.elem, (*x.dims[:axis], *middle, *x.dims[axis + 1 :])))
    return sequence(name, tuple(pieces))


def _joined(call: NodeCall, items: Items, name: str) -> Tensor | None:
    if not items or any(item.dims is None for item in items):
        return None
    first = items[0].shape
    if call.attr("new_axis", 0):
        axis = call.whole("axis", 0) % (len(first) + 1)
        return make(name, items[0].elem, (*first[:axis], len(items), *first[axis:]))
    if not first:
        return None
    axis = call.whole("axis", 0) % len(first)
    total = sum(item.shape[axis] for item in items)
    return make(name, items[0].elem, (*first[:axis], total, *first[axis + 1 :]))

"""onnxruntime's blocked layout, `com.microsoft.nchwc`: channels in blocks of 8 or 16.

Channels are rounded up to whole blocks, in weights and values; their shapes are those of NCHW with
that many channels. What is padding the file says only where it leaves the layout; elsewhere it
shows in the weights, whose padding is zero. The network's work is on the channels without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

from ridgeline.onnx.node import MalformedError, NodeCall, Shape, Tensor

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

NCHWC = "com.microsoft.nchwc"
BLOCKS = (8, 16)
CHANNELS = "channels"  # ReorderOutput's attribute; here it is put on convolutions too
BLOCK = "block"  # ours, on ReorderInput
SAME_CHANNELS = frozenset({
    "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Upsample"
})  # fmt: skip
BY_ELEMENT = frozenset({  # other operators that onnxruntime leaves on blocked values
    "Add", "Clip", "Elu", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul",
    "QuickGelu", "Relu", "Sigmoid", "Sum", "Tanh",
})  # fmt: skip
AS_STANDARD = {  # the number of operands that the standard operator of the same name has
    "Conv": 3, "MaxPool": 1, "AveragePool": 1, "GlobalMaxPool": 1, "GlobalAveragePool": 1,
}  # fmt: skip


# ---------------------------------------------------------------- before the walk


def mark_channels(model: ModelProto) -> int:
    """Write into a model's blocked convolutions how many channels they make without padding.

    The number of those of which it cannot be told: they are taken to have none.
    """
    is_blocked = any(imported.domain == NCHWC for imported in model.opset_import)
    return _mark(model.graph) if is_blocked else 0


def _mark(graph: GraphProto) -> int:
    inside = [a.g for node in graph.node for a in node.attribute if a.type == AttributeProto.GRAPH]
    untold = sum(map(_mark, inside))
    nodes = [node for node in graph.node if node.domain == NCHWC and node.output]
    if not nodes:
        return untold
    stored = {tensor.name: tensor for tensor in graph.initializer}
    known = _told_later(graph.node, stored)
    block = _block_of(nodes, stored)
    for node in nodes:
        if node.op_type == "ReorderInput":
            node.attribute.append(helper.make_attribute(BLOCK, block))
        if node.op_type != "Conv" or _groups(node) > 1:  # groups are of whole blocks
            continue
        found = known.get(node.output[0]) or _added_to(node, known) or _filled(node, stored)
        if found:
            known[node.output[0]] = found
            node.attribute.append(helper.make_attribute(CHANNELS, found))
        untold += not found
    return untold


def padding_note(untold: int) -> str:
    """What a reader must know where a file does not tell padding."""
    return (
        f"of {untold} convolutions in onnxruntime's blocked layout the file does not tell which"
        f" channels are padding (at most {BLOCKS[-1] - 1}): all are counted"
    )


def _told_later(nodes: Sequence[NodeProto], stored: dict[str, TensorProto]) -> dict[str, int]:
    """Channels of values by name, back from where they leave the layout."""
    known: dict[str, int] = {}
    for node in reversed(nodes):
        if not node.input or not node.output:
            continue
        if node.op_type == "ReorderOutput":
            told = max((a.i for a in node.attribute if a.name == CHANNELS), default=0)
            if told > 0:
                known[node.input[0]] = told
        elif node.output[0] in known:
            for name in _with_same_channels(node, stored):
                known.setdefault(name, known[node.output[0]])
    return known


def _with_same_channels(node: NodeProto, stored: dict[str, TensorProto]) -> Sequence[str]:
    """The operands that have the channels of the result."""
    if node.domain != NCHWC:
        return node.input if node.op_type in BY_ELEMENT else ()
    if node.op_type == "Conv":
        return [*(node.input[:1] if _is_depthwise(node, stored) else ()), *node.input[3:4]]
    return node.input[:1] if node.op_type in SAME_CHANNELS else ()


def _added_to(node: NodeProto, known: dict[str, int]) -> int | None:
    """The fourth operand is a value that is added: it has the same channels."""
    return known.get(node.input[3]) if len(node.input) > 3 else None


def _is_depthwise(node: NodeProto, stored: dict[str, TensorProto]) -> bool:
    """A channel out for each channel in; padding included, as its group says."""
    weight = stored.get(node.input[1]) if len(node.input) > 1 else None
    groups = _groups(node)
    return weight is not None and groups > 1 and list(weight.dims[:2]) == [groups, 1]


def _groups(node: NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1)


def _block_of(nodes: Iterable[NodeProto], stored: dict[str, TensorProto]) -> int:
    """The larger block, unless a weight's channels are no multiple of it."""
    weights = [stored.get(n.input[1]) for n in nodes if n.op_type == "Conv" and len(n.input) > 1]
    small, large = BLOCKS
    return small if any(w and w.dims and w.dims[0] % large for w in weights) else large


def _filled(node: NodeProto, stored: dict[str, TensorProto]) -> int | None:
    """By the weight, else the bias, as far as the file holds them and they are not all zero."""
    for name in node.input[1:3]:
        found = _not_zero(stored[name]) if name in stored else None
        if found:
            return found
    return None


def _not_zero(tensor: TensorProto) -> int | None:
    """Channels up to the last one that is not all zero. A block's channels lie side by side."""
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:  # a large tensor is not read; a broken one raises many kinds of error
        return None
    found = []
    for block in BLOCKS:
        if array.ndim and array.size and array.shape[0] % block == 0:
            last = array.reshape(array.shape[0] // block, -1, block)[-1].any(axis=0)
            if last.any():
                found.append(array.shape[0] - block + int(np.flatnonzero(last)[-1]) + 1)
    return min(found, default=None)


# ---------------------------------------------------------------- types of results


def blocked(call: NodeCall) -> list[tuple[int, Shape] | None]:
    """Those that the standard operator's inference does not give."""
    if call.domain != NCHWC or not call.inputs or not call.x.is_known:
        return []
    elem, shape = call.x.elem, call.x.shape
    if call.op_type == "Upsample":
        scales = call.wholes("scales")
        return [(elem, tuple(n * s for n, s in zip(shape, scales, strict=True)))]
    if call.op_type == "ReorderInput":
        first = _channels_first(shape) if call.whole("channels_last", 0) else shape
        block = max(call.whole(BLOCK, BLOCKS[-1]), 1)
        return [(elem, (first[0], -(-first[1] // block) * block, *first[2:]))]
    if call.op_type == "ReorderOutput":
        count = call.whole(CHANNELS, 0)
        if not 0 < count <= shape[1]:
            raise MalformedError(f"{count} of {shape[1]} channels are left")
        if call.whole("channels_last", 0):
            return [(elem, (shape[0], *shape[2:], count))]
        return [(elem, (shape[0], count, *shape[2:]))]
    return []


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])


def set_channels(call: NodeCall) -> None:
    """How many channels of the results are not padding."""
    if not all(t.is_known for t in (*call.inputs, *call.outputs)):
        return
    if call.domain == NCHWC:
        count = _channels_made(call)
    else:
        counts = {t.channels for t in call.inputs if t.channels is not None}
        count = counts.pop() if len(counts) == 1 and _keeps_channels(call) else None
    for result in call.outputs:
        if count is not None and len(result.shape) > 1 and count < result.shape[1]:
            result.channels = count


def _channels_made(call: NodeCall) -> int | None:
    if call.op_type == "Conv":
        shape = call.given(1).shape
        if shape[1] == 1 and call.whole("group", 1) == shape[0] > 1:
            return call.x.channels
        return call.whole(CHANNELS, shape[0])
    if call.op_type == "ReorderInput":
        return call.x.shape[-1 if call.whole("channels_last", 0) else 1]
    return call.x.channels if call.op_type in SAME_CHANNELS else None


def _keeps_channels(call: NodeCall) -> bool:
    """Whether an operator that is not of this layout goes by elements, so keeps the padding."""
    if call.op_type not in BY_ELEMENT:
        return False
    sizes = {t.shape[1] for t in call.inputs if t.channels is not None}
    return all(len(t.shape) > 1 and {t.shape[1]} == sizes for t in call.outputs)


# ---------------------------------------------------------------- what formulas see


def without_padding(call: NodeCall) -> NodeCall:
    """The call on the channels of the network."""
    operands = [_cut(t) for t in call.operands]
    if (call.domain, call.op_type) == (NCHWC, "Conv"):
        operands[1:3] = _cut_weights(call)
    return replace(call, operands=tuple(operands), results=tuple(_cut(t) for t in call.results))


def is_batch_norm(call: NodeCall) -> bool:
    """A convolution that onnxruntime made of a batch norm: exporters tell a kernel's size."""
    shape = call.given(1).shape
    is_depthwise = call.whole("group", 1) == shape[0] and shape[1:] == (1, 1, 1)
    return is_depthwise and "kernel_shape" not in call.attributes and call.has(2)


def _cut(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.channels is None:
        return tensor
    dims = (tensor.shape[0], tensor.channels, *tensor.shape[2:])
    return replace(tensor, dims=dims)


def _cut_weights(call: NodeCall) -> list[Tensor | None]:
    """The weight and, where there is one, the bias."""
    x, weight = call.x, call.given(1)
    made = call.out.channels or weight.shape[0]
    used = weight.shape[1]
    if x.channels is not None and call.whole("group", 1) == 1:
        used = min(used, x.channels)
    cut = [replace(weight, dims=(made, used, *weight.shape[2:]))]
    bias = call.get(2)
    return [*cut, *([replace(bias, dims=(made,))] if bias is not None else call.operands[2:3])]

"""Normalisations and softmax, with the numbers of PyTorch's: see count/formulas/norms.py.

n is the number of elements normalised: 4 FLOPs an element for mean and variance, 2 to apply them,
one more for each of weight and bias; one root for each mean and variance.
"""

from __future__ import annotations

from math import prod

from ridgeline.count.per_element import RMS_NORM, SOFTMAX, STATISTICS
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops.registry import DEQUANTISE, MS, QUANTISE, Work, check_shape, op


def _groups(call: NodeCall) -> int:
    """How many groups are normalised: the dimensions before the axis."""
    shape = call.x.shape
    return prod(shape[: call.int_attr("axis", -1) % len(shape) if shape else 0])


def has_batch_statistics(call: NodeCall) -> bool:
    """Whether a batch norm is as in training; before version 14 its further results show it."""
    if call.version >= 14 and not call.domain:
        return bool(call.attr("training_mode", 0))
    return len(call.outputs) > 1


@op("BatchNormalization", kind="norm")
def batch_norm(call: NodeCall) -> Work:
    shape = call.x.shape
    if call.version >= 9 and len(shape) > 1:  # before, of each place too
        check_shape(call, 1, shape[1:2])
    flops = 2 + STATISTICS * has_batch_statistics(call)
    channels = shape[1] if len(shape) > 1 else 1
    return Work.per_element(call.x.numel, flops, transcendentals=channels)


@op("InstanceNormalization", kind="norm")
def instance_norm(call: NodeCall) -> Work:
    shape = call.x.shape
    check_shape(call, 1, shape[1:2])
    return Work.per_element(call.x.numel, STATISTICS + 4, transcendentals=prod(shape[:2]))


@op("GroupNormalization", kind="norm")
def group_norm(call: NodeCall) -> Work:
    groups = call.x.shape[0] * call.int_attr("num_groups", 1)
    return Work.per_element(call.x.numel, STATISTICS + 4, transcendentals=groups)


@op("GroupNorm SkipGroupNorm", kind="norm", domain=MS)
def channels_last_group_norm(call: NodeCall) -> Work:
    """Channels last; a skip (and its bias) added before, a SiLU after, by the attributes."""
    n, groups = call.x.numel, call.x.shape[0] * call.int_attr("groups", 1)
    silu = bool(call.attr("activation", 0))
    added = (call.has(3) + call.has(4)) if call.op_type == "SkipGroupNorm" else 0
    flops = STATISTICS + 4 + 4 * silu + added
    return Work.per_element(n, flops, transcendentals=groups + silu * n)


@op("LayerNormalization", kind="norm")
def layer_norm(call: NodeCall) -> Work:
    flops = STATISTICS + 2 + call.has(1) + call.has(2)
    return Work.per_element(call.x.numel, flops, transcendentals=_groups(call))


@op("RMSNormalization SimplifiedLayerNormalization", kind="norm")
def rms_norm(call: NodeCall) -> Work:
    """Mean of squares, one product with its inverse root, one more with a weight."""
    return Work.per_element(call.x.numel, RMS_NORM + call.has(1), transcendentals=_groups(call))


@op("SkipLayerNormalization SkipSimplifiedLayerNormalization", kind="norm", domain=MS)
def skip_norm(call: NodeCall) -> Work:
    """input + skip (+ bias), then layer norm (gamma, beta, bias) or RMS norm (gamma, bias)."""
    if call.op_type == "SkipLayerNormalization":
        flops = 1 + call.has(4) + STATISTICS + 2 + call.has(2) + call.has(3)
    else:
        flops = 1 + call.has(3) + RMS_NORM + call.has(2)
    return Work.per_element(call.x.numel, flops, transcendentals=prod(call.x.shape[:-1]))


@op("EmbedLayerNormalization", kind="norm", domain=MS)
def embed_layer_norm(call: NodeCall) -> Work:
    """Rows of the word, position and segment tables are added, then layer norm.

    Only the rows that are looked up are read.
    """
    out = call.out
    tables = [t for place in (2, 3, 4) if (t := call.get(place)) is not None]
    flops = max(len(tables) - 1, 0) + STATISTICS + 4
    rows_bytes = sum(t.bytes_of(min(out.numel, t.numel)) for t in tables)
    others = sum(t.nbytes for t in call.inputs if all(t is not table for table in tables))
    return Work.per_element(out.numel, flops, transcendentals=prod(out.shape[:-1]),
                            read_bytes=rows_bytes + others)  # fmt: skip


@op("MeanVarianceNormalization", kind="norm")
def mean_variance(call: NodeCall) -> Work:
    axes = [a % max(len(call.x.shape), 1) for a in call.attr("axes", [0, 2, 3])]
    groups = prod(size for axis, size in enumerate(call.x.shape) if axis not in axes)
    return Work.per_element(call.x.numel, STATISTICS + 2, transcendentals=groups)


@op("LpNormalization", kind="norm")
def lp_norm(call: NodeCall) -> Work:
    """A power and an addition an element, a division; a root for each norm of order 2."""
    x = call.x
    groups = x.numel // max(x.shape[call.int_attr("axis", -1)], 1) if x.shape else 1
    roots = groups if call.attr("p", 2) == 2 else 0
    return Work.per_element(x.numel, 3, transcendentals=roots)


@op("LRN", kind="norm")
def lrn(call: NodeCall) -> Work:
    """x/(bias + alpha/size·Σx²)^beta over `size` channels: size squares and sums, and 3 more."""
    n, size = call.x.numel, call.int_attr("size", 1)
    return Work.per_element(n, 2 * size + 3, transcendentals=n)


@op("Softmax", kind="softmax")
def softmax(call: NodeCall) -> Work:
    """One exponential an element beside the FLOPs."""
    n = call.x.numel
    return Work.per_element(n, SOFTMAX, transcendentals=n)


@op("LogSoftmax", kind="softmax")
def log_softmax(call: NodeCall) -> Work:
    n, shape = call.x.numel, call.x.shape
    axis = call.int_attr("axis", -1 if call.version >= 13 else 1)
    if call.version >= 13:
        rows = n // max(shape[axis], 1) if shape else 1
    else:  # all dimensions from the axis on are one
        rows = prod(shape[: axis % (len(shape) or 1)])
    return Work.per_element(n, SOFTMAX, transcendentals=n + rows)


@op("Hardmax", kind="softmax")
def hardmax(call: NodeCall) -> Work:
    """A comparison an element."""
    return Work.per_element(call.x.numel, 1)


@op("BiasSoftmax", kind="softmax", domain=MS)
def bias_softmax(call: NodeCall) -> Work:
    n = call.x.numel
    return Work.per_element(n, 1 + SOFTMAX, transcendentals=n)


@op("QLinearSoftmax", kind="softmax", domain=MS)
def qlinear_softmax(call: NodeCall) -> Work:
    """Dequantised, softmax, requantised."""
    n = call.x.numel
    return Work.per_element(n, DEQUANTISE + SOFTMAX + QUANTISE, transcendentals=n)

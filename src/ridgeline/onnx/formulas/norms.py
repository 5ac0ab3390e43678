"""Normalisations and softmax, with the numbers of PyTorch's: see count/formulas/norms.py.

n is the number of elements normalised: 4 FLOPs an element for mean and variance, 2 to apply them,
one more for each of weight and bias; one root for each mean and variance.
"""

from __future__ import annotations

from math import prod

from ridgeline.count.per_element import RMS_NORM, SOFTMAX, STATISTICS
from ridgeline.onnx.formulas.fits import (
    check_channels,
    check_group_norm,
    check_skip,
    must_spread,
)
from ridgeline.onnx.formulas.registry import DEQUANTISE, MS, QUANTISE, Work, op
from ridgeline.onnx.node import NodeCall, Shape


def _channels(shape: Shape) -> int:
    return shape[1] if len(shape) > 1 else 1


def _groups(call: NodeCall, shape: Shape) -> int:
    """How many groups are normalised: the dimensions before the axis."""
    axis = int(call.attr("axis", -1))
    return prod(shape[: axis % len(shape) if shape else 0])


@op("BatchNormalization", kind="norm")
@op("SpatialBN", kind="norm", domain=MS)
def batch_norm(call: NodeCall) -> Work:
    x = call.x
    if call.version >= 9 and not call.domain and len(x.shape) > 1:  # before, of each place too
        check_channels(call, (1, 2, 3, 4))
    flops = 2 + STATISTICS * has_batch_statistics(call)
    return Work.per_element(x.numel, flops, transcendentals=_channels(x.shape))


def has_batch_statistics(call: NodeCall) -> bool:
    """Whether a batch norm is as in training; before version 14 its further results tell."""
    if call.version >= 14 and not call.domain:
        return bool(call.attr("training_mode", 0))
    return len(call.outputs) > 1


@op("InstanceNormalization", kind="norm")
def instance_norm(call: NodeCall) -> Work:
    x = call.x
    check_channels(call, (1, 2))
    return Work.per_element(x.numel, STATISTICS + 4, transcendentals=prod(x.shape[:2]))


@op("GroupNormalization", kind="norm")
def group_norm(call: NodeCall) -> Work:
    x = call.x
    check_group_norm(call)
    groups = x.shape[0] * call.whole("num_groups", 1)
    return Work.per_element(x.numel, STATISTICS + 4, transcendentals=groups)


@op("GroupNorm SkipGroupNorm", kind="norm", domain=MS)
def ms_group_norm(call: NodeCall) -> Work:
    """Channels last; a skip (and its bias) added before, a SiLU after, where asked."""
    x = call.x
    groups = x.shape[0] * int(call.attr("groups", 1))
    silu = bool(call.attr("activation", 0))
    added = (call.has(3) + call.has(4)) if call.op_type == "SkipGroupNorm" else 0
    flops = STATISTICS + 4 + 4 * silu + added
    return Work.per_element(x.numel, flops, transcendentals=groups + silu * x.numel)


@op("LayerNormalization", kind="norm")
def layer_norm(call: NodeCall) -> Work:
    for place in (1, 2):
        must_spread(call, place, call.x.shape)
    affine = call.has(1) + call.has(2)
    groups = _groups(call, call.x.shape)
    return Work.per_element(call.x.numel, STATISTICS + 2 + affine, transcendentals=groups)


@op("RMSNormalization SimplifiedLayerNormalization", kind="norm")
def rms_norm(call: NodeCall) -> Work:
    """Mean of squares, one product with its inverse root, one more with a weight."""
    must_spread(call, 1, call.x.shape)
    groups = _groups(call, call.x.shape)
    return Work.per_element(call.x.numel, RMS_NORM + call.has(1), transcendentals=groups)


@op("SkipLayerNormalization", kind="norm", domain=MS)
def skip_layer_norm(call: NodeCall) -> Work:
    """input, skip, gamma, beta, bias: the sum, then layer norm."""
    x = call.x
    check_skip(call, (2, 3, 4))
    flops = 1 + call.has(4) + STATISTICS + 2 + call.has(2) + call.has(3)
    return Work.per_element(x.numel, flops, transcendentals=prod(x.shape[:-1]))


@op("SkipSimplifiedLayerNormalization", kind="norm", domain=MS)
def skip_rms_norm(call: NodeCall) -> Work:
    """input, skip, gamma, bias."""
    x = call.x
    check_skip(call, (2, 3))
    flops = 1 + call.has(3) + RMS_NORM + call.has(2)
    return Work.per_element(x.numel, flops, transcendentals=prod(x.shape[:-1]))


@op("EmbedLayerNormalization QEmbedLayerNormalization", kind="norm", domain=MS)
def embed_layer_norm(call: NodeCall) -> Work:
    """Rows of the word, position and segment tables are added, then layer norm.

    Only the rows that are looked up are read; 8-bit ones are dequantised, as the weights are.
    """
    out = call.out
    tables = [t for place in (2, 3, 4) if (t := call.get(place)) is not None]
    n, rows = out.numel, prod(out.shape[:-1])
    quantised = DEQUANTISE * call.op_type.startswith("Q")
    flops = max(len(tables) - 1, 0) + STATISTICS + 4 + quantised * len(tables)
    affine = quantised * 2 * out.shape[-1]
    named = sum(t.bytes_of(min(n, t.numel)) for t in tables)
    others = sum(t.nbytes for t in call.inputs if all(t is not table for table in tables))
    return Work(
        other_flops=flops * n + affine,
        transcendentals=rows,
        read_bytes=named + others,
        factor=flops,
        terms=(("n", n),),
        more=((1, (("weights", affine),)),) if affine else (),
    )


@op("MeanVarianceNormalization", kind="norm")
def mean_variance(call: NodeCall) -> Work:
    axes = [a % max(len(call.x.shape), 1) for a in call.attr("axes", [0, 2, 3])]
    groups = prod(size for axis, size in enumerate(call.x.shape) if axis not in axes)
    return Work.per_element(call.x.numel, STATISTICS + 2, transcendentals=groups)


@op("LpNormalization", kind="norm")
def lp_norm(call: NodeCall) -> Work:
    """A power and an addition an element, a division; a root for each norm of order 2."""
    x = call.x
    groups = x.numel // max(x.shape[call.attr("axis", -1)], 1) if x.shape else 1
    roots = groups if call.attr("p", 2) == 2 else 0
    return Work.per_element(x.numel, 3, transcendentals=roots)


@op("LRN", kind="norm")
def lrn(call: NodeCall) -> Work:
    """x/(bias + alpha/size·Σx²)^beta over `size` channels: size squares and sums, and 3 more."""
    n, size = call.x.numel, int(call.attr("size", 1))
    return Work.per_element(n, 2 * size + 3, transcendentals=n)


@op("Softmax", kind="softmax")
def softmax(call: NodeCall) -> Work:
    """One exponential an element beside the FLOPs."""
    n = call.x.numel
    return Work.per_element(n, SOFTMAX, transcendentals=n)


@op("LogSoftmax", kind="softmax")
def log_softmax(call: NodeCall) -> Work:
    x = call.x
    axis = int(call.attr("axis", -1 if call.version >= 13 else 1))
    if call.version >= 13:
        rows = x.numel // max(x.shape[axis], 1) if x.shape else 1
    else:  # all dimensions from the axis on are one
        rows = prod(x.shape[: axis % (len(x.shape) or 1)])
    n = x.numel
    return Work.per_element(n, SOFTMAX, transcendentals=n + rows)


@op("Hardmax", kind="softmax")
def hardmax(call: NodeCall) -> Work:
    """A comparison an element."""
    n = call.x.numel
    return Work.per_element(n, 1)


@op("QLinearSoftmax", kind="softmax", domain=MS)
def qlinear_softmax(call: NodeCall) -> Work:
    """Dequantised, softmax, requantised."""
    n = call.x.numel
    return Work.per_element(n, DEQUANTISE + SOFTMAX + QUANTISE, transcendentals=n)

"""Convolutions, pooling and interpolation. Padding counts as data."""

from __future__ import annotations

from math import prod

from ridgeline.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.onnx.ops.matmul import REQUANTISE, product
from ridgeline.onnx.ops.pointwise import fused_activation
from ridgeline.onnx.ops.registry import (
    DEQUANTISE,
    MS,
    QUANTISE,
    Terms,
    Work,
    check_shape,
    op,
    require,
)

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def conv_terms(x: Tensor, w: Tensor, out: Tensor, *, transposed: bool = False) -> Terms:
    """Each output (or, transposed, each input) position meets the whole kernel."""
    space = len(w.shape) - 2
    if space < 0 or len(x.shape) != len(w.shape) or len(out.shape) != len(w.shape):
        raise MalformedError("the ranks of a convolution differ")
    names = AXES.get(space, tuple(f"X{i}" for i in range(space)))
    kernel = tuple(
        (f"K{axis.lower()}", size) for axis, size in zip(names, w.shape[2:], strict=True)
    )
    positions, label = (x.shape, "in") if transposed else (out.shape, "out")
    places = tuple(
        (f"{axis}{label}", size) for axis, size in zip(names, positions[2:], strict=True)
    )
    # The weight is (Cout, Cin/g, …) or, transposed, (Cin, Cout/g, …).
    outer, inner = ("Cin", "(Cout/g)") if transposed else ("Cout", "(Cin/g)")
    return (("N", x.shape[0]), (outer, w.shape[0]), *places, (inner, w.shape[1]), *kernel)


def _convolution(call: NodeCall, *, weight: int = 1, bias: int | None = None) -> Terms:
    """Terms of a convolution whose channels and groups agree."""
    x, w, groups = call.x, call.operand(weight), call.int_attr("group", 1)
    terms = conv_terms(x, w, call.out)
    channels, used = x.shape[1], w.shape[1] * groups
    require(channels == used, f"the operand has {channels} channels, the weight is for {used}")
    require(w.shape[0] % groups == 0, f"{w.shape[0]} channels are not {groups} groups")
    require(min(call.out.shape[2:], default=1) > 0, "its kernel does not fit on its operand")
    if bias is not None:
        check_shape(call, bias, (w.shape[0],))
    return terms


@op("Conv", kind="conv")
@op("FusedConv", kind="conv", domain=MS)
def conv(call: NodeCall) -> Work:
    """A bias; onnxruntime's form may add another tensor and end in an activation."""
    flops, one = fused_activation(call)
    n, per_output = call.out.numel, call.has(2) + call.has(3) + flops
    terms = _convolution(call, bias=2)
    return product(terms, other_flops=per_output * n, transcendentals=one * n)


@op("ConvInteger", kind="conv")
def conv_integer(call: NodeCall) -> Work:
    return product(_convolution(call))


@op("QLinearConv", kind="conv")
def qlinear_conv(call: NodeCall) -> Work:
    """x, w and y each with a scale and a zero point; the product's scale, a bias."""
    terms = _convolution(call, weight=3, bias=8)
    return product(terms, other_flops=(REQUANTISE + call.has(8)) * call.out.numel)


@op("ConvTranspose", kind="conv")
def conv_transpose(call: NodeCall) -> Work:
    x, w = call.x, call.operand(1)
    terms = conv_terms(x, w, call.out, transposed=True)
    require(x.shape[1] == w.shape[0], f"{x.shape[1]} channels, the weight is for {w.shape[0]}")
    require(min(call.out.shape[2:], default=1) > 0, "its result has no elements")
    return product(terms, bias=call.has(2) * call.out.numel)


@op("DeformConv", kind="conv")
def deform_conv(call: NodeCall) -> Work:
    """A convolution on bilinear samples: 7 FLOPs for each sampled value, one more with a mask."""
    terms, x, out = _convolution(call, bias=3), call.x, call.out
    samples = x.shape[0] * x.shape[1] * prod(out.shape[2:]) * prod(call.operand(1).shape[2:])
    other = (7 + call.has(4)) * samples + call.has(3) * out.numel
    return product(terms, other_flops=other)


@op("CausalConvWithState", kind="conv")
def causal_conv(call: NodeCall) -> Work:
    """Depthwise, on the sequence and the state before it."""
    n, (flops, one) = call.out.numel, fused_activation(call, default="none")
    return product(
        (("out", n), ("K", prod(call.operand(1).shape[2:]))),
        other_flops=(call.has(2) + flops) * n,
        transcendentals=one * n,
    )


# ---------------------------------------------------------------- pooling


def _windows(call: NodeCall, window: int, *, each: int = 1, last: int = 0) -> Work:
    """FLOPs for each element of a window, padding included, and for each result."""
    n, is_float = call.out.numel, call.is_float or each > 1
    return Work(
        other_flops=n * (each * window + last) * is_float,
        factor=each * is_float,
        terms=(("n", n), ("window", window)),
        more=((last * is_float, (("n", n),)),) if last else (),
    )


def _window(call: NodeCall) -> int:
    """Elements that each result is made of."""
    if "Global" in call.op_type:
        return prod(call.x.shape[2:])
    return prod(call.int_list("kernel_shape") or [1])


@op("MaxPool GlobalMaxPool", kind="pool")
def max_pool(call: NodeCall) -> Work:
    return _windows(call, _window(call))


@op("AveragePool GlobalAveragePool", kind="pool")
def average_pool(call: NodeCall) -> Work:
    return _windows(call, _window(call), last=1)


@op("LpPool GlobalLpPool", kind="pool")
def lp_pool(call: NodeCall) -> Work:
    """A power and an addition for each place; a root for each result."""
    n, window, p = call.out.numel, _window(call), call.attr("p", 2)
    powers = 0 if p in (1, 2) else n * window
    return Work(
        other_flops=2 * n * window,
        transcendentals=powers + (n if p != 1 else 0),
        factor=2,
        terms=(("n", n), ("window", window)),
    )


@op("QLinearAveragePool QLinearGlobalAveragePool", kind="pool", domain=MS)
def qlinear_pool(call: NodeCall) -> Work:
    """Dequantised, averaged; each result requantised."""
    is_global = "Global" in call.op_type
    window = call.x.numel // max(call.out.numel, 1) if is_global else _window(call)
    return _windows(call, window, each=DEQUANTISE + 1, last=1 + QUANTISE)


@op("MaxUnpool", kind="move")
def max_unpool(call: NodeCall) -> Work:
    """Values are put at their indices, zeros elsewhere."""
    return Work(read_bytes=sum(t.nbytes for t in call.inputs[:2]))


@op("MaxRoiPool", kind="pool")
def max_roi_pool(call: NodeCall) -> Work:
    return Work.per_element(call.out.numel, 1)


# ---------------------------------------------------------------- interpolation


@op("RoiAlign", kind="interpolate")
def roi_align(call: NodeCall) -> Work:
    """Four taps for each sampling point; two points a side where the ratio is adaptive."""
    ratio = call.int_attr("sampling_ratio", 0)
    return Work.per_element(call.out.numel, 8 * (ratio * ratio if ratio > 0 else 4))


def _weighted_sum(call: NodeCall, taps: int) -> Work:
    """Of t taps: t products and t − 1 sums; a single one is copied."""
    per_element = 2 * taps - 1 if taps > 1 else 0
    read = sum(t.nbytes for t in call.inputs if t.is_float or t is call.x)
    return Work.per_element(call.out.numel, per_element, read_bytes=read)


@op("Resize Upsample", kind="interpolate")
def resize(call: NodeCall) -> Work:
    """2 taps for each dimension that is resized linearly, 4 if cubic."""
    resized = sum(a != b for a, b in zip(call.x.shape, call.out.shape, strict=True))
    mode = call.attr("mode", "nearest")
    taps = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}.get(mode, 1) ** resized
    return _weighted_sum(call, taps)


@op("GridSample", kind="interpolate")
def grid_sample(call: NodeCall) -> Work:
    """The taps' weighted sum; finding the weights, once for all channels, is left out."""
    each = {"nearest": 1, "bicubic": 4, "cubic": 4}.get(call.attr("mode", "linear"), 2)
    return _weighted_sum(call, each ** max(len(call.x.shape) - 2, 0))


@op("AffineGrid", kind="interpolate")
def affine_grid(call: NodeCall) -> Work:
    """A row of the matrix with (x, y, 1) or (x, y, z, 1) for each point."""
    n, columns = call.out.numel, call.x.shape[-1]
    return Work(macs=n * columns, factor=2, terms=(("n", n), ("K", columns)))

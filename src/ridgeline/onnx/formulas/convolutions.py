"""Convolutions: plain, transposed, deformable, quantised, fused. Padding counts as data."""

from __future__ import annotations

from math import prod

from ridgeline.count.per_element import BATCH_NORM
from ridgeline.onnx.blocked import NCHWC, is_batch_norm, without_padding
from ridgeline.onnx.formulas.activations import activation_cost, fused_activation
from ridgeline.onnx.formulas.fits import (
    check_convolution,
    check_deformed,
    check_transposed,
    must,
)
from ridgeline.onnx.formulas.products import REQUANTISE, product
from ridgeline.onnx.formulas.registry import MS, Terms, Work, op
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor

NO_BIAS = 99  # a place that no operand has
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


@op("Conv", kind="conv")
def conv(call: NodeCall) -> Work:
    x, w = call.given(0), call.given(1)
    terms = conv_terms(x, w, call.out)
    check_convolution(call, x, w, call.out, bias=2)
    return product(terms, bias=call.has(2) * call.out.numel)


@op("ConvInteger", kind="conv")
def conv_integer(call: NodeCall) -> Work:
    x, w = call.given(0), call.given(1)
    terms = conv_terms(x, w, call.out)
    check_convolution(call, x, w, call.out, bias=NO_BIAS)
    return product(terms)


@op("QLinearConv", kind="conv")
def qlinear_conv(call: NodeCall) -> Work:
    """x, w and y each with a scale and a zero point; the product's scale, a bias."""
    x, w, out = call.given(0), call.given(3), call.out
    if call.attr("channels_last", 0):
        x, out = _channels_first(x), _channels_first(out)
    terms = conv_terms(x, w, out)
    check_convolution(call, x, w, out, bias=8)
    return product(terms, other_flops=(REQUANTISE + call.has(8)) * out.numel)


def _channels_first(x: Tensor) -> Tensor:
    return Tensor(x.name, (x.shape[0], x.shape[-1], *x.shape[1:-1]), x.elem, x.dtype)


@op("ConvTranspose", kind="conv")
@op("ConvTransposeWithDynamicPads", kind="conv", domain=MS)
def conv_transpose(call: NodeCall) -> Work:
    x, w = call.given(0), call.given(1)
    bias = 2 if call.op_type == "ConvTranspose" else 3
    terms = conv_terms(x, w, call.out, transposed=True)
    check_transposed(call, x, w, call.out, bias=bias)
    return product(terms, bias=call.has(bias) * call.out.numel)


@op("DeformConv", kind="conv")
def deform_conv(call: NodeCall) -> Work:
    """A convolution on bilinear samples: 7 FLOPs for each sampled value, one more with a mask."""
    x, w, out = call.given(0), call.given(1), call.out
    terms = conv_terms(x, w, out)
    check_convolution(call, x, w, out, bias=3)
    check_deformed(call, x, w, out)
    samples = x.shape[0] * x.shape[1] * prod(out.shape[2:]) * prod(w.shape[2:])
    per_sample = 7 + call.has(4)
    other = per_sample * samples + call.has(3) * out.numel
    return product(terms, other_flops=other)


@op("FusedConv", kind="conv", domain=MS)
def fused_conv(call: NodeCall) -> Work:
    work = _fused(call)
    check_convolution(call, call.given(0), call.given(1), call.out, bias=2)
    return work


def _fused(call: NodeCall) -> Work:
    """A bias, a sum with another tensor, an activation: each where it is given."""
    x, w, out = call.given(0), call.given(1), call.out
    flops, transcendentals = fused_activation(call)
    per_output = call.has(2) + call.has(3) + flops
    terms = conv_terms(x, w, out)
    n = out.numel
    return product(terms, other_flops=per_output * n, transcendentals=transcendentals * n)


@op("Conv", kind="conv", domain=NCHWC)
def blocked_conv(call: NodeCall) -> Work:
    """As FusedConv, on the channels of the network; padding is stored and moved, so it is bytes.

    onnxruntime writes a batch norm as one too, depthwise and without a kernel's size.
    """
    plain = without_padding(call)
    if is_batch_norm(call):
        n = plain.out.numel
        flops, transcendentals = fused_activation(call)
        return Work.per_element(n, BATCH_NORM + flops, transcendentals=transcendentals * n)
    return _fused(plain)


@op("NhwcConv NhwcFusedConv", kind="conv", domain=MS)
def nhwc_conv(call: NodeCall) -> Work:
    """Channels last, in the operands and perhaps in the weight: its sizes multiply alike."""
    x, w, out = call.given(0), call.given(1), call.out
    groups = call.whole("group", 1)
    channels = {w.shape[1] * groups, w.shape[-1] * groups}
    must(x.shape[-1] in channels, f"the weight is not for {x.shape[-1]} channels")
    must(min(out.shape[1:-1], default=1) > 0, "its result has no place")
    flops, transcendentals = fused_activation(call)
    per_weight = w.numel // max(w.shape[0], 1)
    terms: Terms = (("out", out.numel), ("(Cin/g)·K", per_weight))
    per_output = call.has(2) + call.has(3) + flops
    return product(
        terms, other_flops=per_output * out.numel, transcendentals=transcendentals * out.numel
    )


@op("CausalConvWithState", kind="conv")
@op("CausalConvWithState", kind="conv", domain=MS)
def causal_conv(call: NodeCall) -> Work:
    """Depthwise, on the sequence and the state before it."""
    w, out = call.given(1), call.out
    flops, transcendentals = activation_cost(str(call.attr("activation", "none")))
    n = out.numel
    return product(
        (("out", n), ("K", prod(w.shape[2:]))),
        other_flops=(call.has(2) + flops) * n,
        transcendentals=transcendentals * n,
    )

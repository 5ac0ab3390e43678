"""Pooling, interpolation and sampling. Each result reads a window of known size."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.onnx.blocked import NCHWC, without_padding
from ridgeline.onnx.formulas.fits import check_affine_grid
from ridgeline.onnx.formulas.registry import DEQUANTISE, FORMULAS, MS, QUANTISE, Work, op
from ridgeline.onnx.node import NodeCall


def _windows(call: NodeCall, window: int, *, per_result: int) -> Work:
    n = call.out.numel
    return Work(
        other_flops=n * (window + per_result) * call.is_float,
        factor=int(call.is_float),
        terms=(("n", n), ("window", window)),
        more=((per_result, (("n", n),)),) if per_result else (),
    )


def _kernel(call: NodeCall) -> int:
    return prod(int(k) for k in call.attr("kernel_shape", [1]))


@op("MaxPool", kind="pool")
@op("MaxpoolWithMask NhwcMaxPool", kind="pool", domain=MS)
def max_pool(call: NodeCall) -> Work:
    """A comparison for each place of the window, padding included."""
    return _windows(call, _kernel(call), per_result=0)


@op("AveragePool", kind="pool")
def average_pool(call: NodeCall) -> Work:
    return _windows(call, _kernel(call), per_result=1)


def _norms(call: NodeCall, window: int) -> Work:
    """A power and an addition for each place; a root for each result."""
    n, p = call.out.numel, call.attr("p", 2)
    powers = 0 if p in (1, 2) else n * window
    return Work(
        other_flops=2 * n * window,
        transcendentals=powers + (n if p != 1 else 0),
        factor=2,
        terms=(("n", n), ("window", window)),
    )


@op("LpPool", kind="pool")
def lp_pool(call: NodeCall) -> Work:
    return _norms(call, _kernel(call))


def _whole(call: NodeCall) -> int:
    return prod(call.x.shape[2:])


@op("GlobalMaxPool", kind="pool")
def global_max_pool(call: NodeCall) -> Work:
    return _windows(call, _whole(call), per_result=0)


@op("GlobalAveragePool", kind="pool")
def global_average_pool(call: NodeCall) -> Work:
    return _windows(call, _whole(call), per_result=1)


@op("GlobalLpPool", kind="pool")
def global_lp_pool(call: NodeCall) -> Work:
    return _norms(call, _whole(call))


@op("QLinearAveragePool QLinearGlobalAveragePool", kind="pool", domain=MS)
def qlinear_pool(call: NodeCall) -> Work:
    """Dequantised, averaged; each result requantised."""
    n = call.out.numel
    window = _kernel(call) if call.op_type == "QLinearAveragePool" else (call.x.numel // max(n, 1))
    each, last = DEQUANTISE + 1, 1 + QUANTISE
    return Work(
        other_flops=n * (each * window + last),
        factor=each,
        terms=(("n", n), ("window", window)),
        more=((last, (("n", n),)),),
    )


@op("MaxUnpool", kind="move")
def max_unpool(call: NodeCall) -> Work:
    """Values are put at their indices, zeros elsewhere."""
    return Work(read_bytes=sum(t.nbytes for t in call.inputs[:2]))


@op("MaxRoiPool", kind="pool")
def max_roi_pool(call: NodeCall) -> Work:
    n = call.out.numel
    return Work.per_element(n, 1)


@op("RoiAlign", kind="interpolate")
def roi_align(call: NodeCall) -> Work:
    """Four taps for each sampling point; two points a side where the ratio is adaptive."""
    n, ratio = call.out.numel, int(call.attr("sampling_ratio", 0))
    points = ratio * ratio if ratio > 0 else 4
    return Work.per_element(n, 8 * points)


@op("CropAndResize", kind="interpolate", domain=MS)
def crop_and_resize(call: NodeCall) -> Work:
    """One point for each result: four taps, or the nearest."""
    return _weighted_sum(call, 1 if call.attr("mode", "bilinear") == "nearest" else 4)


def _weighted_sum(call: NodeCall, taps: int) -> Work:
    """Of t taps: t products and t − 1 sums; a single one is copied."""
    n = call.out.numel
    per_element = 2 * taps - 1 if taps > 1 else 0
    read = sum(t.nbytes for t in call.inputs if t.is_float or t is call.x)
    return Work.per_element(n, per_element, read_bytes=read)


@op("Resize Upsample", kind="interpolate")
def resize(call: NodeCall) -> Work:
    """2 taps for each dimension that is resized linearly, 4 if cubic."""
    x, out = call.x, call.out
    resized = sum(a != b for a, b in zip(x.shape, out.shape, strict=True))
    mode = call.attr("mode", "nearest")
    taps = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}.get(mode, 1) ** resized
    return _weighted_sum(call, taps)


@op("GridSample", kind="interpolate")
def grid_sample(call: NodeCall) -> Work:
    """The taps' weighted sum; finding the weights, once for all channels, is left out."""
    mode = call.attr("mode", "linear")
    each = {"nearest": 1, "bicubic": 4, "cubic": 4}.get(mode, 2)
    return _weighted_sum(call, each ** max(len(call.x.shape) - 2, 0))


@op("AffineGrid", kind="interpolate")
def affine_grid(call: NodeCall) -> Work:
    """A row of the matrix with (x, y, 1) or (x, y, z, 1) for each point."""
    check_affine_grid(call)
    n, columns = call.out.numel, call.x.shape[-1]
    return Work(macs=n * columns, factor=2, terms=(("n", n), ("K", columns)))


@op("MaxPool AveragePool GlobalMaxPool GlobalAveragePool", kind="pool", domain=NCHWC)
@op("Upsample", kind="interpolate", domain=NCHWC)
def blocked(call: NodeCall) -> Work:
    """As the standard operator on the channels of the network; padding is moved with them."""
    work = FORMULAS["", call.op_type].function(without_padding(call))
    return replace(work, read_bytes=None)

"""Pooling, interpolation and sampling. Each result reads a window of known size."""

from __future__ import annotations

from math import prod

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Work, aten, register


def _windows(call: OpCall, per_window: int, *, divide: bool) -> Work:
    n = call.out.numel
    return Work(
        other_flops=n * per_window + n * divide,
        terms=(("n", n), ("window", per_window)),
    )


def _dims(call: OpCall) -> int:
    """How many dimensions are pooled: the digit in the operator's name."""
    return int(call.name.split("pool")[1][0])


def _kernel(call: OpCall) -> int:
    size = call.get("kernel_size")
    sizes = list(size) if isinstance(size, list | tuple) else [size]
    return int(prod(sizes if len(sizes) > 1 else sizes * _dims(call)))


@aten(
    "max_pool2d_with_indices max_pool3d_with_indices max_pool2d max_pool3d max_pool1d",
    "mkldnn_max_pool2d mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d",
    "fractional_max_pool2d fractional_max_pool3d",
    kind="pool",
)
def max_pool(call: OpCall) -> Work:
    """A comparison for each place of the window, padding included."""
    return _windows(call, _kernel(call), divide=False)


@aten("avg_pool2d avg_pool3d avg_pool1d", kind="pool")
def avg_pool(call: OpCall) -> Work:
    return _windows(call, _kernel(call), divide=True)


@aten(
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d mkldnn_adaptive_avg_pool2d",
    kind="pool",
)
def adaptive_avg_pool(call: OpCall) -> Work:
    n = call.out.numel
    visits = _adaptive_visits(call, call.inputs[0], call.out)
    return Work(other_flops=visits + n, terms=(("visits", visits),))


@aten("adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool1d", kind="pool")
def adaptive_max_pool(call: OpCall) -> Work:
    visits = _adaptive_visits(call, call.inputs[0], call.out)
    return Work(other_flops=visits, terms=(("visits", visits),))


def _adaptive_visits(call: OpCall, x: TensorMeta, out: TensorMeta) -> int:
    """Elements of all windows together; those of an uneven division differ in size and overlap."""
    dims = _dims(call)
    outer = prod(out.shape[:-dims])
    sizes = zip(x.shape[-dims:], out.shape[-dims:], strict=True)
    return outer * prod(_covered(size, windows) for size, windows in sizes)


def _covered(size: int, windows: int) -> int:
    """Lengths added up: window i spans floor(i·size/windows) to ceil((i + 1)·size/windows)."""
    return sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))


@aten(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward",
    "fractional_max_pool2d_backward fractional_max_pool3d_backward",
    kind="pool",
)
def max_pool_backward(call: OpCall) -> Work:
    """Each gradient is added at its index; the input's values are not read."""
    grad, indices = call.inputs[0], call.inputs[-1]
    return Work(
        other_flops=grad.numel,
        read_bytes=grad.nbytes + indices.nbytes,
        terms=(("n", grad.numel),),
    )


@aten("max_unpool2d max_unpool3d", kind="move")
def max_unpool(call: OpCall) -> Work:
    """Values are put at their indices, zeros elsewhere."""
    return Work()


@aten("avg_pool2d_backward avg_pool3d_backward", kind="pool")
def avg_pool_backward(call: OpCall) -> Work:
    """One division per gradient, one addition per window element; the input is not read."""
    grad = call.inputs[0]
    window = _kernel(call)
    return Work(
        other_flops=grad.numel * (window + 1),
        read_bytes=grad.nbytes,
        terms=(("n", grad.numel), ("window", window)),
    )


@aten("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward", kind="pool")
def adaptive_avg_pool_backward(call: OpCall) -> Work:
    """One division per gradient, one addition per window element; the input is not read."""
    grad, x = call.inputs[:2]
    visits = _adaptive_visits(call, x, grad)
    return Work(
        other_flops=grad.numel + visits, read_bytes=grad.nbytes, terms=(("visits", visits),)
    )


TAPS = {"nearest": 1, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}


def _upsample_names(suffix: str = "") -> list[str]:
    kinds = [
        "nearest1d",
        "nearest2d",
        "nearest3d",
        "linear1d",
        "bilinear2d",
        "trilinear3d",
        "bicubic2d",
    ]
    exact = ["_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"]
    smooth = ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
    return [f"aten::upsample_{kind}{suffix}" for kind in kinds] + [
        f"aten::{name}{suffix}" for name in exact + smooth
    ]


@register(_upsample_names(), kind="interpolate")
def upsample(call: OpCall) -> Work:
    return _weighted_sum(call, _taps(call.name))


def _weighted_sum(call: OpCall, taps: int) -> Work:
    """Of t taps: t products and t − 1 sums; a single one is copied."""
    per_element = 2 * taps - 1 if taps > 1 else 0
    n = call.out.numel
    return Work(other_flops=per_element * n, factor=per_element, terms=(("n", n),))


@register(_upsample_names("_backward"), kind="interpolate")
def upsample_backward(call: OpCall) -> Work:
    """Every gradient is shared out over its taps: a product and an addition each."""
    taps = _taps(call.name)
    n, per_element = call.inputs[0].numel, 2 * taps if taps > 1 else 1
    return Work(other_flops=per_element * n, factor=per_element, terms=(("n", n),))


def _taps(name: str) -> int:
    kind = next(k for k in ("nearest", "trilinear", "bilinear", "bicubic", "linear") if k in name)
    return TAPS[kind]


GRID_TAPS = {0: 4, 1: 1, 2: 16}  # bilinear, nearest, bicubic, in two dimensions


def _grid_taps(call: OpCall) -> int:
    taps = GRID_TAPS[call.get("interpolation_mode")]
    return 8 if taps == 4 and "3d" in call.name else taps


@aten("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback", kind="interpolate")
def grid_sampler(call: OpCall) -> Work:
    """The taps' weighted sum; finding the weights, once for all channels, is left out."""
    return _weighted_sum(call, _grid_taps(call))


@aten("grid_sampler_2d_backward grid_sampler_3d_backward", kind="interpolate")
def grid_sampler_backward(call: OpCall) -> Work:
    """For each tap a multiply-add into the input's gradient and one into the grid's."""
    taps = _grid_taps(call)
    n = call.inputs[0].numel
    per_element = 4 * taps if taps > 1 else 1
    return Work(other_flops=per_element * n, factor=per_element, terms=(("n", n),))


@aten("affine_grid_generator", kind="interpolate")
def affine_grid(call: OpCall) -> Work:
    """A small matrix product for each point of the grid: one row of (x, y, 1) or (x, y, z, 1)."""
    theta = call.inputs[0]
    n, columns = call.out.numel, theta.shape[-1]
    return Work(macs=n * columns, factor=2, terms=(("n", n), ("K", columns)))


@register(["torchvision::roi_align"], kind="interpolate")
def roi_align(call: OpCall) -> Work:
    return _roi_samples(call, call.out.numel)


@register(["torchvision::_roi_align_backward"], kind="interpolate")
def roi_align_backward(call: OpCall) -> Work:
    return _roi_samples(call, call.inputs[0].numel)


def _roi_samples(call: OpCall, n: int) -> Work:
    """Four taps for each sampling point; two points a side where the ratio is adaptive."""
    ratio = call.get("sampling_ratio")
    points = ratio * ratio if ratio > 0 else 4
    return Work(other_flops=8 * points * n, factor=8 * points, terms=(("n", n),))


@register(["torchvision::nms"], kind="boxes")
def nms(call: OpCall) -> Work:
    """All pairs of boxes in the worst case; 12 FLOPs for one overlap."""
    boxes = call.inputs[0].shape[0]
    pairs = boxes * (boxes - 1) // 2
    return Work(other_flops=12 * pairs, factor=12, terms=(("pairs", pairs),))


@register(
    ["torchvision::roi_pool", "torchvision::ps_roi_align", "torchvision::ps_roi_pool"], kind="pool"
)
def roi_pool(call: OpCall) -> Work:
    n = call.out.numel
    return Work(other_flops=n, terms=(("n", n),))

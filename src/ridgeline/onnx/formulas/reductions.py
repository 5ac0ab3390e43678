"""Reductions, scans, sorts, transforms and losses: cost by the elements read."""

from __future__ import annotations

from math import log2, prod

from ridgeline.count.per_element import SOFTMAX
from ridgeline.onnx.formulas.fits import check_axis
from ridgeline.onnx.formulas.registry import (
    DEQUANTISE,
    MS,
    QUANTISE,
    Work,
    log2_ceil,
    op,
    per_input,
)
from ridgeline.onnx.node import NodeCall

# FLOPs an element read, transcendentals a result, transcendentals an element read
REDUCTIONS = {
    "ReduceSum": (1, 0, 0), "ReduceMax": (1, 0, 0), "ReduceMin": (1, 0, 0),
    "ReduceProd": (1, 0, 0), "ReduceL1": (2, 0, 0), "ReduceL2": (2, 1, 0),
    "ReduceLogSum": (1, 1, 0), "ReduceLogSumExp": (3, 1, 1), "ReduceSumSquare": (2, 0, 0),
    "ArgMax": (1, 0, 0), "ArgMin": (1, 0, 0),
}  # fmt: skip


@op(" ".join(REDUCTIONS), kind="reduce")
def reduction(call: NodeCall) -> Work:
    return per_input(call, *REDUCTIONS[call.op_type])


@op("CumSum CumProd", kind="reduce")
def running(call: NodeCall) -> Work:
    check_axis(call, 1)
    return per_input(call, 1, 0, 0)


@op("ReduceMean", kind="reduce")
def mean(call: NodeCall) -> Work:
    n, results = call.x.numel, call.out.numel
    is_float = int(call.x.is_float)
    return Work(
        other_flops=(n + results) * is_float,
        factor=is_float,
        terms=(("n", n),),
        more=((1, (("results", results),)),),
    )


@op("QLinearReduceMean", kind="reduce", domain=MS)
def qlinear_mean(call: NodeCall) -> Work:
    """Dequantised, summed; each result divided and requantised."""
    n, results = call.x.numel, call.out.numel
    each, last = DEQUANTISE + 1, 1 + QUANTISE
    more = ((last, (("results", results),)),)
    return Work(other_flops=each * n + last * results, factor=each, terms=(("n", n),), more=more)


@op("ReduceSumInteger", kind="reduce", domain=MS)
def integer_sum(call: NodeCall) -> Work:
    return Work()


@op("TopK", kind="sort")
def topk(call: NodeCall) -> Work:
    """Each element is compared with a heap of k."""
    x = call.x
    axis = int(call.attr("axis", -1))
    k = call.out.shape[axis] if call.out.shape else 1
    comparisons = x.numel * max(log2_ceil(k), 1)
    is_float = int(x.is_float)
    terms = (("n·⌈log2(k)⌉", comparisons),)
    return Work(other_flops=comparisons * is_float, factor=is_float, terms=terms)


@op("Unique", kind="sort")
def unique(call: NodeCall) -> Work:
    return Work()


@op("NonMaxSuppression", kind="boxes")
def non_max_suppression(call: NodeCall) -> Work:
    """All pairs of boxes of each class in the worst case: 12 FLOPs for one overlap."""
    boxes, scores = call.given(0), call.given(1)
    count = boxes.shape[1]
    pairs = prod(scores.shape[:2]) * (count * (count - 1) // 2)
    return Work(other_flops=12 * pairs, factor=12, terms=(("pairs", pairs),))


def _fft(points: int, transforms: int, *, real: bool) -> int:
    """5·n·log2(n) for a complex transform of n points, half of that where one side is real."""
    flops = 5 * points * log2(points) * transforms if points > 1 else 0
    return round(flops / 2 if real else flops)


def _transformed(points: int, transforms: int, *, real: bool, windowed: int = 0) -> Work:
    flops = _fft(points, transforms, real=real)
    return Work(
        other_flops=flops + windowed,
        terms=(("5·n·log2(points)/2" if real else "5·n·log2(points)", flops),),
        more=((1, (("windowed", windowed),)),) if windowed else (),
    )


@op("DFT", kind="fft")
def dft(call: NodeCall) -> Work:
    """The last dimension holds real and imaginary parts."""
    x, out = call.x, call.out
    axis_operand = call.get(2)
    axis = int(call.attr("axis", 1)) if call.version < 20 else -2
    if axis_operand is not None and axis_operand.value is not None:
        axis = int(axis_operand.value.ravel()[0])
    big = max((x, out), key=lambda t: prod(t.shape[:-1]))
    points = big.shape[axis]
    transforms = prod(big.shape[:-1]) // max(points, 1)
    real = x.shape[-1] == 1 or bool(call.attr("onesided", 0))
    return _transformed(points, transforms, real=real)


@op("STFT", kind="fft")
def stft(call: NodeCall) -> Work:
    """Each frame: a product with the window, a transform."""
    signal, window, out = call.x, call.get(2), call.out
    length = call.get(3)
    points = window.numel if window is not None else 0
    if not points and length is not None and length.value is not None:
        points = int(length.value.ravel()[0])
    if not points:  # onesided gives half of the points and one
        points = 2 * (out.shape[-2] - 1) if call.attr("onesided", 1) else out.shape[-2]
    frames = out.shape[0] * out.shape[1]
    real = signal.shape[-1] == 1 or len(signal.shape) == 2
    windowed = frames * points * (1 if real else 2) * (window is not None)
    return _transformed(points, frames, real=real, windowed=windowed)


@op("Rfft Irfft", kind="fft", domain=MS)
def real_fft(call: NodeCall) -> Work:
    dims = int(call.attr("signal_ndim", 1))
    real = call.x if call.op_type == "Rfft" else call.out
    points = prod(real.shape[-dims:])
    transforms = real.numel // max(points, 1)
    return _transformed(points, transforms, real=True)


@op("NegativeLogLikelihoodLoss", kind="loss")
def nll_loss(call: NodeCall) -> Work:
    """Only the scores of the targets are read; one addition each, two more with weights."""
    scores, target = call.given(0), call.given(1)
    n = target.numel
    flops = 1 + 2 * call.has(2)
    read = scores.bytes_of(n) + sum(t.nbytes for t in call.inputs[1:])
    return Work.per_element(n, flops, read_bytes=read)


@op("SoftmaxCrossEntropyLoss", kind="loss")
def cross_entropy(call: NodeCall) -> Work:
    """A log-softmax of the scores, and the losses summed."""
    scores, target = call.given(0), call.given(1)
    n, targets, each = scores.numel, target.numel, 1 + 2 * call.has(2)
    return Work(
        other_flops=SOFTMAX * n + each * targets,
        transcendentals=n + targets,
        factor=SOFTMAX,
        terms=(("n", n),),
        more=((each, (("targets", targets),)),),
    )

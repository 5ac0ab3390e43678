"""Reductions, scans, sorts, transforms and losses: cost by the elements read."""

from __future__ import annotations

from math import log2, prod

from ridgeline.count.per_element import SOFTMAX
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops.registry import Work, op, per_input

# FLOPs an element read, transcendentals a result, transcendentals an element read
REDUCTIONS = {
    "ReduceSum": (1, 0, 0), "ReduceMax": (1, 0, 0), "ReduceMin": (1, 0, 0),
    "ReduceProd": (1, 0, 0), "ReduceL1": (2, 0, 0), "ReduceL2": (2, 1, 0),
    "ReduceLogSum": (1, 1, 0), "ReduceLogSumExp": (3, 1, 1), "ReduceSumSquare": (2, 0, 0),
    "ArgMax": (1, 0, 0), "ArgMin": (1, 0, 0), "CumSum": (1, 0, 0), "CumProd": (1, 0, 0),
}  # fmt: skip


@op(" ".join(REDUCTIONS), kind="reduce")
def reduction(call: NodeCall) -> Work:
    return per_input(call, *REDUCTIONS[call.op_type])


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


@op("TopK", kind="sort")
def topk(call: NodeCall) -> Work:
    """Each element is compared with a heap of k."""
    x, axis = call.x, call.int_attr("axis", -1)
    k = call.out.shape[axis] if call.out.shape else 1
    comparisons = x.numel * max(max(k - 1, 0).bit_length(), 1)
    is_float = int(x.is_float)
    terms = (("n·⌈log2(k)⌉", comparisons),)
    return Work(other_flops=comparisons * is_float, factor=is_float, terms=terms)


@op("Unique", kind="sort")
def unique(call: NodeCall) -> Work:
    return Work()


@op("NonMaxSuppression", kind="boxes")
def non_max_suppression(call: NodeCall) -> Work:
    """All pairs of boxes of each class in the worst case: 12 FLOPs for one overlap."""
    boxes, scores = call.operand(0), call.operand(1)
    count = boxes.shape[1]
    pairs = prod(scores.shape[:2]) * (count * (count - 1) // 2)
    return Work(other_flops=12 * pairs, factor=12, terms=(("pairs", pairs),))


def _transforms(points: int, count: int, *, real: bool, windowed: int = 0) -> Work:
    """5·n·log2(n) for a complex transform of n points, half of that where one side is real."""
    whole = 5 * points * log2(points) * count if points > 1 else 0
    flops = round(whole / 2 if real else whole)
    return Work(
        other_flops=flops + windowed,
        terms=(("5·n·log2(points)/2" if real else "5·n·log2(points)", flops),),
        more=((1, (("windowed", windowed),)),) if windowed else (),
    )


@op("DFT", kind="fft")
def dft(call: NodeCall) -> Work:
    """The last dimension holds real and imaginary parts."""
    x, out, operand = call.x, call.out, call.get(2)
    axis = call.int_attr("axis", 1) if call.version < 20 else -2
    if operand is not None and operand.first_value is not None:
        axis = int(operand.first_value)
    big = max((x, out), key=lambda t: prod(t.shape[:-1]))
    points = big.shape[axis]
    count = prod(big.shape[:-1]) // max(points, 1)
    real = x.shape[-1] == 1 or bool(call.attr("onesided", 0))
    return _transforms(points, count, real=real)


@op("STFT", kind="fft")
def stft(call: NodeCall) -> Work:
    """Each frame: a product with the window, a transform."""
    signal, window, length, out = call.x, call.get(2), call.get(3), call.out
    points = window.numel if window is not None else 0
    if not points and length is not None and length.first_value is not None:
        points = int(length.first_value)
    if not points:  # onesided gives half of the points and one
        points = 2 * (out.shape[-2] - 1) if call.attr("onesided", 1) else out.shape[-2]
    frames = out.shape[0] * out.shape[1]
    real = signal.shape[-1] == 1 or len(signal.shape) == 2
    windowed = frames * points * (1 if real else 2) * (window is not None)
    return _transforms(points, frames, real=real, windowed=windowed)


@op("NegativeLogLikelihoodLoss", kind="loss")
def nll_loss(call: NodeCall) -> Work:
    """Only the scores of the targets are read; one addition each, two more with weights."""
    scores, n = call.operand(0), call.operand(1).numel
    read = scores.bytes_of(n) + sum(t.nbytes for t in call.inputs[1:])
    return Work.per_element(n, 1 + 2 * call.has(2), read_bytes=read)


@op("SoftmaxCrossEntropyLoss", kind="loss")
def cross_entropy(call: NodeCall) -> Work:
    """A log-softmax of the scores, and the losses summed."""
    n, targets, each = call.operand(0).numel, call.operand(1).numel, 1 + 2 * call.has(2)
    return Work(
        other_flops=SOFTMAX * n + each * targets,
        transcendentals=n + targets,
        factor=SOFTMAX,
        terms=(("n", n),),
        more=((each, (("targets", targets),)),),
    )

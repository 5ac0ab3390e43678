"""Operators on data: moves, gathers, pooling, reductions, losses."""

from __future__ import annotations

from math import prod

from ridgeline.costs import data as costs
from ridgeline.costs.elementwise import DEQUANTISE, QUANTISE, cross_entropy
from ridgeline.costs.work import Work, require
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops import MS, Formula, add_rows


def _rearranged(call: NodeCall) -> Work:
    """Free; onnx accepts a shape that does not have as many elements as the operand."""
    x, out = call.get(0), call.out
    if x is not None and x.is_known and out.is_known:
        require(x.numel == out.numel, f"{x.numel} elements do not fit into {out.numel}")
    return costs.FREE


def _gather(call: NodeCall) -> Work:
    return costs.gather(call.operand(0), [call.operand(1)], call.out.numel)


def _scatter(call: NodeCall) -> Work:
    """The whole target is copied; a reduction is one FLOP for each update."""
    updates = call.operand(2)
    reduces = call.attr("reduction", "none") != "none" and updates.is_float
    return Work.per_element(updates.numel, int(reduces))


def _tensor_scatter(call: NodeCall) -> Work:
    """An update in place: only what is written moves."""
    return Work(
        read_bytes=sum(t.nbytes for t in call.inputs[1:]), written_bytes=call.operand(1).nbytes
    )


def _window_function(cosines: int) -> Formula:
    """So many cosines of each place, scaled and added."""
    return lambda c: Work.per_element(
        c.out.numel, 4 * cosines, transcendentals=cosines * c.out.numel
    )


def _mel_weights(call: NodeCall) -> Work:
    """At most a difference and a quotient for each weight, one logarithm for each edge."""
    edges = call.out.shape[-1] + 2 if call.out.shape else 0
    return Work.per_element(call.out.numel, 2, transcendentals=edges)


add_rows("view", {
    "Slice Split Expand BitCast Optional OptionalGetElement OptionalHasElement SequenceConstruct"
    " SequenceAt SequenceInsert SequenceErase SequenceEmpty SequenceLength SplitToSequence":
        lambda c: costs.FREE,
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose": _rearranged,
})  # fmt: skip
add_rows("constant", {"Shape Size Constant": lambda c: costs.FREE})
add_rows("move", {
    "Concat Pad Tile Cast CastLike Trilu Compress NonZero DepthToSpace SpaceToDepth"
    " ReverseSequence CenterCropPad ConcatFromSequence OneHot StringConcat StringSplit"
    " StringNormalizer RegexFullMatch TfIdfVectorizer ImageDecoder": lambda c: Work(),
    # windows overlap: each of their elements is added
    "Col2Im": lambda c: Work.per_element(c.x.numel, 1),
    # values are put at their indices, zeros elsewhere
    "MaxUnpool": lambda c: Work(read_bytes=sum(t.nbytes for t in c.inputs[:2])),
})  # fmt: skip
add_rows("move", {
    # each operand has a scale of its own: dequantised, and quantised with the result's
    "QLinearConcat": lambda c: Work.per_element(c.out.numel, DEQUANTISE + QUANTISE),
}, domain=MS)  # fmt: skip
add_rows("gather", {"Gather GatherElements GatherND": _gather})
add_rows("scatter", {
    "ScatterElements ScatterND Scatter": _scatter, "TensorScatter": _tensor_scatter,
})  # fmt: skip
add_rows("fill", {
    "Bernoulli Multinomial": lambda c: Work(),
    # written, never read; the arithmetic of random generators is not floating-point work
    "ConstantOfShape Range EyeLike RandomNormal RandomNormalLike RandomUniform RandomUniformLike":
        lambda c: Work(read_bytes=0),
    "HannWindow HammingWindow": _window_function(1),
    "BlackmanWindow": _window_function(2),
    "MelWeightMatrix": _mel_weights,
})  # fmt: skip

# ---------------------------------------------------------------- pooling and interpolation


def _window(call: NodeCall) -> int:
    """Elements that each result is made of."""
    if "Global" in call.op_type:
        return prod(call.x.shape[2:])
    return prod(call.int_list("kernel_shape") or [1])


def _pool(last: int) -> Formula:
    return lambda c: costs.pool_windows(c.out.numel, _window(c), last=last, is_float=c.is_float)


def _quantised_global_pool(call: NodeCall) -> Work:
    """Dequantised, averaged; each result requantised."""
    window = call.x.numel // max(call.out.numel, 1)
    return costs.pool_windows(call.out.numel, window, each=DEQUANTISE + 1, last=1 + QUANTISE)


def _interpolate(call: NodeCall, taps: int) -> Work:
    read = sum(t.nbytes for t in call.inputs if t.is_float or t is call.x)
    return costs.interpolate(call.out.numel, taps, read_bytes=read)


def _resize(call: NodeCall) -> Work:
    """2 taps for each dimension that is resized linearly, 4 if cubic."""
    resized = sum(a != b for a, b in zip(call.x.shape, call.out.shape, strict=True))
    each = {"linear": 2, "bilinear": 2, "cubic": 4}.get(call.attr("mode", "nearest"), 1)
    return _interpolate(call, each**resized)


def _grid_sample(call: NodeCall) -> Work:
    each = {"nearest": 1, "bicubic": 4, "cubic": 4}.get(call.attr("mode", "linear"), 2)
    return _interpolate(call, each ** max(len(call.x.shape) - 2, 0))


def _suppress_boxes(call: NodeCall) -> Work:
    """Of each class."""
    classes = prod(call.operand(1).shape[:2])
    return costs.suppress_boxes(call.operand(0).shape[1], times=classes)


add_rows("pool", {
    "MaxPool GlobalMaxPool": _pool(0),
    "AveragePool GlobalAveragePool": _pool(1),
    "LpPool GlobalLpPool": lambda c: costs.lp_pool(c.out.numel, _window(c), c.attr("p", 2)),
    "MaxRoiPool": lambda c: Work.per_element(c.out.numel, 1),
})  # fmt: skip
add_rows("pool", {"QLinearGlobalAveragePool": _quantised_global_pool}, domain=MS)
add_rows("interpolate", {
    "RoiAlign": lambda c: costs.roi_align(c.out.numel, c.int_attr("sampling_ratio", 0)),
    "Resize Upsample": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": lambda c: costs.affine_grid(c.out.numel, c.x.shape[-1]),
})  # fmt: skip
add_rows("boxes", {"NonMaxSuppression": _suppress_boxes})

# ---------------------------------------------------------------- reductions, transforms, losses


def _reduction(flops: int, per_result: int = 0, each: int = 0) -> Formula:
    return lambda c: costs.reduction(c.x, c.out, flops, per_result, each)


def _topk(call: NodeCall) -> Work:
    axis = call.int_attr("axis", -1)
    return costs.topk(call.x, call.out.shape[axis] if call.out.shape else 1)


def _dft(call: NodeCall) -> Work:
    """The last dimension holds real and imaginary parts."""
    x, out, operand = call.x, call.out, call.get(2)
    axis = call.int_attr("axis", 1) if call.version < 20 else -2
    if operand is not None and operand.first_value is not None:
        axis = int(operand.first_value)
    big = max((x, out), key=lambda t: prod(t.shape[:-1]))
    points = big.shape[axis]
    count = prod(big.shape[:-1]) // max(points, 1)
    is_real = x.shape[-1] == 1 or bool(call.attr("onesided", 0))
    return costs.fourier_transform(points, count, is_real=is_real)


def _stft(call: NodeCall) -> Work:
    """Each frame: a product with the window, a transform."""
    signal, window, length, out = call.x, call.get(2), call.get(3), call.out
    points = window.numel if window is not None else 0
    if not points and length is not None and length.first_value is not None:
        points = int(length.first_value)
    if not points:  # onesided gives half of the points and one
        points = 2 * (out.shape[-2] - 1) if call.attr("onesided", 1) else out.shape[-2]
    frames = out.shape[0] * out.shape[1]
    is_real = signal.shape[-1] == 1 or len(signal.shape) == 2
    windowed = frames * points * (1 if is_real else 2) * (window is not None)
    return costs.fourier_transform(points, frames, is_real=is_real, windowed=windowed)


def _nll_loss(call: NodeCall) -> Work:
    """Only the scores of the targets are read; one addition each, two more with weights."""
    scores, n = call.operand(0), call.operand(1).numel
    read = scores.bytes_of(n) + sum(t.nbytes for t in call.inputs[1:])
    return Work.per_element(n, 1 + 2 * call.has(2), read_bytes=read)


add_rows("reduce", {
    "ReduceSum ReduceMax ReduceMin ReduceProd ArgMax ArgMin CumSum CumProd": _reduction(1),
    "ReduceL1 ReduceSumSquare": _reduction(2),
    "ReduceL2": _reduction(2, 1),
    "ReduceLogSum": _reduction(1, 1),
    "ReduceLogSumExp": _reduction(3, 1, 1),
    "ReduceMean": lambda c: costs.mean(c.x, c.out.numel, is_float=c.x.is_float),
})  # fmt: skip
add_rows("sort", {"TopK": _topk, "Unique": lambda c: Work()})
add_rows("fft", {"DFT": _dft, "STFT": _stft})
add_rows("loss", {
    "NegativeLogLikelihoodLoss": _nll_loss,
    "SoftmaxCrossEntropyLoss": lambda c: cross_entropy(
        c.operand(0).numel, c.operand(1).numel, each=1 + 2 * c.has(2)
    ),
})  # fmt: skip

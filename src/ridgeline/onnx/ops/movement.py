"""Operators that move data without arithmetic, and those that cost nothing at all."""

from __future__ import annotations

from ridgeline.onnx.node import MalformedError, NodeCall
from ridgeline.onnx.ops.registry import DEQUANTISE, MS, QUANTISE, Work, check_shape, free, op

op(
    "Slice Split Expand BitCast Optional OptionalGetElement OptionalHasElement SequenceConstruct"
    " SequenceAt SequenceInsert SequenceErase SequenceEmpty SequenceLength SplitToSequence",
    kind="view",
)(free)
op("Shape Size Constant", kind="constant")(free)


@op("Identity Reshape Flatten Squeeze Unsqueeze Transpose", kind="view")
def rearranged(call: NodeCall) -> Work:
    """Free; onnx accepts a shape that does not have as many elements as the operand."""
    x, out = call.get(0), call.out
    if x is not None and x.is_known and out.is_known and x.numel != out.numel:
        raise MalformedError(f"{x.numel} elements do not fit into {out.numel}")
    return free(call)


@op(
    "Concat Pad Tile Cast CastLike Trilu Compress NonZero DepthToSpace SpaceToDepth"
    " ReverseSequence CenterCropPad ConcatFromSequence OneHot StringConcat StringSplit"
    " StringNormalizer RegexFullMatch TfIdfVectorizer ImageDecoder",
    kind="move",
)
@op("Bernoulli Multinomial", kind="fill")
def move(call: NodeCall) -> Work:
    """Each element is read once and written once."""
    return Work()


@op("QLinearConcat", kind="move", domain=MS)
def qlinear_concat(call: NodeCall) -> Work:
    """Each operand has a scale of its own: dequantised, and quantised with the result's."""
    return Work.per_element(call.out.numel, DEQUANTISE + QUANTISE)


@op("Gather GatherElements GatherND", kind="gather")
def gather(call: NodeCall) -> Work:
    """Reads the rows or elements that are named, and the indices; not the table."""
    table, indices = call.operand(0), call.operand(1)
    return Work(read_bytes=table.bytes_of(call.out.numel) + indices.nbytes)


@op("ScatterElements ScatterND Scatter", kind="scatter")
def scatter(call: NodeCall) -> Work:
    """The whole target is copied; a reduction is one FLOP for each update."""
    updates = call.operand(2)
    if call.op_type != "ScatterND":
        check_shape(call, 2, call.operand(1).shape)
    reduces = call.attr("reduction", "none") != "none" and updates.is_float
    return Work.per_element(updates.numel, int(reduces))


@op("TensorScatter", kind="scatter")
def tensor_scatter(call: NodeCall) -> Work:
    """An update in place: only what is written moves."""
    update = call.operand(1)
    indices = call.get(2)
    read = update.nbytes + (indices.nbytes if indices is not None else 0)
    return Work(read_bytes=read, written_bytes=update.nbytes)


@op("Col2Im", kind="move")
def col2im(call: NodeCall) -> Work:
    """Windows overlap: each of their elements is added."""
    return Work.per_element(call.x.numel, 1)


@op(
    "ConstantOfShape Range EyeLike RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    kind="fill",
)
def fill(call: NodeCall) -> Work:
    """Written, never read; the arithmetic of random generators is not floating-point work."""
    return Work(read_bytes=0)


@op("HannWindow HammingWindow BlackmanWindow", kind="fill")
def window(call: NodeCall) -> Work:
    """A cosine (Blackman: two) of each place, scaled and added."""
    n, cosines = call.out.numel, 2 if call.op_type == "BlackmanWindow" else 1
    return Work.per_element(n, 4 * cosines, transcendentals=cosines * n)


@op("MelWeightMatrix", kind="fill")
def mel_weights(call: NodeCall) -> Work:
    """At most a difference and a quotient for each weight, one logarithm for each edge."""
    edges = call.out.shape[-1] + 2 if call.out.shape else 0
    return Work.per_element(call.out.numel, 2, transcendentals=edges)

"""Operators that move data without arithmetic, and those that cost nothing at all."""

from __future__ import annotations

from ridgeline.onnx.blocked import NCHWC
from ridgeline.onnx.formulas.fits import (
    check_blocks,
    check_indices,
    check_reversed,
    check_rows,
    check_scatter,
    check_scatter_nd,
)
from ridgeline.onnx.formulas.registry import DEQUANTISE, MS, QUANTISE, Work, free, op
from ridgeline.onnx.node import MalformedError, NodeCall
from ridgeline.onnx.shapes import packed_bits

VIEWS = (
    "Slice Split Expand BitCast Optional OptionalGetElement OptionalHasElement SequenceConstruct"
    " SequenceAt SequenceInsert SequenceErase SequenceEmpty SequenceLength SplitToSequence"
)
op(VIEWS, kind="view")(free)
op("Shape Size Constant", kind="constant")(free)
op("ExpandDims", kind="view", domain=MS)(free)


@op("Identity Reshape Flatten Squeeze Unsqueeze Transpose", kind="view")
def rearranged(call: NodeCall) -> Work:
    """Free; onnx does not see when a shape that the file fixes has no place for all elements."""
    x, out = call.get(0), call.out
    if x is not None and x.is_known and out.is_known and x.numel != out.numel:
        raise MalformedError(f"{x.numel} elements do not fit into {out.numel}")
    return free(call)


@op(
    "Concat Pad Tile Cast CastLike Trilu Compress NonZero"
    " CenterCropPad ConcatFromSequence OneHot StringConcat StringSplit StringNormalizer"
    " RegexFullMatch TfIdfVectorizer ImageDecoder",
    kind="move",
)
@op(
    "UnfoldTensor RemovePadding RestorePadding Tokenizer MurmurHash3 NGramRepeatBlock",
    kind="move",
    domain=MS,
)
@op("ReorderInput ReorderOutput", kind="move", domain=NCHWC)
def move(call: NodeCall) -> Work:
    """Each element is read once and written once."""
    return Work()


@op("DepthToSpace SpaceToDepth", kind="move")
def blocks(call: NodeCall) -> Work:
    check_blocks(call)
    return Work()


@op("ReverseSequence", kind="move")
def reversed_sequences(call: NodeCall) -> Work:
    check_reversed(call)
    return Work()


@op("QLinearConcat", kind="move", domain=MS)
def qlinear_concat(call: NodeCall) -> Work:
    """Each operand has a scale of its own: dequantised, and quantised with the result's."""
    return Work.per_element(call.out.numel, DEQUANTISE + QUANTISE)


@op("Gather GatherElements GatherND", kind="gather")
@op("TorchEmbedding", kind="gather", domain=MS)
def gather(call: NodeCall) -> Work:
    """Reads the rows or elements that are named, and the indices; not the table."""
    table, indices = call.given(0), call.given(1)
    if call.op_type == "GatherElements":  # onnx does not look
        check_indices(call)
    if not call.domain and call.op_type != "GatherND":
        check_rows(call)
    return Work(read_bytes=table.bytes_of(call.out.numel) + indices.nbytes)


@op("GatherBlockQuantized", kind="gather", domain=MS)
def gather_quantized(call: NodeCall) -> Work:
    """The named rows, dequantised: a scale for each number, a zero point where there is one."""
    n, table, indices = call.out.numel, call.given(0), call.given(1)
    flops = 1 + call.has(3)
    read = (n * packed_bits(call, 0) + 7) // 8 + indices.nbytes
    axis = call.whole("gather_axis", 0) % len(table.shape)
    for blocks in (call.given(2), call.get(3)):
        if blocks is not None:
            of_row = blocks.numel // max(blocks.shape[axis], 1)
            read += blocks.bytes_of(min(indices.numel, blocks.shape[axis]) * of_row)
    return Work.per_element(n, flops, read_bytes=read)


@op("ScatterElements ScatterND Scatter", kind="scatter")
def scatter(call: NodeCall) -> Work:
    """The whole target is copied; a reduction is one FLOP for each update."""
    updates = call.given(2)
    (check_scatter_nd if call.op_type == "ScatterND" else check_scatter)(call)
    reduces = call.attr("reduction", "none") != "none" and updates.is_float
    return Work.per_element(updates.numel, int(reduces))


@op("TensorScatter", kind="scatter")
def tensor_scatter(call: NodeCall) -> Work:
    """An update in place: only what is written moves."""
    update = call.given(1)
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


@op("Bernoulli Multinomial", kind="fill")
def drawn(call: NodeCall) -> Work:
    """The distribution is read."""
    return Work()


@op("HannWindow HammingWindow BlackmanWindow", kind="fill")
def window(call: NodeCall) -> Work:
    """A cosine (Blackman: two) of each place, scaled and added."""
    n, cosines = call.out.numel, 2 if call.op_type == "BlackmanWindow" else 1
    flops = 4 * cosines
    return Work.per_element(n, flops, transcendentals=cosines * n)


@op("MelWeightMatrix", kind="fill")
def mel_weights(call: NodeCall) -> Work:
    """At most a difference and a quotient for each weight, one logarithm for each edge."""
    n = call.out.numel
    edges = call.out.shape[-1] + 2 if call.out.shape else 0
    return Work.per_element(n, 2, transcendentals=edges)

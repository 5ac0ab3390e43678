"""Shapes of onnxruntime's rarer operators, and of those that it keeps from before ONNX 1.0."""

from __future__ import annotations

from ridgeline.onnx.dtypes import BOOL, FP32, INT8, INT32, UINT32
from ridgeline.onnx.node import MalformedError, NodeCall, Shape
from ridgeline.onnx.rules import Rule, Type, like
from ridgeline.onnx.shapes import branches, broadcast, delta_sizes, packed_widths

SAME = frozenset({
    "BiasSoftmax", "BranchwiseRMSNorm", "GatedAdd", "GatedRMSNorm", "HyperConnectionPostMix",
    "MRotaryEmbedding", "QOrderedGelu", "QOrderedLayerNormalization", "SampleOp", "ScaledSiLU",
    "Affine", "ImageScaler", "MemcpyFromHost", "MemcpyToHost", "ParametricSoftplus", "Scale",
    "ScaledTanh", "SimplifiedLayerNormalization",  # in the standard's domain, all from Affine on
})  # fmt: skip


def rare(call: NodeCall) -> list[Type | None]:
    """Element types and shapes of the results; none where no rule is here."""
    if not call.inputs or not all(t.is_known for t in call.inputs):
        return []
    if call.op_type in SAME:
        return [like(call.x)]
    rule = RULES.get(call.op_type) if call.domain else STANDARD.get(call.op_type)
    return rule(call) if rule is not None else []


def _all_finite(_: NodeCall) -> list[Type | None]:
    return [(BOOL, ())]


def _complex(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, broadcast(call.x.shape, call.given(1).shape))]


def _mul_integer(call: NodeCall) -> list[Type | None]:
    return [(INT32, broadcast(call.x.shape, call.given(2).shape))]


def _where(call: NodeCall) -> list[Type | None]:
    """QLinearWhere: the condition, and each operand with its scale and zero point."""
    either = broadcast(call.given(1).shape, call.given(4).shape)
    return [(call.given(1).elem, broadcast(call.x.shape, either))]


def _hash(call: NodeCall) -> list[Type | None]:
    return [(UINT32 if call.whole("positive", 1) else INT32, call.x.shape)]


def _quantised(call: NodeCall) -> list[Type | None]:
    return [(INT8, call.x.shape)]


def _dequantised(call: NodeCall) -> list[Type | None]:
    return [(call.whole("to", FP32), call.x.shape)]


def _integer_sum(call: NodeCall) -> list[Type | None]:
    x, keep = call.x, call.whole("keepdims", 1)
    axes = {axis % len(x.shape) for axis in call.wholes("axes") or range(len(x.shape))}
    shape = [1 if n in axes else size for n, size in enumerate(x.shape) if keep or n not in axes]
    return [(INT32 if x.elem == INT8 else UINT32, tuple(shape))]


def _fft(call: NodeCall) -> list[Type | None]:
    """n real points are n/2 + 1 complex ones."""
    x = call.x
    if call.whole("signal_ndim", 1) != 1:
        return []
    if call.op_type == "Rfft":
        return [(x.elem, (*x.shape[:-1], x.shape[-1] // 2 + 1, 2))]
    return [(x.elem, (*x.shape[:-2], 2 * (x.shape[-2] - 1)))]


def _padded(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, (*call.given(1).shape, call.x.shape[-1]))]


def _turned_pair(call: NodeCall) -> list[Type | None]:
    return [like(call.given(1)), like(call.given(3))]


def _quantised_lstm(call: NodeCall) -> list[Type | None]:
    """The weights are turned: (directions, input, 4·hidden)."""
    (length, batch, _), (directions, hidden, _) = call.x.shape, call.given(2).shape
    last = (call.x.elem, (directions, batch, hidden))
    return [(call.x.elem, (length, directions, batch, hidden)), last, last]


def _linear_attention(call: NodeCall) -> list[Type | None]:
    q, k, v = call.x, call.given(1), call.given(2)
    heads, kv_heads = call.whole("q_num_heads", 1), call.whole("kv_num_heads", 1)
    dim, value_dim = k.shape[-1] // kv_heads, v.shape[-1] // kv_heads
    state, window = (q.shape[0], kv_heads, dim, value_dim), call.whole("state_window", 0)
    past = call.get(3)
    return [
        (q.elem, (*q.shape[:2], max(heads, kv_heads) * value_dim)),
        (past.elem if past is not None else q.elem, (window, *state) if window else state),
    ]


def _bitmask(call: NodeCall) -> list[Type | None]:
    """32 elements to a word of the mask."""
    return [like(call.x), (UINT32, (-(-call.x.numel // 32),))]


def _gates(call: NodeCall) -> list[Type | None]:
    return [like(call.x), like(call.x)]


def _ordered_matmul(call: NodeCall) -> list[Type | None]:
    """The weight is (K, N) or turned round, by an order that its shape does not show."""
    x, weight = call.x, call.given(2)
    return [(x.elem, (*x.shape[:-1], weight.numel // x.shape[-1]))]


def _rows_of_weight(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, (*call.x.shape[:-1], call.given(1).shape[0]))]


def _fused_n_bits(call: NodeCall) -> list[Type | None]:
    """Each product, but for an MLP's, which are multiplied; then the sum with the skip."""
    x, widths = call.x, packed_widths(call)
    if call.op_type == "MatMulNBitsMlp":
        widths = widths[:1]
    return [*((x.elem, (*x.shape[:-1], n)) for n in widths), like(x)]


def _ordered_attention(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, (*call.x.shape[:-1], call.given(7).shape[-1]))]


def _gated_bias(call: NodeCall) -> list[Type | None]:
    """Of padded queries; of packed ones the offsets have the batch and the length."""
    query, offsets = call.x, call.get(6)
    batch, length = offsets.shape if offsets is not None else query.shape[:2]
    return [(query.elem, (batch, call.whole("num_heads", 1), length, length))]


def _position_bias(call: NodeCall) -> list[Type | None]:
    lengths = [call.given(place).value for place in (1, 2)]
    if lengths[0] is None or lengths[1] is None:
        return []
    queries, keys = (int(value.ravel()[0]) for value in lengths if value is not None)
    return [(call.x.elem, (1, call.x.shape[1], queries, keys))]


def _hashes(call: NodeCall) -> list[Type | None]:
    orders = call.whole("max_ngram_size", 2) - 1
    columns = orders * call.whole("n_head_per_ngram", 1)
    return [(call.x.elem, (*call.x.shape, columns)), (call.x.elem, (call.x.shape[0], orders))]


def _packed_causal_conv(call: NodeCall) -> list[Type | None]:
    return [like(call.x), like(call.given(4))]


def _causal_conv(call: NodeCall) -> list[Type | None]:
    """The state has the places before the first one; of one dimension, channels first or last."""
    x, w = call.x, call.given(1)
    if call.whole("ndim", 1) != 1 or call.whole("state_window", 0):
        return [like(x)]
    kept = (w.shape[-1] - 1) * call.whole("dilation", 1)
    if call.whole("channels_last", 0):
        return [like(x), (x.elem, (x.shape[0], kept, *x.shape[2:]))]
    return [like(x), (x.elem, (*x.shape[:2], kept))]


def _mixed(call: NodeCall) -> list[Type | None]:
    _, size = branches(call)
    rows = call.x.shape[:-1] if call.whole("num_branches", 0) else call.x.shape[:-2]
    return [(call.x.elem, (*rows, size))]


def _delta_net(call: NodeCall) -> list[Type | None]:
    sizes, state = delta_sizes(call), call.get(6)
    rows = call.x.shape[:-2] if call.has(1) else call.x.shape[:-1]
    out = (call.x.elem, (*rows, max(sizes.heads, sizes.value_heads), sizes.value_dim))
    return [out, like(state) if state is not None else None]


def _crop(call: NodeCall) -> list[Type | None]:
    """By a border on each side, or to a height and a width."""
    border, scale = call.wholes("border"), call.wholes("scale")
    *outer, height, width = call.x.shape
    inner: Shape
    if scale:
        inner = (scale[0], scale[1])
    elif len(border) == 4:
        inner = (height - border[1] - border[3], width - border[0] - border[2])
    else:
        raise MalformedError("its border is not four numbers")
    return [(call.x.elem, (*outer, *inner))]


def _dynamic_slice(call: NodeCall) -> list[Type | None]:
    """As Slice with a step of 1: starts, ends, axes."""
    numbers = [t.value for t in call.inputs[1:]]
    known = [[int(n) for n in value.ravel()] for value in numbers if value is not None]
    if len(known) < len(numbers):
        return []
    starts, ends, axes = known if len(known) > 2 else [*known, [*range(len(known[0]))]]
    shape = list(call.x.shape)
    for start, end, axis in zip(starts, ends, axes, strict=True):
        shape[axis] = len(range(*slice(start, end).indices(call.x.shape[axis])))
    return [(call.x.elem, tuple(shape))]


RULES: dict[str, Rule] = {
    "IsAllFinite": _all_finite, "ComplexMul": _complex, "ComplexMulConj": _complex,
    "MulInteger": _mul_integer, "BitmaskDropout": _bitmask, "LinearAttentionGate": _gates,
    "EngramGate": _gates, "QOrderedMatMul": _ordered_matmul,
    "MatMulBlockQuantizedFp8Weight": _rows_of_weight,
    "MatMulBlockQuantizedFp4Weight": _rows_of_weight, "MatMulNBitsMlp": _fused_n_bits,
    "MatMulNBitsQkv": _fused_n_bits, "QOrderedAttention": _ordered_attention,
    "GatedRelativePositionBias": _gated_bias, "RelativePositionBias": _position_bias,
    "NGramHashMapping": _hashes, "VarlenCausalConvWithState": _packed_causal_conv,
    "CausalConvWithState": _causal_conv, "HyperConnectionPreMix": _mixed,
    "GatedDeltaNet": _delta_net, "QLinearWhere": _where, "MurmurHash3": _hash,
    "QuantizeWithOrder": _quantised, "DequantizeWithOrder": _dequantised,
    "ReduceSumInteger": _integer_sum, "Rfft": _fft, "Irfft": _fft, "RestorePadding": _padded,
    "GemmaRotaryEmbedding": _turned_pair, "DynamicQuantizeLSTM": _quantised_lstm,
    "LinearAttention": _linear_attention,
}  # fmt: skip
# from before ONNX 1.0, in the standard's domain
STANDARD: dict[str, Rule] = {"Crop": _crop, "DynamicSlice": _dynamic_slice}

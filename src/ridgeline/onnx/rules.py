"""Shapes of onnxruntime's operators, which onnx does not know."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.onnx.dtypes import BOOL, FP32, INT32, UINT32
from ridgeline.onnx.infer import make
from ridgeline.onnx.node import NodeCall, Shape, Tensor
from ridgeline.onnx.shapes import (
    broadcast,
    cached,
    grouped_dim,
    grouped_keys,
    head_count,
    head_widths,
    packed_bits,
    packed_past,
    pooled,
    qkv_widths,
    turned,
)

Type = tuple[int, Shape]
Rule = Callable[[NodeCall], list[Type | None]]

SAME = (
    "Gelu FastGelu BiasGelu QuickGelu GroupNorm RotaryEmbedding BiasAdd"
    " SimplifiedLayerNormalization QLinearSigmoid QLinearLeakyRelu"
    " QLinearSoftmax ScaledTanh MoE QMoE Inverse Affine"
)


def contributed(call: NodeCall) -> list[Type | None]:
    """Element types and shapes of the results of one of onnxruntime's operators."""
    rule = RULES.get(call.op_type) if call.domain else None
    return rule(call) if rule is not None and all(t.is_known for t in call.inputs) else []


def like(x: Tensor) -> Type:
    """The type of a result that has an operand's."""
    return x.elem, x.shape


def _same(call: NodeCall) -> list[Type | None]:
    return [like(call.x)]


def _twice(call: NodeCall) -> list[Type | None]:
    return [like(call.x), like(call.x)]


def _with_mask(call: NodeCall) -> list[Type | None]:
    """What a dropout keeps: a truth value an element, or a bit."""
    if call.op_type == "BitmaskBiasDropout":
        return [like(call.x), (UINT32, (-(-call.x.numel // 32),))]
    return [like(call.x), (BOOL, call.x.shape)]


def _quantised_pair(call: NodeCall) -> list[Type | None]:
    """Each operand comes with its scale and zero point."""
    return [(call.x.elem, broadcast(call.x.shape, call.given(3).shape))]


def _like_scores(call: NodeCall) -> list[Type | None]:
    """NGramRepeatBlock: tokens so far, scores of the next; the scores are changed."""
    return [like(call.given(1))]


def _product(a: Shape, b: Shape) -> Shape:
    if len(a) == 1 or len(b) == 1:
        return (*a[:-1], *b[:-2], *(b[-1:] if len(b) > 1 else ()))
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _matmul(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, _product(turned(call, 0, "A"), turned(call, 1, "B")))]


def _float8(call: NodeCall) -> list[Type | None]:
    """The type of the result is named; by default it is fp32."""
    shape = _product(turned(call, 0, "A"), turned(call, 1, "B"))
    return [(call.whole("dtype", FP32), shape)]


def _matmul_to(elem: int) -> Rule:
    return lambda call: [(elem, _product(call.x.shape, call.given(1).shape))]


def _qgemm(call: NodeCall) -> list[Type | None]:
    zero_point = call.get(8)
    elem = zero_point.elem if zero_point is not None else FP32
    return [(elem, _product(turned(call, 0, "A"), turned(call, 3, "B")))]


def _n_bits(call: NodeCall) -> list[Type | None]:
    """N features, or K where the weight is used as it is stored (MatMulBnb4's transB=0)."""
    columns = call.whole("N" if call.whole("transB", 1) else "K", 0)
    return [(call.x.elem, (*call.x.shape[:-1], columns))]


def _fp_q4(call: NodeCall) -> list[Type | None]:
    """The third operand is the weight's shape."""
    shape = call.given(2).value
    return [None if shape is None else (call.x.elem, (*call.x.shape[:-1], int(shape[1])))]


def _skip_norm(call: NodeCall) -> list[Type | None]:
    x = call.x
    groups = (FP32, (*x.shape[:-1], 1))
    return [like(x), groups, groups, like(x)]


def _embed_norm(call: NodeCall) -> list[Type | None]:
    ids, table = call.given(0), call.given(2)
    hidden = (*ids.shape, table.shape[-1])
    return [(table.elem, hidden), (INT32, ids.shape[:1]), (table.elem, hidden)]


def _attention(call: NodeCall) -> list[Type | None]:
    x, w = call.given(0), call.given(1)
    elem = call.given(3).elem if call.op_type == "QAttention" else x.elem  # the scale's type
    widths = qkv_widths(call, w)
    heads = head_count(call)
    past = packed_past(call.get(8 if call.op_type == "QAttention" else 4))
    _, length = cached(call, past, x.shape[-2])
    present = (2, x.shape[0], heads, length, widths[0] // heads)
    return [(elem, (*x.shape[:-1], widths[2])), (elem, present)]


def _multi_head(call: NodeCall) -> list[Type | None]:
    q, k, v = call.given(0), call.get(1), call.get(2)
    heads = head_count(call)
    if len(q.shape) == 5:
        batch, tokens, heads, _, dim = q.shape
        keys, width = tokens, heads * dim
    elif len(q.shape) == 4:
        batch, heads, tokens, dim = q.shape
        keys, width = tokens, heads * dim
    else:
        batch, tokens, _ = q.shape
        dim, value_dim = head_widths(call, heads)
        keys, width = tokens, heads * value_dim
    if k is not None:
        keys = k.shape[2] if len(k.shape) == 4 else k.shape[1]
    if v is not None:
        width = v.shape[1] * v.shape[3] if len(v.shape) == 4 else v.shape[-1]
    past = call.get(5 if call.op_type.startswith("Decoder") else 6)
    before, length = cached(call, past.shape[-2] if past is not None else 0, keys)
    present = [(q.elem, (batch, heads, length, size)) for size in (dim, width // heads)]
    scores = (q.elem, (batch, heads, tokens, before + keys))
    return [(q.elem, (batch, tokens, width)), *present, scores]


def _group_query(call: NodeCall) -> list[Type | None]:
    q = call.given(0)
    heads, kv_heads = int(call.attr("num_heads", 1)), int(call.attr("kv_num_heads", 1))
    batch, tokens, _ = q.shape
    dim = grouped_dim(call)
    keys, length = grouped_keys(call)
    present = (q.elem, (batch, kv_heads, length, dim))
    scores = (q.elem, (batch, heads, tokens, keys))
    return [(q.elem, (batch, tokens, heads * dim)), present, present, scores]


def _packed_heads(call: NodeCall) -> list[Type | None]:
    q, v = call.given(0), call.get(2)
    if len(q.shape) == 4:
        return [(q.elem, (q.shape[0], q.shape[1] * q.shape[3]))]
    return [(q.elem, (q.shape[0], v.shape[-1] if v is not None else q.shape[-1]))]


def _packed_attention(call: NodeCall) -> list[Type | None]:
    x, w = call.given(0), call.given(1)
    widths = qkv_widths(call, w)
    return [(x.elem, (x.shape[0], widths[2]))]


def _half(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, (*call.x.shape[:-1], call.x.shape[-1] // 2))]


def _joined(call: NodeCall) -> list[Type | None]:
    """QLinearConcat: the result's scale and zero point, then each operand with its own."""
    parts = call.inputs[2::3]
    axis = int(call.attr("axis", 0)) % len(parts[0].shape)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].elem, tuple(shape))]


def _global_pool(call: NodeCall) -> list[Type | None]:
    shape = call.x.shape
    ones = (1,) * (len(shape) - 2)
    last = bool(call.attr("channels_last", 0))
    return [(call.x.elem, (shape[0], *ones, shape[-1]) if last else (*shape[:2], *ones))]


def _rows(call: NodeCall) -> list[Type | None]:
    table, indices = call.given(0), call.given(1)
    scale = call.get(2)
    axis = call.whole("gather_axis", 0) % len(table.shape)
    shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
    if call.op_type == "GatherBlockQuantized":
        shape = (*shape[:-1], shape[-1] * table.dtype.bits // packed_bits(call, 0))
    return [(scale.elem if scale is not None else table.elem, shape)]


def _expanded(call: NodeCall) -> list[Type | None]:
    axis = call.given(1).value
    place = int(axis.ravel()[0]) if axis is not None else 0
    place %= len(call.x.shape) + 1
    return [(call.x.elem, (*call.x.shape[:place], 1, *call.x.shape[place:]))]


def _channels_last_conv(call: NodeCall) -> list[Type | None]:
    """N, spatial sizes, channels. The kernel is named, or told by the weight."""
    quantised = call.op_type == "QLinearConv"
    w, last = call.given(3 if quantised else 1), call.get(7 if quantised else 0)
    space = len(call.x.shape) - 2
    inner = w.shape[2:]
    if call.op_type == "NhwcConv" and w.shape[-1] * call.whole("group", 1) == call.x.shape[-1]:
        inner = w.shape[1:-1]  # its weight has the channels last, too
    kernel = list(call.wholes("kernel_shape") or inner)
    strides = list(call.wholes("strides") or [1] * space)
    dilations = list(call.wholes("dilations") or [1] * space)
    pads = list(call.wholes("pads") or [0] * 2 * space)
    same = str(call.attr("auto_pad", "NOTSET")).startswith("SAME")
    sizes = []
    for axis, size in enumerate(call.x.shape[1:-1]):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        padded = size + pads[axis] + pads[axis + space]
        stride = strides[axis]
        sizes.append(-(-size // stride) if same else (padded - reach) // stride + 1)
    elem = last.elem if last is not None else call.x.elem
    return [(elem, (call.x.shape[0], *sizes, w.shape[0]))]


def _pairs(call: NodeCall) -> list[Type | None]:
    return [(call.x.elem, (call.x.shape[0], call.given(1).shape[0]))]


def _dynamic_pads(call: NodeCall) -> list[Type | None]:
    """A transposed convolution; what is cut off its ends is an operand."""
    w, cut = call.given(1), call.get(2)
    space = len(call.x.shape) - 2
    pads = [0] * 2 * space
    if cut is not None:
        if cut.value is None:
            return []
        pads = [int(one) for one in cut.value.ravel()]
    strides = list(call.wholes("strides") or [1] * space)
    dilations = list(call.wholes("dilations") or [1] * space)
    more = list(call.wholes("output_padding") or [0] * space)
    sizes = [
        stride * (size - 1) + dilation * (kernel - 1) + 1 + extra - before - after
        for size, kernel, stride, dilation, extra, before, after in zip(
            call.x.shape[2:], w.shape[2:], strides, dilations, more, pads[:space], pads[space:],
            strict=True,
        )
    ]  # fmt: skip
    return [(call.x.elem, (call.x.shape[0], w.shape[1] * call.whole("group", 1), *sizes))]


def _pool(call: NodeCall) -> list[Type | None]:
    """As the pools of the standard, which take no integers, or have no channels last."""
    shape = call.x.shape
    if call.op_type == "NhwcMaxPool" or call.attr("channels_last", 0):
        return [(call.x.elem, (shape[0], *pooled(call, shape[1:-1]), shape[-1]))]
    return [(call.x.elem, (*shape[:2], *pooled(call, shape[2:])))]


def _reduced(call: NodeCall) -> list[Type | None]:
    """QLinearReduceMean: as ReduceMean, which takes no integers."""
    shape = call.x.shape
    axes = {axis % len(shape) for axis in call.wholes("axes") or range(len(shape))}
    if call.attr("keepdims", 1):
        return [(call.x.elem, tuple(1 if n in axes else size for n, size in enumerate(shape)))]
    return [(call.x.elem, tuple(size for n, size in enumerate(shape) if n not in axes))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(SAME.split(), _same),
    "QLinearAdd": _quantised_pair, "QLinearMul": _quantised_pair,
    "NGramRepeatBlock": _like_scores, "SkipGroupNorm": _twice,
    "BiasDropout": _with_mask, "BitmaskBiasDropout": _with_mask,
    **dict.fromkeys(
        ["FusedMatMul", "TransposeMatMul", "FusedGemm", "GemmFastGelu",
         "FusedMatMulActivation", "SparseToDenseMatMul"], _matmul),
    "MatMulIntegerToFloat": _matmul_to(FP32), "DynamicQuantizeMatMul": _matmul_to(FP32),
    "MatMulInteger16": _matmul_to(INT32), "QGemm": _qgemm, "GemmFloat8": _float8,
    "MatMulNBits": _n_bits, "MatMulBnb4": _n_bits, "MatMulFpQ4": _fp_q4,
    "SkipLayerNormalization": _skip_norm, "SkipSimplifiedLayerNormalization": _skip_norm,
    "EmbedLayerNormalization": _embed_norm,
    "Attention": _attention, "QAttention": _attention, "PackedAttention": _packed_attention,
    "DecoderMaskedSelfAttention": _attention,
    "MultiHeadAttention": _multi_head, "DecoderMaskedMultiHeadAttention": _multi_head,
    "PackedMultiHeadAttention": _packed_heads,
    "GroupQueryAttention": _group_query, "SparseAttention": _group_query,
    "BiasSplitGelu": _half, "QLinearConcat": _joined, "QLinearGlobalAveragePool": _global_pool,
    "GatherBlockQuantized": _rows, "TorchEmbedding": _rows, "ExpandDims": _expanded,
    "CDist": _pairs, "NhwcConv": _channels_last_conv, "NhwcFusedConv": _channels_last_conv,
    "QLinearConv": _channels_last_conv, "ConvTransposeWithDynamicPads": _dynamic_pads,
    "QLinearAveragePool": _pool, "NhwcMaxPool": _pool, "QLinearReduceMean": _reduced,
}  # fmt: skip

STANDARD_FORM = {  # the same operands and attributes, so onnx's own inference serves
    "FusedConv": "Conv", "QLinearConv": "QLinearConv", "FusedGemm": "Gemm",
    "MaxpoolWithMask": "MaxPool", "LayerNormalization": "LayerNormalization",
    "QuantizeLinear": "QuantizeLinear", "DequantizeLinear": "DequantizeLinear",
    "GridSample": "GridSample", "Trilu": "Trilu", "GatherND": "GatherND",
    "Pad": "Pad", "Range": "Range", "Unique": "Unique", "SimplifiedLayerNormalization":
    "LayerNormalization", "MatMulInteger": "MatMulInteger",
}  # fmt: skip
OPERANDS_OF_STANDARD = {"FusedConv": 3, "MaxpoolWithMask": 1}


def typed(names: list[str], types: list[Type | None]) -> list[Tensor | None]:
    """Results of these types; the rest is left to others."""
    given: list[Type | None] = [*types, *[None] * len(names)]
    return [
        make(name, one[0], one[1]) if name and one is not None else None
        for name, one in zip(names, given, strict=False)
    ]

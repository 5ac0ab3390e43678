"""onnxruntime's rarer operators: fused products, gates, small integer work, forms of old.

Each is counted as the operators that it stands for; see their formulas for what is one FLOP.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.count.per_element import RMS_NORM, SOFTMAX, STATISTICS
from ridgeline.onnx.formulas.activations import activation_cost, fused_activation
from ridgeline.onnx.formulas.attention import Heads, attend
from ridgeline.onnx.formulas.fits import check_inner, split_evenly
from ridgeline.onnx.formulas.moves import move
from ridgeline.onnx.formulas.pointwise import gelu_cost, is_told_to_train
from ridgeline.onnx.formulas.products import REQUANTISE, product
from ridgeline.onnx.formulas.registry import (
    MS,
    QUANTISE,
    Terms,
    Work,
    elementwise,
    free,
    op,
)
from ridgeline.onnx.node import MalformedError, NodeCall
from ridgeline.onnx.shapes import branches, delta_sizes, head_count, packed_widths

RMS_FLOPS = RMS_NORM + 1  # with a weight
SYMMETRIC = QUANTISE - 1  # to 8 bits without a zero point

op("SampleOp", kind="view", domain=MS)(free)
op("Crop DynamicSlice", kind="view")(free)
op("MemcpyFromHost MemcpyToHost", kind="move")(move)
op("ReorderInput ReorderOutput MulInteger NGramHashMapping VarlenNGramHashMapping"
   " BifurcationDetector", kind="move", domain=MS)(move)  # fmt: skip


# ---------------------------------------------------------------- element by element


@op("Scale", kind="pointwise")
def scale(call: NodeCall) -> Work:
    return elementwise(call, 1)


@op("ImageScaler", kind="pointwise")
def image_scaler(call: NodeCall) -> Work:
    """x·scale + bias."""
    return elementwise(call, 2)


@op("ParametricSoftplus ScaledTanh", kind="pointwise")
def parametric(call: NodeCall) -> Work:
    """alpha·f(beta·x)."""
    flops, transcendentals = activation_cost(call.op_type.removeprefix("Parametric"))
    own = 2 if call.op_type == "ParametricSoftplus" else 0  # ScaledTanh's are in the table
    return elementwise(call, flops + own, transcendentals)


@op("ScaledSiLU", kind="pointwise", domain=MS)
def scaled_silu(call: NodeCall) -> Work:
    flops, one = activation_cost("silu")
    return elementwise(call, flops + 1, one)


@op("GatedAdd", kind="pointwise", domain=MS)
def gated_add(call: NodeCall) -> Work:
    """x + y·gate."""
    return elementwise(call, 2)


@op("ComplexMul ComplexMulConj", kind="pointwise", domain=MS)
def complex_product(call: NodeCall) -> Work:
    """Four products and two sums for each pair of a real and an imaginary part."""
    return elementwise(call, 3)


@op("QOrderedGelu", kind="pointwise", domain=MS)
def ordered_gelu(call: NodeCall) -> Work:
    """Dequantised by a scale, GELU, requantised without a zero point."""
    flops, one = gelu_cost(tanh=False)
    return elementwise(call, 1 + flops + SYMMETRIC, one)


@op("QuantizeWithOrder DequantizeWithOrder", kind="pointwise", domain=MS)
def ordered(call: NodeCall) -> Work:
    """As QuantizeLinear and DequantizeLinear without a zero point; the order is none of it."""
    return elementwise(call, SYMMETRIC if call.op_type == "QuantizeWithOrder" else 1)


@op("GemmaRotaryEmbedding", kind="pointwise", domain=MS)
def gemma_rotary(call: NodeCall) -> Work:
    """Angles, q, q turned, k, k turned: sine and cosine of each angle, x·cos + y·sin."""
    n, angles = call.given(1).numel + call.given(3).numel, call.x.numel
    return Work.per_element(n, 3, transcendentals=2 * angles)


@op("IsAllFinite", kind="reduce", domain=MS)
def all_finite(call: NodeCall) -> Work:
    n = sum(t.numel for t in call.inputs)
    return Work.per_element(n, 1)


@op("BitmaskDropout", kind="dropout", domain=MS)
def bitmask_dropout(call: NodeCall) -> Work:
    """In inference the operand goes through; in training a comparison and a product."""
    if not is_told_to_train(call):
        return Work(read_bytes=0, written_bytes=sum(t.nbytes for t in call.outputs[1:]))
    return Work.per_element(call.x.numel, 2)


@op("LinearAttentionGate", kind="pointwise", domain=MS)
def attention_gate(call: NodeCall) -> Work:
    """scale·softplus(a + bias), and the sigmoid of b where there is one."""
    flops, one = activation_cost("softplus")
    more_flops, more = activation_cost("sigmoid") if call.has(3) else (0, 0)
    return elementwise(call, flops + 2 + more_flops, one + more)


# ---------------------------------------------------------------- normalisations


@op("BiasSoftmax", kind="softmax", domain=MS)
def bias_softmax(call: NodeCall) -> Work:
    n, flops = call.x.numel, 1 + SOFTMAX
    return Work.per_element(n, flops, transcendentals=n)


@op("BranchwiseRMSNorm", kind="norm", domain=MS)
def branchwise_norm(call: NodeCall) -> Work:
    """Each branch by itself; a weight where it is given."""
    n, flops = call.x.numel, RMS_NORM + call.has(1)
    groups = n // max(branches(call)[1], 1)
    return Work.per_element(n, flops, transcendentals=groups)


@op("GatedRMSNorm", kind="norm", domain=MS)
def gated_norm(call: NodeCall) -> Work:
    """RMS norm over as many elements as there are weights, times the gate's activation."""
    n, groups = call.x.numel, call.x.numel // max(call.given(1).numel, 1)
    flops, one = fused_activation(call, default="silu")
    flops += RMS_FLOPS + 1
    return Work.per_element(n, flops, transcendentals=groups + one * n)


@op("QOrderedLayerNormalization", kind="norm", domain=MS)
def ordered_layer_norm(call: NodeCall) -> Work:
    """x, its scale, weight, bias: dequantised, layer norm, requantised."""
    x = call.x
    flops = 1 + STATISTICS + 3 + call.has(3) + SYMMETRIC
    groups = prod(x.shape[: call.whole("axis", -1) % max(len(x.shape), 1)])
    n = x.numel
    return Work.per_element(n, flops, transcendentals=groups)


@op("EngramGate", kind="norm", domain=MS)
def engram_gate(call: NodeCall) -> Work:
    """RMS norms of key and query, their product, its signed root, a sigmoid, times the value."""
    n, size = call.x.numel, call.x.shape[-1]
    rows = n // max(size, 1)
    normed = len(call.outputs) > 1
    sigmoid, one = activation_cost("sigmoid")
    per_row = 5 + sigmoid  # 1/√H, magnitude, bound, sign, their product
    flops = 2 * RMS_FLOPS + 1 + RMS_FLOPS * normed
    return Work(
        macs=n,
        other_flops=flops * n + per_row * rows,
        transcendentals=rows * (2 + 1 + one + normed),
        factor=2,
        terms=(("rows", rows), ("H", size)),
    )


# ---------------------------------------------------------------- products


@op("QOrderedMatMul", kind="matmul", domain=MS)
def ordered_matmul(call: NodeCall) -> Work:
    """A, scale, B, scale, scale of Y, bias, C: the product's scale; C is scaled and added."""
    terms = _flat_terms(call, 2)
    other = (REQUANTISE + call.has(5) + 2 * call.has(6)) * call.out.numel
    return product(terms, other_flops=other)


def _flat_terms(call: NodeCall, place: int) -> Terms:
    """One matrix for all rows, whichever way round it is stored."""
    x, weight = call.x, call.given(place)
    k = x.shape[-1]
    if not k or weight.numel % k:
        raise MalformedError(f"{weight.numel} weights are no matrix for {k} features")
    return (("M", prod(x.shape[:-1])), ("N", weight.numel // k), ("K", k))


@op("MatMulBlockQuantizedFp8Weight", kind="matmul", domain=MS)
def fp8_weight(call: NodeCall) -> Work:
    """One FLOP a weight for its scale; with a scale of its own A goes through 8 bits."""
    through = (SYMMETRIC + 1) * call.x.numel * call.has(3)
    biased = call.has(4) * call.out.numel
    weights = call.given(1).numel
    return product(_flat_terms(call, 1), other_flops=weights + through + biased)


@op("MatMulBlockQuantizedFp4Weight", kind="matmul", domain=MS)
def fp4_weight(call: NodeCall) -> Work:
    """Two weights in a byte, each with the scale of its block and that of all."""
    n, k = call.given(1).shape
    check_inner(call.x.shape[-1], 2 * k)
    terms = (("M", prod(call.x.shape[:-1])), ("N", n), ("K", 2 * k))
    return product(terms, other_flops=2 * n * 2 * k + call.has(5) * call.out.numel)


@op("MatMulNBitsMlp MatMulNBitsQkv", kind="matmul", domain=MS)
def fused_n_bits(call: NodeCall) -> Work:
    """Products of one operand with packed weights, perhaps after a sum and an RMS norm.

    Of an MLP, the first product goes through an activation and is multiplied with the second.
    """
    x, k = call.x, call.whole("K", 0)
    rows, widths = prod(x.shape[:-1]), packed_widths(call)
    check_inner(x.shape[-1], k)
    biases = sum(n for n, place in zip(widths, (5, 8, 11), strict=False) if call.has(place))
    normed = RMS_FLOPS * call.has(2) + call.has(1)
    flops, one = fused_activation(call, default="silu")
    gated = rows * widths[0] if call.op_type == "MatMulNBitsMlp" else 0
    return product(
        (("M", rows), ("N", sum(widths)), ("K", k)),
        other_flops=sum(widths) * k + rows * (biases + normed * k) + (flops + 1) * gated,
        transcendentals=rows * call.has(2) + one * gated,
    )


@op("QLinearConvTranspose", kind="conv", domain=MS)
def transposed_channels_last(call: NodeCall) -> Work:
    """Each element of the operand meets its channel's part of the kernel."""
    x, w = call.x, call.given(3)
    terms: Terms = (("in", x.numel), ("(Cout/g)·K", w.numel // max(w.shape[0], 1)))
    return product(terms, other_flops=(REQUANTISE + call.has(8)) * call.out.numel)


@op("VarlenCausalConvWithState", kind="conv", domain=MS)
def packed_causal_conv(call: NodeCall) -> Work:
    """Depthwise, on tokens without padding and the state before them."""
    n, (flops, one) = call.out.numel, fused_activation(call)
    terms = (("out", n), ("K", call.given(1).shape[-1]))
    return product(terms, other_flops=(call.has(3) + flops) * n, transcendentals=one * n)


@op("HyperConnectionPreMix", kind="reduce", domain=MS)
def mixed_before(call: NodeCall) -> Work:
    """The branches' weighted sum, scaled."""
    count, size = branches(call)
    rows = call.out.numel // max(size, 1)
    scaled = call.attr("reduction_scale", 1.0) != 1
    return product((("rows", rows), ("C", count), ("H", size)), other_flops=scaled * call.out.numel)


@op("HyperConnectionPostMix", kind="matmul", domain=MS)
def mixed_after(call: NodeCall) -> Work:
    """A matrix of C·C mixes the branches where it is given; a gated result is added to each."""
    n, (count, size) = call.x.numel, branches(call)
    if not call.has(3):
        return elementwise(call, 2)
    rows = n // max(count * size, 1)
    return product((("rows", rows), ("C", count), ("C", count), ("H", size)), other_flops=2 * n)


# ---------------------------------------------------------------- attention


@op("QOrderedAttention", kind="attention", domain=MS)
def ordered_attention(call: NodeCall) -> Work:
    """8-bit projections to queries, keys and values, then attention; each result is scaled."""
    x, weights = call.x, [call.given(place) for place in (5, 6, 7)]
    batch, length, width = x.shape
    heads, widths = head_count(call), [w.shape[-1] for w in weights]
    for weight in weights:
        check_inner(width, weight.shape[0])
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length,
                  dim=split_evenly(widths[0], heads),
                  value_dim=split_evenly(widths[2], heads))  # fmt: skip
    mask = call.get(17)
    work = attend(call, sizes, causal=bool(call.attr("unidirectional", 0)),
                  added=int(mask is not None and mask.is_float))  # fmt: skip
    tokens = batch * length
    terms: Terms = (("tokens", tokens), ("Cin", width), ("(q+k+v)", sum(widths)))
    scaled = tokens * (2 * sum(widths) + widths[2])  # with biases; and the result
    return replace(
        work,
        macs=work.macs + tokens * width * sum(widths),
        other_flops=work.other_flops + scaled,
        more=((2, terms),),
    )


@op("GatedDeltaNet", kind="attention", domain=MS)
def gated_delta_net(call: NodeCall) -> Work:
    """A state for each head of the values: k⊗v added, Sᵀ·k subtracted (delta), read by each q."""
    sizes, rule = delta_sizes(call), str(call.attr("update_rule", "gated_delta"))
    delta, gated = "delta" in rule, "gated" in rule
    state, uses = sizes.dim * sizes.value_dim, 2 + delta
    steps = sizes.tokens * sizes.value_heads
    flops, one = _delta_gates(call)
    other = gated * state + (1 + 2 * delta) * sizes.value_dim + flops
    normed = 2 * sizes.tokens * sizes.heads * bool(call.attr("qk_l2_norm", 0))
    return Work(
        macs=steps * uses * state,
        other_flops=steps * other + 3 * normed * sizes.dim,
        transcendentals=steps * (gated + one) + normed,
        factor=2,
        terms=(("steps", steps), ("uses", uses), ("Dk·Dv", state)),
    )


def _delta_gates(call: NodeCall) -> tuple[int, int]:
    """-exp(a)·softplus(decay + bias) and sigmoid(beta), where the node is told to compute them."""
    flops = transcendentals = 0
    if call.attr("gate_activation", "none") == "qwen":
        softplus, own = activation_cost("softplus")
        flops, transcendentals = softplus + 3, own + 1
    if call.attr("beta_activation", "none") == "sigmoid":
        sigmoid, own = activation_cost("sigmoid")
        flops, transcendentals = flops + sigmoid, transcendentals + own
    return flops, transcendentals


@op("GatedRelativePositionBias", kind="matmul", domain=MS)
def gated_bias(call: NodeCall) -> Work:
    """Two gates for each query of each head, from a product with D columns; then times rel_pos."""
    query, weight = call.x, call.given(3)
    heads, (size, columns) = head_count(call), weight.shape
    rows = query.numel // max(size, 1)
    sigmoid, one = activation_cost("sigmoid")
    gates = 2 * columns + 2 * sigmoid + 4  # bias and sums; u·(r·a − 1) + 2
    if query.shape[-1] != heads * size:
        raise MalformedError("a query is not as wide as its heads")
    return product(
        (("rows", rows), ("D", columns), ("Dh", size)),
        other_flops=query.numel + gates * rows + call.out.numel,
        transcendentals=2 * one * rows,
    )


@op("RelativePositionBias", kind="fill", domain=MS)
def position_bias(call: NodeCall) -> Work:
    """Looked up by distance: the table is read once."""
    return Work(read_bytes=call.x.nbytes)


@op("DynamicTimeWarping", kind="scan", domain=MS)
def time_warping(call: NodeCall) -> Work:
    """For each cell the smallest of three and a sum."""
    n = call.x.numel
    return Work.per_element(n, 3)

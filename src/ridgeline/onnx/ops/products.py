"""Products: matrices, convolutions, attention, recurrent layers; onnxruntime's forms of them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.costs import products as costs
from ridgeline.costs.elementwise import DYNAMIC_QUANTISE
from ridgeline.costs.products import (
    REQUANTISE,
    ROTARY_FLOPS,
    Heads,
    check_inner,
    conv_terms,
    deform_conv,
    factorise,
    matmul_terms,
    product,
    recurrent_layer,
)
from ridgeline.costs.work import Shape, Terms, Work, require
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.ops import MS, add_rows
from ridgeline.onnx.ops.elementwise import activation_cost, fused_activation

# ---------------------------------------------------------------- matrices


def _terms(call: NodeCall, second: int = 1) -> Terms:
    return matmul_terms(call.operand(0).shape, call.operand(second).shape)


def transposed_shape(call: NodeCall, number: int, side: str) -> Shape:
    """An operand by transA or transB; FusedMatMul's transBatchA swaps the batch and the rows."""
    shape = call.operand(number).shape
    if call.attr(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if call.attr(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _fused_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(transposed_shape(call, 0, "A"), transposed_shape(call, 1, "B"))
    return product(terms, other_flops=(call.attr("alpha", 1.0) != 1) * call.out.numel)


def _gemm_terms(call: NodeCall, second: int = 1) -> Terms:
    shapes = transposed_shape(call, 0, "A"), transposed_shape(call, second, "B")
    require(all(len(shape) == 2 for shape in shapes), "Gemm multiplies matrices")
    return matmul_terms(*shapes)


def _gemm(call: NodeCall) -> Work:
    """alpha·A·B + beta·C, and onnxruntime's form with an activation."""
    terms, n = _gemm_terms(call), call.out.numel
    beta = call.attr("beta", 1.0)
    is_biased = call.has(2) and beta != 0
    scaling = (call.attr("alpha", 1.0) != 1) + (is_biased and beta != 1)
    flops, one = fused_activation(call)
    return product(
        terms, bias=is_biased * n, other_flops=(scaling + flops) * n, transcendentals=one * n
    )


def packed_product(call: NodeCall) -> tuple[int, int]:
    """N and K of a product whose second operand is packed: N·K weights of so many bits."""
    n, k = call.int_attr("N", 0), call.int_attr("K", 0)
    bits, packed = call.int_attr("bits", 4), call.operand(1)
    require(k > 0 and n * k * bits <= 8 * packed.nbytes,
            f"{packed.nbytes} bytes do not hold {n}·{k} weights of {bits} bits")  # fmt: skip
    return n, k


def _matmul_n_bits(call: NodeCall) -> Work:
    """A packed weight of N·K numbers, a scale for each and a zero point where there is one."""
    x, (n, k) = call.x, packed_product(call)
    check_inner(x.shape[-1], k)
    return product(
        (("M", prod(x.shape[:-1])), ("N", n), ("K", k)),
        other_flops=(1 + call.has(3)) * n * k + call.has(5) * call.out.numel,
    )


add_rows("matmul", {
    # products of integers are MACs too; zero points are work on integers
    "MatMul MatMulInteger": lambda c: product(_terms(c)),
    "QLinearMatMul": lambda c: product(_terms(c, 3), other_flops=REQUANTISE * c.out.numel),
    "Gemm": _gemm,
    "Einsum": lambda c: costs.einsum(
        c.attr("equation", ""), [t.shape for t in c.inputs], is_float=c.is_float
    ),
})  # fmt: skip
add_rows("matmul", {
    "FusedGemm": _gemm,
    "MatMulIntegerToFloat": lambda c: product(
        _terms(c), other_flops=(REQUANTISE + c.has(6)) * c.out.numel
    ),
    # its first operand is quantised first; then the product's scale, a bias
    "DynamicQuantizeMatMul": lambda c: product(
        _terms(c), other_flops=DYNAMIC_QUANTISE * c.x.numel + (REQUANTISE + c.has(4)) * c.out.numel
    ),
    "FusedMatMul": _fused_matmul,
    # a, scale, zero point, b, scale, zero point, C: the product's scale and the bias
    "QGemm": lambda c: product(
        _gemm_terms(c, 3), other_flops=(REQUANTISE + c.has(6)) * c.out.numel
    ),
    "MatMulNBits": _matmul_n_bits,
}, domain=MS)  # fmt: skip
add_rows("linalg", {"Det": lambda c: factorise(c.x.shape or (1, 1), 2, 3)})

# ---------------------------------------------------------------- convolutions


def _conv_terms(call: NodeCall, *, weight: int = 1) -> Terms:
    """Terms of a convolution whose channels and groups agree."""
    x, w, groups = call.x.shape, call.operand(weight).shape, call.int_attr("group", 1)
    is_transposed = call.op_type == "ConvTranspose"
    terms = conv_terms(x, w, call.out.shape, transposed=is_transposed)
    channels = w[0] if is_transposed else w[1] * groups
    require(len(x) == len(w), "the ranks of a convolution differ")
    require(x[1] == channels, f"the operand has {x[1]} channels, the weight is for {channels}")
    require(is_transposed or w[0] % groups == 0, f"{w[0]} channels are not {groups} groups")
    require(min(call.out.shape[2:], default=1) > 0, "its result has no elements")
    return terms


def _conv(call: NodeCall) -> Work:
    """A bias; onnxruntime's form may add another tensor and end in an activation."""
    n, (flops, one) = call.out.numel, fused_activation(call)
    per_output = call.has(2) + call.has(3) + flops
    return product(_conv_terms(call), other_flops=per_output * n, transcendentals=one * n)


def _quantised_conv(call: NodeCall) -> Work:
    """x, w and y each with a scale and a zero point; the product's scale, a bias."""
    terms = _conv_terms(call, weight=3)
    return product(terms, other_flops=(REQUANTISE + call.has(8)) * call.out.numel)


def _deform_conv(call: NodeCall) -> Work:
    _conv_terms(call)
    shapes = (call.x.shape, call.operand(1).shape, call.out.shape)
    return deform_conv(*shapes, is_masked=call.has(4), bias=call.has(3) * call.out.numel)


def _causal_conv(call: NodeCall) -> Work:
    """Depthwise, on the sequence and the state before it."""
    n, (flops, one) = call.out.numel, fused_activation(call, default="none")
    return product(
        (("out", n), ("K", prod(call.operand(1).shape[2:]))),
        other_flops=(call.has(2) + flops) * n,
        transcendentals=one * n,
    )


add_rows("conv", {
    "Conv": _conv,
    "ConvInteger": lambda c: product(_conv_terms(c)),
    "QLinearConv": _quantised_conv,
    "ConvTranspose": lambda c: product(_conv_terms(c), bias=c.has(2) * c.out.numel),
    "DeformConv": _deform_conv,
    "CausalConvWithState": _causal_conv,
})  # fmt: skip
add_rows("conv", {"FusedConv": _conv}, domain=MS)

# ---------------------------------------------------------------- attention


def attend(call: NodeCall, sizes: Heads, *, causal: bool, added: int, capped: bool = False) -> Work:
    pairs = sizes.count_pairs(causal=causal, convention=call.causal)
    return costs.attend(sizes, pairs, more=added, is_capped=capped)


def _added_masks(*masks: Tensor | None) -> int:
    """Masks of numbers are added to every score; those of truth values only select."""
    return sum(mask is not None and mask.is_float for mask in masks)


def split_heads(width: int, heads: int) -> int:
    """The size of one head."""
    require(heads > 0 and width % heads == 0, f"a width of {width} is not one of {heads} heads")
    return width // heads


def _split(tensor: Tensor, heads: int) -> tuple[int, int, int, int]:
    """Batch, heads, tokens, dim of a packed (B, S, H·D) or an open (B, H, S, D) operand."""
    if len(tensor.shape) == 4:
        b, h, s, d = tensor.shape
        return b, h, s, d
    require(len(tensor.shape) == 3 and heads != 0,
            "attention's operands have three or four dimensions")  # fmt: skip
    b, s, width = tensor.shape
    return b, heads, s, split_heads(width, heads)


def _attention(call: NodeCall) -> Work:
    """Q, K, V, mask, past key, past value."""
    q_heads, kv_heads = call.int_attr("q_num_heads", 0), call.int_attr("kv_num_heads", 0)
    batch, heads, queries, dim = q = _split(call.operand(0), q_heads)
    k, v = (_split(call.operand(number), kv_heads) for number in (1, 2))
    require(k[1] > 0 and heads % k[1] == 0, f"{heads} heads of queries, {k[1]} of keys")
    require(dim == k[3], f"a query has {dim} features, a key {k[3]}")
    require(batch == k[0] and k[:3] == v[:3], f"keys are {k}, values {v}, queries {q}")
    past_key = call.get(4)
    past = past_key.shape[-2] if past_key is not None else 0
    before = call.int_attr("left_window_size", -1)  # beside the query's own position
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=k[2] + past, dim=dim,
                  value_dim=v[3], past=past,
                  window=before + 1 if before >= 0 else None)  # fmt: skip
    causal = bool(call.attr("is_causal", 0)) or call.int_attr("right_window_size", -1) == 0
    capped = bool(call.attr("softcap", 0.0))
    return attend(call, sizes, causal=causal, added=_added_masks(call.get(3)), capped=capped)


def _projected_attention(call: NodeCall) -> Work:
    """input, weights (H, q+k+v), bias: projected, then attended to; QAttention scales, too."""
    is_quantised = call.op_type == "QAttention"
    mask, past_number = (5, 8) if is_quantised else (3, 4)
    x, w = call.operand(0), call.operand(1)
    require(x.shape[-1] == w.shape[0], f"{x.shape[-1]} features, the weight is for {w.shape[0]}")
    tokens, length, heads = prod(x.shape[:-1]), x.shape[-2], call.int_attr("num_heads", 1)
    widths = qkv_widths(call)
    past = packed_past(call.get(past_number))
    sizes = Heads(batch=x.shape[0], heads=heads, queries=length, keys=length + past,
                  dim=split_heads(widths[0], heads), value_dim=split_heads(widths[2], heads),
                  past=past)  # fmt: skip
    added = _added_masks(call.get(mask), None if is_quantised else call.get(5))
    work = attend(call, sizes, causal=bool(call.attr("unidirectional", 0)), added=added)
    biased = (call.has(2) + is_quantised) * tokens * w.shape[1]
    rotary = ROTARY_FLOPS * tokens * (widths[0] + widths[1]) * bool(call.attr("do_rotary", 0))
    terms = (("tokens", tokens), ("Cin", x.shape[-1]), ("(q+k+v)", w.shape[1]))
    return replace(
        work,
        macs=work.macs + tokens * x.shape[-1] * w.shape[1],
        other_flops=work.other_flops + biased + rotary,
        parts=(*work.parts, (2, terms)),
    )


def qkv_widths(call: NodeCall) -> list[int]:
    """The widths of queries, keys and values in one projection: as named, or a third each."""
    width = call.operand(1).shape[1]
    widths = call.int_list("qkv_hidden_sizes") or [width // 3] * 3
    require(len(widths) == 3 and sum(widths) == width, f"{widths} are not the weight's {width}")
    return widths


def packed_past(past: Tensor | None) -> int:
    """Tokens of a past of keys and values in one: (2, B, H, S, D)."""
    return past.shape[3] if past is not None and len(past.shape) > 3 else 0


def multi_head_sizes(call: NodeCall) -> Heads:
    """query, key, value, bias, mask, attention bias, past key, past value."""
    q, k, v, heads = call.operand(0), call.get(1), call.get(2), call.int_attr("num_heads", 1)
    if len(q.shape) == 5:  # (B, S, H, 3, D): all three in one
        batch, queries, heads, _, dim = q.shape
    else:
        batch, heads, queries, dim = _split(q, heads)
    keys, value_dim = queries, dim
    if k is not None and len(k.shape) == 5:  # (B, L, H, 2, D): key and value in one
        keys, value_dim = k.shape[1], k.shape[4]
    elif k is not None:
        of_keys = _split(k, heads)
        require(of_keys[::3] == (batch, dim), f"keys are {of_keys}, queries of {dim}")
        keys = of_keys[2]
    if v is not None:
        value_dim = _split(v, heads)[3]
    past_key = call.get(6)
    past = past_key.shape[-2] if past_key is not None else 0
    return Heads(batch=batch, heads=heads, queries=queries, keys=keys + past, dim=dim,
                 value_dim=value_dim, past=past)  # fmt: skip


def _multi_head(call: NodeCall) -> Work:
    sizes = multi_head_sizes(call)
    causal = bool(call.attr("unidirectional", 0))
    work = attend(call, sizes, causal=causal, added=_added_masks(call.get(4), call.get(5)))
    if not call.has(3):
        return work
    new = sizes.keys - sizes.past
    each = sizes.queries * sizes.dim + new * (sizes.dim + sizes.value_dim)
    return replace(work, other_flops=work.other_flops + sizes.batch * sizes.heads * each)


def group_query_sizes(call: NodeCall) -> Heads:
    """Queries, keys and values may be in one operand; the cache is full unless a value says."""
    heads, kv_heads = call.int_attr("num_heads", 1), call.int_attr("kv_num_heads", 1)
    batch, queries, width = call.operand(0).shape
    require(kv_heads > 0 and heads % kv_heads == 0, f"{heads} heads of queries, {kv_heads} of keys")
    dim = split_heads(width, heads if call.has(1) else heads + 2 * kv_heads)
    past, total = call.get(3), call.get(6)
    keys = queries + (past.shape[-2] if past is not None else 0)
    if total is not None and total.first_value is not None:
        keys = int(total.first_value)
    window = call.int_attr("local_window_size", -1)
    return Heads(batch=batch, heads=heads, queries=queries, keys=keys, dim=dim, value_dim=dim,
                 past=max(keys - queries, 0), window=window if window > 0 else None)  # fmt: skip


def _group_query(call: NodeCall) -> Work:
    """Causal, with fewer key heads than query heads; perhaps with a rotary embedding."""
    sizes, kv_heads = group_query_sizes(call), call.int_attr("kv_num_heads", 1)
    capped = bool(call.attr("softcap", 0.0))
    work = attend(call, sizes, causal=True, added=_added_masks(call.get(10)), capped=capped)
    tables = [t for number in (7, 8) if (t := call.get(number)) is not None]
    is_rotary = bool(call.attr("do_rotary", 0))
    rotated = sizes.batch * sizes.queries * sizes.dim * (sizes.heads + kv_heads) * is_rotary
    read = None
    if tables:  # rows of the new tokens; after a past, each sequence is at another position
        rows = sizes.queries * (sizes.batch if sizes.past else 1) * is_rotary
        read = call.read_bytes - sum(t.nbytes for t in tables) + _rows_bytes(tables, rows)
    return replace(work, other_flops=work.other_flops + ROTARY_FLOPS * rotated, read_bytes=read)


def _linear_attention(call: NodeCall) -> Work:
    q, k, v = call.operand(0), call.operand(1), call.operand(2)
    heads, kv_heads = call.int_attr("q_num_heads", 1), call.int_attr("kv_num_heads", 1)
    return costs.linear_attention(
        tokens=prod(q.shape[:2]),
        heads=heads,
        kv_heads=kv_heads,
        dim=split_heads(k.shape[-1], kv_heads),
        value_dim=split_heads(v.shape[-1], kv_heads),
        rule=str(call.attr("update_rule", "gated_delta")),
    )


def _rotary(call: NodeCall) -> Work:
    """x·cos ± y·sin of the part that is rotated; only the positions' rows are read."""
    x = call.x
    partial, heads = call.int_attr("rotary_embedding_dim", 0), call.int_attr("num_heads", 0)
    head = x.shape[-1] if len(x.shape) == 4 or not heads else x.shape[-1] // heads
    n = x.numel * partial // head if partial and head else x.numel
    number, table_numbers = (1, (2, 3)) if call.domain else (3, (1, 2))
    positions = call.get(number)
    tables = [t for at in table_numbers if (t := call.get(at)) is not None]
    if positions is None:
        read = sum(t.nbytes for t in tables)
    else:  # a single position is where they begin
        rows = positions.numel if positions.numel > 1 else x.shape[-2]
        read = positions.nbytes + _rows_bytes(tables, rows)
    return Work.per_element(n, ROTARY_FLOPS, read_bytes=x.nbytes + read)


def _rows_bytes(tables: list[Tensor], rows: int) -> int:
    return sum(t.bytes_of(min(rows * t.shape[-1], t.numel)) for t in tables)


add_rows("attention", {"Attention": _attention, "LinearAttention": _linear_attention})
add_rows("attention", {
    "Attention QAttention": _projected_attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _group_query,
}, domain=MS)  # fmt: skip
add_rows("pointwise", {"RotaryEmbedding": _rotary})

# ---------------------------------------------------------------- recurrent layers

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# activations, and how many gates use each
CELLS = {
    "RNN": (("Tanh", 1),), "GRU": (("Sigmoid", 2), ("Tanh", 1)),
    "LSTM": (("Sigmoid", 3), ("Tanh", 1), ("Tanh", 1)),
}  # fmt: skip
# beyond the activations, for each hidden unit: GRU's r·h, (h − n)·z + n; LSTM's f·c + i·g, o·h
COMBINED = {"RNN": 0, "GRU": 4, "LSTM": 4}


def _recurrent(call: NodeCall) -> Work:
    """Every token of every sequence meets the input's and the hidden weights."""
    x, w, r = (call.operand(number) for number in range(3))
    require(all(len(t.shape) == 3 for t in (x, w, r)),
            "a recurrent layer's operands have three dimensions")  # fmt: skip
    kind, (directions, rows, size), hidden = call.op_type, w.shape, r.shape[2]
    require(size == x.shape[2], f"weights for {size} features, not {x.shape[2]}")
    require(rows == GATES[kind] * hidden, f"{rows} rows are not {GATES[kind]} gates of {hidden}")
    flops, transcendentals = _cell(call, kind)
    additions = 1 + 2 * call.has(3)  # of input and hidden part, and both biases
    peepholes = 6 if kind == "LSTM" and call.has(7) else 0  # a product and a sum for i, o, f
    clipped = 2 * GATES[kind] if "clip" in call.attributes else 0
    return recurrent_layer(
        steps=_tokens(call) * directions,
        gate_rows=rows,
        size=size,
        hidden=hidden,
        cell=(flops + peepholes + clipped, transcendentals),
        additions=additions,
    )


def _tokens(call: NodeCall) -> int:
    """Of all sequences together; beyond a known length nothing is computed."""
    (first, second), lengths = call.x.shape[:2], call.get(4)
    longest = second if call.attr("layout", 0) else first
    if lengths is None or lengths.value is None:
        return first * second
    known = [int(n) for n in lengths.value.ravel()]
    require(all(0 <= n <= longest for n in known), f"lengths of {known} in {longest} steps")
    return sum(known)


def _cell(call: NodeCall, kind: str) -> tuple[int, int]:
    """FLOPs and transcendentals of one hidden unit after its gates' sums."""
    named = [n.decode(errors="replace") if isinstance(n, bytes) else str(n)
             for n in call.attr("activations", [])]  # fmt: skip
    cell = CELLS[kind]
    names = named if len(named) >= len(cell) else [name for name, _ in cell]
    costs = [(activation_cost(name), gates) for name, (_, gates) in zip(names, cell, strict=False)]
    flops = sum(cost[0] * gates for cost, gates in costs)
    return flops + COMBINED[kind], sum(cost[1] * gates for cost, gates in costs)


add_rows("recurrent", {"LSTM GRU RNN": _recurrent})

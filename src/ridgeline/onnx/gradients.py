"""What one node's gradients cost, by the kind of its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from ridgeline.count.parts import Work
from ridgeline.count.per_element import (
    BATCH_NORM_BACKWARD,
    BATCH_NORM_TRAINING_BACKWARD,
    LAYER_NORM_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    PER_ELEMENT,
    RMS_NORM_BACKWARD,
    SOFTMAX_BACKWARD,
    Each,
)
from ridgeline.onnx.einsum import Pair, pairs
from ridgeline.onnx.formulas.norms import has_batch_statistics
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.row import FREE_KINDS, Row

NEEDED, MOVING = 1, 2  # somebody needs the gradient; the value depends on the graph's inputs
WEIGHT, ACTIVATION = NEEDED, NEEDED | MOVING  # where a gradient goes; 0: nobody needs one
INPUT_GRAD, WEIGHT_GRAD = "input-grad", "weight-grad"
Parts = dict[str, Work]
Sides = tuple[int, ...]

FUSED = {  # PyTorch's operator that gives the gradient
    "Relu": "threshold_backward", "ThresholdedRelu": "threshold_backward",
    "LeakyRelu": "leaky_relu_backward", "Clip": "hardtanh_backward",
    "Sigmoid": "sigmoid_backward", "Tanh": "tanh_backward", "HardSigmoid": "hardsigmoid_backward",
    "HardSwish": "hardswish_backward", "Elu": "elu_backward", "Selu": "elu_backward",
    "Celu": "elu_backward", "Softplus": "softplus_backward", "Mish": "mish_backward",
    "Gelu": "gelu_backward.none", "BiasGelu": "gelu_backward.none",
    "FastGelu": "gelu_backward.tanh", "Swish": "silu_backward",
}  # fmt: skip
POINTWISE: dict[str, Each] = {  # of an element's gradient
    **{name: PER_ELEMENT[theirs] for name, theirs in FUSED.items()},
    "QuickGelu": (9, 1),  # as Swish, and a product with 1.702
    "Exp": (1, 0), "Log": (1, 0), "Sqrt": (2, 0), "Neg": (1, 0), "Reciprocal": (3, 0),
    "Erf": (3, 1),
    "QuantizeLinear": (1, 0),  # as it is, but none beyond the limits
}  # fmt: skip
ROUNDED = ("Round", "Floor", "Ceil", "Sign")  # gradients of zeros, and they go on
SUMS = ("Add", "Sub", "Sum")
FREE = (
    *SUMS, "Concat", "Pad", "Cast", "CastLike", "Identity", "Tile", "Dropout", "DequantizeLinear",
)  # fmt: skip
NORMS = {  # FLOPs an element of the input's gradient, and of the weight's and bias's
    "BatchNormalization": BATCH_NORM_BACKWARD,
    "LayerNormalization": LAYER_NORM_BACKWARD,
    "RMSNormalization": RMS_NORM_BACKWARD,
    "SimplifiedLayerNormalization": RMS_NORM_BACKWARD,
    **dict.fromkeys(
        ("InstanceNormalization", "GroupNormalization", "SkipLayerNormalization"),
        (LAYER_NORM_BACKWARD[0] + 1, LAYER_NORM_BACKWARD[1]),  # there always is a weight
    ),
    "SkipSimplifiedLayerNormalization": (RMS_NORM_BACKWARD[0] + 1, RMS_NORM_BACKWARD[1]),
}
PROJECTING = ("Attention", "QAttention", "PackedAttention", "DecoderMaskedSelfAttention")
UNSCORED = ("LinearAttention", "GatedDeltaNet")
BIAS_OF_ALL = {  # the place of what is added to queries, keys and values
    "MultiHeadAttention": 3, "PackedMultiHeadAttention": 3, "DecoderMaskedMultiHeadAttention": 10,
}  # fmt: skip
MAY_HAVE_A_WEIGHT = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")


def gradient_of(row: Row, sides: Sides) -> Parts:
    """Work by phase; `sides` says for each operand where its gradient goes."""
    if not any(sides) or row.work is None or row.kind in FREE_KINDS:
        return {}
    rule = RULES.get(row.kind)
    if row.call.op_type in NORMS:
        return _norm(row, sides)
    return rule(row, sides) if rule is not None else _other(row, sides)


def phase_of(side: int) -> str:
    """The phase that a gradient belongs to by where it goes."""
    return WEIGHT_GRAD if side == WEIGHT else INPUT_GRAD


def _main_phase(sides: Sides) -> str:
    """Of a node whose gradients are one row: on through the graph if any is."""
    return INPUT_GRAD if ACTIVATION in sides else WEIGHT_GRAD


def _put(parts: Parts, side: int, work: Work) -> None:
    """Add work to the phase that a side belongs to; one row for each phase."""
    phase = phase_of(side)
    have = parts.get(phase)
    if have is None:
        parts[phase] = work
        return
    if work.macs and not have.macs:  # the formula is that of the products
        have, work = work, have
    parts[phase] = Work(
        macs=have.macs + work.macs,
        other_flops=have.other_flops + work.other_flops,
        transcendentals=have.transcendentals + work.transcendentals,
        read_bytes=(have.read_bytes or 0) + (work.read_bytes or 0),
        written_bytes=(have.written_bytes or 0) + (work.written_bytes or 0),
        factor=have.factor,
        terms=have.terms,
        more=have.more + (work.parts if bool(have.macs) == bool(work.macs) else ()),
    )


def _side(sides: Sides, place: int) -> int:
    return sides[place] if place < len(sides) else 0


def _nbytes(call: NodeCall, sides: Sides, *among: int) -> int:
    """Of the operands whose gradients go to one of these sides."""
    sided = zip(call.operands, sides, strict=False)
    return sum(t.nbytes for t, side in sided if t is not None and side in among)


def _read_bytes(row: Row) -> int:
    """What forward reads."""
    own = row.work.read_bytes if row.work is not None else None
    return row.call.read_bytes if own is None else own


def _product(row: Row, sides: Sides) -> Parts:
    """Each operand's gradient repeats the forward's products; a bias's is a sum of the result's."""
    call, work = row.call, row.work
    assert work is not None
    if call.op_type == "Einsum":
        return _einsum(row, sides)
    if call.op_type == "DeformConv":
        return _deformed(row, sides)
    grad = call.out.nbytes
    parts: Parts = {}
    factors = _factors(call)
    for place, other in ((factors[0], factors[1]), (factors[1], factors[0])):
        side, tensor, partner = _side(sides, place), call.get(place), call.get(other)
        if not side or tensor is None:
            continue
        read = grad + (partner.nbytes if partner is not None else 0)
        _put(parts, side, Work(macs=work.macs, read_bytes=read, written_bytes=tensor.nbytes,
                               factor=work.factor, terms=work.terms, more=work.more))  # fmt: skip
    for place, tensor in enumerate(call.operands):
        if place not in factors and tensor is not None and _side(sides, place):
            shared = 0 if parts.get(WEIGHT_GRAD) else grad  # read with the weight's gradient
            summed = Work.per_element(
                call.out.numel, 1, read_bytes=shared, written_bytes=tensor.nbytes
            )
            _put(parts, _side(sides, place), summed)
    return parts


def _einsum(row: Row, sides: Sides) -> Parts:
    """From left to right in pairs: both of a pair have a gradient where one in them needs it."""
    call = row.call
    parts: Parts = {}
    equation, shapes = call.attr("equation", ""), [t.shape for t in call.inputs]
    made, made_side = call.x, _einsum_side(call, sides, 0)
    for place, step in enumerate(pairs(equation, shapes), 1):
        last = call.given(place)
        out = replace(call.out, dims=(step.out,))
        for tensor, other, side, size in (
            (made, last, made_side, step.left),
            (last, made, _side(sides, place), step.right),
        ):
            if side & NEEDED:
                read = out.nbytes + other.nbytes
                _put(parts, side, _pair_gradient(step, size, read, tensor.nbytes))
        made, made_side = out, made_side | _einsum_side(call, sides, place)
    return parts


def _einsum_side(call: NodeCall, sides: Sides, place: int) -> int:
    """An operand without a gradient is data, but for what is stored or known."""
    tensor = call.given(place)
    is_data = tensor.value is None and not tensor.is_weight
    return _side(sides, place) or (MOVING if is_data else 0)


def _pair_gradient(step: Pair, size: int, read: int, written: int) -> Work:
    """As many multiply-adds as forward; of products of elements one each, summed if broadcast."""
    n = prod(factor for _, factor in step.terms)
    if not step.is_summed:
        return Work.per_element(n, 1 + (size < n), read_bytes=read, written_bytes=written)
    return Work(macs=n, read_bytes=read, written_bytes=written, factor=2, terms=step.terms)


def _deformed(row: Row, sides: Sides) -> Parts:
    """A weight's gradient and one of the samples, which the input, offsets and mask share."""
    call, work = row.call, row.work
    assert work is not None
    bias, grad = call.get(3), call.out.nbytes
    places = (0, 2, 4)  # of the input, the offsets and the mask
    sampled = [t for place in places if _side(sides, place) and (t := call.get(place)) is not None]
    parts: Parts = {}
    if sampled:
        parts[INPUT_GRAD] = replace(
            work,
            other_flops=work.other_flops - (call.out.numel if bias is not None else 0),
            read_bytes=call.read_bytes + grad,
            written_bytes=sum(t.nbytes for t in sampled),
        )
    if _side(sides, 1):
        read, written = grad + call.x.nbytes, call.given(1).nbytes
        products = replace(work, other_flops=0, read_bytes=read, written_bytes=written)
        _put(parts, sides[1], products)
    if bias is not None and _side(sides, 3):
        _put(parts, sides[3], Work.per_element(call.out.numel, 1, read_bytes=0,
                                               written_bytes=bias.nbytes))  # fmt: skip
    return parts


def _factors(call: NodeCall) -> tuple[int, int]:
    """Places of the two operands that are multiplied."""
    return (0, 3) if call.op_type in ("QLinearConv", "QLinearMatMul", "QGemm") else (0, 1)


def _attention(row: Row, sides: Sides) -> Parts:
    """Four products for the forward's two, as far as somebody needs them; then the projection's."""
    call, work = row.call, row.work
    assert work is not None
    projects = call.op_type in PROJECTING and bool(call.domain)
    w, bias = call.get(1), call.get(2)
    projected = call.x.numel * w.shape[1] if projects and w is not None else 0
    own = work.macs - projected
    macs = 2 * own if projected else _attended(call, sides, own)
    parts = {
        INPUT_GRAD: Work(
            macs=macs + projected * bool(_side(sides, 0)),
            other_flops=work.other_flops,
            read_bytes=_read_bytes(row) + 2 * call.out.nbytes,
            written_bytes=_nbytes(call, sides, ACTIVATION),
            factor=2 * work.factor if macs == 2 * own else work.factor,
            terms=work.terms if macs == 2 * own else (("macs", macs),),
            more=work.more if _side(sides, 0) else (),
        )
    }
    if projected and w is not None and _side(sides, 1):
        parts[WEIGHT_GRAD] = Work(
            macs=projected,
            read_bytes=call.x.nbytes + call.out.nbytes,
            written_bytes=w.nbytes,
            factor=2,
            terms=work.more[0][1],
        )
    if projected and bias is not None and _side(sides, 2):
        summed = projected // max(call.x.shape[-1], 1)
        _put(parts, sides[2], Work.per_element(summed, 1, read_bytes=0, written_bytes=bias.nbytes))
    return parts


def _attended(call: NodeCall, sides: Sides, macs: int) -> int:
    """dV = Pᵀ·dO for values; dP = dO·Vᵀ, and dQ = dS·K and dK = dSᵀ·Q for queries and keys."""
    q, k, out = call.x, call.get(1), call.out
    biased = BIAS_OF_ALL.get(call.op_type)
    if k is None or call.op_type in UNSCORED or (biased is not None and _side(sides, biased)):
        return 2 * macs
    of_values = macs * out.numel // max(q.numel + out.numel, 1)  # of Dqk+Dv, the share of Dv
    for_q, for_k, for_v, *others = (bool(_side(sides, place)) for place in range(len(sides)))
    through = for_q or for_k or any(others)
    return (for_v + through) * of_values + (for_q + for_k) * (macs - of_values)


def _recurrent(row: Row, sides: Sides) -> Parts:
    """Towards the input and the state before, and towards the weights: each as forward.

    The state before the first step needs none, unless something learned has made it.
    """
    call, work = row.call, row.work
    assert work is not None
    terms = dict(work.terms)
    rows, steps = terms["G·H"], terms["steps"]
    size = call.x.shape[-1]
    hidden = terms["(I+H)"] - size
    batch = call.x.shape[0 if call.attr("layout", 0) else 1]
    first = 0 if _side(sides, 5) else call.given(1).shape[0] * batch
    macs = rows * (size * steps * bool(_side(sides, 0)) + hidden * max(steps - first, 0))
    parts = {
        INPUT_GRAD: Work(
            macs=macs,
            other_flops=work.other_flops,
            read_bytes=call.read_bytes + call.written_bytes,
            written_bytes=call.x.nbytes if _side(sides, 0) else 0,
            factor=2,
            terms=(("macs", macs),),
        )
    }
    if WEIGHT in sides:
        parts[WEIGHT_GRAD] = Work(
            macs=work.macs,
            read_bytes=call.x.nbytes + 2 * call.written_bytes,
            written_bytes=_nbytes(call, sides, WEIGHT),
            factor=2,
            terms=work.terms,
        )
    return parts


def _norm(row: Row, sides: Sides) -> Parts:
    """Both gradients read the same; it is counted with the first."""
    call, n = row.call, row.call.x.numel
    apply, sums = NORMS[call.op_type]
    apply += call.op_type in MAY_HAVE_A_WEIGHT and call.has(1)
    if call.op_type == "BatchNormalization" and has_batch_statistics(call):
        apply, sums = BATCH_NORM_TRAINING_BACKWARD
        apply += 0 if WEIGHT in sides else sums
    weight_bytes = _nbytes(call, sides, WEIGHT)
    read = 2 * call.x.nbytes + weight_bytes
    parts: Parts = {}
    if _side(sides, 0):
        parts[INPUT_GRAD] = Work.per_element(n, apply, read_bytes=read, written_bytes=call.x.nbytes)
    if WEIGHT in sides:
        parts[WEIGHT_GRAD] = Work.per_element(
            n, sums, read_bytes=0 if parts else read, written_bytes=weight_bytes
        )
    return parts


def _gather(row: Row, sides: Sides) -> Parts:
    """Every row that was read gets its gradient added; the whole table's gradient is written."""
    call = row.call
    table, n = call.given(0), call.out.numel
    indices = call.get(1)
    read = call.out.nbytes + (indices.nbytes if indices is not None else 0)
    work = Work.per_element(n, 1, read_bytes=read, written_bytes=table.nbytes)
    return {phase_of(_side(sides, 0)): work}


def _pool(row: Row, sides: Sides) -> Parts:
    call = row.call
    window = prod(size for name, size in (row.work.terms if row.work else ()) if name == "window")
    out, per_result = call.out, 1 if "Max" in call.op_type else window + 1
    work = Work.per_element(
        out.numel, per_result, read_bytes=out.nbytes, written_bytes=call.x.nbytes
    )
    return {INPUT_GRAD: work}


def _pointwise(row: Row, sides: Sides) -> Parts:
    call, work = row.call, row.work
    assert work is not None
    if call.op_type in FREE:
        return _broadcast_only(call, sides)
    if call.op_type in ("Mul", "Div", "PRelu", "Pow"):
        return _two_sided(call, sides)
    if call.op_type in ROUNDED:
        zeros = Work(read_bytes=0, written_bytes=call.x.nbytes)
        return {_main_phase(sides): zeros}
    n = call.out.numel
    flops, roots = POINTWISE.get(call.op_type, (work.other_flops // max(n, 1),
                                                work.transcendentals // max(n, 1)))  # fmt: skip
    if call.op_type == "Gelu" and call.attr("approximate", "none") == "tanh":
        flops, roots = POINTWISE["FastGelu"]
    work = Work.per_element(
        n,
        flops,
        transcendentals=roots * n,
        read_bytes=2 * call.out.nbytes,
        written_bytes=_nbytes(call, sides, WEIGHT, ACTIVATION),
    )
    return {_main_phase(sides): work}


def _two_sided(call: NodeCall, sides: Sides) -> Parts:
    """g·b for a, g·a for b (one more for a quotient); summed where an operand was broadcast."""
    n, grad = call.out.numel, call.out.nbytes
    parts: Parts = {}
    for place, tensor in enumerate(call.operands[:2]):
        if tensor is None or not _side(sides, place):
            continue
        other = call.get(1 - place)
        flops = 1 + 2 * (call.op_type in ("Div", "Pow") and place == 1) + (tensor.numel < n)
        read = grad + (other.nbytes if other is not None else 0)
        work = Work.per_element(n, flops, read_bytes=read, written_bytes=tensor.nbytes)
        _put(parts, sides[place], work)
    return parts


def _broadcast_only(call: NodeCall, sides: Sides) -> Parts:
    """The gradient goes on as it is; a broadcast operand's is summed."""
    parts: Parts = {}
    n = call.out.numel
    if call.op_type not in SUMS:
        return parts
    for tensor, side in zip(call.operands, sides, strict=False):
        if tensor is not None and side and tensor.numel < n:
            read, written = call.out.nbytes, tensor.nbytes
            _put(parts, side, Work.per_element(n, 1, read_bytes=read, written_bytes=written))
    return parts


def _softmax(row: Row, sides: Sides) -> Parts:
    call, n = row.call, row.call.out.numel
    is_log = call.op_type == "LogSoftmax"
    flops, exponentials = LOG_SOFTMAX_BACKWARD if is_log else SOFTMAX_BACKWARD
    work = Work.per_element(
        n,
        flops,
        transcendentals=exponentials * n,
        read_bytes=2 * call.out.nbytes,
        written_bytes=call.x.nbytes,
    )
    return {INPUT_GRAD: work}


def _move(row: Row, sides: Sides) -> Parts:
    return {} if row.call.op_type in FREE else _other(row, sides)


def _other(row: Row, sides: Sides) -> Parts:
    """As forward, and the result's gradient is read too."""
    call, work = row.call, row.work
    assert work is not None
    same = replace(
        work,
        read_bytes=_read_bytes(row) + call.out.nbytes,
        written_bytes=_nbytes(call, sides, WEIGHT, ACTIVATION),
    )
    return {_main_phase(sides): same}


RULES: dict[str, Callable[[Row, Sides], Parts]] = {
    "matmul": _product, "conv": _product, "attention": _attention, "recurrent": _recurrent,
    "gather": _gather, "pool": _pool, "pointwise": _pointwise, "softmax": _softmax, "move": _move,
    "dropout": _move,
}  # fmt: skip

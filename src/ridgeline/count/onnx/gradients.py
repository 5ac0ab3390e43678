"""What one node's gradients cost, by the kind of its operator."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ridgeline.count.onnx.node import NodeCall, Tensor
from ridgeline.count.onnx.walk import FREE_KINDS, Row
from ridgeline.count.parts import Work

WEIGHT, ACTIVATION = 1, 2  # where a gradient goes: to weights alone, or on through the graph
INPUT_GRAD, WEIGHT_GRAD = "input-grad", "weight-grad"
Parts = dict[str, Work]
Sides = tuple[int, ...]

# FLOPs and transcendentals of an element's gradient, as PyTorch's fused backward operators
POINTWISE = {
    "Relu": (1, 0), "ThresholdedRelu": (1, 0), "LeakyRelu": (2, 0), "Clip": (2, 0),
    "Sigmoid": (3, 0), "Tanh": (3, 0), "HardSigmoid": (3, 0), "HardSwish": (5, 0), "Elu": (3, 1),
    "Selu": (3, 1), "Celu": (3, 1), "Softplus": (5, 1), "Mish": (9, 4), "Gelu": (9, 2),
    "FastGelu": (17, 1), "BiasGelu": (9, 2), "QuickGelu": (9, 1), "Swish": (8, 1), "Exp": (1, 0),
    "Log": (1, 0), "Sqrt": (2, 0), "Neg": (1, 0), "Reciprocal": (3, 0), "Erf": (3, 1),
}  # fmt: skip
SUMS = ("Add", "Sub", "Sum")
FREE = (*SUMS, "Concat", "Pad", "Cast", "CastLike", "Identity", "Tile", "Dropout")
NORMS = {  # FLOPs an element of the input's gradient, and of the weight's and bias's
    "BatchNormalization": (1, 4), "LayerNormalization": (9, 5), "InstanceNormalization": (10, 5),
    "GroupNormalization": (10, 5), "RMSNormalization": (6, 3),
    "SimplifiedLayerNormalization": (6, 3), "SkipLayerNormalization": (10, 5),
    "SkipSimplifiedLayerNormalization": (7, 3),
}  # fmt: skip


def gradient_of(row: Row, sides: Sides) -> Parts:
    """Work by phase; `sides` says for each operand where its gradient goes."""
    if not any(sides) or row.work is None or row.kind in FREE_KINDS:
        return {}
    rule = RULES.get(row.kind)
    if row.call.op_type in NORMS:
        return _norm(row, sides)
    return rule(row, sides) if rule is not None else _other(row, sides)


def _put(parts: Parts, side: int, work: Work) -> None:
    """Add work to the phase that a side belongs to; one row for each phase."""
    phase = WEIGHT_GRAD if side == WEIGHT else INPUT_GRAD
    have = parts.get(phase)
    if have is None:
        parts[phase] = work
        return
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


def _product(row: Row, sides: Sides) -> Parts:
    """Each operand's gradient repeats the forward's products; a bias's is a sum of the result's."""
    call, work = row.call, row.work
    assert work is not None
    grad = call.out.nbytes
    plain = 0 if work.macs else work.other_flops  # an Einsum that only multiplies or only adds
    parts: Parts = {}
    factors = _factors(call)
    for place, other in ((factors[0], factors[1]), (factors[1], factors[0])):
        side, tensor, partner = _side(sides, place), call.get(place), call.get(other)
        if not side or tensor is None:
            continue
        read = grad + (partner.nbytes if partner is not None else 0)
        _put(parts, side, Work(macs=work.macs, other_flops=plain, read_bytes=read,
                               written_bytes=tensor.nbytes, factor=work.factor,
                               terms=work.terms, more=work.more))  # fmt: skip
    for place, tensor in enumerate(call.operands):
        if place not in factors and tensor is not None and _side(sides, place):
            shared = 0 if parts.get(WEIGHT_GRAD) else grad  # read with the weight's gradient
            _put(parts, _side(sides, place), Work(other_flops=call.out.numel, read_bytes=shared,
                                                  written_bytes=tensor.nbytes,
                                                  terms=(("n", call.out.numel),)))  # fmt: skip
    return parts


def _factors(call: NodeCall) -> tuple[int, int]:
    """Places of the two operands that are multiplied."""
    return (0, 3) if call.op_type in ("QLinearConv", "QLinearMatMul", "QGemm") else (0, 1)


def _attention(row: Row, sides: Sides) -> Parts:
    """Four products for the forward's two; a projection's gradients go both ways."""
    call, work = row.call, row.work
    assert work is not None
    projects = call.op_type in ("Attention", "QAttention", "PackedAttention") and bool(call.domain)
    w = call.get(1)
    projected = call.x.numel * w.shape[1] if projects and w is not None else 0
    own = work.macs - projected
    grads = sum(
        t.nbytes for t, s in zip(call.operands, sides, strict=False) if t and s == ACTIVATION
    )
    parts = {
        INPUT_GRAD: Work(
            macs=2 * own + projected,
            other_flops=work.other_flops,
            read_bytes=call.read_bytes + 2 * call.out.nbytes,
            written_bytes=grads,
            factor=2 * work.factor,
            terms=work.terms,
            more=work.more,
        )
    }
    if projected and w is not None:
        parts[WEIGHT_GRAD] = Work(
            macs=projected,
            read_bytes=call.x.nbytes + call.out.nbytes,
            written_bytes=w.nbytes,
            factor=2,
            terms=(("projection", projected),),
        )
    return parts


def _recurrent(row: Row, sides: Sides) -> Parts:
    """Towards the input and the state before, and towards the weights: each as forward."""
    call, work = row.call, row.work
    assert work is not None
    weights = [t for t, s in zip(call.operands, sides, strict=False) if t and s == WEIGHT]
    hidden, size = call.given(2).shape[-1], call.given(1).shape[-1]
    share = 1.0 if _side(sides, 0) else hidden / max(hidden + size, 1)
    macs = round(work.macs * share)
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
    if weights:
        parts[WEIGHT_GRAD] = Work(
            macs=work.macs,
            read_bytes=call.x.nbytes + 2 * call.written_bytes,
            written_bytes=sum(t.nbytes for t in weights),
            factor=2,
            terms=work.terms,
        )
    return parts


def _norm(row: Row, sides: Sides) -> Parts:
    call = row.call
    n = call.x.numel
    apply, sums = NORMS[call.op_type]
    weights = [t for t, s in zip(call.operands, sides, strict=False) if t and s == WEIGHT]
    affine = call.op_type in ("LayerNormalization", "RMSNormalization") and call.has(1)
    apply += affine
    read = 2 * call.x.nbytes + sum(t.nbytes for t in weights)
    parts: Parts = {}
    if _side(sides, 0):
        parts[INPUT_GRAD] = Work(other_flops=apply * n, read_bytes=read,
                                 written_bytes=call.x.nbytes, factor=apply,
                                 terms=(("n", n),))  # fmt: skip
    if weights:
        parts[WEIGHT_GRAD] = Work(other_flops=sums * n, read_bytes=0 if parts else read,
                                  written_bytes=sum(t.nbytes for t in weights), factor=sums,
                                  terms=(("n", n),))  # fmt: skip
    return parts


def _gather(row: Row, sides: Sides) -> Parts:
    """Every row that was read gets its gradient added; the whole table's gradient is written."""
    call = row.call
    table, n = call.given(0), call.out.numel
    indices = call.get(1)
    read = call.out.nbytes + (indices.nbytes if indices is not None else 0)
    work = Work(other_flops=n, read_bytes=read, written_bytes=table.nbytes, terms=(("n", n),))
    return {WEIGHT_GRAD if _side(sides, 0) == WEIGHT else INPUT_GRAD: work}


def _pool(row: Row, sides: Sides) -> Parts:
    call = row.call
    window = prod(size for name, size in (row.work.terms if row.work else ()) if name == "window")
    n = call.out.numel
    per_result = 1 if "Max" in call.op_type else window + 1
    return {
        INPUT_GRAD: Work(other_flops=per_result * n, read_bytes=call.out.nbytes,
                         written_bytes=call.x.nbytes, factor=per_result, terms=(("n", n),))
    }  # fmt: skip


def _pointwise(row: Row, sides: Sides) -> Parts:
    call, work = row.call, row.work
    assert work is not None
    if call.op_type in FREE:
        return _broadcast_only(call, sides)
    if call.op_type in ("Mul", "Div", "PRelu", "Pow"):
        return _two_sided(call, sides)
    n = call.out.numel
    flops, roots = POINTWISE.get(call.op_type, (work.other_flops // max(n, 1),
                                                work.transcendentals // max(n, 1)))  # fmt: skip
    if call.op_type == "Gelu" and call.attr("approximate", "none") == "tanh":
        flops, roots = POINTWISE["FastGelu"]
    written = sum(t.nbytes for t, s in zip(call.operands, sides, strict=False) if t and s)
    side = ACTIVATION if ACTIVATION in sides else WEIGHT
    parts: Parts = {}
    _put(parts, side, Work(other_flops=flops * n, transcendentals=roots * n,
                           read_bytes=2 * call.out.nbytes, written_bytes=written, factor=flops,
                           terms=(("n", n),)))  # fmt: skip
    return parts


def _two_sided(call: NodeCall, sides: Sides) -> Parts:
    """g·b for a, g·a for b (one more for a quotient); summed where an operand was broadcast."""
    n, grad = call.out.numel, call.out.nbytes
    parts: Parts = {}
    for place, tensor in enumerate(call.operands[:2]):
        if tensor is None or not _side(sides, place):
            continue
        other = call.get(1 - place)
        flops = 1 + 2 * (call.op_type in ("Div", "Pow") and place == 1) + (tensor.numel < n)
        _put(parts, sides[place], Work(other_flops=flops * n,
                                       read_bytes=grad + (other.nbytes if other else 0),
                                       written_bytes=tensor.nbytes, factor=flops,
                                       terms=(("n", n),)))  # fmt: skip
    return parts


def _broadcast_only(call: NodeCall, sides: Sides) -> Parts:
    """The gradient goes on as it is; a broadcast operand's is summed."""
    parts: Parts = {}
    n = call.out.numel
    if call.op_type not in SUMS:
        return parts
    for tensor, side in zip(call.operands, sides, strict=False):
        if tensor is not None and side and tensor.numel < n:
            _put(parts, side, Work(other_flops=n, read_bytes=call.out.nbytes,
                                   written_bytes=tensor.nbytes, terms=(("n", n),)))  # fmt: skip
    return parts


def _softmax(row: Row, sides: Sides) -> Parts:
    call = row.call
    n, log = call.out.numel, call.op_type == "LogSoftmax"
    return {
        INPUT_GRAD: Work(other_flops=(3 if log else 4) * n, transcendentals=n * log,
                         read_bytes=2 * call.out.nbytes, written_bytes=call.x.nbytes,
                         factor=3 if log else 4, terms=(("n", n),))
    }  # fmt: skip


def _move(row: Row, sides: Sides) -> Parts:
    return {} if row.call.op_type in FREE else _other(row, sides)


def _other(row: Row, sides: Sides) -> Parts:
    """As forward, and the result's gradient is read too."""
    call, work = row.call, row.work
    assert work is not None
    wanted: list[Tensor] = [t for t, s in zip(call.operands, sides, strict=False) if t and s]
    side = ACTIVATION if ACTIVATION in sides else WEIGHT
    read = call.read_bytes if work.read_bytes is None else work.read_bytes
    parts: Parts = {}
    _put(parts, side, Work(macs=work.macs, other_flops=work.other_flops,
                           transcendentals=work.transcendentals,
                           read_bytes=read + call.out.nbytes,
                           written_bytes=sum(t.nbytes for t in wanted), factor=work.factor,
                           terms=work.terms, more=work.more))  # fmt: skip
    return parts


RULES: dict[str, Callable[[Row, Sides], Parts]] = {
    "matmul": _product, "conv": _product, "attention": _attention, "recurrent": _recurrent,
    "gather": _gather, "pool": _pool, "pointwise": _pointwise, "softmax": _softmax, "move": _move,
    "dropout": _move,
}  # fmt: skip

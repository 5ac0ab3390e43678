"""A training step of an inference graph: the cost of every node's gradients.

The file has no backward pass, so this is an estimate by a rule for each kind of operator. Each
gradient of a product repeats the forward's multiply-adds. Normalisations, softmax, activations,
pooling and lookups have PyTorch's backward numbers. Any other operator's input gradient is taken to
cost as much as its forward, and to read its operands and the result's gradient. Views, joins and
sums cost nothing; a value that several nodes use has its gradients added. The loss is not in the
file: every output that can have a gradient is taken to get one. A loop's gradients are those of its
body times the trip count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import or_
from typing import NamedTuple

from ridgeline.costs.norm import (
    BATCH_NORM_BACKWARD,
    BATCH_NORM_TRAINING_BACKWARD,
    LAYER_NORM_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    RMS_NORM_BACKWARD,
    SOFTMAX_BACKWARD,
    norm_backward,
)
from ridgeline.costs.pointwise import PER_ELEMENT
from ridgeline.costs.work import Each, Work
from ridgeline.onnx.node import UNKNOWN, NodeCall, Tensor
from ridgeline.onnx.node_cost import FREE_KINDS, NodeCost, Stored
from ridgeline.onnx.ops import MS
from ridgeline.onnx.ops.elementwise import has_batch_statistics

NOTE = (
    "training is estimated: the file has no backward pass and no loss;"
    " gradients of products are exact, the others follow the rules in docs/onnx.md"
)
NO_GRADIENT_NOTE = (
    "nothing in this file has a gradient, as no floating-point parameter leads to a floating-point"
    " result: there is no backward pass"
)
NEEDED, MOVING = 1, 2  # the gradient is needed; the value depends on the graph's inputs
WEIGHT, ACTIVATION = NEEDED, NEEDED | MOVING  # where a gradient goes; 0: it is not needed
INPUT_GRAD, WEIGHT_GRAD = "input-grad", "weight-grad"
WITHOUT_GRADIENT = ("RandomNormalLike", "RandomUniformLike", "EyeLike", "Hardmax")
Parts = dict[str, Work]  # by phase
Sides = tuple[int, ...]  # for each operand where its gradient goes
Links = Sequence[tuple[int, int]]
MOST_OPERANDS = 16  # that rules look at


class Gradient(NamedTuple):
    """One row of the backward pass."""

    row: NodeCost
    phase: str
    call: NodeCall
    work: Work | None


# ---------------------------------------------------------------- which values need a gradient


def find_gradients(
    rows: list[NodeCost], stored: Stored, outputs: Iterable[Tensor], links: Links
) -> list[Gradient]:
    """The gradients of all nodes, last first. `links` are values that loops make others of."""
    graph = _Backward(rows, stored.trained, outputs, links)
    gradients: list[Gradient] = []
    for row in reversed(rows):
        if graph.is_active(row):
            gradients += graph.sums(row)
            gradients += _row_gradients(row, graph.operand_sides(row))
    for ident, tensor in stored.params.items():  # so are those of a weight that several nodes use
        if (more := graph.uses[ident] - 1) > 0:
            call = NodeCall("", "Add", "", 0, {}, (tensor,), (tensor,))
            row = NodeCost(stored.used_by[ident], "pointwise", call, None)
            gradients.append(Gradient(row, WEIGHT_GRAD, call, _sum_of(tensor, more)))
    return gradients


class _Backward:
    """Which values need a gradient and get one; how many gradients each value gets."""

    def __init__(
        self, rows: list[NodeCost], trained: Iterable[int], outputs: Iterable[Tensor], links: Links
    ) -> None:
        self.rows, self.links = rows, links
        self.sides = dict.fromkeys(trained, WEIGHT)
        while self._pass_forward() and links:  # what a loop's state needs may come from its end
            pass
        roots = {i for t in outputs for i in self._idents(t) if self.sides.get(i, 0) & NEEDED}
        self.is_strict = bool(roots)  # else no output has one, as the index of the largest logit
        self.reached = set(roots)
        while self._pass_backward() and links:
            pass
        self.uses = Counter(roots)
        for row in filter(self.is_active, rows):
            for tensor in self._differentiated(row):
                self.uses.update(dict.fromkeys(self._idents(tensor), row.repeats))
        self.continued = {a for a, b in links if b in self.reached}

    def _pass_forward(self) -> bool:
        """Where the gradient of each result goes; whether anything is new."""
        before = sum(self.sides.values()) + len(self.sides)
        for row in self.rows:
            side = self._common_side(row)
            for out in row.call.outputs:
                if not out.is_weight:
                    has_one = bool(side & NEEDED) and _can_have_gradient(row.call, out)
                    self._add(out.ident, side if has_one else side & MOVING)
        for a, b in self.links:
            self._add(b, self.sides.get(a, MOVING))
        return sum(self.sides.values()) + len(self.sides) != before

    def _add(self, ident: int, side: int) -> None:
        self.sides[ident] = self.sides.get(ident, 0) | side

    def _pass_backward(self) -> bool:
        """Which values a gradient reaches; whether anything is new."""
        before = len(self.reached)
        for row in filter(self.is_active, reversed(self.rows)):
            for tensor in self._differentiated(row):
                self.reached.update(self._idents(tensor))
        self.reached.update(a for a, b in self.links if b in self.reached)
        return len(self.reached) != before

    def _idents(self, tensor: Tensor) -> list[int]:
        """A sequence that no node has made, as SequenceMap's, is its items."""
        if tensor.items and tensor.ident not in self.sides:
            return [ident for item in tensor.items for ident in self._idents(item)]
        return [tensor.ident]

    def _side(self, tensor: Tensor | None) -> int:
        """A value that is known beforehand, or stored, is the same in every step."""
        if tensor is None:
            return 0
        if tensor.value is not None or tensor.is_weight:
            return self.sides.get(tensor.ident, 0) & NEEDED
        return reduce(or_, (self.sides.get(ident, MOVING) for ident in self._idents(tensor)), 0)

    def _common_side(self, row: NodeCost) -> int:
        return reduce(or_, map(self._side, row.call.inputs), 0)

    def operand_sides(self, row: NodeCost) -> Sides:
        sides = map(self._side, row.call.operands)
        return tuple(side if side & NEEDED else 0 for side in sides)

    def _differentiated(self, row: NodeCost) -> list[Tensor]:
        """The operands that get a gradient."""
        return [t for t in row.call.operands if t is not None and self._side(t) & NEEDED]

    def results(self, row: NodeCost) -> list[Tensor]:
        """Those that need a gradient."""
        if not self._common_side(row) & NEEDED:
            return []
        return [t for t in row.call.outputs
                if not t.is_weight and _can_have_gradient(row.call, t)]  # fmt: skip

    def is_active(self, row: NodeCost) -> bool:
        results = self.results(row)
        return any(not self.is_strict or out.ident in self.reached for out in results)

    def sums(self, row: NodeCost) -> Iterator[Gradient]:
        """Gradients of a value that several nodes use are added."""
        phase = _phase(self._common_side(row))
        for out in self.results(row):
            more = self.uses[out.ident] + row.repeats * (out.ident in self.continued) - row.repeats
            if more > 0 and out.is_known:
                yield Gradient(replace(row, repeats=1), phase, row.call, _sum_of(out, more))


def _can_have_gradient(call: NodeCall, out: Tensor) -> bool:
    """Not integers, nor a result that only takes a shape; perhaps one of an unknown type."""
    if call.op_type in WITHOUT_GRADIENT:
        return False
    return out.is_float or out.items is not None or out.dtype is UNKNOWN


def _sum_of(tensor: Tensor, more: int) -> Work:
    nbytes = tensor.nbytes * more
    return Work.per_element(tensor.numel * more, 1, read_bytes=2 * nbytes, written_bytes=nbytes)


def _row_gradients(row: NodeCost, sides: Sides) -> Iterator[Gradient]:
    if row.work is None:
        yield Gradient(row, INPUT_GRAD, row.call, None)
    elif row.kind not in FREE_KINDS:
        rule = _norm if row.call.op_type in NORMS else RULES.get(row.kind, _as_forward)
        for phase, work in rule(row.call, row.work, (*sides, *[0] * MOST_OPERANDS)).items():
            yield Gradient(row, phase, row.call, work)


# ---------------------------------------------------------------- the cost of one node's gradients

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
    "Erf": (3, 1), "Softmax": SOFTMAX_BACKWARD, "LogSoftmax": LOG_SOFTMAX_BACKWARD,
}  # fmt: skip
ZERO_GRADIENT = ("Round", "Floor", "Ceil", "Sign")  # zeros are written, and go on
SUMS = ("Add", "Sub", "Sum")
FREE = (
    *SUMS, "Concat", "Pad", "Cast", "CastLike", "Identity", "Tile", "Dropout", "DequantizeLinear",
)  # fmt: skip
AFFINE = (LAYER_NORM_BACKWARD[0] + 1, LAYER_NORM_BACKWARD[1])  # there always is a weight
NORMS = {  # FLOPs an element of the input's gradient, and of the weight's and bias's
    "BatchNormalization": BATCH_NORM_BACKWARD,
    "LayerNormalization": LAYER_NORM_BACKWARD,
    "RMSNormalization": RMS_NORM_BACKWARD,
    "SimplifiedLayerNormalization": RMS_NORM_BACKWARD,
    "InstanceNormalization": AFFINE, "GroupNormalization": AFFINE, "SkipLayerNormalization": AFFINE,
    "SkipSimplifiedLayerNormalization": (RMS_NORM_BACKWARD[0] + 1, RMS_NORM_BACKWARD[1]),
}  # fmt: skip
MAY_HAVE_A_WEIGHT = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
SECOND_FACTOR = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}  # else operand 1


def _phase(side: int) -> str:
    """The phase that a gradient belongs to by where it goes."""
    return WEIGHT_GRAD if side == WEIGHT else INPUT_GRAD


def _main_phase(sides: Sides) -> str:
    """Of a node whose gradients are one row: on through the graph if any is."""
    return INPUT_GRAD if ACTIVATION in sides else WEIGHT_GRAD


def _nbytes(call: NodeCall, sides: Sides, *among: int) -> int:
    """Of the operands whose gradients go to one of these sides."""
    sided = zip(call.operands, sides, strict=False)
    return sum(t.nbytes for t, side in sided if t is not None and side in among)


def _read_bytes(call: NodeCall, work: Work) -> int:
    """Of the forward."""
    return call.read_bytes if work.read_bytes is None else work.read_bytes


def _put(parts: Parts, side: int, work: Work) -> None:
    """Add work to the phase that a side belongs to; one row for each phase."""
    phase = _phase(side)
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


def _product(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Each operand's gradient repeats the forward's products; a bias's is a sum of the result's."""
    if not work.macs:
        return _as_forward(call, work, sides)
    is_einsum = call.op_type == "Einsum"
    second = SECOND_FACTOR.get(call.op_type, 1)
    factors = range(len(call.operands)) if is_einsum else (0, second)
    parts, grad = Parts(), call.out.nbytes
    for number, tensor in enumerate(call.operands):
        side = sides[number]
        if tensor is None or not side:
            continue
        if number in factors:
            others = (call.get(other) for other in factors if other != number)
            read = grad + sum(t.nbytes for t in others if t is not None)
            _put(parts, side, replace(work, other_flops=0, transcendentals=0, read_bytes=read,
                                      written_bytes=tensor.nbytes))  # fmt: skip
        else:
            shared = 0 if parts.get(WEIGHT_GRAD) else grad  # read with the weight's gradient
            _put(parts, side, Work.per_element(call.out.numel, 1, read_bytes=shared,
                                               written_bytes=tensor.nbytes))  # fmt: skip
    return parts


def _attention(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Four products for the forward's two; then those of the projection, where there is one."""
    projects = call.domain == MS and call.op_type in ("Attention", "QAttention")
    weight, bias = call.get(1), call.get(2)
    projected = call.x.numel * weight.shape[1] if projects and weight is not None else 0
    parts = {
        INPUT_GRAD: replace(
            work,
            macs=2 * (work.macs - projected) + projected * bool(sides[0]),
            transcendentals=0,
            read_bytes=_read_bytes(call, work) + 2 * call.out.nbytes,
            written_bytes=_nbytes(call, sides, ACTIVATION),
            factor=2 * work.factor,
            more=work.more if sides[0] else (),
        )
    }
    if projected and weight is not None and sides[1]:
        parts[WEIGHT_GRAD] = Work(
            macs=projected,
            read_bytes=call.x.nbytes + call.out.nbytes,
            written_bytes=weight.nbytes,
            factor=2,
            terms=work.more[0][1],
        )
    if projected and bias is not None and sides[2]:
        sums = projected // max(call.x.shape[-1], 1)
        _put(parts, sides[2], Work.per_element(sums, 1, read_bytes=0, written_bytes=bias.nbytes))
    return parts


def _recurrent(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Towards the input and the state before, and towards the weights: each as forward.

    The state before the first step needs none, unless it has a gradient itself.
    """
    terms = dict(work.terms)
    rows, steps, size = terms["G·H"], terms["steps"], call.x.shape[-1]
    hidden = terms["(I+H)"] - size
    batch = call.x.shape[0 if call.attr("layout", 0) else 1]
    first = 0 if sides[5] else call.operand(1).shape[0] * batch
    macs = rows * (size * steps * bool(sides[0]) + hidden * max(steps - first, 0))
    parts = {
        INPUT_GRAD: Work(
            macs=macs,
            other_flops=work.other_flops,
            read_bytes=call.read_bytes + call.written_bytes,
            written_bytes=call.x.nbytes if sides[0] else 0,
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


def _norm(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Both gradients read the same; it is counted with the first."""
    apply, sums = NORMS[call.op_type]
    apply += call.op_type in MAY_HAVE_A_WEIGHT and call.has(1)
    if call.op_type == "BatchNormalization" and has_batch_statistics(call):
        apply, sums = BATCH_NORM_TRAINING_BACKWARD
    weight_bytes = _nbytes(call, sides, WEIGHT)
    return norm_backward(
        (apply, sums),
        call.x,
        wants_input=bool(sides[0]),
        wants_weight=WEIGHT in sides,
        read_bytes=2 * call.x.nbytes + weight_bytes,
        weight_bytes=weight_bytes,
    )


def _gather(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Every row that was read gets its gradient added; the whole table's gradient is written."""
    indices = call.get(1)
    read = call.out.nbytes + (indices.nbytes if indices is not None else 0)
    added = Work.per_element(call.out.numel, 1, read_bytes=read, written_bytes=call.x.nbytes)
    return {_phase(sides[0]): added}


def _pool(call: NodeCall, work: Work, sides: Sides) -> Parts:
    window = prod(size for name, size in work.terms if name == "window")
    out, per_result = call.out, 1 if "Max" in call.op_type else window + 1
    return {
        INPUT_GRAD: Work.per_element(
            out.numel, per_result, read_bytes=out.nbytes, written_bytes=call.x.nbytes
        )
    }


def _pointwise(call: NodeCall, work: Work, sides: Sides) -> Parts:
    n = call.out.numel
    if call.op_type in FREE:
        return _broadcast_sums(call, sides)
    if call.op_type in ("Mul", "Div", "PRelu", "Pow"):
        return _two_sided(call, sides)
    if call.op_type in ZERO_GRADIENT:
        return {_main_phase(sides): Work(read_bytes=0, written_bytes=call.x.nbytes)}
    as_forward = (work.other_flops // max(n, 1), work.transcendentals // max(n, 1))
    is_tanh = call.op_type == "Gelu" and call.attr("approximate", "none") == "tanh"
    flops, one = POINTWISE.get("FastGelu" if is_tanh else call.op_type, as_forward)
    return {
        _main_phase(sides): Work.per_element(
            n,
            flops,
            transcendentals=one * n,
            read_bytes=2 * call.out.nbytes,
            written_bytes=_nbytes(call, sides, WEIGHT, ACTIVATION),
        )
    }


def _two_sided(call: NodeCall, sides: Sides) -> Parts:
    """g·b for a, g·a for b (one more for a quotient); summed where an operand was broadcast."""
    n, grad = call.out.numel, call.out.nbytes
    parts: Parts = {}
    for number, tensor in enumerate(call.operands[:2]):
        if tensor is None or not sides[number]:
            continue
        other = call.get(1 - number)
        flops = 1 + 2 * (call.op_type in ("Div", "Pow") and number == 1) + (tensor.numel < n)
        read = grad + (other.nbytes if other is not None else 0)
        work = Work.per_element(n, flops, read_bytes=read, written_bytes=tensor.nbytes)
        _put(parts, sides[number], work)
    return parts


def _broadcast_sums(call: NodeCall, sides: Sides) -> Parts:
    """The gradient goes on as it is; a broadcast operand's is summed."""
    parts: Parts = {}
    n = call.out.numel
    for tensor, side in zip(call.operands, sides, strict=False):
        if call.op_type in SUMS and tensor is not None and side and tensor.numel < n:
            read, written = call.out.nbytes, tensor.nbytes
            _put(parts, side, Work.per_element(n, 1, read_bytes=read, written_bytes=written))
    return parts


def _as_forward(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """As forward, and the result's gradient is read too; joins and copies cost nothing."""
    if call.op_type in FREE:
        return {}
    read = _read_bytes(call, work) + call.out.nbytes
    written = _nbytes(call, sides, WEIGHT, ACTIVATION)
    return {_main_phase(sides): work.with_bytes(read=read, written=written)}


RULES: dict[str, Callable[[NodeCall, Work, Sides], Parts]] = {
    "matmul": _product, "conv": _product, "attention": _attention, "recurrent": _recurrent,
    "gather": _gather, "pool": _pool, "pointwise": _pointwise, "softmax": _pointwise,
}  # fmt: skip

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
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ridgeline.costs.elementwise import (
    BATCH_NORM_BACKWARD,
    BATCH_NORM_TRAINING_BACKWARD,
    LAYER_NORM_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    PER_ELEMENT,
    RMS_NORM_BACKWARD,
    SOFTMAX_BACKWARD,
    norm_backward,
)
from ridgeline.costs.work import Each, Work
from ridgeline.onnx.node import UNKNOWN, Constants, NodeCall, Tensor
from ridgeline.onnx.node_cost import FREE_KINDS, NodeCost, Stored
from ridgeline.onnx.ops.elementwise import has_batch_statistics

NOTE = (
    "training is estimated: the file has no backward pass and no loss;"
    " gradients of products are exact, the others follow the rules in docs/onnx.md"
)
NO_GRADIENT_NOTE = (
    "nothing in this file has a gradient, as no floating-point parameter leads to a floating-point"
    " result: there is no backward pass"
)
PHASES = INPUT_GRAD, WEIGHT_GRAD = "input-grad", "weight-grad"
WITHOUT_GRADIENT = ("RandomNormalLike", "RandomUniformLike", "EyeLike", "Hardmax")
Parts = list[tuple[str, Work]]  # phases, and work in them
Sides = tuple[str, ...]  # for each operand the phase of its gradient; empty where it has none
Links = Sequence[tuple[int, int]]
MOST_OPERANDS = 16  # that rules look at


class Gradient(NamedTuple):
    """One row of the backward pass."""

    row: NodeCost
    phase: str
    call: NodeCall
    work: Work | None


# ---------------------------------------------------------------- which values have a gradient


def find_gradients(
    rows: list[NodeCost], stored: Stored, outputs: Iterable[Tensor], links: Links
) -> list[Gradient]:
    """The gradients of all nodes, last first. `links` are values that loops make others of.

    The gradient of a value goes on to the input, or to weights where weights alone make the value.
    """
    constants = Constants(row.call for row in rows)
    needed = _find_needed(rows, stored.trained, links)
    roots = {t.ident for t in outputs} & needed
    # no output may have a gradient, as the index of the largest logit: then all values get one
    reached = _find_reached(rows, needed, roots or needed, links)
    active = [row for row in rows if _is_active(row.call, needed, reached)]
    uses = Counter(roots)  # how many gradients each value gets
    for row in active:
        for tensor in row.call.inputs:
            uses[tensor.ident] += row.repeats * (tensor.ident in needed)
    continued = {a for a, b in links if b in reached}
    gradients: list[Gradient] = []
    for row in reversed(active):
        for out in _differentiable(row.call):  # gradients of a value that several nodes use
            more = uses[out.ident] + row.repeats * (out.ident in continued) - row.repeats
            if more > 0 and out.is_known:
                phase = WEIGHT_GRAD if out in constants else INPUT_GRAD
                gradients.append(
                    Gradient(replace(row, repeats=1), phase, row.call, _sum_of(out, more))
                )
        sides = tuple(_phase_of(tensor, needed, constants) for tensor in row.call.operands)
        gradients += _row_gradients(row, sides)
    for ident, tensor in stored.params.items():  # and of a weight
        if (more := uses[ident] - 1) > 0:
            call = NodeCall("", "Add", "", 0, {}, (tensor,), (tensor,))
            row = NodeCost(stored.used_by[ident], "pointwise", call, None)
            gradients.append(Gradient(row, WEIGHT_GRAD, call, _sum_of(tensor, more)))
    return gradients


def _find_needed(rows: Sequence[NodeCost], trained: Iterable[int], links: Links) -> set[int]:
    """The values that trained weights lead to; what a loop's state needs may come from its end."""
    needed, before = set(trained), -1
    while len(needed) != before:
        before = len(needed)
        for row in rows:
            if any(tensor.ident in needed for tensor in row.call.inputs):
                needed.update(out.ident for out in _differentiable(row.call))
        needed.update(b for a, b in links if a in needed)
    return needed


def _find_reached(
    rows: Sequence[NodeCost], needed: Set[int], roots: Set[int], links: Links
) -> set[int]:
    """The values that a gradient reaches from the outputs."""
    reached, before = set(roots), -1
    while len(reached) != before:
        before = len(reached)
        for row in reversed(rows):
            if _is_active(row.call, needed, reached):
                reached.update(t.ident for t in row.call.inputs if t.ident in needed)
        reached.update(a for a, b in links if b in reached)
    return reached


def _is_active(call: NodeCall, needed: Set[int], reached: Set[int]) -> bool:
    """Whether a node has an operand that needs a gradient, and a result that gets one."""
    return any(t.ident in needed for t in call.inputs) and any(
        out.ident in reached for out in _differentiable(call)
    )


def _differentiable(call: NodeCall) -> list[Tensor]:
    """The results but integers and those that only take a shape; perhaps of an unknown type."""
    if call.op_type in WITHOUT_GRADIENT:
        return []
    return [
        out
        for out in call.outputs
        if not out.is_weight and (out.is_float or out.items is not None or out.dtype is UNKNOWN)
    ]


def _phase_of(tensor: Tensor | None, needed: Set[int], constants: Constants) -> str:
    if tensor is None or tensor.ident not in needed:
        return ""
    return WEIGHT_GRAD if tensor in constants else INPUT_GRAD


def _sum_of(tensor: Tensor, more: int) -> Work:
    nbytes = tensor.nbytes * more
    return Work.per_element(tensor.numel * more, 1, read_bytes=2 * nbytes, written_bytes=nbytes)


def _row_gradients(row: NodeCost, sides: Sides) -> Iterator[Gradient]:
    if row.work is None:
        yield Gradient(row, INPUT_GRAD, row.call, None)
    elif row.kind not in FREE_KINDS:
        rule = _norm if row.call.op_type in NORMS else RULES.get(row.kind, _as_forward)
        for phase, work in rule(row.call, row.work, (*sides, *[""] * MOST_OPERANDS)):
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


def _main_phase(sides: Sides) -> str:
    """Of a node whose gradients are one row: on through the graph if any is."""
    return INPUT_GRAD if INPUT_GRAD in sides else WEIGHT_GRAD


def _gradient_bytes(call: NodeCall, sides: Sides, *phases: str) -> int:
    """Of the operands whose gradients belong to one of these phases, by default to any."""
    sided = zip(call.operands, sides, strict=False)
    return sum(t.nbytes for t, side in sided if t is not None and side in (phases or PHASES))


def _read_bytes(call: NodeCall, work: Work) -> int:
    """Of the forward."""
    return call.read_bytes if work.read_bytes is None else work.read_bytes


def _product(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Each operand's gradient repeats the forward's products; a bias's is a sum of the result's."""
    if not work.macs:
        return _as_forward(call, work, sides)
    factors = range(len(call.operands) if call.op_type == "Einsum" else 2)
    parts, grad = Parts(), call.out.nbytes
    for number, (tensor, side) in enumerate(zip(call.operands, sides, strict=False)):
        if tensor is None or not side:
            continue
        if number in factors:
            others = (call.get(other) for other in factors if other != number)
            read = grad + sum(t.nbytes for t in others if t is not None)
            product = replace(work, other_flops=0, transcendentals=0)
            parts.append((side, product.with_bytes(read=read, written=tensor.nbytes)))
        else:
            shared = 0 if WEIGHT_GRAD in dict(parts) else grad  # read with the weight's gradient
            parts.append((side, _sum_of_result(call, tensor, read=shared)))
    return parts


def _sum_of_result(call: NodeCall, tensor: Tensor, *, read: int) -> Work:
    """The gradient of an operand that was broadcast."""
    return Work.per_element(call.out.numel, 1, read_bytes=read, written_bytes=tensor.nbytes)


def _attention(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Four products for the forward's two, all in one row; those of a projection likewise."""
    gradient = replace(
        work,
        macs=2 * work.macs,
        transcendentals=0,
        read_bytes=_read_bytes(call, work) + 2 * call.out.nbytes,
        written_bytes=_gradient_bytes(call, sides),
        factor=2 * work.factor,
        more=tuple((2 * factor, terms) for factor, terms in work.more),
    )
    return [(INPUT_GRAD, gradient)]


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
    towards_input = Work(
        macs=macs,
        other_flops=work.other_flops,
        read_bytes=call.read_bytes + call.written_bytes,
        written_bytes=call.x.nbytes if sides[0] else 0,
        factor=2,
        terms=(("macs", macs),),
    )
    towards_weights = Work(
        macs=work.macs,
        read_bytes=call.x.nbytes + 2 * call.written_bytes,
        written_bytes=_gradient_bytes(call, sides, WEIGHT_GRAD),
        factor=2,
        terms=work.terms,
    )
    both = [(INPUT_GRAD, towards_input), (WEIGHT_GRAD, towards_weights)]
    return both if WEIGHT_GRAD in sides else both[:1]


def _norm(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Both gradients read the same; it is counted with the first."""
    apply, sums = NORMS[call.op_type]
    apply += call.op_type in MAY_HAVE_A_WEIGHT and call.has(1)
    if call.op_type == "BatchNormalization" and has_batch_statistics(call):
        apply, sums = BATCH_NORM_TRAINING_BACKWARD
    weight_bytes = _gradient_bytes(call, sides, WEIGHT_GRAD)
    parts = norm_backward(
        (apply, sums),
        call.x,
        wants_input=bool(sides[0]),
        wants_weight=WEIGHT_GRAD in sides,
        read_bytes=2 * call.x.nbytes + weight_bytes,
        weight_bytes=weight_bytes,
    )
    return list(parts.items())


def _gather(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Every row that was read gets its gradient added; the whole table's gradient is written."""
    indices = call.get(1)
    read = call.out.nbytes + (indices.nbytes if indices is not None else 0)
    added = Work.per_element(call.out.numel, 1, read_bytes=read, written_bytes=call.x.nbytes)
    return [(sides[0], added)]


def _pool(call: NodeCall, work: Work, sides: Sides) -> Parts:
    window = prod(size for name, size in work.terms if name == "window")
    out, per_result = call.out, 1 if "Max" in call.op_type else window + 1
    gradient = Work.per_element(
        out.numel, per_result, read_bytes=out.nbytes, written_bytes=call.x.nbytes
    )
    return [(INPUT_GRAD, gradient)]


def _pointwise(call: NodeCall, work: Work, sides: Sides) -> Parts:
    n = call.out.numel
    if call.op_type in FREE:
        return _broadcast_sums(call, sides)
    if call.op_type in ("Mul", "Div", "PRelu", "Pow"):
        return _two_sided(call, sides)
    if call.op_type in ZERO_GRADIENT:
        return [(_main_phase(sides), Work(read_bytes=0, written_bytes=call.x.nbytes))]
    as_forward = (work.other_flops // max(n, 1), work.transcendentals // max(n, 1))
    is_tanh = call.op_type == "Gelu" and call.attr("approximate", "none") == "tanh"
    flops, one = POINTWISE.get("FastGelu" if is_tanh else call.op_type, as_forward)
    gradient = Work.per_element(
        n,
        flops,
        transcendentals=one * n,
        read_bytes=2 * call.out.nbytes,
        written_bytes=_gradient_bytes(call, sides),
    )
    return [(_main_phase(sides), gradient)]


def _two_sided(call: NodeCall, sides: Sides) -> Parts:
    """g·b for a, g·a for b (one more for a quotient); summed where an operand was broadcast."""
    n, grad = call.out.numel, call.out.nbytes
    parts = Parts()
    for number, (tensor, side) in enumerate(zip(call.operands[:2], sides, strict=False)):
        if tensor is None or not side:
            continue
        other = call.get(1 - number)
        flops = 1 + 2 * (call.op_type in ("Div", "Pow") and number == 1) + (tensor.numel < n)
        read = grad + (other.nbytes if other is not None else 0)
        work = Work.per_element(n, flops, read_bytes=read, written_bytes=tensor.nbytes)
        parts.append((side, work))
    return parts


def _broadcast_sums(call: NodeCall, sides: Sides) -> Parts:
    """The gradient goes on as it is; a broadcast operand's is summed."""
    if call.op_type not in SUMS:
        return []
    return [
        (side, _sum_of_result(call, tensor, read=call.out.nbytes))
        for tensor, side in zip(call.operands, sides, strict=False)
        if tensor is not None and side and tensor.numel < call.out.numel
    ]


def _as_forward(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """As forward, and the result's gradient is read too; joins and copies cost nothing."""
    if call.op_type in FREE:
        return []
    read = _read_bytes(call, work) + call.out.nbytes
    return [(_main_phase(sides), work.with_bytes(read=read, written=_gradient_bytes(call, sides)))]


RULES: dict[str, Callable[[NodeCall, Work, Sides], Parts]] = {
    "matmul": _product, "conv": _product, "attention": _attention, "recurrent": _recurrent,
    "gather": _gather, "pool": _pool, "pointwise": _pointwise, "softmax": _pointwise,
}  # fmt: skip


# ---------------------------------------------------------------- updates of the weights


class Update(NamedTuple):
    """Of each element of a weight."""

    flops: int
    roots: int
    read: int  # elements: of the weight, its gradient and state, each as often as it is read
    written: int
    state: int  # elements that stay from step to step


OPTIMIZERS: dict[str, Update] = {
    "sgd": Update(flops=2, roots=0, read=2, written=1, state=0),
    "momentum": Update(flops=4, roots=0, read=5, written=3, state=1),
    "nesterov": Update(flops=6, roots=0, read=7, written=4, state=1),
    "adam": Update(flops=12, roots=1, read=11, written=7, state=2),
    "adamw": Update(flops=13, roots=1, read=12, written=8, state=2),
    "adamax": Update(flops=10, roots=0, read=10, written=6, state=2),
    "nadam": Update(flops=15, roots=1, read=14, written=8, state=2),
    "radam": Update(flops=15, roots=1, read=16, written=12, state=2),
    "rmsprop": Update(flops=8, roots=1, read=8, written=5, state=1),
    "adagrad": Update(flops=6, roots=1, read=7, written=4, state=1),
    "adadelta": Update(flops=14, roots=2, read=16, written=11, state=2),
}
"""As PyTorch's optimizers run, operator by operator; their step counters are left out."""

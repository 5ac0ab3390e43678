"""A training step of an inference graph: the cost of every node's gradients.

The file has no backward pass, so this is an estimate. Each gradient of a product repeats the
forward's multiply-adds. The gradient of any other operator is taken to cost as much as its forward,
and to read its operands and the result's gradient. Views, joins and sums cost nothing; a value that
several nodes use has its gradients added. The loss is not in the file. A loop's gradients are those
of its body times the trip count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ridgeline.costs.work import Work
from ridgeline.count.records import OpCost
from ridgeline.onnx.node import UNKNOWN, Constants, NodeCall, Tensor
from ridgeline.onnx.node_cost import FREE_KINDS, NodeCost, Stored, op_cost

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
SUMS = ("Add", "Sub", "Sum")
FREE = (
    "Concat", "Pad", "Cast", "CastLike", "Identity", "Tile", "Dropout", "DequantizeLinear",
)  # fmt: skip
Parts = list[tuple[str, Work]]  # phases, and work in them
Sides = Sequence[str]  # for each operand the phase of its gradient; empty where it has none
Links = Sequence[tuple[int, int]]


# ---------------------------------------------------------------- which values have a gradient


def find_gradients(rows: list[NodeCost], stored: Stored, links: Links) -> list[OpCost]:
    """The gradients of all nodes, last first. `links` are values that loops make others of.

    The gradient of a value goes on to the input, or to weights where weights alone make the value.
    """
    constants = Constants(row.call for row in rows)
    needed = _find_needed(rows, stored.trained, links)

    def phase_of(tensor: Tensor | None) -> str:
        if tensor is None or tensor.ident not in needed:
            return ""
        return WEIGHT_GRAD if tensor in constants else INPUT_GRAD

    active = [row for row in rows if any(out.ident in needed for out in row.call.outputs)]
    uses = Counter[int]()  # how many gradients each value gets
    for row in active:
        for tensor in row.call.inputs:
            uses[tensor.ident] += row.repeats
    continued = {a for a, _ in links}
    gradients: list[OpCost] = []
    for row in reversed(active):
        for out in row.call.outputs:  # gradients of a value that several nodes use
            more = uses[out.ident] + row.repeats * (out.ident in continued) - row.repeats
            if more > 0 and out.is_known and out.ident in needed:
                once = replace(row, repeats=1)
                gradients.append(op_cost(once, phase_of(out), row.call, _sum_of(out, more)))
        for phase, work in _row_gradients(row, [phase_of(t) for t in row.call.operands]):
            gradients.append(op_cost(row, phase, row.call, work))
    for ident, tensor in stored.trained.items():  # and of a weight
        if (more := uses[ident] - 1) > 0:
            gradients.append(
                _weight_row(stored, ident, "Add", "", WEIGHT_GRAD, _sum_of(tensor, more))
            )
    return gradients


def _weight_row(
    stored: Stored, ident: int, op_type: str, domain: str, phase: str, work: Work
) -> OpCost:
    """Work on a weight, at the first node that uses it."""
    tensor = stored.trained[ident]
    call = NodeCall("", op_type, domain, 0, {}, (tensor,), (tensor,))
    kind = domain or "pointwise"
    return op_cost(NodeCost(stored.used_by[ident], kind, call, None), phase, call, work)


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


def _differentiable(call: NodeCall) -> list[Tensor]:
    """The results but integers and those that only take a shape; perhaps of an unknown type."""
    if call.op_type in WITHOUT_GRADIENT:
        return []
    return [
        out
        for out in call.outputs
        if not out.is_weight and (out.is_float or out.items is not None or out.dtype is UNKNOWN)
    ]


def _sum_of(tensor: Tensor, more: int) -> Work:
    nbytes = tensor.nbytes * more
    return Work.per_element(tensor.numel * more, 1, read_bytes=2 * nbytes, written_bytes=nbytes)


# ---------------------------------------------------------------- the cost of one node's gradients


def _row_gradients(row: NodeCost, sides: Sides) -> Iterator[tuple[str, Work | None]]:
    call, work = row.call, row.work
    if work is None:
        yield INPUT_GRAD, None
    elif row.kind in FREE_KINDS or call.op_type in FREE:
        return
    elif call.op_type in SUMS:
        yield from _broadcast_sums(call, sides)
    elif row.kind in ("matmul", "conv") and work.macs:
        yield from _product(call, work, sides)
    else:
        yield from _as_forward(row, work, sides)


def _product(call: NodeCall, work: Work, sides: Sides) -> Parts:
    """Each operand's gradient repeats the forward's products; a bias's is a sum of the result's."""
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


def _broadcast_sums(call: NodeCall, sides: Sides) -> Parts:
    """The gradient goes on as it is; a broadcast operand's is summed."""
    return [
        (side, _sum_of_result(call, tensor, read=call.out.nbytes))
        for tensor, side in zip(call.operands, sides, strict=False)
        if tensor is not None and side and tensor.numel < call.out.numel
    ]


def _as_forward(row: NodeCost, work: Work, sides: Sides) -> Parts:
    """The forward's work for each phase; twice for attention: four products for the forward's two.

    A recurrent layer has both: its states have a gradient, also where its input has none.
    """
    call, is_attention = row.call, row.kind == "attention"
    read = (call.read_bytes if work.read_bytes is None else work.read_bytes) + call.out.nbytes
    if is_attention:
        twice = tuple((2 * factor, terms) for factor, terms in work.parts)
        work = replace(work, macs=2 * work.macs, parts=twice)
    parts = Parts()
    for phase in PHASES:
        sided = zip(call.operands, sides, strict=False)
        written = sum(t.nbytes for t, side in sided if t is not None and side == phase)
        if written or row.kind == "recurrent":
            parts.append((phase, work.with_bytes(read=read, written=written)))
    return parts


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


def update_weights(stored: Stored, optimizer: str) -> Iterator[OpCost]:
    update = OPTIMIZERS[optimizer]
    for ident, tensor in stored.trained.items():
        work = Work.per_element(
            tensor.numel,
            update.flops,
            transcendentals=update.roots * tensor.numel,
            read_bytes=update.read * tensor.nbytes,
            written_bytes=update.written * tensor.nbytes,
        )
        yield _weight_row(stored, ident, optimizer, "optimizer", "optimizer", work)

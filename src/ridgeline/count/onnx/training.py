"""A training step of an inference graph: what the gradients of every node would cost.

The file has no backward pass, so this is an estimate by rule. Products are exact: each gradient
repeats the forward's multiply-adds. Normalisations, softmax, activations, pooling and lookups have
PyTorch's backward numbers. Any other operator's input gradient is taken to cost what its forward
does, and to read its operands and the result's gradient. Views, joins and sums cost nothing; a
value that is used several times has its gradients added. The loss is not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ridgeline.count.onnx.gradients import ACTIVATION, INPUT_GRAD, WEIGHT, gradient_of
from ridgeline.count.onnx.node import NodeCall, Tensor
from ridgeline.count.onnx.walk import Row
from ridgeline.count.onnx.weights import Stored
from ridgeline.count.parts import Work
from ridgeline.errors import RidgelineError

NOTE = (
    "training is estimated: the file has no backward pass and no loss;"
    " gradients of products are exact, the others follow the rules in docs/onnx.md"
)


@dataclass(frozen=True, slots=True)
class Gradient:
    """One row of the backward pass."""

    row: Row
    phase: str
    call: NodeCall
    work: Work | None


def backward(rows: list[Row], stored: Stored) -> list[Gradient]:
    """The gradients of all nodes, last first."""
    wanted = _wanted(rows, stored)
    uses: dict[int, int] = {}
    found: list[Gradient] = []
    for row in reversed(rows):
        outs = [t for t in row.call.outputs if wanted.get(t.ident)]
        if not outs:
            continue
        found += _summed(row, outs, uses)
        sides = tuple(wanted.get(t.ident, 0) if t is not None else 0 for t in row.call.operands)
        for ident in {t.ident for t in row.call.inputs if wanted.get(t.ident) == ACTIVATION}:
            uses[ident] = uses.get(ident, 0) + 1
        found += _gradients(row, sides)
    return found


def _wanted(rows: list[Row], stored: Stored) -> dict[int, int]:
    """Which values need a gradient, and whether it goes to weights alone."""
    wanted = {ident: WEIGHT for ident, t in stored.params.items() if t.is_float}
    for row in rows:
        sides = [wanted[t.ident] for t in row.call.inputs if wanted.get(t.ident)]
        if not sides:
            continue
        moving = [t for t in row.call.inputs if t.is_float and not t.is_weight and t.value is None]
        alone = all(wanted.get(t.ident) == WEIGHT for t in moving) and WEIGHT in sides
        for out in row.call.outputs:
            if out.is_float or out.items is not None:
                wanted[out.ident] = WEIGHT if alone else ACTIVATION
    return wanted


def _summed(row: Row, outs: list[Tensor], uses: dict[int, int]) -> Iterator[Gradient]:
    """Gradients of a value that several nodes use are added."""
    for out in outs:
        more = uses.get(out.ident, 1) - 1
        if more > 0 and out.is_known:
            n = out.numel * more
            work = Work(
                other_flops=n,
                read_bytes=2 * out.nbytes * more,
                written_bytes=out.nbytes * more,
                terms=(("n", n),),
            )
            yield Gradient(row, INPUT_GRAD, row.call, work)


def _gradients(row: Row, sides: tuple[int, ...]) -> Iterator[Gradient]:
    if row.work is None:
        if any(sides):
            yield Gradient(row, INPUT_GRAD, row.call, None)
        return
    parts = gradient_of(row, sides)
    for phase, work in parts.items():
        yield Gradient(row, phase, row.call, work)


# ---------------------------------------------------------------- the optimizer

OPTIMIZERS: dict[str, tuple[int, int, int, int, int]] = {
    # FLOPs, roots, elements read, elements written, elements of state; of each weight's element
    "sgd": (2, 0, 2, 1, 0), "momentum": (4, 0, 5, 3, 1), "nesterov": (6, 0, 7, 4, 1),
    "adam": (12, 1, 11, 7, 2), "adamw": (13, 1, 12, 8, 2), "adamax": (10, 0, 10, 6, 2),
    "nadam": (15, 1, 14, 8, 2), "radam": (15, 1, 16, 12, 2), "rmsprop": (8, 1, 8, 5, 1),
    "adagrad": (6, 1, 7, 4, 1), "adadelta": (14, 2, 16, 11, 2),
}  # fmt: skip
"""As PyTorch's optimizers run, operator by operator; their step counters are left out."""


def check_optimizer(name: str) -> None:
    """Refuse an optimizer that has no rule."""
    if name not in OPTIMIZERS:
        raise RidgelineError(
            f"the optimizer {name} cannot be counted for an ONNX file",
            hint=f"choose {', '.join(OPTIMIZERS)}",
        )


def optimizer_work(name: str, tensor: Tensor) -> Work:
    """One update of one weight tensor."""
    flops, roots, read, written, _ = OPTIMIZERS[name]
    n = tensor.numel
    return Work(
        other_flops=flops * n,
        transcendentals=roots * n,
        read_bytes=read * tensor.nbytes,
        written_bytes=written * tensor.nbytes,
        factor=flops,
        terms=(("n", n),),
    )


def state_bytes(name: str, stored: Stored) -> int:
    """What the optimizer keeps from step to step."""
    return OPTIMIZERS[name][4] * sum(t.nbytes for t in stored.params.values() if t.is_float)

"""What an optimizer does to a weight: in a training step, or as an operator of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ridgeline.count.parts import Work
from ridgeline.count.per_element import ADAGRAD, ADAM, SGD
from ridgeline.errors import RidgelineError
from ridgeline.onnx.node import Tensor

if TYPE_CHECKING:
    from ridgeline.onnx.weights import Stored


class Update(NamedTuple):
    """Of each element of a weight."""

    flops: int
    roots: int
    read: int  # elements: of the weight, its gradient and state, each as often as it is read
    written: int
    state: int  # elements that are kept from step to step


OPTIMIZERS: dict[str, Update] = {
    "sgd": Update(*SGD, read=2, written=1, state=0),
    "momentum": Update(flops=4, roots=0, read=5, written=3, state=1),
    "nesterov": Update(flops=6, roots=0, read=7, written=4, state=1),
    "adam": Update(*ADAM, read=11, written=7, state=2),
    "adamw": Update(flops=13, roots=1, read=12, written=8, state=2),
    "adamax": Update(flops=10, roots=0, read=10, written=6, state=2),
    "nadam": Update(flops=15, roots=1, read=14, written=8, state=2),
    "radam": Update(flops=15, roots=1, read=16, written=12, state=2),
    "rmsprop": Update(flops=8, roots=1, read=8, written=5, state=1),
    "adagrad": Update(*ADAGRAD, read=7, written=4, state=1),
    "adadelta": Update(flops=14, roots=2, read=16, written=11, state=2),
}
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
    update, n = OPTIMIZERS[name], tensor.numel
    return Work.per_element(
        n,
        update.flops,
        transcendentals=update.roots * n,
        read_bytes=update.read * tensor.nbytes,
        written_bytes=update.written * tensor.nbytes,
    )


def state_bytes(name: str, stored: Stored) -> int:
    """What the optimizer keeps from step to step."""
    return OPTIMIZERS[name].state * sum(t.nbytes for t in stored.trained.values())

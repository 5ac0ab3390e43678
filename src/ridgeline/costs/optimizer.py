"""Updates of the weights: so much for each element of a weight."""

from __future__ import annotations

from typing import NamedTuple

from ridgeline.costs.work import Each

SGD: Each = (2, 0)
ADAM: Each = (12, 1)  # bias corrections taken as scalars
ADAGRAD: Each = (6, 1)


class Update(NamedTuple):
    """Of each element of a weight."""

    flops: int
    roots: int
    read: int  # elements: of the weight, its gradient and state, each as often as it is read
    written: int
    state: int  # elements that stay from step to step


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


def optional_flops(
    *,
    weight_decay: bool,
    is_decoupled: bool,
    momentum: bool,
    nesterov: bool,
    amsgrad: bool,
    maximize: bool,
) -> int:
    """FLOPs an element of what an optimizer does only when asked.

    AdamW scales the weight (decoupled); the others add the weight, scaled, to the gradient.
    """
    decay = (1 if is_decoupled else 2) * weight_decay
    return decay + 2 * momentum + 2 * nesterov + amsgrad + maximize

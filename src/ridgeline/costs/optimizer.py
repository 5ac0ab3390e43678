"""Updates of the weights: so much for each element of a weight."""

from __future__ import annotations

from typing import NamedTuple


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

"""Losses that run as one operator; the others appear as plain arithmetic.

A loss is element-wise work and, unless its reduction is "none", one addition an element; the
mean divides once.
"""

from __future__ import annotations

from ridgeline.costs.norm import SOFTMAX
from ridgeline.costs.work import Each, Work

LOSSES: dict[str, Each] = {
    "mse_loss": (2, 0),  # (x − t)²
    "smooth_l1_loss": (5, 0),  # d = |x − t|; d < b ? c·d² : d − c
    "huber_loss": (5, 0),
    "binary_cross_entropy": (5, 2),  # (t − 1)·log(1 − x) − t·log x
    "binary_cross_entropy_with_logits": (6, 2),  # max(x, 0) − x·t + log1p(exp(−|x|))
    "soft_margin_loss": (3, 2),  # log(1 + exp(−x·t))
    "multi_margin_loss": (3, 0),  # max(0, margin − x[target] + x)
}
LOSSES_BACKWARD: dict[str, Each] = {  # the mean's factor is folded into the incoming gradient
    "mse_loss_backward": (3, 0),  # 2·(x − t)·g
    "smooth_l1_loss_backward": (5, 0),  # d = x − t, two bounds, c·d·g
    "huber_loss_backward": (5, 0),
    "binary_cross_entropy_backward": (5, 0),  # (x − t)/(x·(1 − x))·g
    "soft_margin_loss_backward": (6, 1),  # z = exp(−x·t); −t·z/(1 + z)·g
    "multi_margin_loss_backward": (3, 0),
}
LOG_ADD_3: Each = (6, 4)  # log(exp(a − m) + exp(b − m) + exp(c − m)) + m, m found already


def loss(
    n: int,
    each: Each,
    *,
    is_reduced: bool,
    is_mean: bool,
    name: str = "n",
    read_bytes: int | None = None,
) -> Work:
    """So much for each of n elements, their sum, and the mean's division."""
    flops = each[0] + is_reduced
    return Work(
        other_flops=flops * n + is_mean,
        transcendentals=each[1] * n,
        read_bytes=read_bytes,
        factor=flops,
        terms=((name, n),),
    )


def cross_entropy(n: int, targets: int, *, each: int) -> Work:
    """A log-softmax of the scores, and the losses summed."""
    return Work(
        other_flops=SOFTMAX * n + each * targets,
        transcendentals=n + targets,
        factor=SOFTMAX,
        terms=(("n", n),),
        more=((each, (("targets", targets),)),),
    )


def ctc_loss(states: int, *, recursions: int) -> Work:
    """Three log-probabilities added for every step and label state, from each end."""
    flops, transcendentals = LOG_ADD_3
    return Work(
        other_flops=flops * recursions * states,
        transcendentals=transcendentals * recursions * states,
        factor=flops * recursions,
        terms=(("states", states),),
    )

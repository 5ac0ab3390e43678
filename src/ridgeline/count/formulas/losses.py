"""Losses that PyTorch runs as one operator; the others appear as plain arithmetic.

A loss is element-wise work and, unless its reduction is "none", one addition an element; the
mean divides once.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Formula, Work, aten

NONE, MEAN = 0, 1  # PyTorch's numbers for reduction; 2 is sum


def _loss(call: OpCall, n: int, flops: int, transcendentals: int) -> Work:
    reduction = call.get("reduction", MEAN)
    per_element = flops + (reduction != NONE)
    return Work(
        other_flops=per_element * n + (reduction == MEAN),
        transcendentals=transcendentals * n,
        factor=per_element,
        terms=(("n", n),),
    )


def _elements(call: OpCall) -> int:
    return max(t.numel for t in call.inputs)


def _weighted(call: OpCall) -> int:
    """One product more for each set of weights."""
    given = (call.get("weight"), call.get("pos_weight"))
    return sum(isinstance(weight, TensorMeta) for weight in given)


def _elementwise_loss(flops: int, transcendentals: int) -> Formula:
    def formula(call: OpCall) -> Work:
        return _loss(call, _elements(call), flops + _weighted(call), transcendentals)

    return formula


def _elementwise_backward(flops: int, transcendentals: int) -> Formula:
    """The derivative times the incoming gradient; the mean's factor is folded into the latter."""

    def formula(call: OpCall) -> Work:
        n, per_element = _elements(call), flops + _weighted(call)
        return Work(
            other_flops=per_element * n,
            transcendentals=transcendentals * n,
            factor=per_element,
            terms=(("n", n),),
        )

    return formula


for _names, _flops, _transcendentals in (
    ("mse_loss", 2, 0),  # (x − t)²
    ("smooth_l1_loss huber_loss", 5, 0),  # d = |x − t|; d < b ? c·d² : d − c
    ("binary_cross_entropy", 5, 2),  # (t − 1)·log(1 − x) − t·log x
    ("binary_cross_entropy_with_logits", 6, 2),  # max(x, 0) − x·t + log1p(exp(−|x|))
    ("soft_margin_loss", 3, 2),  # log(1 + exp(−x·t))
    ("multi_margin_loss", 3, 0),  # max(0, margin − x[target] + x)
):
    aten(_names, kind="loss")(_elementwise_loss(_flops, _transcendentals))

for _names, _flops, _transcendentals in (
    ("mse_loss_backward", 3, 0),  # 2·(x − t)·g
    ("smooth_l1_loss_backward huber_loss_backward", 5, 0),  # d = x − t, two bounds, c·d·g
    ("binary_cross_entropy_backward", 5, 0),  # (x − t)/(x·(1 − x))·g
    ("soft_margin_loss_backward", 6, 1),  # z = exp(−x·t); −t·z/(1 + z)·g
    ("multi_margin_loss_backward", 3, 0),
):
    aten(_names, kind="loss")(_elementwise_backward(_flops, _transcendentals))


@aten("multilabel_margin_loss_forward", kind="loss")
def multilabel_margin(call: OpCall) -> Work:
    """Every pair of a label and a class, as if all classes were labels: max(0, 1 − x[t] + x)."""
    return _loss(call, _label_pairs(call.inputs[0]), 3, 0)


@aten("multilabel_margin_loss_backward", kind="loss")
def multilabel_margin_backward(call: OpCall) -> Work:
    n = _label_pairs(call.inputs[1])
    return Work(other_flops=4 * n, factor=4, terms=(("pairs", n),))


def _label_pairs(scores: TensorMeta) -> int:
    return scores.numel * scores.shape[-1] if scores.shape else 1


@aten("nll_loss_forward nll_loss2d_forward nll_loss", kind="loss")
def nll_loss(call: OpCall) -> Work:
    """−log p of each target; reads one log-probability per target, not all of them."""
    scores, target = call.inputs[:2]
    return replace(
        _loss(call, target.numel, 1 + _weighted(call), 0),
        read_bytes=target.numel * scores.dtype.itemsize + sum(t.nbytes for t in call.inputs[1:]),
        terms=(("targets", target.numel),),
    )


@aten("nll_loss_backward nll_loss2d_backward", kind="loss")
def nll_loss_backward(call: OpCall) -> Work:
    """Writes a gradient that is zero but for one entry per target; the scores are not read."""
    grad, _scores, *rest = call.inputs
    targets = rest[0].numel
    per_target = 1 + _weighted(call)
    return Work(
        other_flops=per_target * targets,
        read_bytes=grad.nbytes + sum(t.nbytes for t in rest),
        factor=per_target,
        terms=(("targets", targets),),
    )


LOG_ADD_3 = (6, 4)  # log(exp(a − m) + exp(b − m) + exp(c − m)) + m, m found already


@aten("_ctc_loss", kind="loss")
def ctc_loss(call: OpCall) -> Work:
    """The forward recursion: three log-probabilities added for every step and label state."""
    return _recursions(call.outputs[-1].numel, passes=1)


@aten("_ctc_loss_backward", kind="loss")
def ctc_loss_backward(call: OpCall) -> Work:
    """The recursion from the end, and the gradient from both."""
    return _recursions(call.get("log_alpha").numel, passes=2)


def _recursions(states: int, *, passes: int) -> Work:
    flops, transcendentals = LOG_ADD_3
    return Work(
        other_flops=flops * passes * states,
        transcendentals=transcendentals * passes * states,
        factor=flops * passes,
        terms=(("states", states),),
    )

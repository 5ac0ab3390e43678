"""Normalisations and softmax. n is the number of elements normalised.

Statistics cost n for the mean and 3·n for the variance. Batch norm's scale and shift are
folded per channel, so applying it is 2 FLOPs an element; where the statistics differ from
row to row (layer, group norm) it is 2, and one more for each of weight and bias. One root
for each mean and variance. The updates of the running statistics, a few FLOPs a channel, are
left out.
"""

from __future__ import annotations

from ridgeline.costs.work import Each, Operand, Phased, Work

STATISTICS = 4
RMS_NORM = 3  # the mean of squares, the product with its inverse root; no weight
SOFTMAX = 4  # maximum, subtraction, sum, division; and one exponential
SOFTMAX_BACKWARD: Each = (4, 0)  # y·(g − Σ g·y)
LOG_SOFTMAX_BACKWARD: Each = (3, 1)  # g − exp(y)·Σ g

# FLOPs of the input's gradient without a weight, and of the weight's and bias's together
BATCH_NORM_BACKWARD = (1, 4)  # with fixed statistics: g·scale; Σg and Σg·(x − mean)
BATCH_NORM_TRAINING_BACKWARD = (5, 4)  # (g − mean(g) − (x − mean)·c)·scale, by the sums
LAYER_NORM_BACKWARD = (9, 5)  # y = (x − mean)·r: (h − mean(h) − y·mean(h·y))·r; Σg·y, Σg
RMS_NORM_BACKWARD = (6, 3)  # y = x·r, h = g·w: (h − y·mean(h·y))·r; Σg·y


def batch_norm(x: Operand, *, is_training: bool) -> Work:
    """A scale and a shift; with the statistics of the batch where it trains."""
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return Work.per_element(x.numel, 2 + STATISTICS * is_training, transcendentals=channels)


def layer_norm(n: int, groups: int, *, affine: int, more: int = 0) -> Work:
    """So many groups, each with its own statistics; so many FLOPs an element more."""
    return Work.per_element(n, STATISTICS + 2 + affine + more, transcendentals=groups)


def rms_norm(n: int, groups: int, *, affine: int, more: int = 0) -> Work:
    """Mean of squares, one product with its inverse root, one more with a weight."""
    return Work.per_element(n, RMS_NORM + affine + more, transcendentals=groups)


def softmax(n: int, *, rows: int = 0, more: int = 0) -> Work:
    """One exponential an element beside the FLOPs; the logarithm's takes one more for each row."""
    return Work.per_element(n, SOFTMAX + more, transcendentals=n + rows)


def norm_backward(
    flops: tuple[int, int],
    x: Operand,
    *,
    wants_input: bool,
    wants_weight: bool,
    read_bytes: int,
    weight_bytes: int,
) -> Phased:
    """The weight's and bias's gradients are sums; the input's reads the same data, once for both.

    Where the input's needs the sums too, they are counted with it if nobody else wants them.
    """
    apply, sums = flops
    if flops == BATCH_NORM_TRAINING_BACKWARD:
        apply += 0 if wants_weight else sums
    phases: Phased = {}
    if wants_input:
        phases["input-grad"] = Work.per_element(
            x.numel, apply, read_bytes=read_bytes, written_bytes=x.bytes_of(x.numel)
        )
    if wants_weight:
        phases["weight-grad"] = Work.per_element(
            x.numel, sums, read_bytes=0 if wants_input else read_bytes, written_bytes=weight_bytes
        )
    return phases


def weight_norm(n: int, norms: int) -> Work:
    """v·(g/|v|): squares and their sum, a root and a quotient for each norm, a product."""
    return Work(other_flops=3 * n + norms, transcendentals=norms, factor=3, terms=(("n", n),))

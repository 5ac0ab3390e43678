"""Element-wise operators, losses, normalisations: FLOPs and transcendentals for each element."""

from __future__ import annotations

from ridgeline.costs.work import Call, Each, Operand, Phased, Work

PER_ELEMENT: dict[str, Each] = {}
"""By the name of PyTorch's operator. Where one branches, the longer branch is counted.

Backward operators are those that PyTorch fuses.
"""


def _rows(flops: int, transcendentals: int, names: str) -> None:
    PER_ELEMENT.update((name, (flops, transcendentals)) for name in names.split())


_rows(1, 0, "mul div neg abs sign sgn reciprocal square maximum minimum fmax fmin relu")
_rows(1, 0, "eq ne lt le gt ge ceil floor round trunc frac heaviside signbit copysign")
_rows(1, 0, "isnan isinf isfinite isposinf isneginf deg2rad rad2deg true_divide floor_divide")
_rows(1, 0, "clamp_min clamp_max threshold threshold_backward conj_physical _conj_physical frexp")
_rows(2, 0, "hardtanh relu6 leaky_relu leaky_relu_backward fmod remainder hardtanh_backward")
_rows(2, 0, "hardshrink softshrink_backward hardshrink_backward _prelu_kernel prelu _add_relu")
_rows(2, 0, "nextafter ldexp")
_rows(3, 0, "lerp softshrink nan_to_num hardsigmoid_backward isclose _prelu_kernel_backward")
_rows(4, 0, "hardsigmoid")  # min(max(x + 3, 0), 6) / 6
_rows(5, 0, "hardswish hardswish_backward")  # and ·x; two comparisons, g·(x/3 + 1/2)
_rows(0, 1, "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh")
_rows(0, 1, "acosh atanh erf erfc erfinv lgamma digamma sqrt rsqrt atan2 angle polygamma")
_rows(0, 1, "arcsin arccos arctan mvlgamma special_i0 i0 special_i0e special_i1 special_i1e")
_rows(0, 1, "special_ndtri special_log_ndtr special_erfcx special_zeta igamma igammac")
_rows(2, 1, "sinc special_entr")  # sin(π·x)/(π·x); −x·log x
_rows(3, 1, "sigmoid hypot")  # 1/(1 + exp(−x)); √(x² + y²)
_rows(4, 1, "silu gelu.none")  # x·sigmoid(x); x/2·(1 + erf(x/√2))
_rows(8, 1, "gelu.tanh")  # x/2·(1 + tanh(√(2/π)·(x + 0.0447·x³)))
_rows(2, 1, "elu selu xlogy special_xlog1py logit")  # x > 0 ? x : a·expm1(x); x·log y, 0 at 0
_rows(3, 1, "celu elu_backward")
_rows(3, 0, "logit_backward")  # g/(x·(1 − x))
_rows(3, 2, "softplus")  # x·b > threshold ? x : log1p(exp(x·b))/b
_rows(5, 1, "softplus_backward")  # z = exp(x·b); g·z/(z + 1), and the threshold
_rows(5, 2, "logaddexp logaddexp2")  # max(a, b) + log1p(exp(−|a − b|))
_rows(1, 3, "mish")  # x·tanh(log1p(exp(x)))
_rows(9, 4, "mish_backward")  # s = sigmoid(x), t = tanh(softplus(x)); g·(t + x·s·(1 − t²))
_rows(3, 0, "sigmoid_backward tanh_backward")  # g·y·(1 − y); g·(1 − y²)
_rows(8, 1, "silu_backward")  # g·s·(1 + x·(1 − s))
_rows(9, 2, "gelu_backward.none")  # g·(Φ(x) + x·φ(x)): 3 for Φ, 3 for φ
_rows(17, 1, "gelu_backward.tanh")
SILU, GELU, FAST_GELU = PER_ELEMENT["silu"], PER_ELEMENT["gelu.none"], PER_ELEMENT["gelu.tanh"]
DROPOUT = 2  # a comparison with the random number, a product with the kept mask and scale
# FLOPs with a zero point: (q − zero point)·scale; x/scale, round, zero point, two bounds
DEQUANTISE, QUANTISE = 2, 5
DYNAMIC_QUANTISE = 2 + QUANTISE  # the smallest and the largest element come first


def elementwise(call: Call, flops: int, transcendentals: int = 0) -> Work:
    """So much for each element of the result; none where no operand is floating-point."""
    n = max((t.numel for t in call.outputs), default=0)
    if not call.is_float:
        return Work()
    return Work.per_element(n, flops, transcendentals=transcendentals * n)


def power(exponent: object) -> Each:
    """Small whole powers are multiplications; any other power is one transcendental."""
    is_number = isinstance(exponent, int | float)
    flops = {1: 0, 2: 1, 3: 2, 4: 2, -1: 1}.get(exponent) if is_number else None  # type: ignore[call-overload]
    return (0, 1) if flops is None else (flops, 0)


# ---------------------------------------------------------------- losses

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
        parts=((flops, ((name, n),)),),
    )


def cross_entropy(n: int, targets: int, *, each: int) -> Work:
    """A log-softmax of the scores, and the losses summed."""
    return Work(
        other_flops=SOFTMAX * n + each * targets,
        transcendentals=n + targets,
        parts=((SOFTMAX, (("n", n),)), (each, (("targets", targets),))),
    )


def ctc_loss(states: int, *, recursions: int) -> Work:
    """Three log-probabilities added for every step and label state, from each end."""
    flops, transcendentals = LOG_ADD_3
    return Work(
        other_flops=flops * recursions * states,
        transcendentals=transcendentals * recursions * states,
        parts=((flops * recursions, (("states", states),)),),
    )


# ---------------------------------------------------------------- normalisations and softmax
# n is the number of elements normalised. Statistics cost n for the mean and 3·n for the variance.
# Batch norm's scale and shift are folded per channel, so applying it is 2 FLOPs an element; where
# the statistics differ from row to row (layer, group norm) it is 2, and one more for each of weight
# and bias. One root for each mean and variance. The updates of the running statistics, a few FLOPs
# a channel, are left out.

STATISTICS = 4
RMS_NORM = 3  # the mean of squares, the product with its inverse root; no weight
SOFTMAX = 4  # maximum, subtraction, sum, division; and one exponential
SOFTMAX_BACKWARD: Each = (4, 0)  # y·(g − Σ g·y)
LOG_SOFTMAX_BACKWARD: Each = (3, 1)  # g − exp(y)·Σ g

# FLOPs of the input's gradient without a weight, and of the weight's and bias's together
BATCH_NORM_BACKWARD = (1, 4)  # with fixed statistics: g·scale; Σg and Σg·(x − mean)
BATCH_NORM_TRAINING_BACKWARD = (5, 4)  # (g − mean(g) − (x − mean)·c)·scale, by the sums
LAYER_NORM_BACKWARD = (9, 5)  # y = (x − mean)·r: (h − mean(h) − y·mean(h·y))·r; Σg·y, Σg


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
    return Work(other_flops=3 * n + norms, transcendentals=norms, parts=((3, (("n", n),)),))

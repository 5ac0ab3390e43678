"""What an element costs: the numbers that PyTorch's operators and ONNX's have in common.

They are here and not beside the formulas of either, so that a network costs the same through both
and an ONNX file is counted without torch. What is one FLOP: see formulas/registry.py.
"""

from __future__ import annotations

Each = tuple[int, int]  # FLOPs and transcendentals of an element

# ---------------------------------------------------------------- element by element

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

# ---------------------------------------------------------------- normalisations and softmax

STATISTICS = 4  # FLOPs for a mean and a variance
BATCH_NORM = 2  # with fixed statistics: a scale and a shift
RMS_NORM = 3  # the mean of squares, the product with its inverse root; no weight
SOFTMAX = 4  # maximum, subtraction, sum, division; and one exponential
# FLOPs of the input's gradient without a weight, and of the weight's and bias's together
BATCH_NORM_BACKWARD = (1, 4)  # with fixed statistics
BATCH_NORM_TRAINING_BACKWARD = (5, 4)  # the input's needs the sums of the weight's and bias's
LAYER_NORM_BACKWARD = (9, 5)
RMS_NORM_BACKWARD = (6, 3)
SOFTMAX_BACKWARD: Each = (4, 0)  # y·(g − Σ g·y)
LOG_SOFTMAX_BACKWARD: Each = (3, 1)  # g − exp(y)·Σ g

# ---------------------------------------------------------------- optimizers

SGD: Each = (2, 0)
ADAM: Each = (12, 1)  # bias corrections taken as scalars
ADAGRAD: Each = (6, 1)

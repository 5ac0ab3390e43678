"""Element-wise operators: so many FLOPs and transcendentals for each element of the result.

A row of the table reads: operator names, FLOPs per element, transcendentals per element.
Backward operators are those that PyTorch fuses; the others appear as plain arithmetic.
"""

from __future__ import annotations

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import FORMULAS, Entry, Work, aten

PER_ELEMENT: dict[str, tuple[int, int]] = {}


def _rows(flops: int, transcendentals: int, names: str) -> None:
    PER_ELEMENT.update((name, (flops, transcendentals)) for name in names.split())


_rows(1, 0, "mul div neg abs sign sgn reciprocal square maximum minimum fmax fmin relu")
_rows(1, 0, "eq ne lt le gt ge ceil floor round trunc frac heaviside signbit copysign")
_rows(1, 0, "isnan isinf isfinite isposinf isneginf deg2rad rad2deg true_divide floor_divide")
_rows(1, 0, "clamp_min clamp_max threshold threshold_backward conj_physical _conj_physical")
_rows(2, 0, "clamp hardtanh relu6 leaky_relu leaky_relu_backward fmod remainder hardtanh_backward")
_rows(2, 0, "softshrink hardshrink softshrink_backward hardshrink_backward _prelu_kernel prelu")
_rows(2, 0, "nan_to_num nextafter rrelu_with_noise ldexp special_xlog1py_derivative")
_rows(3, 0, "lerp hypot_squared _prelu_kernel_backward hardsigmoid_backward isclose")
_rows(4, 0, "hardsigmoid hardswish_backward")
_rows(5, 0, "hardswish")
_rows(0, 1, "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh")
_rows(0, 1, "acosh atanh erf erfc erfinv lgamma digamma sqrt rsqrt atan2 angle sinc polygamma")
_rows(0, 1, "arcsin arccos arctan mvlgamma special_i0 i0 special_i0e special_i1 special_i1e")
_rows(0, 1, "special_entr special_ndtri special_log_ndtr special_erfcx special_zeta igamma igammac")
_rows(3, 1, "sigmoid hypot")
_rows(4, 1, "silu gelu.none")
_rows(8, 1, "gelu.tanh")
_rows(2, 1, "elu xlogy special_xlog1py logit log_sigmoid log_sigmoid_forward softplus_backward")
_rows(3, 1, "selu celu elu_backward mish_tail log_sigmoid_backward logit_backward")
_rows(2, 2, "softplus logaddexp logaddexp2")
_rows(3, 3, "mish")
_rows(3, 0, "sigmoid_backward tanh_backward")  # g·y·(1 − y); g·(1 − y²)
_rows(8, 1, "silu_backward")  # g·s·(1 + x·(1 − s))
_rows(8, 2, "gelu_backward.none")  # g·(Φ(x) + x·φ(x))
_rows(17, 1, "gelu_backward.tanh")
_rows(9, 3, "mish_backward")
_rows(1, 0, "glu_tail")


def elementwise(call: OpCall, flops: int, transcendentals: int) -> Work:
    """Work of so much per element of the result; none where no operand is floating-point."""
    n = max((t.numel for t in call.outputs), default=0)
    if not call.is_float:
        return Work(terms=(("n", n),), factor=0)
    if any(t.dtype.is_complex for t in call.inputs):
        flops, transcendentals = _complex(call.name, flops), 2 * transcendentals
    return Work(
        other_flops=flops * n, transcendentals=transcendentals * n, factor=flops, terms=(("n", n),)
    )


def _complex(name: str, flops: int) -> int:
    """A complex product is four multiplications and two additions; other operations are two."""
    return {"aten::mul": 6, "aten::mul_": 6, "aten::div": 11}.get(name, 2 * flops)


def _tabled(call: OpCall) -> Work:
    name = call.name.removeprefix("aten::")
    key = name if name in PER_ELEMENT else name.removesuffix("_")
    return elementwise(call, *PER_ELEMENT[key])


for _name in PER_ELEMENT:
    if "." not in _name:
        FORMULAS[f"aten::{_name}"] = Entry("pointwise", _tabled)


@aten("add", "sub", "rsub", "subtract", kind="pointwise")
def add(call: OpCall) -> Work:
    scaled = call.get("alpha", 1) != 1
    return elementwise(call, 2 if scaled else 1, 0)


@aten("gelu", "gelu_backward", kind="pointwise")
def gelu(call: OpCall) -> Work:
    name = call.name.removeprefix("aten::").removesuffix("_")
    return elementwise(call, *PER_ELEMENT[f"{name}.{call.get('approximate')}"])


@aten("pow", "float_power", kind="pointwise")
def power(call: OpCall) -> Work:
    """Small whole powers are multiplications; any other power is one transcendental."""
    exponent = call.get("exponent")
    if isinstance(exponent, int | float) and exponent in (1, 2, 3, 4):
        return elementwise(call, {1: 0, 2: 1, 3: 2, 4: 2}[int(exponent)], 0)
    if exponent == -1:
        return elementwise(call, 1, 0)
    return elementwise(call, 0, 1)


@aten("addcmul", "addcdiv", kind="pointwise")
def addc(call: OpCall) -> Work:
    return elementwise(call, 2 if call.get("value") == 1 else 3, 0)


@aten("glu", kind="pointwise")
def glu(call: OpCall) -> Work:
    return elementwise(call, 4, 1)


@aten("glu_backward", kind="pointwise")
def glu_backward(call: OpCall) -> Work:
    n = call.out.numel // 2
    return Work(other_flops=9 * n, transcendentals=n, factor=9, terms=(("n", n),))


@aten("complex", "polar", kind="pointwise")
def complex_parts(call: OpCall) -> Work:
    polar = call.name == "aten::polar"
    n = call.out.numel
    return Work(other_flops=2 * n * polar, transcendentals=2 * n * polar, terms=(("n", n),))


@aten("native_dropout", kind="dropout")
def native_dropout(call: OpCall) -> Work:
    """One comparison with the random number and one product with the kept mask and scale."""
    return elementwise(call, 2, 0)


@aten("native_dropout_backward", "_masked_scale", kind="dropout")
def dropout_backward(call: OpCall) -> Work:
    return elementwise(call, 2, 0)


@aten("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or",
      "logical_xor", "logical_not", "bitwise_left_shift", "bitwise_right_shift", "__and__",
      "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__", "gcd", "lcm",
      "where", "masked_fill", kind="pointwise")
def logic(call: OpCall) -> Work:
    """Selections and bit operations move data and do no floating-point arithmetic."""
    return Work()


@aten("rrelu_with_noise_backward", kind="pointwise")
def rrelu_backward(call: OpCall) -> Work:
    return elementwise(call, 2, 0)


@aten("frexp", kind="pointwise")
def frexp(call: OpCall) -> Work:
    return elementwise(call, 1, 0)


# ---------------------------------------------------------------- losses


def _loss(flops: int, transcendentals: int) -> object:
    """A loss is element-wise work and, unless reduction is none, one addition per element."""

    def formula(call: OpCall) -> Work:
        n = max(t.numel for t in call.inputs)
        reduced = 0 if call.get("reduction") == 0 else 1
        return Work(
            other_flops=(flops + reduced) * n,
            transcendentals=transcendentals * n,
            factor=flops + reduced,
            terms=(("n", n),),
        )

    return formula


for _name, _cost in {
    "mse_loss": (2, 0), "smooth_l1_loss": (5, 0), "huber_loss": (5, 0), "soft_margin_loss": (3, 2),
    "binary_cross_entropy": (5, 2), "binary_cross_entropy_with_logits": (5, 2),
    "mse_loss_backward": (2, 0), "smooth_l1_loss_backward": (4, 0), "huber_loss_backward": (4, 0),
    "binary_cross_entropy_backward": (4, 0), "soft_margin_loss_backward": (4, 1),
    "multi_margin_loss": (3, 0), "kl_div": (2, 1), "l1_loss": (2, 0),
}.items():  # fmt: skip
    FORMULAS[f"aten::{_name}"] = Entry("loss", _loss(*_cost))  # type: ignore[arg-type]


@aten("nll_loss_forward", "nll_loss2d_forward", "nll_loss", kind="loss")
def nll_loss(call: OpCall) -> Work:
    """Reads one log-probability per target, not all of them."""
    scores, target = call.inputs[:2]
    n = target.numel
    return Work(
        other_flops=2 * n,
        read_bytes=n * scores.dtype.itemsize + sum(t.nbytes for t in call.inputs[1:]),
        factor=2,
        terms=(("targets", n),),
    )


@aten("nll_loss_backward", "nll_loss2d_backward", kind="loss")
def nll_loss_backward(call: OpCall) -> Work:
    """Writes a gradient that is zero but for one entry per target; the scores are not read."""
    grad, _scores, target = call.inputs[:3]
    return Work(
        other_flops=2 * target.numel,
        read_bytes=grad.nbytes + target.nbytes,
        factor=2,
        terms=(("targets", target.numel),),
    )


@aten("_ctc_loss", kind="loss")
def ctc_loss(call: OpCall) -> Work:
    """Forward recursion: three log-additions per step and label state."""
    log_probs, states = call.inputs[0], call.outputs[-1]
    n = states.numel
    del log_probs
    return Work(other_flops=6 * n, transcendentals=4 * n, factor=6, terms=(("states", n),))

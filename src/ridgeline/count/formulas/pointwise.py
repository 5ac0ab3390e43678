"""Element-wise operators: so many FLOPs and transcendentals for each element of the result.

A row of the table reads: FLOPs per element, transcendentals per element, operator names.
Where an operator branches, the longer branch is counted. Backward operators are those that
PyTorch fuses; the others appear as plain arithmetic.
"""

from __future__ import annotations

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import Work, aten

PER_ELEMENT: dict[str, tuple[int, int]] = {}


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
    return {"aten::mul": 6, "aten::div": 11}.get(name.removesuffix("_"), 2 * flops)


def _tabled(call: OpCall) -> Work:
    name = call.name.removeprefix("aten::")
    key = name if name in PER_ELEMENT else name.removesuffix("_")
    return elementwise(call, *PER_ELEMENT[key])


aten(*(name for name in PER_ELEMENT if "." not in name), kind="pointwise")(_tabled)


@aten("add sub rsub subtract", kind="pointwise")
def add(call: OpCall) -> Work:
    """One FLOP, and one more for a factor; a factor of −1 only turns the sign."""
    scaled = call.get("alpha", 1) not in (1, -1)
    return elementwise(call, 2 if scaled else 1, 0)


@aten("clamp clip", kind="pointwise")
def clamp(call: OpCall) -> Work:
    """One comparison for each bound that is given."""
    bounds = (call.get("min"), call.get("max"))
    return elementwise(call, sum(bound is not None for bound in bounds), 0)


@aten("gelu gelu_backward", kind="pointwise")
def gelu(call: OpCall) -> Work:
    name = call.name.removeprefix("aten::").removesuffix("_")
    return elementwise(call, *PER_ELEMENT[f"{name}.{call.get('approximate')}"])


@aten("pow float_power", kind="pointwise")
def power(call: OpCall) -> Work:
    """Small whole powers are multiplications; any other power is one transcendental."""
    exponent = call.get("exponent")
    if isinstance(exponent, int | float) and exponent in (1, 2, 3, 4):
        return elementwise(call, {1: 0, 2: 1, 3: 2, 4: 2}[int(exponent)], 0)
    if exponent == -1:
        return elementwise(call, 1, 0)
    return elementwise(call, 0, 1)


@aten("addcmul addcdiv", kind="pointwise")
def addc(call: OpCall) -> Work:
    return elementwise(call, 2 if call.get("value") == 1 else 3, 0)


@aten("glu", kind="pointwise")
def glu(call: OpCall) -> Work:
    """a·sigmoid(b)."""
    return elementwise(call, 4, 1)


@aten("glu_backward", kind="pointwise")
def glu_backward(call: OpCall) -> Work:
    """s = sigmoid(b); g·s for a, g·a·s·(1 − s) for b."""
    n = call.out.numel // 2
    return Work(other_flops=8 * n, transcendentals=n, factor=8, terms=(("n", n),))


@aten("log_sigmoid log_sigmoid_forward", kind="pointwise")
def log_sigmoid(call: OpCall) -> Work:
    """min(0, x) − log1p(exp(−|x|)). The buffer that only the CPU fills is left out."""
    n = call.out.numel
    return Work(
        other_flops=4 * n,
        transcendentals=2 * n,
        written_bytes=call.out.nbytes,
        factor=4,
        terms=(("n", n),),
    )


@aten("log_sigmoid_backward", kind="pointwise")
def log_sigmoid_backward(call: OpCall) -> Work:
    """g·1/(1 + exp(x))."""
    n = call.out.numel
    read = sum(t.nbytes for t in call.inputs[:2])
    return Work(other_flops=3 * n, transcendentals=n, read_bytes=read, factor=3, terms=(("n", n),))


@aten("complex polar", kind="pointwise")
def complex_parts(call: OpCall) -> Work:
    polar = call.name == "aten::polar"
    n = call.out.numel
    return Work(other_flops=2 * n * polar, transcendentals=2 * n * polar, terms=(("n", n),))


@aten("native_dropout _fused_dropout", kind="dropout")
def native_dropout(call: OpCall) -> Work:
    """One comparison with the random number and one product with the kept mask and scale."""
    return elementwise(call, 2, 0)


@aten("native_dropout_backward _masked_scale", kind="dropout")
def dropout_backward(call: OpCall) -> Work:
    return elementwise(call, 2, 0)


@aten(
    "bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_xor",
    "logical_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__",
    "__rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ gcd lcm where masked_fill isin",
    kind="pointwise",
)
def logic(call: OpCall) -> Work:
    """Selections and bit operations move data and do no floating-point arithmetic."""
    return Work()


@aten(
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    kind="pointwise",
)
def fake_quantize(call: OpCall) -> Work:
    """x/scale, + zero point, round, two bounds, − zero point, ·scale."""
    return elementwise(call, 7, 0)


@aten("rrelu_with_noise rrelu_with_noise_functional", kind="pointwise")
def rrelu(call: OpCall) -> Work:
    """A comparison and a product with a slope drawn for each element, which is written too."""
    x, noise = call.inputs[:2]
    n = x.numel
    return Work(
        other_flops=2 * n,
        read_bytes=x.nbytes,
        written_bytes=call.out.nbytes + noise.nbytes,
        factor=2,
        terms=(("n", n),),
    )


@aten("rrelu_with_noise_backward", kind="pointwise")
def rrelu_backward(call: OpCall) -> Work:
    return elementwise(call, 2, 0)

"""Element-wise operators: so many FLOPs and transcendentals for each element of the result.

Most are in the table of per_element.py. What PyTorch does not fuse backward appears as plain
arithmetic.
"""

from __future__ import annotations

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import Work, aten
from ridgeline.count.per_element import PER_ELEMENT


def elementwise(call: OpCall, flops: int, transcendentals: int) -> Work:
    """Work of so much per element of the result; none where no operand is floating-point."""
    n = max((t.numel for t in call.outputs), default=0)
    if not call.is_float:
        return Work(terms=(("n", n),), factor=0)
    if any(t.dtype.is_complex for t in call.inputs):
        flops, transcendentals = _complex(call.name, flops), 2 * transcendentals
    return Work.per_element(n, flops, transcendentals=transcendentals * n)


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
    return Work.per_element(n, 8, transcendentals=n)


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

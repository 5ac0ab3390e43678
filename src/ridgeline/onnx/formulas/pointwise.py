"""Element-wise operators: FLOPs and transcendentals for each element of the result.

The numbers are those of PyTorch's operators of the same name, so that a network costs the same
through both: see count/per_element.py.
"""

from __future__ import annotations

from ridgeline.count.per_element import PER_ELEMENT as OF_PYTORCH
from ridgeline.count.per_element import Each
from ridgeline.onnx.formulas.fits import check_broadcast, check_widths, must_have
from ridgeline.onnx.formulas.registry import DEQUANTISE, MS, QUANTISE, Work, elementwise, op
from ridgeline.onnx.node import NodeCall

SAME_NAME = (
    "Mul Div Neg Abs Sign Reciprocal Ceil Floor Round Relu IsNaN IsInf HardSigmoid HardSwish"
    " Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Sqrt"
    " Sigmoid Celu Elu Selu Softplus Mish"
)
OTHER_NAME = {
    "ThresholdedRelu": "threshold", "LeakyRelu": "leaky_relu", "PRelu": "prelu",
    "Mod": "remainder", "Shrink": "softshrink", "Equal": "eq", "Less": "lt", "Greater": "gt",
    "LessOrEqual": "le", "GreaterOrEqual": "ge",
}  # fmt: skip
LOGIC = "And Or Xor Not Where BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot"

PER_ELEMENT: dict[str, Each] = {
    **{name: OF_PYTORCH[name.lower()] for name in SAME_NAME.split()},
    **{name: OF_PYTORCH[theirs] for name, theirs in OTHER_NAME.items()},
    **dict.fromkeys(LOGIC.split(), (0, 0)),
    "Add": (1, 0),
    "Sub": (1, 0),
    "Softsign": (3, 0),  # x/(1 + |x|)
}


@op(" ".join(PER_ELEMENT), kind="pointwise")
def tabled(call: NodeCall) -> Work:
    if call.op_type == "PRelu" and call.version >= 7:  # onnx does not look at the slope
        check_broadcast(call.x.shape, call.given(1).shape)
    flops, transcendentals = PER_ELEMENT[call.op_type]
    return elementwise(call, flops, transcendentals)


@op("Max Min Sum", kind="pointwise")
def several(call: NodeCall) -> Work:
    """One FLOP for each operand after the first."""
    return elementwise(call, len(call.inputs) - 1)


@op("Mean", kind="pointwise")
def mean(call: NodeCall) -> Work:
    return elementwise(call, len(call.inputs))


@op("Clip", kind="pointwise")
def clip(call: NodeCall) -> Work:
    """One comparison for each bound that is given, as operand or (before opset 11) attribute."""
    bounds = sum(call.has(i) for i in (1, 2)) + sum(
        name in call.attributes for name in ("min", "max")
    )
    return elementwise(call, bounds)


@op("Pow", kind="pointwise")
def power(call: NodeCall) -> Work:
    """Small whole powers are multiplications; any other power is one transcendental."""
    exponent = call.given(1)
    if exponent.value is not None and exponent.numel == 1:
        known = float(exponent.value.ravel()[0])
        if known in (1, 2, 3, 4):
            return elementwise(call, {1: 0, 2: 1, 3: 2, 4: 2}[int(known)])
        if known == -1:
            return elementwise(call, 1)
    return elementwise(call, 0, 1)


def gelu_cost(*, tanh: bool) -> Each:
    return OF_PYTORCH["gelu.tanh" if tanh else "gelu.none"]


@op("Gelu", kind="pointwise")
@op("Gelu", kind="pointwise", domain=MS)
def gelu(call: NodeCall) -> Work:
    return elementwise(call, *gelu_cost(tanh=call.attr("approximate", "none") == "tanh"))


@op("BiasGelu", kind="pointwise", domain=MS)
def bias_gelu(call: NodeCall) -> Work:
    check_widths(call, (1,))
    flops, one = gelu_cost(tanh=False)
    return elementwise(call, flops + 1, one)


@op("FastGelu", kind="pointwise", domain=MS)
def fast_gelu(call: NodeCall) -> Work:
    check_widths(call, (1,))
    flops, one = gelu_cost(tanh=True)
    return elementwise(call, flops + call.has(1), one)


@op("Swish", kind="pointwise")
@op("QuickGelu", kind="pointwise", domain=MS)
def swish(call: NodeCall) -> Work:
    """x·sigmoid(a·x); a is 1 unless the operator says otherwise, 1.702 for QuickGelu."""
    default = 1.0 if call.op_type == "Swish" else 1.702
    flops, one = OF_PYTORCH["silu"]
    return elementwise(call, flops + (call.attr("alpha", default) != 1), one)


@op("SwiGLU", kind="pointwise")
def swiglu(call: NodeCall) -> Work:
    """g·sigmoid(a·g)·v."""
    flops, one = OF_PYTORCH["silu"]
    return elementwise(call, flops + 1 + (call.attr("alpha", 1.0) != 1), one)


@op("BiasAdd", kind="pointwise", domain=MS)
def bias_add(call: NodeCall) -> Work:
    """x + bias + skip."""
    check_widths(call, (1,))
    must_have(call, 2, call.x.shape)
    return elementwise(call, 2)


@op("BiasSplitGelu", kind="pointwise", domain=MS)
def bias_split_gelu(call: NodeCall) -> Work:
    """(x + b) in two halves, one through GELU, multiplied."""
    check_widths(call, (1,))
    flops, one = gelu_cost(tanh=False)
    return elementwise(call, 2 + flops + 1, one)


@op("BiasDropout BitmaskBiasDropout", kind="dropout", domain=MS)
def bias_dropout(call: NodeCall) -> Work:
    """data + bias, + residual; in training a comparison and a product between them."""
    must_have(call, 2, call.x.shape)
    return elementwise(call, 1 + call.has(2) + 2 * is_told_to_train(call, 4))


@op("Affine", kind="pointwise")
@op("ScaledTanh", kind="pointwise", domain=MS)
def scaled(call: NodeCall) -> Work:
    return elementwise(call, 2, call.op_type == "ScaledTanh")


@op("Dropout", kind="dropout")
def dropout(call: NodeCall) -> Work:
    """In inference the operand goes through; in training a comparison and a product."""
    trains = is_told_to_train(call) if call.version >= 7 else not call.attr("is_test", 0)
    if not trains:
        mask = sum(t.nbytes for t in call.outputs[1:])
        return Work(read_bytes=0, written_bytes=mask)
    return Work.per_element(call.x.numel, 2, read_bytes=call.x.nbytes)


def is_told_to_train(call: NodeCall, place: int = 2) -> bool:
    """Whether this operand of a dropout is true, or may be."""
    told = call.get(place)
    return told is not None and (told.value is None or bool(told.value.any()))


@op("QuantizeLinear", kind="pointwise")
def quantize(call: NodeCall) -> Work:
    """x/scale, round, two bounds, and the zero point where there is one."""
    return elementwise(call, QUANTISE - 1 + call.has(2))


@op("DequantizeLinear", kind="pointwise")
def dequantize(call: NodeCall) -> Work:
    """(x − zero point)·scale."""
    return elementwise(call, DEQUANTISE - 1 + call.has(2))


DYNAMIC_QUANTISE = 2 + QUANTISE  # the smallest and the largest element are found first


@op("DynamicQuantizeLinear", kind="pointwise")
def dynamic_quantize(call: NodeCall) -> Work:
    """The smallest and largest element, then as QuantizeLinear with a zero point."""
    n = call.x.numel
    return Work.per_element(n, DYNAMIC_QUANTISE)


@op("QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearWhere", kind="pointwise",
    domain=MS)  # fmt: skip
def qlinear(call: NodeCall) -> Work:
    """(q − zero point)·scale of each operand, the work, and y/scale + zero point, bounded."""
    flops, transcendentals = PER_ELEMENT[call.op_type.removeprefix("QLinear")]
    data = 2 if call.op_type in ("QLinearAdd", "QLinearMul", "QLinearWhere") else 1
    n = call.out.numel
    per_element = data * DEQUANTISE + flops + QUANTISE
    return Work.per_element(n, per_element, transcendentals=transcendentals * n)

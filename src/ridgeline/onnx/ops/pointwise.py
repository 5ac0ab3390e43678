"""Element-wise operators: FLOPs and transcendentals for each element of the result.

The numbers are those of PyTorch's operators of the same name: see count/per_element.py.
"""

from __future__ import annotations

from ridgeline.count.per_element import PER_ELEMENT as OF_PYTORCH
from ridgeline.count.per_element import Each
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops.registry import DEQUANTISE, MS, QUANTISE, Work, elementwise, op

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
SILU = OF_PYTORCH["silu"]
SCALED_SILU = (SILU[0] + 1, SILU[1])  # and a product: with a number, or with the other half
GELU, FAST_GELU = OF_PYTORCH["gelu.none"], OF_PYTORCH["gelu.tanh"]
ACTIVATIONS: dict[str, Each] = {name.lower(): cost for name, cost in PER_ELEMENT.items()} | {
    "": (0, 0), "none": (0, 0), "identity": (0, 0), "clip": (2, 0), "affine": (2, 0),
    "scaledtanh": (2, 1), "silu": SILU, "swish": SILU, "swiglu": SCALED_SILU,
    "gelu": GELU, "quickgelu": SCALED_SILU, "fastgelu": FAST_GELU,
}  # fmt: skip
"""Those that an attribute names, of fused products and of recurrent layers."""
DYNAMIC_QUANTISE = 2 + QUANTISE  # the smallest and the largest element come first


def activation_cost(name: str) -> Each:
    """FLOPs and transcendentals of one element; one FLOP for a name that is not known."""
    return ACTIVATIONS.get(name.lower(), (1, 0))


def fused_activation(call: NodeCall, *, attribute: str = "activation", default: str = "") -> Each:
    return activation_cost(str(call.attr(attribute, default) or ""))


@op(" ".join(PER_ELEMENT), kind="pointwise")
def tabled(call: NodeCall) -> Work:
    return elementwise(call, *PER_ELEMENT[call.op_type])


@op("Max Min Sum Mean", kind="pointwise")
def several(call: NodeCall) -> Work:
    """One FLOP for each operand after the first, and the mean's division."""
    return elementwise(call, len(call.inputs) - (call.op_type != "Mean"))


@op("Clip", kind="pointwise")
def clip(call: NodeCall) -> Work:
    """One comparison for each bound, as operand or (before opset 11) attribute."""
    bounds = sum(call.has(i) for i in (1, 2)) + sum(
        name in call.attributes for name in ("min", "max")
    )
    return elementwise(call, bounds)


@op("Pow", kind="pointwise")
def power(call: NodeCall) -> Work:
    """Small whole powers are multiplications; any other power is one transcendental."""
    exponent = call.operand(1).first_value
    flops = {None: None, 1.0: 0, 2.0: 1, 3.0: 2, 4.0: 2, -1.0: 1}.get(exponent)
    return elementwise(call, 0, 1) if flops is None else elementwise(call, flops)


@op("Gelu", kind="pointwise")
@op("Gelu BiasGelu FastGelu", kind="pointwise", domain=MS)
def gelu(call: NodeCall) -> Work:
    """onnxruntime's may add a bias first."""
    is_tanh = call.op_type == "FastGelu" or call.attr("approximate", "none") == "tanh"
    flops, one = FAST_GELU if is_tanh else GELU
    return elementwise(call, flops + call.has(1), one)


@op("Swish SwiGLU", kind="pointwise")
@op("QuickGelu", kind="pointwise", domain=MS)
def swish(call: NodeCall) -> Work:
    """x·sigmoid(a·x), of SwiGLU ·v; a is 1 unless the node says otherwise, 1.702 for QuickGelu."""
    default = 1.702 if call.op_type == "QuickGelu" else 1.0
    more = (call.attr("alpha", default) != 1) + (call.op_type == "SwiGLU")
    return elementwise(call, SILU[0] + more, SILU[1])


@op("BiasAdd", kind="pointwise", domain=MS)
def bias_add(call: NodeCall) -> Work:
    """x + bias + skip."""
    return elementwise(call, 2)


@op("BiasSplitGelu", kind="pointwise", domain=MS)
def bias_split_gelu(call: NodeCall) -> Work:
    """(x + b) in two halves, one through GELU, multiplied."""
    return elementwise(call, 2 + GELU[0] + 1, GELU[1])


@op("Dropout", kind="dropout")
def dropout(call: NodeCall) -> Work:
    """In inference the operand goes through; in training a comparison and a product."""
    mode = call.get(2)
    if call.version < 7:
        trains = not call.attr("is_test", 0)
    else:
        trains = mode is not None and (mode.value is None or bool(mode.value.any()))
    if not trains:
        return Work(read_bytes=0, written_bytes=sum(t.nbytes for t in call.outputs[1:]))
    return Work.per_element(call.x.numel, 2, read_bytes=call.x.nbytes)


@op("QuantizeLinear", kind="pointwise")
def quantize(call: NodeCall) -> Work:
    """x/scale, round, two bounds, and the zero point where there is one."""
    return elementwise(call, QUANTISE - 1 + call.has(2))


@op("DequantizeLinear", kind="pointwise")
def dequantize(call: NodeCall) -> Work:
    """(x − zero point)·scale."""
    return elementwise(call, DEQUANTISE - 1 + call.has(2))


@op("DynamicQuantizeLinear", kind="pointwise")
def dynamic_quantize(call: NodeCall) -> Work:
    return Work.per_element(call.x.numel, DYNAMIC_QUANTISE)


@op("QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu", kind="pointwise", domain=MS)
def qlinear(call: NodeCall) -> Work:
    """Each operand dequantised, the work, and the result quantised."""
    flops, transcendentals = PER_ELEMENT[call.op_type.removeprefix("QLinear")]
    operands = 2 if call.op_type in ("QLinearAdd", "QLinearMul") else 1
    n = call.out.numel
    each = operands * DEQUANTISE + flops + QUANTISE
    return Work.per_element(n, each, transcendentals=transcendentals * n)

"""Element-wise operators, normalisations and softmax."""

from __future__ import annotations

from math import prod

from ridgeline.costs import elementwise as costs
from ridgeline.costs.elementwise import (
    DEQUANTISE,
    DROPOUT,
    DYNAMIC_QUANTISE,
    FAST_GELU,
    GELU,
    QUANTISE,
    SILU,
    elementwise,
    power,
)
from ridgeline.costs.elementwise import PER_ELEMENT as OF_PYTORCH
from ridgeline.costs.work import Each, Work
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops import MS, Formula, add_rows

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
SCALED_SILU = (SILU[0] + 1, SILU[1])  # and a product: with a number, or with the other half
ACTIVATIONS: dict[str, Each] = {name.lower(): cost for name, cost in PER_ELEMENT.items()} | {
    "": (0, 0), "none": (0, 0), "identity": (0, 0), "clip": (2, 0), "affine": (2, 0),
    "scaledtanh": (2, 1), "silu": SILU, "swish": SILU, "swiglu": SCALED_SILU,
    "gelu": GELU, "quickgelu": SCALED_SILU, "fastgelu": FAST_GELU,
}  # fmt: skip
"""Those that an attribute names, of fused products and of recurrent layers."""


def activation_cost(name: str) -> Each:
    """FLOPs and transcendentals of one element; one FLOP for a name that is not known."""
    return ACTIVATIONS.get(name.lower(), (1, 0))


def fused_activation(call: NodeCall, *, attribute: str = "activation", default: str = "") -> Each:
    return activation_cost(str(call.attr(attribute, default) or ""))


def _per_element(flops: int, transcendentals: int = 0) -> Formula:
    return lambda call: elementwise(call, flops, transcendentals)


def _clip(call: NodeCall) -> Work:
    """One comparison for each bound, as operand or (before opset 11) attribute."""
    operands = sum(call.has(number) for number in (1, 2))
    return elementwise(call, operands + sum(name in call.attributes for name in ("min", "max")))


def _gelu(call: NodeCall) -> Work:
    """onnxruntime's may add a bias first."""
    is_tanh = call.op_type == "FastGelu" or call.attr("approximate", "none") == "tanh"
    flops, one = FAST_GELU if is_tanh else GELU
    return elementwise(call, flops + call.has(1), one)


def _swish(call: NodeCall) -> Work:
    """x·sigmoid(a·x), of SwiGLU ·v; a is 1 unless the node says otherwise, 1.702 for QuickGelu."""
    default = 1.702 if call.op_type == "QuickGelu" else 1.0
    more = (call.attr("alpha", default) != 1) + (call.op_type == "SwiGLU")
    return elementwise(call, SILU[0] + more, SILU[1])


def _dropout(call: NodeCall) -> Work:
    """In inference the operand goes through."""
    mode = call.get(2)
    if mode is None or (mode.value is not None and not mode.value.any()):
        return Work(read_bytes=0, written_bytes=sum(t.nbytes for t in call.outputs[1:]))
    return Work.per_element(call.x.numel, DROPOUT, read_bytes=call.x.nbytes)


def _quantised(name: str, operands: int) -> Formula:
    """Each operand dequantised, the work, and the result quantised."""
    flops, one = PER_ELEMENT[name]
    each = operands * DEQUANTISE + flops + QUANTISE
    return lambda c: Work.per_element(c.out.numel, each, transcendentals=one * c.out.numel)


add_rows("pointwise", {
    **{name: _per_element(*cost) for name, cost in PER_ELEMENT.items()},
    # one FLOP for each operand after the first; the mean's division
    "Max Min Sum": lambda c: elementwise(c, len(c.inputs) - 1),
    "Mean": lambda c: elementwise(c, len(c.inputs)),
    "Clip": _clip,
    "Pow": lambda c: elementwise(c, *power(c.operand(1).first_value)),
    "Gelu": _gelu,
    "Swish SwiGLU": _swish,
    # x/scale, round, two bounds; (x − zero point)·scale; the zero point where there is one
    "QuantizeLinear": lambda c: elementwise(c, QUANTISE - 1 + c.has(2)),
    "DequantizeLinear": lambda c: elementwise(c, DEQUANTISE - 1 + c.has(2)),
    "DynamicQuantizeLinear": lambda c: Work.per_element(c.x.numel, DYNAMIC_QUANTISE),
})  # fmt: skip
add_rows("pointwise", {
    "Gelu BiasGelu FastGelu": _gelu,
    "QuickGelu": _swish,
    "QLinearAdd": _quantised("Add", 2),
    "QLinearMul": _quantised("Mul", 2),
    "QLinearSigmoid": _quantised("Sigmoid", 1),
    "QLinearLeakyRelu": _quantised("LeakyRelu", 1),
}, domain=MS)  # fmt: skip
add_rows("dropout", {"Dropout": _dropout})

# ---------------------------------------------------------------- normalisations


def _groups(call: NodeCall) -> int:
    """How many groups are normalised: the dimensions before the axis."""
    shape = call.x.shape
    return prod(shape[: call.int_attr("axis", -1) % len(shape) if shape else 0])


def has_batch_statistics(call: NodeCall) -> bool:
    """Whether a batch norm is as in training; before version 14 its further results show it."""
    if call.version >= 14 and not call.domain:
        return bool(call.attr("training_mode", 0))
    return len(call.outputs) > 1


def _skip_layer_norm(call: NodeCall) -> Work:
    """input + skip (+ bias), then layer norm: gamma, beta, bias."""
    groups, affine = prod(call.x.shape[:-1]), call.has(2) + call.has(3)
    return costs.layer_norm(call.x.numel, groups, affine=affine, more=1 + call.has(4))


def _skip_rms_norm(call: NodeCall) -> Work:
    """input + skip (+ bias), then RMS norm: gamma, bias."""
    groups = prod(call.x.shape[:-1])
    return costs.rms_norm(call.x.numel, groups, affine=call.has(2), more=1 + call.has(3))


def _embed_layer_norm(call: NodeCall) -> Work:
    """Rows of the word, position and segment tables are added, then layer norm.

    Only the rows that are looked up are read.
    """
    out = call.out
    tables = [t for number in (2, 3, 4) if (t := call.get(number)) is not None]
    rows_bytes = sum(t.bytes_of(min(out.numel, t.numel)) for t in tables)
    others = sum(t.nbytes for t in call.inputs if all(t is not table for table in tables))
    work = costs.layer_norm(out.numel, prod(out.shape[:-1]), affine=2, more=max(len(tables) - 1, 0))
    return work.with_bytes(read=rows_bytes + others)


def _mean_variance(call: NodeCall) -> Work:
    axes = [a % max(len(call.x.shape), 1) for a in call.attr("axes", [0, 2, 3])]
    groups = prod(size for axis, size in enumerate(call.x.shape) if axis not in axes)
    return costs.layer_norm(call.x.numel, groups, affine=0)


def _lp_norm(call: NodeCall) -> Work:
    """A power and an addition an element, a division; a root for each norm of order 2."""
    x = call.x
    groups = x.numel // max(x.shape[call.int_attr("axis", -1)], 1) if x.shape else 1
    roots = groups if call.attr("p", 2) == 2 else 0
    return Work.per_element(x.numel, 3, transcendentals=roots)


def _lrn(call: NodeCall) -> Work:
    """x/(bias + alpha/size·Σx²)^beta over `size` channels: size squares and sums, and 3 more."""
    n, size = call.x.numel, call.int_attr("size", 1)
    return Work.per_element(n, 2 * size + 3, transcendentals=n)


def _log_softmax(call: NodeCall) -> Work:
    """One logarithm for each row; before opset 13 all dimensions from the axis on are one row."""
    n, shape = call.x.numel, call.x.shape
    if call.version < 13:
        return costs.softmax(n, rows=prod(shape[: call.int_attr("axis", 1) % (len(shape) or 1)]))
    return costs.softmax(n, rows=n // max(shape[call.int_attr("axis", -1)], 1) if shape else 1)


add_rows("norm", {
    "BatchNormalization": lambda c: costs.batch_norm(c.x, is_training=has_batch_statistics(c)),
    "InstanceNormalization": lambda c: costs.layer_norm(
        c.x.numel, prod(c.x.shape[:2]), affine=2
    ),
    "GroupNormalization": lambda c: costs.layer_norm(
        c.x.numel, c.x.shape[0] * c.int_attr("num_groups", 1), affine=2
    ),
    "LayerNormalization": lambda c: costs.layer_norm(
        c.x.numel, _groups(c), affine=c.has(1) + c.has(2)
    ),
    "RMSNormalization SimplifiedLayerNormalization": lambda c: costs.rms_norm(
        c.x.numel, _groups(c), affine=c.has(1)
    ),
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp_norm,
    "LRN": _lrn,
})  # fmt: skip
add_rows("norm", {
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "EmbedLayerNormalization": _embed_layer_norm,
}, domain=MS)  # fmt: skip
add_rows("softmax", {
    "Softmax": lambda c: costs.softmax(c.x.numel),
    "LogSoftmax": _log_softmax,
    "Hardmax": lambda c: Work.per_element(c.x.numel, 1),  # a comparison an element
})  # fmt: skip
add_rows("softmax", {
    "QLinearSoftmax": lambda c: costs.softmax(c.x.numel, more=DEQUANTISE + QUANTISE),
}, domain=MS)  # fmt: skip

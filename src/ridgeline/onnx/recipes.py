"""What an operator of PyTorch may be in a file: the nodes of each form, and how many of each.

`Sigmoid Mul | Swish` are two forms, of which all nodes must be there; `Mul?` may be there, `Mul*2`
are two. Each operator takes no nodes but those of one form of its own, so what is left over is work
of another network. Taken from what torch's two exporters write, the new one with opsets 18 and 20,
the old one with 17; copies and whole numbers are no part of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ridgeline.onnx.pieces import Piece

BY_NUMBER = "#"  # behind a node: beside one number, not another tensor


@dataclass(frozen=True, slots=True)
class Form:
    """Nodes that an operator is, and those that it may have besides."""

    must: tuple[str, ...]
    may: tuple[str, ...]

    @property
    def needed(self) -> frozenset[str]:
        return frozenset(map(node_name, self.must))

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(map(node_name, (*self.must, *self.may)))


def node_name(part: str) -> str:
    return part.removesuffix(BY_NUMBER)


def names_of(node: Piece) -> tuple[str, ...]:
    """The names under which a form may ask for a node."""
    return (node.function, f"{node.function}{BY_NUMBER}") if node.is_by_number else (node.function,)


def forms_of(text: str) -> tuple[Form, ...]:
    return tuple(_form(form.split()) for form in text.split("|"))


def _form(parts: list[str]) -> Form:
    must: list[str] = []
    may: list[str] = []
    for part in parts:
        name, _, times = part.partition("*")
        kept = may if name.endswith("?") else must
        kept += [name.removesuffix("?")] * int(times or 1)
    return Form(tuple(must), tuple(may))


_INSTANCE = (
    "InstanceNormalization Mul? Add? | GroupNormalization | LayerNormalization Mul? Add?"
    " | ReduceMean*2 Sub Pow? Mul?*3 Add?*2 Sqrt? Div? Reciprocal?"
)
_OWN = "BatchNormalization ReduceMean*2 ReduceMean? Sub? Mul?*3 Add?"  # its own statistics
_VARIANCE = "ReduceMean*2 Sub Mul Mul? Div? | ReduceMean*2 Sub Pow Mul? Div?"
_DEVIATION = _VARIANCE.replace("Sub Mul", "Sqrt Sub Mul").replace("Sub Pow", "Sqrt Sub Pow")
_WITH_SUM = "ReduceMean*2 ReduceSum Div Sub Mul Mul? Div?"
_MEAN = "ReduceMean | GlobalAveragePool | AveragePool | ReduceSum Div# | ReduceSum Mul#"
_EXPONENTIAL = "Exp Sub? Mul?*2 Where? Greater? Less? Min? Max?"
_REDUCED = "ReduceMean? ReduceSum?"
_ERROR = "Sub Mul Sub? Add?*2"
_SAME_NAME = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Round Sigmoid Sign Sin"
    " Sinh Sqrt Tan Tanh"
)
RECIPES: dict[str, tuple[Form, ...]] = {
    name.lower(): forms_of(name) for name in _SAME_NAME.split()
} | {
    name: forms_of(text)
    for names, text in {
        # arithmetic
        "add": "Add | Sum",
        "add.scaled": "Add Mul | Add",
        "sub rsub": "Sub | Neg Add | Add#",
        "sub.scaled rsub.scaled": "Sub Mul | Sub | Neg Add",
        "mul": "Mul | Div# | Einsum",
        "mul.complex": "Mul*4 Sub Add | Mul*2 Sub Add",
        "div": "Div | Mul# | Reciprocal Mul",
        "div.floor": "Div Floor | Floor Mul#",
        "div.trunc": "Div Abs Floor Sign Mul | Div",
        "floor_divide": "Div Floor | Div",
        "remainder": "Div Floor Mul Sub | Mod",
        "fmod": "Mod",
        "neg": "Neg | Mul# | Sub#",
        "reciprocal": "Reciprocal | Div# | Pow#",
        "rsqrt": "Sqrt Reciprocal | Sqrt Div# | Pow#",
        "pow square": "Pow | Mul | Sqrt | Reciprocal | Sqrt Reciprocal | Sqrt Div#",
        "trunc": "Abs Floor Sign Mul | Where Ceil Floor Less",
        "frac": "Abs Floor Sign Mul Sub",
        "round": "Round",
        "round.decimals": "Round Mul Div | Round Mul*2",
        "sgn": "Sign",
        "maximum": "Max | Where Greater?",
        "minimum": "Min | Where Less?",
        "clamp clamp_min clamp_max": "Clip | Max Min | Max | Min | Relu",
        "addcmul": "Mul Add Mul?",
        "addcdiv": "Div Add Mul?",
        "lerp": "Sub Mul Add Sub?*2 Mul? Where? Less?",
        "deg2rad rad2deg": "Mul",
        "linalg_cross": "Mul*6 Sub*3 | Mul*2 Sub",
        "heaviside": "Where*2 Equal? Less? Greater?",
        # comparisons
        "gt": "Greater | LessOrEqual",
        "lt": "Less | GreaterOrEqual",
        "ge": "GreaterOrEqual | Less",
        "le": "LessOrEqual | Greater",
        "eq ne": "Equal",
        "isnan": "IsNaN",
        "isinf": "IsInf",
        "signbit": "Less",
        "where masked_fill": "Where",
        "nan_to_num": "Where*3 IsNaN IsInf Less Greater IsInf?",
        # functions
        "exp2": "Pow",
        "expm1": "Exp Sub",
        "log1p": "Log Add",
        "log2 log10": "Log Div",
        "logit": "Log Div Sub Clip? Less? LessOrEqual? Greater? Where?*2",
        "erfc": "Erf Sub",
        "atan2": "Atan Div Where*2 Add Sub Greater Less Where? IsNaN?",
        "sinc": "Sin Div Where Equal Mul",
        "xlogy": "Mul Where Log? Where? IsNaN? Equal? Greater? | Log Where Greater",
        "logaddexp": "Exp*2 Add Log",
        "logaddexp2": "Pow*2 Add Log Div",
        # activations
        "relu": "Relu | Max",
        "relu6 hardtanh": "Clip | Relu Min | Max Min | Max | Min",
        "leaky_relu rrelu_with_noise rrelu_with_noise_functional":
            "LeakyRelu | Where Mul Greater? Less? | Max Mul",
        "_prelu_kernel prelu": "PRelu | Where Mul Greater? Less?",
        "hardswish": "HardSwish | HardSigmoid Mul | Clip Mul Add? Div? Mul?",
        "hardsigmoid": "HardSigmoid | Clip Div Add? | Clip Mul Add?",
        "hardshrink": "Where Abs LessOrEqual | Where Greater Less",
        "softshrink": "Where Abs Greater Mul*2 Sign Sub | Where*2 Greater Less Add Sub Add?",
        "threshold": "Where LessOrEqual | Where Greater",
        "gelu.none": "Gelu | Erf Mul Add Mul?*2 Div?",
        "gelu.tanh": "Gelu.tanh | Tanh Mul*2 Add Add? Mul?*4 Pow?",
        "silu": "Sigmoid Mul | Swish",
        "glu": "Sigmoid Mul",
        "mish": "Mish | Tanh Softplus Mul | Tanh Log Exp Add Mul",
        "softplus": "Softplus Greater? Where? Mul? Div? | Log Exp Add Greater? Where? Mul? Div?",
        "log_sigmoid_forward": "Sigmoid Log | Softplus Neg*2",
        "elu": f"Elu | Celu.1 | {_EXPONENTIAL}",
        "elu.selu": f"Selu | Elu Mul | {_EXPONENTIAL}",
        "celu": f"Celu | Elu Mul Div | Elu Mul*2 | {_EXPONENTIAL}",
        "celu.1": f"Celu.1 | Elu Mul? Div? | Elu Mul?*2 | {_EXPONENTIAL}",
        "_softmax": "Softmax | Exp ReduceSum Div ReduceMax? Sub?",
        "_log_softmax":
            "LogSoftmax | Softmax Log | ReduceLogSumExp Sub"
            " | Exp ReduceSum Log Sub ReduceMax? Sub?",
        "sdpa": "MatMul*2 Softmax Mul?*2 Div? Sqrt?*3 Add? Where?*2 Equal? IsNaN?",
        # norms
        "norm.own": _OWN,
        "norm.instance": f"{_OWN} | {_INSTANCE}",
        "native_group_norm": _INSTANCE,
        "native_layer_norm": (
            "LayerNormalization | InstanceNormalization Mul? Add?"
            " | ReduceMean*2 Sub Pow? Mul?*3 Add?*2 Sqrt? Div? Reciprocal?"
        ),
        "_fused_rms_norm": (
            "RMSNormalization | SimplifiedLayerNormalization"
            " | ReduceMean Pow? Mul?*3 Add Sqrt Div? Reciprocal?"
        ),
        # reductions
        "nansum": "ReduceSum Where? IsNaN?",
        "sum": "ReduceSum | ReduceSumSquare | Einsum | GlobalAveragePool Mul",
        "mean": _MEAN,
        "prod": "ReduceProd",
        "amax": "ReduceMax | GlobalMaxPool | MaxPool",
        "max": "ReduceMax ArgMax? | GlobalMaxPool | MaxPool",
        "amin": "ReduceMin",
        "min": "ReduceMin ArgMin?",
        "aminmax": "ReduceMax ReduceMin | ReduceMax | ReduceMin",
        "argmax": "ArgMax",
        "argmin": "ArgMin",
        "logsumexp": "ReduceLogSumExp | Exp ReduceSum Log ReduceMax? Sub? Add? Where? Abs?",
        "var": _VARIANCE,
        "std": _DEVIATION,
        "var_mean": f"{_VARIANCE.replace('*2', '*3')} | {_WITH_SUM} | {_VARIANCE}",
        "std_mean": f"{_DEVIATION.replace('*2', '*3')} | {_WITH_SUM} Sqrt | {_DEVIATION}",
        "norm": "ReduceL2 | ReduceL1 | Pow*2 ReduceSum Abs?",
        "norm.2": "ReduceL2 | ReduceSum Mul Sqrt | ReduceSum Pow Sqrt | Pow*2 ReduceSum Abs?",
        "norm.1": "ReduceL1 | ReduceSum Abs",
        "norm.0": "ReduceSum Equal?",
        "norm.inf": "Abs ReduceMax",
        "norm.-inf": "Abs ReduceMin",
        "norm.other": "Pow*2 ReduceSum Abs?",
        # one node for one
        "upsample.nearest": "Resize.nearest",
        "upsample.linear": "Resize.linear",
        "upsample_linear1d": "Resize.linear | Sub Mul Add",  # with gathers
        "upsample.cubic": "Resize.cubic",
        "cumsum": "CumSum",
        "cumprod": "CumProd",
        "logcumsumexp": "CumSum Exp Log Add Sub ReduceMax",
        "topk sort": "TopK",
        "grid_sampler_2d grid_sampler_3d": "GridSample",
        "_linalg_det": "Det",
        "adaptive_max_pool2d": "MaxPool | GlobalMaxPool | ReduceMax",
        "_fft_r2c": "DFT DFT?*3 Mul? Div? | STFT",
        "_fft_c2r _fft_c2c": "DFT DFT?*3 Mul? Div?",
        "dist": "Sub ReduceL2 | Sub ReduceL1 | Sub Pow*2 ReduceSum Abs?",
        "count_nonzero": "Equal",
        "index_add scatter_add": "ScatterElements Add? | ScatterND Add?",
        # losses
        "mse_loss":
            f"{_ERROR} {_REDUCED} | Sub Pow {_REDUCED}",
        "binary_cross_entropy":
            f"Log*2 Mul*2 Sub*2 Add Neg Max?*2 Clip?*2 {_REDUCED}",
        "binary_cross_entropy_with_logits":
            f"Sigmoid Log Sub*2 Mul Log? Mul? Add? Neg? {_REDUCED}",
        "huber_loss": f"Sub*2 Abs Less Where Mul*2 {_REDUCED}",
        "smooth_l1_loss": f"Sub Abs Less Where Mul Sub? Mul? Pow? Div? {_REDUCED}",
        "soft_margin_loss": f"Exp Log Add Mul Neg {_REDUCED}",
        "nll_loss_forward nll_loss2d_forward": "NegativeLogLikelihoodLoss",
    }.items()
    for name in names.split()
}  # fmt: skip
OTHER_WORK = ("norm.other",)  # work of the same result, not a part for each part
FOLDED = {"norm.batch": frozenset({"BatchNormalization"})}  # these may also be gone
REWRITTEN = [  # of what is left: operators that onnxruntime's optimizer writes as one
    (Counter(("rsqrt", "mul")), forms_of("Div Sqrt")[0]),  # x · 1/√y as x/√y
]
JOINTLY = [  # operators that are written as one
    (Counter(ops.split()), forms_of(text)[0])
    for ops, text in {
        "_log_softmax nll_loss_forward": "SoftmaxCrossEntropyLoss",
        "_log_softmax nll_loss2d_forward": "SoftmaxCrossEntropyLoss",
        "_log_softmax mul sum neg div": "SoftmaxCrossEntropyLoss",  # of probabilities
        "abs ne eq": "IsInf IsNaN",  # isfinite
        "mul _fft_r2c": "STFT",  # with a window
        "norm add": "Pow*2 ReduceSum",  # a pairwise distance without its epsilon
        "norm.2 norm.2 clamp_min clamp_min div": "Mul*3 ReduceSum*2 Sqrt Max",  # of two vectors
    }.items()
]
_CENTRED = "pow? mul?*3 add?*2 sqrt? rsqrt? div? reciprocal?"
_OF_POWERS = "pow mul?*2 add? div? reciprocal?"
_OF_SQUARES = "square? mul?*3 add? div? reciprocal?"
_ROOT = " | ".join(
    f"mean {root} {rest}" for rest in (_OF_POWERS, _OF_SQUARES) for root in ("rsqrt", "sqrt")
)
JOINED_FORMS = {  # nodes that are several operators at once
    node: forms_of(text)
    for node, text in {
        "Gelu": "erf mul mul?*2 add? div?",
        "Gelu.tanh": "tanh mul mul?*5 add?*2 pow?",
        "Mish": "softplus tanh mul | softplus mul | tanh mul",
        "Swish": "sigmoid mul",
        "HardSwish": "hardsigmoid mul | hardtanh mul add? div? | clamp mul add? div?",
        "SoftmaxCrossEntropyLoss": "_log_softmax nll_loss_forward | _log_softmax nll_loss2d_forward"
        " | _log_softmax mul sum neg div",
        "LayerNormalization": f"sub mean mean? {_CENTRED} | sub var mean? {_CENTRED}"
        f" | sub std mean? {_CENTRED} | sub var_mean {_CENTRED}",
        "RMSNormalization": _ROOT,
        "SimplifiedLayerNormalization": _ROOT,
    }.items()
}
JOINED = {  # the operators of which all must be there
    node: tuple(form.needed for form in forms) for node, forms in JOINED_FORMS.items()
}


PRIMARY = {  # operators that are one node as a rule
    name: forms[0].must[0]
    for name, forms in RECIPES.items()
    if len(forms[0].must) == 1 and not forms[0].may
}


def is_of_many(piece: Piece) -> bool:
    """Whether it is an operator that a file has as several nodes."""
    return piece.function in RECIPES and piece.function not in PRIMARY

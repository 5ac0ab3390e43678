"""What a function is, beyond what it costs: a sigmoid is no tanh, a sum no product.

A table says which nodes an operator of PyTorch may be in a file. In one module each function of the
model must be there as one of these, and each function of the file must be a part of what the model
does. Operators that are not in the table may be anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ridgeline.count.onnx.pieces import (
    COMPOSITE,
    MOVES,
    PRODUCTS,
    UNEXPLAINED,
    Found,
    Piece,
    Place,
    has_macs,
)
from ridgeline.count.result import OpCost

Forms = tuple[frozenset[str], ...]


def _forms(text: str) -> Forms:
    """`Sigmoid Mul | Swish`: the nodes of each form, of which all must be there."""
    return tuple(frozenset(form.split()) for form in text.split("|"))


_CLIP = "Clip | Max | Min | Relu Min"
_INSTANCE = "InstanceNormalization | GroupNormalization | LayerNormalization | ReduceMean"
FUNCTIONS: dict[str, Forms] = {
    name: _forms(text)
    for names, text in {
        "relu": "Relu | Max",
        "relu6 hardtanh": _CLIP,
        "leaky_relu rrelu_with_noise_functional": "LeakyRelu | Where Mul | Max Mul",
        "_prelu_kernel prelu": "PRelu | Where Mul",
        "hardswish": "HardSwish | HardSigmoid Mul | Clip Mul",
        "hardsigmoid": "HardSigmoid | Clip Div | Clip Mul",
        "sigmoid": "Sigmoid",
        "tanh": "Tanh",
        "erf": "Erf",
        "exp": "Exp",
        "log": "Log",
        "sin": "Sin",
        "cos": "Cos",
        "gelu.none": "Gelu | Erf",
        "gelu.tanh": "Gelu | Tanh",
        "silu": "Sigmoid Mul | Swish",
        "glu": "Sigmoid Mul",
        "mish": "Mish | Tanh Softplus | Tanh Log",
        "softplus": "Softplus | Log Exp",
        "elu": "Elu | Celu | Selu | Exp",
        "_softmax": "Softmax | Exp ReduceSum",
        "_log_softmax": "LogSoftmax | Softmax Log | ReduceLogSumExp | Exp ReduceSum",
        "norm.instance": f"{_INSTANCE} | BatchNormalization ReduceMean",
        "native_group_norm": _INSTANCE,
        "native_layer_norm": "LayerNormalization | ReduceMean Sub | InstanceNormalization",
        "_fused_rms_norm": "RMSNormalization | SimplifiedLayerNormalization | ReduceMean",
        "masked_fill": "Where",
        "maximum": "Max | Where",
        "minimum": "Min | Where",
    }.items()
    for name in names.split()
}
FOLDED = {"norm.batch": frozenset({"BatchNormalization"})}  # these may also be gone
TOGETHER = {  # with a product beside it, an operator may be a part of these nodes
    "tanh": ("Gelu", "Mish"), "erf": ("Gelu",), "softplus": ("Mish",), "sigmoid": ("Swish",),
    "hardsigmoid": ("HardSwish",), "hardtanh": ("HardSwish",), "clamp": ("HardSwish",),
}  # fmt: skip
TELLING = frozenset({
    "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "HardSwish", "HardSigmoid", "Mish",
    "Softplus", "Swish", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Softmax", "LogSoftmax",
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization",
    "RMSNormalization", "SimplifiedLayerNormalization",
})  # nodes that must be a part of something  # fmt: skip
WRITTEN_WITH = {  # other nodes that say what an operator is, and how many of each it may be
    "add": {"Add": 1, "Sum": 1, "Mul": 1},
    "sub": {"Sub": 1, "Mul": 1, "Neg": 1, "Add": 1},
    "rsub": {"Sub": 1, "Mul": 1, "Neg": 1, "Add": 1},
    "mul": {"Mul": 1, "Div": 1, "Einsum": 1},
    "div": {"Div": 1, "Mul": 1, "Reciprocal": 1},
    "neg": {"Neg": 1, "Mul": 1, "Sub": 1},
    "masked_fill": {"Where": 1},
    "where": {"Where": 1},
    "maximum": {"Max": 1, "Where": 1},
    "minimum": {"Min": 1, "Where": 1},
    "gelu.none": {"Gelu": 1, "Erf": 1, "Mul": 3, "Div": 1, "Add": 1},
    "gelu.tanh": {"Gelu": 1, "Tanh": 1, "Mul": 6, "Add": 2},
    "silu": {"Sigmoid": 1, "Swish": 1, "Mul": 1},
    "glu": {"Sigmoid": 1, "Mul": 1},
    "hardswish": {"HardSwish": 1, "HardSigmoid": 1, "Clip": 1, "Mul": 2, "Div": 1, "Add": 1},
    "hardsigmoid": {"HardSigmoid": 1, "Clip": 1, "Mul": 1, "Div": 1, "Add": 1},
    "relu": {"Relu": 1, "Clip": 1, "Max": 1},
    "hardtanh": {"Clip": 1, "Relu": 1, "Max": 1, "Min": 1},
    "leaky_relu": {"LeakyRelu": 1, "Where": 1, "Max": 1, "Mul": 1},
    "_prelu_kernel": {"PRelu": 1, "Where": 1, "Mul": 1},
    "sigmoid": {"Sigmoid": 1},
    "tanh": {"Tanh": 1},
}
ARITHMETIC = {  # one function on both sides, by its name on each
    "add": "add", "Add": "add", "Sum": "add", "sub": "sub", "rsub": "sub", "Sub": "sub",
    "mul": "mul", "Mul": "mul", "div": "div", "Div": "div", "maximum": "max", "Max": "max",
    "minimum": "min", "Min": "min", "neg": "neg", "Neg": "neg",
    "relu": "relu", "Relu": "relu", "sigmoid": "sigmoid", "Sigmoid": "sigmoid", "tanh": "tanh",
    "Tanh": "tanh", "erf": "erf", "Erf": "erf", "exp": "exp", "Exp": "exp", "log": "log",
    "softplus": "softplus", "Log": "log", "sin": "sin", "Sin": "sin", "cos": "cos", "Cos": "cos",
}  # fmt: skip
PLAIN_KINDS = MOVES | {"pool", "conv", "matmul"}  # without functions in them
PLAIN = frozenset({"pow", "rsqrt", "sqrt", "reciprocal", "square", "abs", "eq", "ne", "gt", "lt",
                   "clamp", "clamp_min", "clamp_max"})  # fmt: skip
BY_MEANS = {"LayerNormalization": {"sub"}, "RMSNormalization": {"rsqrt", "sqrt"}}  # beside a mean
BESIDES = {"add": {"Mul"}, "sub": {"Mul", "Add"}, "rsub": {"Mul", "Add"}}  # never alone
COUNTED = frozenset({"Add", "Sum", "Sub", "Mul", "Div", "Max", "Min", "Where", "Neg"})


def function_of(op: OpCost) -> str:
    """An operator of PyTorch as the table has it."""
    name = op.op.rpartition("::")[2].removesuffix("_")
    get = getattr(op.call, "get", None)
    if get is None:
        return name
    if name == "gelu":
        return f"gelu.{get('approximate', 'none')}"
    if "batch_norm" in name and op.kind == "norm":
        return _batch_norm(op, is_training=bool(get("training", get("train", True))))
    return name


def _batch_norm(op: OpCost, *, is_training: bool) -> str:
    """PyTorch makes one sample of the batch, and works out its statistics, for an instance norm."""
    if "no_training" in op.op or "no_update" in op.op or not is_training:
        return "norm.batch"
    return "norm.instance" if op.call.inputs[0].shape[0] == 1 else "norm"


def arithmetic_of(piece: Piece) -> str:
    """The same name for the same function on both sides; nothing where it is not known."""
    return ARITHMETIC.get(piece.function, "")


# ---------------------------------------------------------------- functions of another network


def other_functions(left: Place, *, calls: Counter[int]) -> Found:
    """Functions that the other side has not in the same module, nor in no module of both."""
    found: list[tuple[str, Place]] = []
    for mine, scope in _scopes(left):
        nodes = {p.op for p in scope.onnx}
        names = {p.function for p in scope.pytorch}
        has_inner = any(p.kind in COMPOSITE for p in scope.onnx)  # functions inside of nodes
        live = [p for p in mine.pytorch if not has_inner and not _may_be_gone(p, calls)]
        ours = [p for p in live if not _is_written(p.function, names, nodes)]
        told = [p for p in mine.onnx if p.op in TELLING and p.is_float]
        strange = TELLING - _meant(scope.pytorch) if told else TELLING
        theirs = [p for p in told if p.op in strange]
        place = Place(ours, theirs)
        if not ours and not theirs:
            place = _other_sizes(mine)
        found += [(UNEXPLAINED, place)] if place.pytorch or place.onnx else []
    return found, left.less(place for _, place in found)


def _may_be_gone(piece: Piece, calls: Counter[int]) -> bool:
    is_gone = piece.is_of_weights or piece.is_unused or piece.is_nothing or not piece.is_float
    return is_gone or calls[piece.value] > 1


def _scopes(left: Place) -> Iterable[tuple[Place, Place]]:
    """Of each module of both sides its own pieces; the others among all that there are."""
    places: dict[str, Place] = defaultdict(Place)
    for piece in left.pytorch:
        places[piece.module].pytorch.append(piece)
    for piece in left.onnx:
        places[piece.module].onnx.append(piece)
    shared = [place for place in places.values() if place.is_shared]
    yield from ((place, place) for place in shared)
    yield left.less(shared), left


def _is_written(function: str, names: set[str], nodes: set[str]) -> bool:
    if function not in FUNCTIONS or any(form <= nodes for form in FUNCTIONS[function]):
        return True
    return "mul" in names and not nodes.isdisjoint(TOGETHER.get(function, ()))


def _meant(ours: list[Piece]) -> frozenset[str]:
    """Nodes that can be a part of these operators."""
    if any(map(_is_unknown, ours)):
        return TELLING
    names = {p.function for p in ours}
    meant = {node for name in names for form in FUNCTIONS.get(name, ()) for node in form}
    meant |= {node for name in names for node in FOLDED.get(name, ())}
    if "mul" in names:
        meant |= {node for name in names for node in TOGETHER.get(name, ())}
    if any(p.reduces for p in ours):
        meant |= {node for node, beside in BY_MEANS.items() if beside & names}
    return frozenset(meant)


def _is_unknown(piece: Piece) -> bool:
    """It may have any function in it."""
    is_plain = piece.kind in PLAIN_KINDS or piece.function in PLAIN or bool(piece.reduces)
    return not is_plain and not any(piece.function in t for t in (WRITTEN_WITH, FUNCTIONS, FOLDED))


# ---------------------------------------------------------------- the same function, otherwise


def _other_sizes(place: Place) -> Place:
    """Softmaxes of other sizes, as of more heads; other windows; norms of other groups."""
    for ours, theirs in (
        (_softmaxes(place.pytorch), _softmaxes(place.onnx)),
        (_windows(place.pytorch), _windows(place.onnx)),
        (_norms(place.pytorch), _norms(place.onnx)),
    ):
        if len(ours) == len(theirs) > 0 and not _is_as_large(ours, theirs):
            return Place(ours, theirs)
    return Place()


def _is_as_large(ours: list[Piece], theirs: list[Piece]) -> bool:
    a, b = (sum(_size(p) for p in some) for some in (ours, theirs))
    is_causal = any(p.kind == "attention" for p in ours)  # half of the places are left out
    return a == b or (is_causal and a < b < 2 * a)


def _size(piece: Piece) -> int:
    return piece.cost.other_flops if piece.reduces else piece.cost.transcendentals


def _softmaxes(some: list[Piece]) -> list[Piece]:
    return [p for p in some if p.kind in ("softmax", "attention")]


def _windows(some: list[Piece]) -> list[Piece]:
    return [p for p in some if p.kind == "pool" and p.reduces == "max" and not p.is_nothing]


def _norms(some: list[Piece]) -> list[Piece]:
    names = ("norm.instance", "native_group_norm", "native_layer_norm")
    nodes = ("InstanceNormalization", "GroupNormalization", "LayerNormalization")
    return [p for p in some if p.function in names or p.op in nodes]


def unfitting(place: Place) -> Place:
    """What cannot be a part of the rest: a product is not written as itself and a mean."""
    if any(_is_open(p) for p in place.pytorch) or any(map(has_macs, place.onnx)):
        return Place()
    nodes = {p.op for p in place.onnx}
    ours = [p for p in place.pytorch if nodes.isdisjoint(_needed(p.function))]
    may: Counter[str] = Counter()
    for piece in place.less([Place(ours, [])]).pytorch:
        may.update(WRITTEN_WITH[piece.function])
    theirs = []
    for node in place.onnx:
        if node.op in COUNTED or node.reduces:
            may[node.op] -= 1
            theirs += [node] if may[node.op] < 0 else []
    return Place(ours, theirs)


def _needed(function: str) -> set[str]:
    return set(WRITTEN_WITH[function]) - BESIDES.get(function, set())


def _is_open(piece: Piece) -> bool:
    """Not one of plain arithmetic."""
    return piece.function not in WRITTEN_WITH or piece.kind in PRODUCTS

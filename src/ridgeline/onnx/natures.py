"""What a function is, beyond what it costs: a sigmoid is no tanh, a sum no product.

recipes.py says which nodes an operator of PyTorch may be in a file. In one module each function of
the model must be there as one of these, and each function of the file must be a part of what the
model does. Operators that are not in the table may be anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from ridgeline.count.result import OpCost
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.pieces import (
    COMPOSITE,
    MOVES,
    OF_ZEROS,
    UNEXPLAINED,
    Found,
    Piece,
    Place,
    has_macs,
)
from ridgeline.onnx.recipes import FOLDED, JOINED, PRIMARY, RECIPES

TELLING = frozenset({
    "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Gelu.tanh", "HardSwish",
    "HardSigmoid", "Mish", "Softplus", "Swish", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Softmax",
    "LogSoftmax", "Celu.1", "Resize.nearest", "Resize.linear", "Resize.cubic",
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization",
    "RMSNormalization", "SimplifiedLayerNormalization",
})  # nodes that must be a part of something  # fmt: skip
TOLD = TELLING | {"Exp", "Log", "Max", "Min", "Where"}  # an operator that is one must be there
PLAIN_KINDS = MOVES | {"pool", "conv", "matmul"}  # without functions in them
KNOWN_NODES = frozenset(n for forms in RECIPES.values() for form in forms for n in form.nodes)
WRITTEN_OUT = ("exact1d", "exact2d", "exact3d", "linear1d")  # upsamplings with no node of their own
RESIZES = ("nearest", "linear", "cubic")
SAME_NODES = {"Sum": "Add"}


def function_of(op: OpCost) -> str:
    """An operator of PyTorch as the table has it; of a node its name, and of which kind it is."""
    name = op.op.rpartition("::")[2].removesuffix("_")
    if isinstance(op.call, NodeCall):
        return _node_function(name, op.call)
    return _function(op, name, op.call) if hasattr(op.call, "get") else name


def _node_function(name: str, call: NodeCall) -> str:
    """With the attributes that make it another."""
    if name == "Gelu" and call.attr("approximate") == "tanh":
        return "Gelu.tanh"
    if name == "Celu" and call.attr("alpha", 1.0) == 1.0:
        return "Celu.1"
    if name in ("Resize", "Upsample"):
        return f"Resize.{call.attr('mode', 'nearest')}"
    return name.removeprefix("QLinear")


def _function(op: OpCost, name: str, call: Any) -> str:
    """With the arguments that make it another; `call` is an OpCall, which needs torch."""
    if name == "gelu":
        return f"gelu.{call.get('approximate', 'none')}"
    if name == "elu" and (call.get("scale", 1) != 1 or call.get("input_scale", 1) != 1):
        return "elu.selu" if call.get("input_scale", 1) == 1 else "celu"
    if name == "celu" and call.get("alpha", 1) == 1:
        return "celu.1"
    if "upsample" in name and not name.endswith(WRITTEN_OUT):
        return next((f"upsample.{kind}" for kind in RESIZES if kind in name), name)
    if name == "div" and call.get("rounding_mode") is not None:
        return f"div.{call.get('rounding_mode')}"
    if name == "round" and call.get("decimals", 0):
        return "round.decimals"
    if name in ("add", "sub", "rsub") and call.get("alpha", 1) != 1:
        return f"{name}.scaled"
    if name == "linalg_vector_norm":
        power = float(call.get("ord", 2))
        return f"norm.{power:g}" if power in (0, 1, 2, inf, -inf) else "norm.other"
    if name == "mul" and op.dtype.startswith("complex"):
        return "mul.complex"
    if "batch_norm" in name and op.kind == "norm":
        return _batch_norm(op, is_training=bool(call.get("training", call.get("train", True))))
    return name


def _batch_norm(op: OpCost, *, is_training: bool) -> str:
    """PyTorch makes one sample of the batch, and works out its statistics, for an instance norm."""
    if "no_training" in op.op or "no_update" in op.op or not is_training:
        return "norm.batch"
    return "norm.instance" if op.call.inputs[0].shape[0] == 1 else "norm.own"


def arithmetic_of(piece: Piece) -> str:
    """The same name for the same function on both sides; nothing where it is not known."""
    node = SAME_NODES.get(piece.function, piece.function)
    is_known = node in KNOWN_NODES or node in RECIPES
    return PRIMARY.get(piece.function, node if is_known else "")


def is_opaque(node: Piece) -> bool:
    """A node of onnxruntime's own that may have functions in it of which nobody here knows."""
    is_plain = node.kind in PLAIN_KINDS or bool(node.inside or arithmetic_of(node))
    return node.is_contributed and not is_plain


# ---------------------------------------------------------------- functions of another network


def other_functions(left: Place, *, calls: Counter[int]) -> Found:
    """Functions that the other side has not in the same module, nor in no module of both."""
    found: list[tuple[str, Place]] = []
    for mine, scope in _scopes(left):
        nodes = {p.function for p in scope.onnx}
        names = {p.function for p in scope.pytorch}
        has_inner = any(p.kind in COMPOSITE or is_opaque(p) for p in scope.onnx)
        live = [p for p in mine.pytorch if not has_inner and not _may_be_gone(p, calls)]
        ours = [p for p in live if not _is_written(p.function, names, nodes)]
        told = [p for p in mine.onnx if p.function in TELLING and _is_live(p)]
        strange = TELLING - _meant(scope.pytorch) if told else TELLING
        theirs = [p for p in told if p.function in strange]
        place = Place(ours, theirs)
        if not ours and not theirs:
            place = _other_sizes(mine)
        found += [(UNEXPLAINED, place)] if place.pytorch or place.onnx else []
    return found, left.less(place for _, place in found)


def _is_live(node: Piece) -> bool:
    return node.is_float and not node.is_nothing and not node.is_of_weights


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
    forms = RECIPES.get(function, ())
    if not forms or TOLD.isdisjoint(forms[0].must) or any(form.needed <= nodes for form in forms):
        return True
    return any(
        function in parts <= names for node in nodes & JOINED.keys() for parts in JOINED[node]
    )


def _meant(ours: list[Piece]) -> frozenset[str]:
    """Nodes that can be a part of these operators."""
    if any(map(_is_unknown, ours)):
        return TELLING
    names = {p.function for p in ours}
    meant = {node for name in names for form in RECIPES.get(name, ()) for node in form.nodes}
    meant |= {node for name in names for node in FOLDED.get(name, ())}
    meant |= {node for node, ways in JOINED.items() if any(parts <= names for parts in ways)}
    return frozenset(meant)


def _is_unknown(piece: Piece) -> bool:
    """It may have any function in it."""
    is_plain = piece.kind in PLAIN_KINDS or bool(piece.reduces)
    return not is_plain and piece.function not in RECIPES and piece.function not in FOLDED


# ---------------------------------------------------------------- the same function, otherwise


def _other_sizes(place: Place) -> Place:
    """Softmaxes of other sizes, as of more heads; other windows; norms of other groups; …"""
    for chosen, size in (
        (_softmaxes, _transcendentals),
        (_windows, _other_flops),
        (_averages, _other_flops),
        (_norms, _transcendentals),
        (_choices, _results),
    ):
        ours, theirs = chosen(place.pytorch), chosen(place.onnx)
        if len(ours) == len(theirs) > 0 and not _is_as_large(ours, theirs, size):
            return Place(ours, theirs)
    if not _is_along_the_same(_softmaxes(place.pytorch), _softmaxes(place.onnx)):
        return Place(_softmaxes(place.pytorch), _softmaxes(place.onnx))
    return _other_steps(place)


def _is_as_large(ours: list[Piece], theirs: list[Piece], size: Callable[[Piece], int]) -> bool:
    a, b = (sum(map(size, some)) for some in (ours, theirs))
    is_causal = any(p.kind == "attention" for p in ours)  # half of the places are left out
    return a == b or (is_causal and a < b < 2 * a)


def _transcendentals(piece: Piece) -> int:
    return piece.cost.transcendentals


def _other_flops(piece: Piece) -> int:
    return piece.cost.other_flops


def _results(piece: Piece) -> int:
    return piece.results


def _softmaxes(some: list[Piece]) -> list[Piece]:
    return [p for p in some if p.kind in ("softmax", "attention")]


def _is_along_the_same(ours: list[Piece], theirs: list[Piece]) -> bool:
    """Whether as many numbers make 1 together, where all of them say it."""
    a, b = (Counter(p.along for p in some) for some in (ours, theirs))
    return a == b or 0 in a or 0 in b or len(ours) != len(theirs)


def _windows(some: list[Piece]) -> list[Piece]:
    maxima = [p for p in some if p.kind == "pool" and p.reduces == "max" and not p.is_nothing]
    return [p for p in maxima if p.is_float]


def _averages(some: list[Piece]) -> list[Piece]:
    return [p for p in some if p.function.startswith("avg_pool") or p.op == "AveragePool"]


def _norms(some: list[Piece]) -> list[Piece]:
    names = ("norm.instance", "native_group_norm", "native_layer_norm")
    nodes = ("InstanceNormalization", "GroupNormalization", "LayerNormalization")
    return [p for p in some if p.function in names or p.op in nodes]


def _choices(some: list[Piece]) -> list[Piece]:
    return [p for p in some if p.function in ("topk", "sort", "TopK")]


def _other_steps(place: Place) -> Place:
    """A recurrent node of other activations, or with biases where the cells have none."""
    nodes = [p for p in place.onnx if p.kind == "recurrent"]
    if not nodes or any(p.kind == "recurrent" for p in place.pytorch):
        return Place()
    cells = [p for p in place.pytorch if has_macs(p)]
    ours, theirs = (sum(map(_transcendentals, some)) for some in (place.pytorch, place.onnx))
    is_other = ours != theirs
    are_biased = {p.bias not in ("", OF_ZEROS) for p in nodes}
    is_other |= are_biased != {any(p.bias not in ("", OF_ZEROS) for p in cells)}
    return Place(cells, nodes) if is_other else Place()

"""Classical machine learning (ai.onnx.ml), and the optimizers of training graphs."""

from __future__ import annotations

from ridgeline.costs.matmul import product
from ridgeline.costs.move import FREE
from ridgeline.costs.norm import SOFTMAX
from ridgeline.costs.optimizer import OPTIMIZERS
from ridgeline.costs.pointwise import PER_ELEMENT, elementwise
from ridgeline.costs.work import Terms, Work
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.ops.data import gather
from ridgeline.onnx.ops.registry import ML, add_rows

TRAINING = "ai.onnx.preview.training"
POST_TRANSFORMS = {
    "NONE": (0, 0), "LOGISTIC": PER_ELEMENT["sigmoid"], "SOFTMAX": (SOFTMAX, 1),
    "SOFTMAX_ZERO": (SOFTMAX, 1), "PROBIT": (0, 1),
}  # fmt: skip


def _normalizer(call: NodeCall) -> Work:
    """The largest, the sum of magnitudes or of squares of each row; then a division."""
    n = call.x.numel
    rows = call.x.shape[0] if len(call.x.shape) > 1 else 1
    flops = {"MAX": 2, "L1": 3, "L2": 3}.get(call.attr("norm", "MAX"), 3)
    roots = rows if call.attr("norm", "MAX") == "L2" else 0
    return Work.per_element(n, flops, transcendentals=roots)


def _rows(x: Tensor) -> tuple[int, int]:
    """Samples and features."""
    if len(x.shape) < 2:
        return 1, x.numel
    return x.shape[0], x.numel // max(x.shape[0], 1)


def _after(call: NodeCall, scores: int) -> tuple[int, int]:
    flops, transcendentals = POST_TRANSFORMS.get(call.attr("post_transform", "NONE"), (0, 0))
    return flops * scores, transcendentals * scores


def _linear(call: NodeCall) -> Work:
    rows, columns = _rows(call.x)
    targets = len(call.attr("coefficients", [])) // max(columns, 1)
    scores = rows * targets
    flops, transcendentals = _after(call, scores)
    chosen = scores if call.op_type == "LinearClassifier" else 0  # the largest score's class
    return product(
        (("rows", rows), ("targets", targets), ("K", columns)),
        other_flops=scores * bool(call.attr("intercepts")) + flops + chosen,
        transcendentals=transcendentals,
    )


def _support_vectors(call: NodeCall) -> Work:
    """A kernel of each sample and support vector, then the weighted sums."""
    rows, columns = _rows(call.x)
    vectors = len(call.attr("support_vectors", [])) // max(columns, 1)
    weights = len(call.attr("coefficients", []))
    kernel = call.attr("kernel_type", "LINEAR")
    pairs = rows * vectors
    # RBF: a difference, a square and a sum; the others are products of vectors
    macs = 0 if kernel == "RBF" else pairs * columns
    own = 3 * pairs * columns if kernel == "RBF" else 2 * pairs * (kernel != "LINEAR")
    flops, transcendentals = _after(call, sum(t.numel for t in call.outputs[1:]) or rows)
    products: Terms = (("rows", rows), ("vectors", vectors), ("K", columns))
    return Work(
        macs=macs + rows * weights,
        other_flops=own + flops,
        transcendentals=pairs * (kernel != "LINEAR") + transcendentals,
        factor=2,
        terms=(("rows", rows), ("weights", weights)),
        more=() if kernel == "RBF" else ((2, products),),
    )


def _trees(call: NodeCall) -> Work:
    """A comparison at each node of the longest way down each tree, an addition for each leaf."""
    rows, _ = _rows(call.x)
    depths = _depths_of_roots(call) if call.op_type == "TreeEnsemble" else _depths(call)
    comparisons, count = rows * sum(depths), len(depths)
    scores = sum(t.numel for t in call.outputs if t.is_float)
    flops, transcendentals = _after(call, scores)
    return Work(
        other_flops=comparisons + rows * count + flops,
        transcendentals=transcendentals,
        terms=(("rows", rows), ("depths", sum(depths))),
        more=((1, (("rows", rows), ("trees", count))), *((1, (("scores", flops),)),) * bool(flops)),
    )


def _depths(call: NodeCall) -> list[int]:
    """The longest way down of each tree: nodes named by tree and number."""
    keys = list(zip(call.attr("nodes_treeids", []), call.attr("nodes_nodeids", []), strict=False))
    modes = call.attr("nodes_modes", [])
    yes, no = call.attr("nodes_truenodeids", []), call.attr("nodes_falsenodeids", [])
    below: dict[tuple[int, int], tuple[int, int]] = {}
    for key, mode, left, right in zip(keys, modes, yes, no, strict=False):
        if mode not in (b"LEAF", "LEAF"):
            below[key] = (left, right)
    roots = {tree: key for key in reversed(keys) for tree in (key[0],)}
    return [_longest(below, key) for key in roots.values()]


def _longest(below: dict[tuple[int, int], tuple[int, int]], root: tuple[int, int]) -> int:
    """Comparisons on the longest way; a node seen again (a cycle) ends it."""
    deepest, seen, stack = 0, set(), [(root, 0)]
    while stack:
        key, depth = stack.pop()
        deepest = max(deepest, depth)
        if key in below and key not in seen:
            seen.add(key)
            stack += [((key[0], child), depth + 1) for child in below[key]]
    return deepest


def _depths_of_roots(call: NodeCall) -> list[int]:
    """As above for the newer form: nodes are numbered through, and leaves are told by a flag."""
    yes, no = call.attr("nodes_truenodeids", []), call.attr("nodes_falsenodeids", [])
    yes_leaf, no_leaf = call.attr("nodes_trueleafs", []), call.attr("nodes_falseleafs", [])
    below: dict[tuple[int, int], tuple[int, int]] = {}
    for n, (a, b, end_a, end_b) in enumerate(zip(yes, no, yes_leaf, no_leaf, strict=False)):
        below[0, n] = (-1 if end_a else a, -1 if end_b else b)
    return [_longest(below, (0, root)) for root in call.attr("tree_roots", [])]


# ---------------------------------------------------------------- optimizers


def _optimizer(call: NodeCall) -> Work:
    """rate, step, then weights, gradients and state: each weight is updated."""
    update = OPTIMIZERS[call.op_type.lower()]
    tensors = call.inputs[2:]
    n = sum(t.numel for t in tensors[: len(tensors) // (2 + update.state)])
    flops = update.flops + 2 * bool(call.attr("norm_coefficient", 0.0))  # decay of the weight
    return Work.per_element(n, flops, transcendentals=update.roots * n)


add_rows("view", {"ZipMap": lambda c: FREE}, domain=ML)
add_rows("gather", {"ArrayFeatureExtractor": gather}, domain=ML)
add_rows("move", {  # looked up, or put side by side
    "CastMap CategoryMapper DictVectorizer LabelEncoder OneHotEncoder FeatureVectorizer":
        lambda c: Work(),
}, domain=ML)  # fmt: skip
add_rows("pointwise", {
    "Binarizer Imputer": lambda c: elementwise(c, 1),
    "Scaler": lambda c: elementwise(c, 2),  # (x − offset)·scale
}, domain=ML)  # fmt: skip
add_rows("norm", {"Normalizer": _normalizer}, domain=ML)
add_rows("matmul", {
    "LinearClassifier LinearRegressor": _linear,
    "SVMClassifier SVMRegressor": _support_vectors,
}, domain=ML)  # fmt: skip
add_rows("tree", {
    "TreeEnsembleClassifier TreeEnsembleRegressor TreeEnsemble": _trees,
}, domain=ML)  # fmt: skip
add_rows("optimizer", {"Adam Adagrad Momentum": _optimizer}, domain=TRAINING)

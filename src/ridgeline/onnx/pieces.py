"""Operator calls of two programs for one network, and the names of why they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from ridgeline.records import Cost

FOLDED_NORM = "folded batch norm"
FOLDED_WEIGHTS = "folded product of weights"
FOLDED_SCALE = "folded scale"
UNUSED = "unused result"
NOTHING = "changes nothing"
MERGED = "merged duplicate"
SUMS = "product written as sums"
SHAPES = "shape arithmetic"
SPLIT = "decomposed operator"
FUSED = "fused operators"
FUSED_ACTIVATION = "fused activation"
OTHER_FORM = "another operator for the same"
OTHER_WAY = "another way to the same"
NO_BIAS = "a bias of zeros left out"
BIAS_UNSEEN = "a bias left out"
CONSTANT = "constant folding"
COPIES = "other copies"
COPY_HERE = "a copy in PyTorch alone"
COPY_THERE = "a copy where PyTorch has a view"
ADDED = "added by the exporter"
QUANTISED = "quantised"
PADDED = "padded channels"
OTHER_DTYPE = "other dtype"
NOT_IN_TABLE = "not in the table"
UNEXPLAINED = "not explained"

EXPLANATIONS = {
    FOLDED_NORM: "the batch norm's scale is in the weights of the convolution, its shift in the"
    " bias",
    FOLDED_WEIGHTS: "nothing of the input is in it: worked out once, when the file was made",
    FOLDED_SCALE: "a product or a sum with a weight: in the weights of a product beside it",
    UNUSED: "nobody reads it, and exporters leave it out",
    NOTHING: "a product with 1, a sum with 0, a resize to the same size: one side has it not",
    MERGED: "PyTorch works the same out again, from the same operands; the file does it once",
    SUMS: "the file multiplies and then adds up: other FLOPs instead of MACs",
    SHAPES: "sizes and indices: with open dimensions the graph works them out each time",
    SPLIT: "one operator of PyTorch is several nodes, which write and read what lies between",
    FUSED: "several operators of PyTorch are one node, which keeps to itself what lies between",
    FUSED_ACTIVATION: "the activation is part of the node before it",
    OTHER_FORM: "the node takes or gives other operands",
    OTHER_WAY: "ONNX has no such operator: the exporter writes it as other work of the same result",
    NO_BIAS: "the exporter drops an addition of zeros; untrained models have many",
    BIAS_UNSEEN: "exporters drop one of zeros; whether this one is, could not be seen",
    CONSTANT: "worked out once, when the file was made",
    COPIES: "the same data laid out anew in other steps",
    COPY_HERE: "the file has no node for it",
    COPY_THERE: "ONNX has no strides: a transposed or expanded tensor is a new one",
    ADDED: "PyTorch's step has nothing like it",
    QUANTISED: "numbers are made small integers and read back, or are worked on as such",
    PADDED: "channels in whole blocks, and the file does not tell which are padding",
    OTHER_DTYPE: "the file works in another floating-point type: other bytes, and casts",
    NOT_IN_TABLE: "what these operators are made of is not known: their cost alone was compared",
    UNEXPLAINED: "work that the other side has not: another network, or other sizes",
}

MOVES = frozenset({"move", "gather", "view", "fill", "cast"})
INSTANCE_NORM = "InstanceNormalization"
BATCH_NORMS = ("native_batch_norm", "batch_norm", "BatchNormalization")
QLINEAR = "QLinear"  # how nodes begin that work on small integers
OPTIMISED = (QLINEAR, "Simplified")  # and those of the standard that an optimizer alone makes
TO_INTEGERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")  # and back
QUANTISING = (*TO_INTEGERS, QLINEAR)
SCALES = frozenset({"mul", "div", "add", "sub"})
COMPOSITE = frozenset({"attention", "recurrent", "boxes"})  # kinds that hold work of others
PRODUCTS = frozenset({"conv", "matmul", "attention", "recurrent"})

OF_ZEROS, OF_VALUES, UNSEEN = "zeros", "values", "unseen"  # what a bias is


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One operator call on one side."""

    op: str  # without its domain: "addmm", "MatMul"
    kind: str
    module: str  # the path of the module it belongs to; empty where that is not known
    cost: Cost
    is_float: bool = True
    is_contributed: bool = False  # an operator of onnxruntime's own, in an optimised file
    is_of_weights: bool = False  # nothing of the input is in it
    is_with_weights: bool = False  # weights are, beside the input
    is_unused: bool = False  # nobody reads its result
    is_nothing: bool = False  # it changes nothing
    is_foldable: bool = True  # of a batch norm: right behind a product, which nobody else reads
    reduces: str = ""  # many numbers to their "sum", "mean", "max"
    results: int = 0  # how many numbers it makes; 0: not known
    bias: str = ""  # of a product: OF_ZEROS, OF_VALUES or UNSEEN; nothing where it has none
    function: str = ""  # of PyTorch as recipes.py has it, of a node its operator
    is_by_number: bool = False  # one of its operands is one number
    along: int = 0  # of a softmax: how many numbers make 1 together; 0: not known
    value: int = 0  # pieces of one number work out the very same; 0: not known
    widths: tuple[int, ...] = ()  # of a convolution: channels that it makes, and takes in a group
    inside: str = ""  # of a part: the node of onnxruntime that it is in

    @property
    def label(self) -> str:
        """Its operator as it is shown; in place or not is all the same here."""
        name = self.op.removesuffix("_")
        is_main = self.inside.endswith(name)
        return self.inside if is_main else f"{name} in {self.inside}" if self.inside else name


def total(some: Iterable[Piece]) -> Cost:
    return sum((piece.cost for piece in some), Cost())


def has_macs(piece: Piece) -> bool:
    return bool(piece.cost.macs)


def has_no_macs(piece: Piece) -> bool:
    return not piece.cost.macs


@dataclass(slots=True)
class Place:
    """Pieces of both sides that are the same part of the network."""

    pytorch: list[Piece] = field(default_factory=list)
    onnx: list[Piece] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        return bool(self.pytorch and self.onnx)

    @classmethod
    def of(cls, some: Iterable[Place]) -> Place:
        """All pieces of these."""
        places = [*some]
        return cls(
            [p for place in places for p in place.pytorch],
            [p for place in places for p in place.onnx],
        )

    def only(self, some: Iterable[Place]) -> Place:
        """These very pieces alone, in the order of the network."""
        return self.less([self.less(some)])

    def less(self, taken: Iterable[Place]) -> Place:
        """Without these very pieces."""
        gone = {id(piece) for place in taken for piece in (*place.pytorch, *place.onnx)}
        return Place(
            [p for p in self.pytorch if id(p) not in gone],
            [p for p in self.onnx if id(p) not in gone],
        )


Found = tuple[list[tuple[str, Place]], Place]


def pairs_by(left: Place, key: Callable[[Piece], Hashable]) -> list[Place]:
    """One against one by a key that is something, in the order of the network."""
    waiting: dict[Hashable, list[Piece]] = defaultdict(list)
    for piece in reversed(left.onnx):
        waiting[key(piece)].append(piece)
    return [
        Place([piece], [waiting[key(piece)].pop()])
        for piece in left.pytorch
        if key(piece) and waiting[key(piece)]
    ]


def form_of(place: Place) -> str:
    ours, theirs = len(place.pytorch), len(place.onnx)
    if any(p.inside for p in place.onnx) and theirs <= ours:
        return FUSED_ACTIVATION
    if theirs > ours:
        return SPLIT
    return FUSED if theirs < ours else OTHER_FORM


# ---------------------------------------------------------------- may one stand for the other?

STANDS_FOR = {  # kinds, one of which the other side must have
    "norm": frozenset({"norm", "reduce"}),
    "softmax": frozenset({"softmax", "reduce", "attention", "loss"}),
    "pool": frozenset({"pool", "reduce", "conv"}),
}
MOST_TIMES = 6  # as many FLOPs, or functions, on one side as on the other


def is_plausible(place: Place) -> bool:
    """Whether two sets of operators can be the same work: nothing of one kind is missing."""
    live = [p for p in place.pytorch if not p.is_of_weights] or place.pytorch
    ours, theirs = {p.kind for p in live}, {p.kind for p in place.onnx}
    for mine, other in ((ours, theirs), (theirs, ours)):
        if any(kind in mine and not kinds & other for kind, kinds in STANDS_FOR.items()):
            return False
    a, b = total(live), total(place.onnx)
    return is_near(a.flops + a.transcendentals, b.flops + b.transcendentals) and is_near(
        a.transcendentals, b.transcendentals
    )


def is_near(a: int, b: int) -> bool:
    return a <= MOST_TIMES * b and b <= MOST_TIMES * a

"""The same network through PyTorch and through its ONNX file: what differs, and why.

Products must be the same to the last MAC, less those that the exporter had a reason to leave out or
to write as something else. Other FLOPs and bytes differ because the file is another
program for the same function. Operators are matched module by module: torch's exporters write down
which module a node comes from. What is equal is set aside; each thing that is left belongs to one
named cause, so the causes add up to the whole difference.

Arithmetic on small records: nothing here reads a file.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ridgeline.count.onnx.causes import explain
from ridgeline.count.onnx.fused import OWN_DOMAINS, parts_of
from ridgeline.count.onnx.natures import function_of
from ridgeline.count.onnx.node import Constants, NodeCall
from ridgeline.count.onnx.other_dtype import FLOATS, ModelDtypes, in_model_dtype, of_dtype
from ridgeline.count.onnx.pieces import (
    EXPLANATIONS,
    OF_VALUES,
    OF_ZEROS,
    SHAPES,
    UNEXPLAINED,
    Piece,
    Place,
    total,
)
from ridgeline.count.onnx.reductions import reduction_of
from ridgeline.count.result import CountResult, OpCost, cost_dict
from ridgeline.records import Cost

TRUTHS = ("any", "all", "logical_and", "logical_or", "logical_xor", "logical_not")
FROM_LAST_AXIS = 13  # from this opset on a softmax is along one axis, before along all from it on
BIASES = 3  # the place of a recurrent node's biases among its operands
LONGEST = 4  # operators of a kind that are named one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What one cause does to the cost: the pieces of both sides that it accounts for."""

    cause: str
    what: str  # "addmm → MatMul + Add"
    places: int
    pytorch: Cost
    onnx: Cost

    @property
    def change(self) -> Cost:
        """ONNX less PyTorch."""
        return self.onnx - self.pytorch


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Two counts of one network side by side."""

    model: str
    file: str
    batch_size: int
    pytorch: Cost
    onnx: Cost
    differences: tuple[Difference, ...]

    @property
    def has_equal_macs(self) -> bool:
        return self.pytorch.macs == self.onnx.macs

    @property
    def unexplained_macs(self) -> int:
        """Products that one side has more and no cause accounts for."""
        return sum(row.change.macs for row in self.differences if row.cause == UNEXPLAINED)

    @property
    def is_unexplained(self) -> bool:
        """Whether anything is left that no cause accounts for."""
        return self.has(UNEXPLAINED)

    def has(self, cause: str) -> bool:
        return any(row.cause == cause for row in self.differences)

    @property
    def change(self) -> Cost:
        return self.onnx - self.pytorch

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; see docs/count.md."""
        return {
            "model": self.model,
            "file": self.file,
            "batch_size": self.batch_size,
            "has_equal_macs": self.has_equal_macs,
            "unexplained_macs": self.unexplained_macs,
            "is_unexplained": self.is_unexplained,
            "pytorch": cost_dict(self.pytorch),
            "onnx": cost_dict(self.onnx),
            "change": cost_dict(self.change),
            "differences": [
                {
                    "cause": difference.cause,
                    "explanation": EXPLANATIONS[difference.cause],
                    "what": difference.what,
                    "places": difference.places,
                    "change": cost_dict(difference.change),
                }
                for difference in self.differences
            ],
        }


def compare(
    pytorch: CountResult,
    onnx: CountResult,
    *,
    of_weights: Collection[int] = (),
    with_weights: Collection[int] = (),
    unused: Collection[int] = (),
    needless: Collection[int] = (),
    values: Sequence[int] = (),
    foldable: Collection[int] | None = None,
    biases: Mapping[int, str] | None = None,
) -> Against:
    """A model's count and that of its file.

    `of_weights`: the operators of PyTorch with nothing of the input in them, by their numbers;
    `with_weights`: those with weights beside what is of the input; `unused`: those whose results
    nobody reads; `needless`: those that change nothing.
    `values`: a number for what each of them works out, the same for the very same;
    `foldable`: those right behind a product, into which a batch norm can be put (None: all);
    `biases`: what the biases are, by the numbers of the operators that have one.
    """
    ours = [
        replace(
            _piece(op, op.path),
            is_of_weights=number in of_weights,
            is_with_weights=number in with_weights,
            is_unused=number in unused,
            is_nothing=number in needless,
            value=values[number] if values else 0,
            is_foldable=foldable is None or number in foldable,
            bias=(biases or {}).get(number, ""),
        )
        for number, op in enumerate(pytorch.op_costs)
    ]
    known = {op.path for op in pytorch.op_costs}
    named = {module_of(op.path) for op in onnx.op_costs}
    meant = {module: resolved(module, known) for module in named}  # once: there are many nodes
    dtypes = ModelDtypes.of(pytorch.op_costs)
    constants = Constants(op.call for op in onnx.op_costs if isinstance(op.call, NodeCall))
    theirs: list[Piece] = []
    changes: list[Piece] = []
    for op in onnx.op_costs:
        piece = replace(
            _piece(op, meant[module_of(op.path)]),
            is_nothing=any(is_it(op) for is_it in (is_window_of_one, is_sum_with_zeros, is_kept)),
            bias=_bias_of_cells(op),
            is_of_weights=all(t in constants for t in op.call.inputs),
        )
        piece, changed = in_model_dtype(op, piece, dtypes)
        theirs += parts_of(op, piece)
        changes += changed
    return Against(
        model=pytorch.model,
        file=onnx.model,
        batch_size=pytorch.batch_size,
        pytorch=total(ours),
        onnx=total(theirs) + total(changes),
        differences=gathered(explain(ours, theirs) + of_dtype(changes)),
    )


def module_of(path: str) -> str:
    """A node's path is that of its module, if that is known, and its own name."""
    return path.rpartition(".")[0]


def resolved(module: str, known: Collection[str]) -> str:
    """The module that is meant: an exporter may name the end of its path, or number its calls."""
    called_again = re.sub(r"_\d+$", "", module)
    for name in (module, called_again):
        if name in known:
            return name
        ending = [one for one in known if one.endswith(f".{name}")]
        if len(ending) == 1:
            return ending[0]
    outer, dot, inner = module.partition(".")  # of a loop in it
    called_again = re.sub(r"_\d+$", "", outer)
    return f"{called_again}.{inner}" if dot and called_again in known else module


def is_window_of_one(op: OpCost) -> bool:
    """A maximum of one number each: as many comparisons as there are numbers."""
    if op.op != "onnx::MaxPool" or not op.call.inputs or not op.call.outputs:
        return False
    shape = op.call.inputs[0].shape
    return shape == op.call.outputs[0].shape and op.cost.other_flops == prod(shape)


def is_sum_with_zeros(op: OpCost) -> bool:
    """An addition of a mask that masks nothing: exporters write it, PyTorch leaves it out."""
    if op.op != "onnx::Add" or len(op.call.inputs) != 2 or not op.call.outputs:
        return False
    first, second = op.call.inputs
    made = op.call.outputs[0].shape
    return (_is_zeros(first) and second.shape == made) or (
        _is_zeros(second) and first.shape == made
    )


def is_kept(op: OpCost) -> bool:
    """A resize to the same size."""
    tensors = (*op.call.inputs[:1], *op.call.outputs[:1])
    return op.kind == "interpolate" and len({tensor.shape for tensor in tensors}) == 1


def _is_zeros(tensor: Any) -> bool:
    return bool(getattr(tensor, "is_zero", False))


def _piece(op: OpCost, module: str) -> Piece:
    return Piece(
        op=op.op.rpartition("::")[2],
        kind=op.kind,
        module=module,
        cost=op.cost,
        is_float=op.dtype.startswith(FLOATS) and function_of(op) not in TRUTHS,
        is_contributed=op.op.startswith(OWN_DOMAINS),
        reduces=reduction_of(op),
        function=function_of(op),
        results=_results(op),
        widths=_widths(op),
        is_by_number=any(prod(tensor.shape) == 1 for tensor in op.call.inputs),
        along=along(op) if op.kind == "softmax" else 0,
    )


def _widths(op: OpCost) -> tuple[int, ...]:
    is_convolution = op.kind == "conv" and len(op.call.inputs) > 1
    return tuple(op.call.inputs[1].shape[:2]) if is_convolution else ()


def _results(op: OpCost) -> int:
    """How many numbers it makes, without the padding of onnxruntime's blocked layout."""
    if not op.call.outputs:
        return 0
    made = op.call.outputs[0]
    channels = getattr(made, "channels", None)
    shape = made.shape if channels is None else (*made.shape[:1], channels, *made.shape[2:])
    return prod(shape)


def along(op: OpCost) -> int:
    """Over how many numbers a softmax goes; 0 where that is not known."""
    call: Any = op.call
    shape = call.inputs[0].shape if call.inputs else ()
    is_node = isinstance(call, NodeCall)
    is_flat = is_node and call.version < FROM_LAST_AXIS
    axis = call.attr("axis", 1 if is_flat else -1) if is_node else call.get("dim")
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return 0
    return prod(shape[axis:]) if is_flat else int(shape[axis])


def _bias_of_cells(op: OpCost) -> str:
    """What the biases of a recurrent node are, as that of a product."""
    call: Any = op.call
    bias = call.get(BIASES) if op.kind == "recurrent" and isinstance(call, NodeCall) else None
    if bias is None:
        return ""
    return OF_ZEROS if bias.is_zero else OF_VALUES


# ---------------------------------------------------------------- from causes to rows


def gathered(found: list[tuple[str, Place]]) -> tuple[Difference, ...]:
    """A row for each cause and form of it; explained ones that come to nothing are left out."""
    rows: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for cause, place in found:
        rows[cause, _what(cause, place)].append(place)
    differences = [
        Difference(
            cause=cause,
            what=what,
            places=len(places),
            pytorch=sum((total(place.pytorch) for place in places), Cost()),
            onnx=sum((total(place.onnx) for place in places), Cost()),
        )
        for (cause, what), places in rows.items()
    ]
    changed = [
        difference
        for difference in differences
        if difference.change != Cost() or difference.cause == UNEXPLAINED
    ]
    return tuple(sorted(changed, key=_size, reverse=True))


def _size(difference: Difference) -> int:
    change = difference.change
    return max(abs(value) for value in cost_dict(change).values())


def _what(cause: str, place: Place) -> str:
    if cause == SHAPES:
        return "in PyTorch" if place.pytorch else "in the file"
    ours, theirs = _names(place.pytorch), _names(place.onnx)
    if ours and theirs:
        return f"{ours} → {theirs}"
    return f"{ours} gone" if ours else theirs


def _names(some: list[Piece]) -> str:
    """`MatMul + Add`; `2 MatMul + Softmax + …` for many."""
    counts: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    for piece in some:
        counts[piece.label] += 1
        weights[piece.label] += piece.cost.flops + piece.cost.moved_bytes
    ranked = [op for op, _ in weights.most_common()]
    named = [op if counts[op] == 1 else f"{counts[op]} {op}" for op in ranked[:LONGEST]]
    return " + ".join([*named, "…"] if len(ranked) > LONGEST else named)

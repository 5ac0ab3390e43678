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
from typing import Any

from ridgeline.count.result import CountResult, cost_dict
from ridgeline.onnx.as_pieces import node_piece, operator_piece
from ridgeline.onnx.causes import explain
from ridgeline.onnx.fused import parts_of
from ridgeline.onnx.node import Constants, NodeCall
from ridgeline.onnx.other_dtype import ModelDtypes, in_model_dtype, of_dtype
from ridgeline.onnx.pieces import (
    EXPLANATIONS,
    SHAPES,
    UNEXPLAINED,
    Piece,
    Place,
    total,
)
from ridgeline.records import Cost

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
            operator_piece(op, op.path),
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
        piece = node_piece(op, meant[module_of(op.path)], constants)
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

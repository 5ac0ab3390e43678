"""Formulas of ONNX operators by family; importing this package fills the registry."""

from ridgeline.onnx.formulas import (
    activations,
    attention,
    classical,
    contributed,
    convolutions,
    moves,
    norms,
    pointwise,
    pooling,
    products,
    recurrent,
    reductions,
)
from ridgeline.onnx.formulas.registry import FORMULAS, Entry, entry_of

# Imported for what they register; the tuple tells that they are in use.
_FAMILIES = (
    activations, attention, classical, contributed, convolutions, moves, norms, pointwise, pooling,
    products, recurrent, reductions,
)  # fmt: skip

__all__ = ["FORMULAS", "Entry", "entry_of"]

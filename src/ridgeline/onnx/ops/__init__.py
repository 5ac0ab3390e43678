"""Cost formulas of ONNX operators by family; importing this package fills the registry."""

from ridgeline.onnx.ops import (
    classical,
    convolution,
    matmul,
    movement,
    norms,
    pointwise,
    reductions,
    sequence,
)
from ridgeline.onnx.ops.registry import FORMULAS, Entry, find_entry

# Imported for what they register; the tuple shows that they are in use.
_FAMILIES = (
    classical, convolution, matmul, movement, norms, pointwise, reductions, sequence
)  # fmt: skip

__all__ = ["FORMULAS", "Entry", "find_entry"]

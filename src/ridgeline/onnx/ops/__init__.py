"""ONNX's operators → the formulas of costs/; importing this package fills the registry."""

from ridgeline.onnx.ops import classical, data, elementwise, products, sequence
from ridgeline.onnx.ops.registry import FORMULAS, Entry, find_entry

_FAMILIES = (classical, data, elementwise, products, sequence)  # imported for what they register

__all__ = ["FORMULAS", "Entry", "find_entry"]

"""PyTorch's operators → the formulas of costs/; importing this package fills the registry."""

from ridgeline.count.call import FORMULAS, Entry, entry_for
from ridgeline.count.formulas import data, elementwise, products
from ridgeline.count.formulas.data import FREE

_FAMILIES = (data, elementwise, products)  # imported for what they register

__all__ = ["FORMULAS", "FREE", "Entry", "entry_for"]

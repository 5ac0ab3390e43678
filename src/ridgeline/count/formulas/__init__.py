"""PyTorch's operators → the formulas of costs/; importing this package fills the registry."""

from ridgeline.count.call import FORMULAS, FREE
from ridgeline.count.formulas import data, elementwise, products

_FAMILIES = (data, elementwise, products)  # imported for what they register

__all__ = ["FORMULAS", "FREE"]

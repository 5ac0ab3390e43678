"""PyTorch's operators → the formulas of costs/; importing this package fills the registry."""

from ridgeline.count.formulas import data, elementwise, products
from ridgeline.count.formulas.data import FREE
from ridgeline.count.formulas.registry import FORMULAS, Entry, find

_FAMILIES = (data, elementwise, products)  # imported for what they register

__all__ = ["FORMULAS", "FREE", "Entry", "entry_for"]


def entry_for(name: str, overload: str) -> Entry | None:
    """The formula of an operator, or None where ridgeline has none."""
    if name.startswith("aten::_foreach_"):
        return elementwise.foreach_entry(name)
    return find(name, overload)

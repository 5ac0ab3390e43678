"""Cost formulas by family; importing this package fills the registry."""

from ridgeline.count.formulas import (
    attention,
    linalg,
    losses,
    moves,
    norms,
    optimizers,
    pointwise,
    pooling,
    products,
    recurrent,
    reductions,
)
from ridgeline.count.formulas.moves import FREE
from ridgeline.count.formulas.registry import FORMULAS, Entry, Phased, Work, find

# Imported for what they register; the tuple tells that they are in use.
_FAMILIES = (
    attention, linalg, losses, moves, norms, pointwise, pooling, products, recurrent, reductions
)  # fmt: skip

__all__ = ["FORMULAS", "FREE", "Entry", "Phased", "Work", "entry_for"]


def entry_for(name: str, overload: str) -> Entry | None:
    """The formula of an operator, or None where ridgeline has none."""
    if name.startswith("aten::_foreach_"):
        return optimizers.foreach_entry(name)
    return find(name, overload)

"""Which axes of the inputs are the batch and which the sequence.

Nobody has to say it: the inputs are made at two sizes, and the axes that differ are those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]  # of each input, by name
Axes = dict[str, dict[int, str]]  # input → axis → name of the dimension

BATCH, SEQUENCE = "batch", "sequence"


def open_axes(shapes: Shapes, other: Shapes, *, name: str, size: int) -> Axes | None:
    """The axes that differ between two makings of the inputs; None if they cannot be compared.

    An axis of `size`, the one that was asked for, is called `name`; another that moves with it
    gets a name of its own.
    """
    if {key: len(shape) for key, shape in shapes.items()} != {
        key: len(shape) for key, shape in other.items()
    }:
        return None
    return {
        key: {
            axis: name if side == size else f"{key}_{name}"
            for axis, (side, changed) in enumerate(zip(shape, other[key], strict=True))
            if side != changed
        }
        for key, shape in shapes.items()
    }


def joined(first: Axes, second: Axes) -> Axes:
    """Both, in the order of the axes; one that moves with either keeps its first name."""
    both = {key: {**second.get(key, {}), **first.get(key, {})} for key in {**first, **second}}
    return {key: dict(sorted(open_.items())) for key, open_ in both.items()}


def names_in(axes: Axes) -> tuple[str, ...]:
    """The dimensions that are open, each once."""
    return tuple(dict.fromkeys(name for axis in axes.values() for name in axis.values()))


def as_nested(value: Any, key: str, axes: Axes) -> Any:
    """The axes in the form of the argument itself, as torch.export wants them."""
    if isinstance(value, dict):
        return {name: as_nested(item, f"{key}_{name}", axes) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [as_nested(item, f"{key}_{n}", axes) for n, item in enumerate(value)]
        return type(value)(items)
    return axes.get(key) or None

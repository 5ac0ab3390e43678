"""The tensors in whatever a module takes or returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Those in a nest of lists, tuples, dictionaries and dataclasses, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        yield from tensors_in([getattr(value, name) for name in value.__dataclass_fields__])


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, lists and dictionaries with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: with_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(with_tensors(item, change) for item in value)
    return value

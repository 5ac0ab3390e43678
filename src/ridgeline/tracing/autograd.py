"""Whose operator each node of autograd's graph goes back through.

When an operator runs, the nodes behind the results of the previous one and behind its own inputs
are complete: they get their producer as owner. Until then a node goes by its sequence number: those
created since the previous operator belong to the next one. Numbers alone would not do. An operator
in place may have two nodes, where it keeps a copy of its input, and on a view autograd makes some
only after it ran; they are behind the whole tensor, too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

PRODUCER = "_ridgeline_producer"  # of a tensor
OWNER = "ridgeline owner"  # in the metadata of a node
T = TypeVar("T")
_next_sequence: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class AutogradOwners(Generic[T]):
    """The owner of each node: whatever the caller tells its operators apart by."""

    def __init__(self) -> None:
        self._by_number: dict[int, T] = {}
        self._thread = threading.get_ident()  # every thread counts its nodes for itself
        self._reached: int = _next_sequence()
        self._last: list[weakref.ref[Tensor]] = []  # results, whose nodes are not there yet
        self._marked: list[weakref.ref[Tensor]] = []

    def on_operator(self, inputs: Iterable[Tensor], owner: T) -> None:
        """An operator of the forward pass begins; `owner` gets the nodes that have none."""
        self.propagate_results()
        for tensor in inputs:
            propagate_owner(tensor)
        if threading.get_ident() == self._thread:
            following = _next_sequence()
            for number in range(min(self._reached, following - 1), following):
                self._by_number.setdefault(number, owner)
            self._reached = following

    def on_results(self, outs: Iterable[Tensor], owner: T) -> None:
        """The operator has ended with these results."""
        for tensor in outs:
            for one in with_base(tensor):
                setattr(one, PRODUCER, owner)
                self._last.append(weakref.ref(one))
        self._marked += self._last

    def remove_marks(self) -> None:
        """Leave no mark on tensors that live on, such as weights and their gradients."""
        for tensor in (one() for one in self._marked):
            if tensor is not None and hasattr(tensor, PRODUCER):
                delattr(tensor, PRODUCER)
        self._marked.clear()

    def propagate_results(self) -> None:
        """Another operator begins, so the nodes behind the last one's results are there."""
        results = [tensor for one in self._last if (tensor := one()) is not None]
        self._last = []
        for tensor in results:
            propagate_owner(tensor)

    def owner_of(self, node: Any) -> T | None:
        """The owner of a node; None where no operator was seen with it."""
        owner: T | None = node.metadata.get(OWNER)
        return self._by_number.get(node._sequence_nr()) if owner is None else owner


def propagate_owner(tensor: Tensor) -> None:
    """Give all nodes behind a tensor, up to those that have an owner, to its producer."""
    owner = getattr(tensor, PRODUCER, None)
    if owner is None or not tensor.requires_grad:
        return
    with suppress(RuntimeError):  # of views that autograd will not follow: whoever uses them hears
        for node in walk_graph([tensor.grad_fn], _has_owner):
            node.metadata[OWNER] = owner


def _has_owner(node: Any) -> bool:
    return hasattr(node, "variable") or OWNER in node.metadata


def walk_graph(roots: Iterable[Any], is_known: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes from the roots on; behind one that is known, none is visited.

    The caller must make a node known before it asks for the next one.
    """
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node is not None and not is_known(node):
            yield node
            stack.extend(following for following, _ in node.next_functions)


def current_node() -> Any:
    """The node that autograd runs now on this thread, if any."""
    return torch._C._current_autograd_node()


def with_base(out: Tensor) -> list[Tensor]:
    """A result, and the whole tensor that it is a view of: that was written into."""
    return [out] if out._base is None else [out, out._base]


def tensors_among(arguments: Iterable[Any]) -> Iterable[Tensor]:
    """All tensors among an operator's arguments, also in lists."""
    for value in arguments:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_among(value)

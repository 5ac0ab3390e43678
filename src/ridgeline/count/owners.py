"""Whose operator each node of autograd's graph goes back through.

When an operator runs, the nodes behind the results of the one before and behind its own inputs are
complete: these are told who made them. Until then a node goes by its number: those made since the
operator before belong to the next one. Numbers alone would not do. An operator in place may have
two nodes, where it keeps a copy of its input, and on a view autograd makes some only after it ran;
they are behind the whole tensor, too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

MAKER = "_ridgeline_maker"  # of a tensor
OWNER = "ridgeline owner"  # in the metadata of a node
T = TypeVar("T")
_next_sequence: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class Owners(Generic[T]):
    """Who made which node; an owner is whatever the caller tells its operators apart by."""

    def __init__(self) -> None:
        self._by_number: dict[int, T] = {}
        self._thread = threading.get_ident()  # every thread counts its nodes for itself
        self._reached: int = _next_sequence()
        self._last: list[weakref.ref[Tensor]] = []  # results, whose nodes are not there yet
        self._marked: list[weakref.ref[Tensor]] = []

    def saw(self, inputs: Iterable[Tensor], owner: T) -> None:
        """An operator of the forward pass begins; `owner` has the nodes that nobody else made."""
        self.settle_results()
        for tensor in inputs:
            settle(tensor)
        if threading.get_ident() == self._thread:
            following = _next_sequence()
            for number in range(min(self._reached, following - 1), following):
                self._by_number.setdefault(number, owner)
            self._reached = following

    def made(self, outs: Iterable[Tensor], owner: T) -> None:
        """It has ended, and these are its results."""
        for tensor in outs:
            for one in written(tensor):
                setattr(one, MAKER, owner)
                self._last.append(weakref.ref(one))
        self._marked += self._last

    def forget(self) -> None:
        """Leave no mark on tensors that live on, such as weights and their gradients."""
        for tensor in (one() for one in self._marked):
            if tensor is not None and hasattr(tensor, MAKER):
                delattr(tensor, MAKER)
        self._marked.clear()

    def settle_results(self) -> None:
        """Another operator begins, so the nodes behind the results of the one before are there."""
        made = [tensor for one in self._last if (tensor := one()) is not None]
        self._last = []
        for tensor in made:
            settle(tensor)

    def of(self, node: Any) -> T | None:
        """The owner of a node; None where no operator was seen with it."""
        found: T | None = node.metadata.get(OWNER)
        return self._by_number.get(node._sequence_nr()) if found is None else found


def settle(tensor: Tensor) -> None:
    """Tell all nodes behind a tensor, up to those that know, that they are its maker's."""
    owner = getattr(tensor, MAKER, None)
    if owner is None or not tensor.requires_grad:
        return
    with suppress(RuntimeError):  # of views that autograd will not follow: whoever uses them hears
        stack = [tensor.grad_fn]
        while stack:
            node: Any = stack.pop()
            if node is None or hasattr(node, "variable") or OWNER in node.metadata:
                continue
            node.metadata[OWNER] = owner
            stack.extend(following for following, _ in node.next_functions)


def current_node() -> Any:
    """The node that autograd runs now on this thread, if any."""
    return torch._C._current_autograd_node()


def written(out: Tensor) -> list[Tensor]:
    """A result, and the whole it is a part of, if it is one already: that was written into."""
    return [out] if out._base is None else [out, out._base]


def tensors_in(values: Iterable[Any]) -> Iterable[Tensor]:
    """All tensors among arguments, also in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)

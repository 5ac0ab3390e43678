"""Which backward work serves the weights and which the inputs.

Autograd runs one node per forward operator, and a node's outputs go along edges: to a
parameter, or to the activation before it. Work whose result goes only to parameters is
weight-grad; all other work is input-grad. A node with both kinds of edges is told apart
by following its results back through the operators it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ridgeline.tracing.tracker import AutogradOwners, propagate_owner, walk_graph

WEIGHT, INPUT = 1, 2
ROW = "_ridgeline_row"


class Owner(NamedTuple):
    """Whose a forward operator is."""

    path: str  # of its module
    weights_only: bool  # it worked on nothing else


class _Node:
    """What is known of a node, without holding it: it may hold tensors."""

    __slots__ = ("served",)

    def __init__(self, served: int) -> None:
        self.served = served  # WEIGHT, INPUT, or both


class Attribution:
    """Edges of the autograd graph, sorted into those towards weights and towards inputs."""

    def __init__(self, weights: dict[int, str]) -> None:
        self._weights = weights  # id of a parameter → path of its module
        self._owners: AutogradOwners[Owner] = AutogradOwners()
        self._nodes: dict[Any, _Node] = {}  # while their backward runs
        self.served: dict[int, int] = {}  # row → WEIGHT, INPUT, or both
        self._parents: dict[int, tuple[int, ...]] = {}
        self._row_node: dict[int, _Node | None] = {}

    def saw_forward(
        self, inputs: Iterable[Tensor], outs: Iterable[Tensor], path: str, *, weights_only: bool
    ) -> None:
        """Remember where a forward operator ran, and whether it worked on weights alone."""
        is_own = torch.is_grad_enabled()  # or its node is that of a function around it
        self._owners.on_operator(inputs, Owner(path, weights_only and is_own))
        self._owners.on_results(outs, Owner(path, weights_only))

    @contextmanager
    def walking(self, roots: Iterable[Tensor]) -> Iterator[None]:
        """Sort every node reachable from the roots; they are let go when their backward is over."""
        before = set(self._nodes)
        self._walk(roots)
        try:
            yield
        finally:
            self._nodes = {node: seen for node, seen in self._nodes.items() if node in before}

    def _walk(self, roots: Iterable[Tensor]) -> None:
        tensors = [t for t in roots if isinstance(t, Tensor) and t.grad_fn is not None]
        for tensor in tensors:
            propagate_owner(tensor)
        for node in walk_graph([tensor.grad_fn for tensor in tensors], self._nodes.__contains__):
            self._nodes[node] = seen = _Node(self._served_by(node))
            if seen.served == WEIGHT | INPUT:
                node.register_hook(self._watch(seen, self._edges(node)))

    def _served_by(self, node: Any) -> int:
        """All sides that the node's results go to."""
        return reduce(or_, self._edges(node), 0)

    def _edges(self, node: Any) -> list[int]:
        """The side of each result of a node, 0 where nobody wants it."""
        return [self._edge(n) if n is not None else 0 for n, _ in node.next_functions]

    def _edge(self, node: Any) -> int:
        if hasattr(node, "variable"):
            return WEIGHT if id(node.variable) in self._weights else INPUT
        owner = self._owners.owner_of(node)
        return WEIGHT if owner is not None and owner.weights_only else INPUT

    def _watch(self, node: _Node, edges: list[int]) -> Any:
        def after(grad_inputs: tuple[Tensor | None, ...], _grad_outputs: Any) -> None:
            for grad, edge in zip(grad_inputs, edges, strict=False):
                row = getattr(grad, ROW, None) if grad is not None else None
                if row is not None:
                    self._mark(row, edge, node)

        return after

    def _mark(self, row: int, edge: int, node: _Node) -> None:
        if self._row_node.get(row) is not node or self.served.get(row, 0) & edge:
            return
        self.served[row] = self.served.get(row, 0) | edge
        for parent in self._parents[row]:
            self._mark(parent, edge, node)

    def saw_backward(self, row: int, node: Any, inputs: Iterable[Tensor]) -> str | None:
        """Note an operator that autograd runs now; answers the module path it belongs to."""
        parents = tuple({p for t in inputs if (p := getattr(t, ROW, None)) is not None})
        self._parents[row] = parents
        if node is None:
            self._row_node[row] = None
            return None
        if hasattr(node, "variable"):
            self._row_node[row] = _Node(WEIGHT)
            return self._weights.get(id(node.variable))
        if node not in self._nodes:
            self._nodes[node] = _Node(self._served_by(node))
        self._row_node[row] = self._nodes[node]
        return self.path_of(node)

    def path_of(self, node: Any) -> str | None:
        """The module whose operator a node goes back through; None where there is none."""
        owner = None if node is None else self._owners.owner_of(node)
        return None if owner is None else owner.path

    def parent_of(self, row: int) -> int | None:
        return next(iter(self._parents.get(row, ())), None)

    def finish(self) -> dict[int, str]:
        """The phase of every row, once backward is over; autograd's nodes are let go."""
        phases = {
            row: "weight-grad" if self._side(row) == WEIGHT else "input-grad"
            for row in self._row_node
        }
        self._row_node, self._nodes = {}, {}
        return phases

    def _side(self, row: int) -> int:
        node = self._row_node.get(row)
        if node is None:  # gradients of several uses being summed: as their summands
            parents = self._parents.get(row, ())
            return WEIGHT if parents and all(self._side(p) == WEIGHT for p in parents) else INPUT
        both = node.served == WEIGHT | INPUT
        return self.served.get(row, INPUT) if both else node.served

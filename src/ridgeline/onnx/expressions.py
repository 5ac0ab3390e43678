"""Dimensions that exporters write as sums and products of others: `2*batch`, `past_len + 1`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

LONGEST = 200  # characters; real ones have a few names
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
}  # fmt: skip


@lru_cache(maxsize=1024)
def _parsed(symbol: str) -> ast.expr | None:
    """The tree of a sum or product of names and numbers; None for a plain name."""
    if symbol.isidentifier() or len(symbol) > LONGEST:
        return None
    try:
        tree = ast.parse(symbol.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.BinOp) and _is_plain(tree) else None


def _is_plain(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _OPERATORS and _is_plain(tree.left) and _is_plain(tree.right)
    return isinstance(tree, ast.Name) or (
        isinstance(tree, ast.Constant) and type(tree.value) is int
    )


def names_in(symbol: str) -> set[str]:
    """The names that a dimension is worked out from; none for a plain name."""
    tree = _parsed(symbol)
    if tree is None:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def size_of(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """The number of a dimension: as given, or worked out where all its names have one."""
    if symbol in sizes:
        return sizes[symbol]
    tree = _parsed(symbol)
    if tree is None or not names_in(symbol) <= sizes.keys():
        return None
    try:
        return _value(tree, sizes)
    except ZeroDivisionError:
        return None


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        return _OPERATORS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    assert isinstance(tree, ast.Constant) and isinstance(tree.value, int)
    return tree.value

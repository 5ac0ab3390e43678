"""The cost of an Einsum: operands contracted from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ridgeline.count.parts import Terms
from ridgeline.onnx.node import MalformedError, Shape

Labels = list[str]


class Pair(NamedTuple):
    """A step: what was made so far, with the next operand. Sizes are in elements."""

    terms: Terms  # one factor for each label of both
    is_summed: bool  # multiply-adds; else products of elements
    left: int
    right: int
    out: int


def contraction(equation: str, shapes: Sequence[Shape]) -> tuple[list[Terms], list[Terms]]:
    """The steps that are multiply-adds, and those that are one FLOP each, by their factors.

    Labels that one operand alone has and nobody needs are summed first. A step over common
    labels that are summed is a matrix product; one without is an element-wise product.
    """
    steps, sums = _steps(equation, shapes)
    macs = [step.terms for step in steps if step.is_summed]
    return macs, [*(step.terms for step in steps if not step.is_summed), *sums]


def pairs(equation: str, shapes: Sequence[Shape]) -> list[Pair]:
    """One step for each operand after the first."""
    return _steps(equation, shapes)[0]


def _steps(equation: str, shapes: Sequence[Shape]) -> tuple[list[Pair], list[Terms]]:
    """The steps, and the sums of one operand alone before and after them."""
    operands, result = _parse(equation, shapes)
    sizes = _sizes(operands, shapes)
    if len(set(result)) < len(result) or not set(result) <= sizes.keys():
        raise MalformedError("the result's labels are not some of the operands', each once")
    steps: list[Pair] = []
    sums: list[Terms] = []
    left, *others = [list(dict.fromkeys(labels)) for labels in operands]
    for place, right in enumerate(others):
        later = set(result).union(*others[place + 1 :])
        left, first = _sum_alone(left, later | set(right), sizes)
        right, second = _sum_alone(right, later | set(left), sizes)
        union = list(dict.fromkeys([*left, *right]))
        kept = [label for label in union if label in later]
        numbers = [prod(sizes[label] for label in labels) for labels in (left, right, kept)]
        steps.append(Pair(_factors(union, sizes), len(kept) < len(union), *numbers))
        left, sums = kept, sums + first + second
    _, last = _sum_alone(left, set(result), sizes)
    return steps, sums + last


def _sizes(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """Of each label: equal in all operands, or 1, which broadcasts; in one operand always equal."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            before = sizes.get(label, 1)
            if own.setdefault(label, size) != size or (before != size and 1 not in (before, size)):
                raise MalformedError(f"{label!r} is of {own[label]}, {before} and {size}")
            sizes[label] = size if before == 1 else before
    return sizes


def points(steps: Sequence[Terms]) -> int:
    """How many multiply-adds, or FLOPs, steps have together."""
    return sum(prod(size for _, size in step) for step in steps)


def _factors(labels: Labels, sizes: dict[str, int]) -> Terms:
    return tuple((label, sizes[label]) for label in labels)


def _sum_alone(
    labels: Labels, needed: set[str], sizes: dict[str, int]
) -> tuple[Labels, list[Terms]]:
    """Sum over the labels that nobody else needs: one addition an element."""
    kept = [label for label in labels if label in needed]
    return kept, [] if len(kept) == len(labels) else [_factors(labels, sizes)]


def _parse(equation: str, shapes: Sequence[Shape]) -> tuple[list[Labels], Labels]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(shapes):
        raise MalformedError("as many operands as the equation has")
    operands = [_labels(part, len(shape)) for part, shape in zip(parts, shapes, strict=True)]
    if arrow:
        dots = max((label for o in operands for label in o if label[0] == "."), default="")
        rank = int(dots[1:]) if dots else 0
        return operands, _labels(right, len(right.replace("...", "")) + rank)
    flat = [label for labels in operands for label in labels]
    once = sorted(label for label in set(flat) if flat.count(label) == 1 and label[0] != ".")
    return operands, [*sorted({label for label in flat if label[0] == "."}), *once]


def _labels(part: str, rank: int) -> Labels:
    """One label for each dimension; those of an ellipsis are numbered from the right."""
    before, dots, after = part.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (covered and not dots):
        raise MalformedError("the equation does not fit the operands")
    return [*before, *(f".{n}" for n in range(covered, 0, -1)), *after]

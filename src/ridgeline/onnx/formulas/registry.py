"""Formulas of ONNX operators, found by domain and name. Conventions are those of PyTorch's.

A formula is a short function from a node's call to its work; see
`ridgeline/count/formulas/registry.py` for what is one FLOP. The helpers here are for shapes of work
that many operators share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ridgeline.count.parts import Terms, Work
from ridgeline.onnx.blocked import NCHWC
from ridgeline.onnx.node import NodeCall

__all__ = ["DEQUANTISE", "FORMULAS", "ML", "MS", "QUANTISE", "Entry", "Terms", "Work",
           "elementwise", "entry_of", "free", "log2_ceil", "op", "per_input"]  # fmt: skip

ML = "ai.onnx.ml"
MS = "com.microsoft"
# domains in which onnxruntime keeps further forms of the same operators
LIKE_MS = (NCHWC, "com.ms.internal.nhwc", "com.microsoft.experimental")

# FLOPs an element, with a zero point: (q − zero point)·scale; x/scale, round, zero point, bounds
DEQUANTISE, QUANTISE = 2, 5

Formula = Callable[[NodeCall], Work]
F = TypeVar("F", bound=Formula)


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str
    function: Formula


FORMULAS: dict[tuple[str, str], Entry] = {}


def op(names: str, *, kind: str, domain: str = "") -> Callable[[F], F]:
    """Register the decorated function as the formula of these operators."""

    def add(function: F) -> F:
        for name in names.split():
            if (domain, name) in FORMULAS:
                raise ValueError(f"two formulas for {name!r}")
            FORMULAS[domain, name] = Entry(kind, function)
        return function

    return add


def entry_of(domain: str, op_type: str) -> Entry | None:
    """The formula of an operator; onnxruntime's copies of standard ones have the standard's."""
    found = FORMULAS.get((domain, op_type))
    if found is None and domain in LIKE_MS:
        domain = MS
        found = FORMULAS.get((domain, op_type))
    return found or (FORMULAS.get(("", op_type)) if domain == MS else None)


def free(call: NodeCall) -> Work:
    """Nothing moves: a view, a reference, a number that shapes give."""
    return Work(read_bytes=0, written_bytes=0)


def elementwise(call: NodeCall, flops: int, transcendentals: int = 0) -> Work:
    """So much for each element of the result; none where no operand is floating-point."""
    n = max((t.numel for t in call.outputs), default=0)
    if not call.is_float:
        return Work(terms=(("n", n),), factor=0)
    return Work.per_element(n, flops, transcendentals=transcendentals * n)


def per_input(call: NodeCall, flops: int, per_result: int = 0, each: int = 0) -> Work:
    """FLOPs for each element read; transcendentals for each result, and for each element read."""
    n = call.x.numel
    if not call.x.is_float and not call.out.is_float:
        return Work(terms=(("n", n),), factor=0)
    return Work.per_element(n, flops, transcendentals=per_result * call.out.numel + each * n)


def log2_ceil(size: int) -> int:
    return max(size - 1, 0).bit_length()

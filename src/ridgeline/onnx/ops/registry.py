"""Cost formulas of ONNX operators by domain and name. Conventions are those of PyTorch's formulas.

A formula is a short function from a node's call to its work; see
`ridgeline/count/formulas/registry.py` for what is one FLOP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ridgeline.count.parts import Terms, Work
from ridgeline.onnx.node import MalformedError, NodeCall, Shape

__all__ = ["DEQUANTISE", "FORMULAS", "ML", "MS", "QUANTISE", "Entry", "Terms", "Work",
           "check_shape", "elementwise", "find_entry", "free", "op", "per_input",
           "require"]  # fmt: skip

ML = "ai.onnx.ml"
MS = "com.microsoft"

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


def find_entry(domain: str, op_type: str) -> Entry | None:
    """The formula of an operator; onnxruntime's copies of standard ones have the standard's."""
    own = FORMULAS.get((domain, op_type))
    return own or (FORMULAS.get(("", op_type)) if domain == MS else None)


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


def require(condition: bool, problem: str) -> None:
    """A node that breaks a rule of its operator has no count."""
    if not condition:
        raise MalformedError(problem)


def check_shape(call: NodeCall, place: int, shape: Shape) -> None:
    """An operand, if it is there, has this shape."""
    tensor = call.get(place)
    if tensor is not None:
        require(tensor.shape == shape, f"operand {place} is {tensor.shape}, not {shape}")

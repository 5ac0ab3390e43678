"""The registry of cost formulas: one short function per operator, found by name.

Conventions, once for all formulas:

* a multiply-add of a matrix product or convolution is one MAC and two FLOPs;
* every other addition, multiplication, division or comparison of floating-point
  numbers is one FLOP; work on integers and booleans is none;
* exp, log, erf, tanh, sin, sqrt and their kin are transcendentals, counted apart;
* every operand is read once and every result is written once, unless the formula says
  otherwise; views are free.

To add an operator: write its formula beside its relatives and a row in tests/count/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ridgeline.count.call import OpCall
from ridgeline.count.parts import Terms, Work

__all__ = ["FORMULAS", "Entry", "Formula", "Phased", "Terms", "Work", "aten", "aten_names", "find",
           "register"]  # fmt: skip

Phased = dict[str, Work]  # an operator that serves several phases at once
Formula = Callable[[OpCall], Work | Phased]


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str  # the family shown in tables: "conv", "matmul", "norm"
    function: Formula


FORMULAS: dict[str, Entry] = {}


F = TypeVar("F", bound=Formula)


def register(names: Iterable[str], kind: str) -> Callable[[F], F]:
    """Register the decorated function as the formula of these operators."""

    def add(function: F) -> F:
        for name in names:
            if name in FORMULAS:
                raise ValueError(f"two formulas for {name!r}: {FORMULAS[name]} and {function}")
            FORMULAS[name] = Entry(kind, function)
        return function

    return add


def aten_names(*texts: str) -> list[str]:
    """Names of operators of PyTorch's own library; one text may hold several."""
    return [f"aten::{name}" for text in texts for name in text.split()]


def aten(*names: str, kind: str) -> Callable[[F], F]:
    """`register` for operators of PyTorch's own library; one text may hold several names."""
    return register(aten_names(*names), kind)


def find(name: str, overload: str = "") -> Entry | None:
    """The formula of an operator: of this overload if there is one, else of its name.

    An in-place operator has the formula of its out-of-place form.
    """
    for key in (f"{name}.{overload}", name, name.removesuffix("_")):
        if key in FORMULAS:
            return FORMULAS[key]
    return None

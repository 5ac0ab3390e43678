"""The registry of PyTorch's operators: a name, the family, and a formula of costs/ on its call.

To add an operator: write its formula in the file of its family in costs/, a row here beside its
relatives, and a row in tests/count/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ridgeline.costs.work import Phased, Work
from ridgeline.count.call import OpCall

Formula = Callable[[OpCall], Work | Phased]


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str  # the family shown in tables: "conv", "matmul", "norm"
    function: Formula


FORMULAS: dict[str, Entry] = {}


def add_rows(kind: str, rows: Mapping[str, Formula]) -> None:
    """Formulas by the names of operators, several in one text; `aten::` where no library is."""
    for names, function in rows.items():
        for name in names.split():
            key = name if "::" in name else f"aten::{name}"
            if key in FORMULAS:
                raise ValueError(f"two formulas for {key!r}: {FORMULAS[key]} and {function}")
            FORMULAS[key] = Entry(kind, function)


def aten_names(names: str) -> frozenset[str]:
    """Names of operators of PyTorch's own library."""
    return frozenset(f"aten::{name}" for name in names.split())


def entry_for(name: str, overload: str = "") -> Entry | None:
    """The formula of an operator: of this overload if there is one, else of its name.

    An in-place operator has the formula of its out-of-place form.
    """
    for key in (f"{name}.{overload}", name, name.removesuffix("_")):
        if key in FORMULAS:
            return FORMULAS[key]
    return None

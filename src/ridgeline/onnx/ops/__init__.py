"""The registry of ONNX's operators: domain and name, the family, and a formula of costs/.

`data`, `elementwise` and `products` fill it when they are imported, which node_cost.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ridgeline.costs.work import Work
from ridgeline.onnx.node import NodeCall

MS = "com.microsoft"

Formula = Callable[[NodeCall], Work]


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str
    function: Formula


FORMULAS: dict[tuple[str, str], Entry] = {}


def add_rows(kind: str, rows: Mapping[str, Formula], *, domain: str = "") -> None:
    """Formulas by the names of operators, several in one text."""
    for names, function in rows.items():
        for name in names.split():
            if (domain, name) in FORMULAS:
                raise ValueError(f"two formulas for {name!r}")
            FORMULAS[domain, name] = Entry(kind, function)


def find_entry(domain: str, op_type: str) -> Entry | None:
    """The formula of an operator; onnxruntime's copies of standard ones have the standard's."""
    own = FORMULAS.get((domain, op_type))
    return own or (FORMULAS.get(("", op_type)) if domain == MS else None)

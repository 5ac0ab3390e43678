"""The registry of ONNX's operators: domain and name, the family, and a formula of costs/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ridgeline.costs.work import Shape, Work, require
from ridgeline.onnx.node import NodeCall

ML = "ai.onnx.ml"
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


def check_shape(call: NodeCall, place: int, shape: Shape) -> None:
    """An operand, if it is there, has this shape."""
    tensor = call.get(place)
    if tensor is not None:
        require(tensor.shape == shape, f"operand {place} is {tensor.shape}, not {shape}")

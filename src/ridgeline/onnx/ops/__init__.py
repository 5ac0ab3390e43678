"""The registry of ONNX's operators: domain and name, the family, and a formula of costs/.

`data`, `elementwise` and `products` fill it when they are imported, which node_cost.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ridgeline.costs.work import Entry, Registry, Work
from ridgeline.onnx.node import NodeCall

MS = "com.microsoft"

Formula = Callable[[NodeCall], Work]
FORMULAS = Registry()


def add_rows(kind: str, rows: Mapping[str, Formula], *, domain: str = "onnx") -> None:
    FORMULAS.add_rows(kind, rows, domain)


def find_entry(call: NodeCall) -> Entry | None:
    """The formula of an operator; onnxruntime's copies of standard ones have the standard's."""
    own = FORMULAS.get(call.op)
    return own or (FORMULAS.get(f"onnx::{call.op_type}") if call.domain == MS else None)

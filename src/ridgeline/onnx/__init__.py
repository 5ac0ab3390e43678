"""The cost of one step of an ONNX file, with PyTorch's conventions and in the same tables.

load.py       the file without its weights, checked, and that onnx is there
dims.py       open dimensions and the sizes put in for them
node.py       element types, a value, one call of an operator
infer.py      types, shapes and small values by onnx itself; shapes.py the sources for a node's
              results
graph.py      the walk through graphs and functions: names, versions of operators, limits
ops/          operator → work, by family; node_cost.py a node with its work
training.py   the estimate of a training step
counting.py   all of it together: file → CountResult, with its memory; branches and loops
compare.py    the comparison of a PyTorch model with its file
export/       a PyTorch model to an ONNX file

Importing this package does not import onnx, which may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.onnx.load import require_onnx

if TYPE_CHECKING:
    from ridgeline.onnx.counting import count_onnx

__all__ = ["count_onnx", "require_onnx"]


def __getattr__(name: str) -> Any:
    """`count_onnx` is imported when it is first used."""
    if name != "count_onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with require_onnx():
        from ridgeline.onnx.counting import count_onnx
    return count_onnx

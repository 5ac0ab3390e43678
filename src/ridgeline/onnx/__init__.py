"""What an ONNX file must do in one step, with PyTorch's conventions and in the same tables.

skeleton.py   the file without its weights; load.py checks it
declared.py   what the file says of a value's type
dims.py       open dimensions and their numbers, expressions.py where they are computed; ranks.py
              inputs without a rank; asking.py how errors ask; given.py the inputs, and values of
              theirs that shapes depend on
walk.py       through the graph; control.py (If, Scan), loops.py and functions.py help it, limits.py
              ends it; inner.py a graph inside a node, trips.py how often a loop runs, series.py
              how it goes on; scope.py names and paths, opsets.py versions
results.py    what a node makes: infer.py by onnx's own inference; rules*.py and sequences.py what
              it does not know; fatal.py what it must not see; bounds.py the most, where data
              decide; shapes.py helps
node.py       a node and its operands, dtypes.py their types; row.py a node with its work
values.py     small values followed, and large ones that are one number all over, so that computed
              shapes are known; constants.py
formulas/     operator → work, by family; einsum.py its pairs, blocked.py layouts in blocks,
              uncounted.py why a node has no number
training.py   the estimate of a training step; gradients.py by operator; tape.py which values
              need one, in loops pass by pass; passes.py what becomes of a loop's values;
              optimizers.py the update of a weight
weights.py    parameters and buffers, unlearned.py those that no training changes; alive.py memory
counting.py   all of it together: file → CountResult
compare.py    the comparison of a PyTorch model with its file

Importing this package does not import onnx, which may be missing: needed.py says what to do then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.onnx.needed import onnx_needed

if TYPE_CHECKING:
    from ridgeline.onnx.counting import count_onnx

__all__ = ["count_onnx"]


def __getattr__(name: str) -> Any:
    """`count_onnx` is imported when it is asked for."""
    if name != "count_onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with onnx_needed():
        from ridgeline.onnx.counting import count_onnx
    return count_onnx

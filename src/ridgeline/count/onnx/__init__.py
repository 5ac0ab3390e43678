"""What an ONNX file must do in one step, with PyTorch's conventions and in the same tables.

skeleton.py   the file without its weights; load.py checks it
dims.py       open dimensions and their numbers
walk.py       through the graph; control.py (If, Loop, Scan) and functions.py help it
infer.py      shapes by onnx's own inference; rules.py, sequences.py what it does not know
values.py     small values followed, so that computed shapes are known
formulas/     operator → work, by family
training.py   the estimate of a training step; gradients.py by operator
weights.py    parameters and buffers; alive.py memory
counting.py   all of it together: file → CountResult
"""

from __future__ import annotations

from ridgeline.count.onnx.counting import count_onnx

__all__ = ["count_onnx"]

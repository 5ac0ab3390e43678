"""A model as an ONNX file, checked before it is put in its place.

    settings.py    what can be chosen
    result.py      what came of it: inputs, outputs, sizes, differences
    subject.py     a model and its inputs at any batch and sequence length
    dimensions.py  which axes are the batch and which the sequence
    tracing.py     torch's two exporters, and the graph they make
    recorded.py    what the older one fixes: ways and numbers that tensors decide
    checking.py    onnx.checker, and onnxruntime beside torch on the same input
    attempts.py    the ways to export, best first, until one of them passes the checks
    destination.py the file, written beside its place and moved there whole

Importing this package imports neither torch nor onnx.
"""

from ridgeline.onnx.export.destination import destination
from ridgeline.onnx.export.result import Checked, Exported, Port
from ridgeline.onnx.export.settings import ExportSettings

__all__ = ["Checked", "ExportSettings", "Exported", "Port", "destination"]

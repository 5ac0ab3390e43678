"""Shapes of the few standard operators for which onnx has no inference, or a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from ridgeline.onnx.dtypes import BOOL, FP32, INT64, STRING
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.rules import Type, like
from ridgeline.onnx.shapes import broadcast, pooled, range_length

SAME = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
COMPARED = frozenset({"GreaterOrEqual", "LessOrEqual"})
POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "MaxpoolWithMask"})


def corrected(call: NodeCall, made: Sequence[Tensor | None]) -> list[Type | None]:
    """Types of results where onnx's inference is wrong; none where it is right.

    Below opset 22 it has a window that begins in the padding after the end (`ceil_mode`), and it
    takes an STFT to be two-sided where nothing is said, though one-sided is the default. It adds
    output_padding to a transposed convolution that ends at its operand's size times the stride.
    """
    if not made or made[0] is None or not made[0].is_known:
        return []
    shape = made[0].shape
    if call.op_type in POOLS and call.attr("ceil_mode", 0):
        sizes = (*shape[:2], *pooled(call, call.x.shape[2:]))
        return [(t.elem, sizes) if t is not None else None for t in made]
    if call.op_type == "ConvTranspose" and _is_padded_to_same(call):
        strides = call.wholes("strides") or [1] * len(shape[2:])
        most = map(mul, call.x.shape[2:], strides)
        return [(made[0].elem, (*shape[:2], *map(min, shape[2:], most)))]
    if call.op_type == "STFT" and "onesided" not in call.attributes:
        return [(made[0].elem, (*shape[:-2], shape[-2] // 2 + 1, shape[-1]))]
    return []


def _is_padded_to_same(call: NodeCall) -> bool:
    is_same = str(call.attr("auto_pad", "NOTSET")).startswith("SAME")
    return is_same and not call.wholes("output_shape")


def standard(call: NodeCall) -> list[Type | None]:
    """Element types and shapes of the results; none where no rule is here."""
    if not call.inputs or not all(t.is_known for t in call.inputs):
        return []
    if call.domain == "ai.onnx.ml":
        return _classical(call)
    if call.op_type in SAME:
        return [like(call.x)]
    if call.op_type == "StringNormalizer" and not call.attr("stopwords"):  # else bounds.py
        return [like(call.x)]
    if call.op_type == "Dropout":  # old operator sets leave the mask's shape open
        return [like(call.x), (_mask_elem(call), call.x.shape)]
    if call.op_type in COMPARED:
        return [(BOOL, broadcast(call.x.shape, call.given(1).shape))]
    if call.op_type == "Range":  # onnx takes no operands of shape (1), onnxruntime does
        values = [t.value for t in call.inputs if t.value is not None and t.numel == 1]
        return [(call.x.elem, (range_length(*values),))] if len(values) == 3 else []
    return []


def _mask_elem(call: NodeCall) -> int:
    return BOOL if call.version >= 10 else call.x.elem


def _classical(call: NodeCall) -> list[Type | None]:
    shape = call.x.shape
    rows = shape[0] if len(shape) > 1 else 1
    if call.op_type in ("Normalizer", "Scaler"):
        return [(FP32, shape)]
    if call.op_type == "Imputer":
        return [(call.x.elem, shape)]
    if call.op_type == "FeatureVectorizer":
        return [(FP32, (rows, sum(call.attr("inputdimensions", []))))]
    if call.op_type == "LinearRegressor":
        return [(FP32, (rows, int(call.attr("targets", 1))))]
    if call.op_type == "SVMRegressor":
        return [(FP32, (rows, 1))]
    if call.op_type == "TreeEnsembleRegressor":
        return [(FP32, (rows, int(call.attr("n_targets", 1))))]
    if call.op_type == "TreeEnsembleClassifier":
        names = call.attr("classlabels_strings", [])
        classes = len(names) or len(call.attr("classlabels_int64s", []))
        return [(STRING if names else INT64, (rows,)), (FP32, (rows, classes))]
    return []

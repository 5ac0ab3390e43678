"""The results of a node: types, shapes and small values, by the first source that knows them.

In this order: sequences, onnx's own inference (infer.py), our rules for the few standard operators
that it gets wrong or leaves open, our rules for onnxruntime's operators, what the file declares,
and where data decide the largest result there can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import onnx

from ridgeline.costs.products import broadcast
from ridgeline.costs.work import MalformedError, Shape
from ridgeline.onnx.infer import (
    evaluate_node,
    find_schema,
    from_constant,
    from_type,
    infer,
    make_tensor,
    sequence_result,
    unknown_results,
)
from ridgeline.onnx.node import BOOL, FP32, INT32, INT64, NodeCall, Tensor
from ridgeline.onnx.ops import MS, find_entry
from ridgeline.onnx.ops.products import (
    group_query_sizes,
    multi_head_sizes,
    packed_past,
    qkv_widths,
    transposed_shape,
)

if TYPE_CHECKING:
    from onnx import NodeProto, OperatorSetIdProto

Type = tuple[int, Shape]
Types = list[Type | None]
Results = list[Tensor | None]
BROKEN = (MalformedError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError,
          AttributeError, OverflowError)  # fmt: skip
"""What a rule or a formula raises on a node that breaks its operator's rules."""


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """All that a node's results depend on beside its operands."""

    opsets: list[OperatorSetIdProto]
    standard_version: int
    declared: Mapping[str, Tensor]  # types that the file states
    note: Callable[[str], None]


def misfit(error: Exception) -> str:
    """Why a node is not counted whose formula or inference failed."""
    return f"its operands do not fit the operator ({str(error) or type(error).__name__})"


def set_results(call: NodeCall, node: NodeProto, context: ShapeContext) -> Results:
    """The node's results; they are set in the call."""
    first = node.output[0] if node.output else ""
    if call.op_type == "Constant" and not call.domain:
        results: Results = [from_constant(node, first)]
        call.set_results(results)
        return results
    items = sequence_result(call, first) if not call.domain else None
    results = [items] if items is not None else _by_inference(call, node, context)
    if not _all_known(results):
        results = _complete(call, list(node.output), results, context)
    call.set_results(results)
    values = evaluate_node(call, node)
    for result, value in zip(results, values, strict=False):
        if result is not None and value is not None:
            _set_value(result, value)
    return results


def _all_known(results: Sequence[Tensor | None]) -> bool:
    return all(t is None or t.is_known for t in results)


def _set_value(result: Tensor, value: Any) -> None:
    result.value = value
    result.dims = tuple(value.shape)
    if not result.elem:
        elem = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        typed = from_type(result.name, onnx.helper.make_tensor_type_proto(elem, value.shape), {})
        result.elem, result.dtype = typed.elem, typed.dtype


def _by_inference(call: NodeCall, node: NodeProto, context: ShapeContext) -> Results:
    """By onnx's own inference; what it refuses is not known, and the call says why."""
    try:
        form = FUSED.get(call.op_type, call.op_type)
        if call.domain != MS or find_schema(form, context.standard_version, "") is None:
            return infer(node, call.version, call.operands, context.opsets)
        version = context.standard_version
        copy, count = _as_standard(node, form, version), OPERANDS_OF_FORM.get(call.op_type)
        del copy.input[count or len(node.input) :]
        return infer(copy, version, call.operands[:count], context.opsets)
    except MalformedError as error:
        call.refused = str(error)
        return unknown_results(node)


def _as_standard(node: NodeProto, op_type: str, version: int) -> NodeProto:
    """The node as the standard operator it extends, with the attributes that one has."""
    schema = find_schema(op_type, version, "")
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain, copy.op_type = "", op_type
    del copy.attribute[:]
    copy.attribute.extend(
        a for a in node.attribute if schema is not None and a.name in schema.attributes
    )
    return copy


def _complete(call: NodeCall, names: list[str], results: Results, context: ShapeContext) -> Results:
    """Types that onnx leaves open. A rule may take what onnx refuses; a declaration may not."""
    try:
        own = as_tensors(names, _by_rule(call))
    except BROKEN as error:
        own = [None] * len(names)
        if isinstance(error, MalformedError) and find_entry(call) is not None:
            call.refused = call.refused or misfit(error)
    results = _fill(results, own)
    if _all_known(results):
        call.refused = ""
    if call.refused or _all_known(results):
        return results
    results = _fill(results, [context.declared.get(name) for name in names])
    if call.domain or _all_known(results):
        return results
    try:
        most = as_tensors(names, find_most_kept(call))
    except BROKEN:
        return results
    if any(most):
        context.note(
            f"{call.op_type} {call.name!r} keeps as much as its data say: the most it could is"
            " counted"
        )
    return _fill(results, most)


def as_tensors(names: list[str], types: Types) -> Results:
    """Results of these types; None for the rest."""
    padded: Types = [*types, *[None] * len(names)]
    return [
        make_tensor(name, *one) if name and one is not None else None
        for name, one in zip(names, padded, strict=False)
    ]


def _fill(results: Results, better: Sequence[Tensor | None]) -> Results:
    """Put known types in for unknown ones."""
    return [
        replace(new, name=now.name, is_weight=False, ident=now.ident)
        if now is not None and not now.is_known and new is not None and new.is_known
        else now
        for now, new in zip(results, better, strict=True)
    ]


# ---------------------------------------------------------------- standard operators


def _by_rule(call: NodeCall) -> Types:
    """Element types and shapes of the results by our own rules; none where there is none."""
    rule = RULES.get((call.domain, call.op_type))
    if rule is None or not call.inputs or not all(t.is_known for t in call.inputs):
        return []
    return rule(call)


def _like(x: Tensor) -> Type:
    return x.elem, x.shape


def _same(call: NodeCall) -> Types:
    return [_like(call.x)]


def _dropout(call: NodeCall) -> Types:
    """Old operator sets leave the mask's shape open."""
    return [_like(call.x), (BOOL if call.version >= 10 else call.x.elem, call.x.shape)]


def _comparison(call: NodeCall) -> Types:
    return [(BOOL, broadcast(call.x.shape, call.operand(1).shape))]


def _range(call: NodeCall) -> Types:
    """onnx takes no operands of shape (1), onnxruntime does."""
    start, limit, delta = (t.first_value for t in call.inputs)
    if start is None or limit is None or delta is None:
        return []
    return [(call.x.elem, (max(ceil((limit - start) / delta), 0),))]


def _quantised_pair(call: NodeCall) -> Types:
    """Each operand comes with its scale and zero point."""
    return [(call.x.elem, broadcast(call.x.shape, call.operand(3).shape))]


def _product(a: Shape, b: Shape) -> Shape:
    if len(a) == 1 or len(b) == 1:
        return (*a[:-1], *b[:-2], *(b[-1:] if len(b) > 1 else ()))
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _matmul(call: NodeCall) -> Types:
    shapes = transposed_shape(call, 0, "A"), transposed_shape(call, 1, "B")
    is_float = call.op_type in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    return [(FP32 if is_float else call.x.elem, _product(*shapes))]


def _qgemm(call: NodeCall) -> Types:
    zero_point = call.get(8)
    elem = zero_point.elem if zero_point is not None else FP32
    return [(elem, _product(transposed_shape(call, 0, "A"), transposed_shape(call, 3, "B")))]


def _n_bits(call: NodeCall) -> Types:
    return [(call.x.elem, (*call.x.shape[:-1], call.int_attr("N", 0)))]


def _skip_norm(call: NodeCall) -> Types:
    groups = (FP32, (*call.x.shape[:-1], 1))
    return [_like(call.x), groups, groups, _like(call.x)]


def _embed_norm(call: NodeCall) -> Types:
    ids, table = call.operand(0), call.operand(2)
    hidden = (*ids.shape, table.shape[-1])
    return [(table.elem, hidden), (INT32, ids.shape[:1]), (table.elem, hidden)]


def _attention(call: NodeCall) -> Types:
    x, widths, heads = call.x, qkv_widths(call), call.int_attr("num_heads", 1)
    is_quantised = call.op_type == "QAttention"
    elem = call.operand(3).elem if is_quantised else x.elem  # the scale's type
    length = packed_past(call.get(8 if is_quantised else 4)) + x.shape[-2]
    present = (2, x.shape[0], heads, length, widths[0] // heads)
    return [(elem, (*x.shape[:-1], widths[2])), (elem, present)]


def _multi_head(call: NodeCall) -> Types:
    s, elem = multi_head_sizes(call), call.x.elem
    present = [(elem, (s.batch, s.heads, s.keys, size)) for size in (s.dim, s.value_dim)]
    scores = (elem, (s.batch, s.heads, s.queries, s.keys))
    return [(elem, (s.batch, s.queries, s.heads * s.value_dim)), *present, scores]


def _group_query(call: NodeCall) -> Types:
    """A cache that past and present share may be longer than the keys in it."""
    s, elem, past = group_query_sizes(call), call.x.elem, call.get(3)
    length = max(s.keys, past.shape[-2] if past is not None else 0)
    present = (elem, (s.batch, call.int_attr("kv_num_heads", 1), length, s.dim))
    scores = (elem, (s.batch, s.heads, s.queries, s.keys))
    return [(elem, (s.batch, s.queries, s.heads * s.dim)), present, present, scores]


def _qlinear_concat(call: NodeCall) -> Types:
    """The result's scale and zero point, then each operand with its own."""
    parts = call.inputs[2::3]
    axis = call.int_attr("axis", 0) % len(parts[0].shape)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(parts[0].elem, tuple(shape))]


def _qlinear_global_pool(call: NodeCall) -> Types:
    return [(call.x.elem, (*call.x.shape[:2], *[1] * len(call.x.shape[2:])))]


_SAME_AS_INPUT = (
    "Gelu FastGelu BiasGelu QuickGelu RotaryEmbedding SimplifiedLayerNormalization QLinearSigmoid"
    " QLinearLeakyRelu QLinearSoftmax"
)
_PRODUCTS = "FusedMatMul MatMulIntegerToFloat DynamicQuantizeMatMul"
RULES: dict[tuple[str, str], Callable[[NodeCall], Types]] = {
    ("", "SimplifiedLayerNormalization"): _same, ("", "GroupNormalization"): _same,
    ("", "MeanVarianceNormalization"): _same, ("", "GreaterOrEqual"): _comparison,
    ("", "LessOrEqual"): _comparison, ("", "Dropout"): _dropout, ("", "Range"): _range,
    **{(MS, name): _same for name in _SAME_AS_INPUT.split()},
    **{(MS, name): _matmul for name in _PRODUCTS.split()},
    (MS, "QLinearAdd"): _quantised_pair, (MS, "QLinearMul"): _quantised_pair,
    (MS, "QGemm"): _qgemm, (MS, "MatMulNBits"): _n_bits,
    (MS, "SkipLayerNormalization"): _skip_norm,
    (MS, "SkipSimplifiedLayerNormalization"): _skip_norm,
    (MS, "EmbedLayerNormalization"): _embed_norm,
    (MS, "Attention"): _attention, (MS, "QAttention"): _attention,
    (MS, "MultiHeadAttention"): _multi_head, (MS, "GroupQueryAttention"): _group_query,
    (MS, "QLinearConcat"): _qlinear_concat,
    (MS, "QLinearGlobalAveragePool"): _qlinear_global_pool,
}  # fmt: skip
FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}  # a standard operator, and an activation
OPERANDS_OF_FORM = {"FusedConv": 3}


# ---------------------------------------------------------------- results whose size data decide


KEEP_SOME = frozenset({"NonZero", "NonMaxSuppression", "Compress", "Unique"})


def find_most_kept(call: NodeCall) -> Types:
    """The results of as many items as there can be."""
    x = call.get(0)
    if call.op_type not in KEEP_SOME or x is None or not x.is_known:
        return []
    axis, shape = call.attr("axis"), list(x.shape)
    whole = x.numel if axis is None else shape[axis]
    if call.op_type == "NonZero":
        return [(INT64, (len(x.shape), whole))]
    if call.op_type == "NonMaxSuppression":
        boxes, limit = x.shape[1], call.get(2)
        if limit is not None and limit.first_value is not None:
            boxes = min(boxes, max(int(limit.first_value), 0))
        return [(INT64, (prod(call.operand(1).shape[:2]) * boxes, 3))]
    kept = min(whole, call.operand(1).numel) if call.op_type == "Compress" else whole
    if axis is not None:
        shape[axis] = kept
    values = (x.elem, tuple(shape) if axis is not None else (kept,))
    return [values, (INT64, (kept,)), (INT64, (whole,)), (INT64, (kept,))]

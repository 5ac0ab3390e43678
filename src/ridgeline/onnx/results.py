"""What a node makes: types and shapes by the first that knows them, and small values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx

from ridgeline.onnx.asking import option_for
from ridgeline.onnx.blocked import AS_STANDARD, NCHWC, blocked, set_channels
from ridgeline.onnx.bounds import largest
from ridgeline.onnx.constants import constant
from ridgeline.onnx.formulas import entry_of
from ridgeline.onnx.infer import from_type, infer, is_small, schema_of, unknown_results
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.onnx.opsets import Opsets
from ridgeline.onnx.row import BROKEN, misfit
from ridgeline.onnx.rules import OPERANDS_OF_STANDARD, STANDARD_FORM, contributed, typed
from ridgeline.onnx.rules_old import old_form
from ridgeline.onnx.rules_rare import rare
from ridgeline.onnx.rules_standard import corrected, standard
from ridgeline.onnx.sequences import sequence_result
from ridgeline.onnx.values import filled, follow

if TYPE_CHECKING:
    from onnx import NodeProto

    from ridgeline.onnx.walk import Walk

Results = list[Tensor | None]


def results_of(
    walk: Walk, call: NodeCall, node: NodeProto, declared: Mapping[str, Tensor]
) -> Results:
    """The node's results; `declared` are types that the file states. They are set in the call."""
    first = node.output[0] if node.output else ""
    if call.op_type == "Constant" and not call.domain:
        results: Results = [constant(node, first)]
        call.set_results(results)
        return results
    found = sequence_result(call, first) if not call.domain else None
    results = [found] if found is not None else _inferred(walk.opsets, call, node)
    if not _all_known(results):
        results = _completed(walk, call, list(node.output), results, declared)
    call.set_results(results)
    if call.domain == NCHWC or any(t.channels is not None for t in call.inputs):
        set_channels(call)
    fill = filled(call)
    for made in call.outputs:
        made.fill = fill
    values = follow(call, node, walk.opsets.imports)
    for result, value in zip(results, values, strict=False):
        if result is not None and value is not None:
            _set_value(result, value)
    if any(t.outside for t in call.inputs):
        _miss_values(call)
    return results


def _miss_values(call: NodeCall) -> None:
    """Sizes may depend on values in external data, and then shapes do: that is why.

    No shape depends on what a first operand has in floating point.
    """
    deciding = [t for n, t in enumerate(call.inputs) if n or not t.is_float]
    name = next((t.outside for t in deciding if t.outside), "")
    for made in call.outputs:
        if made.value is None and is_small(made.dims) and not made.is_float:
            made.outside = name
    if name and all(t.is_known for t in call.inputs) and not _all_known(list(call.results)):
        why = f"the values of {name!r} are in external data, which are never opened"
        call.refused = call.refused or why


def _all_known(results: Results) -> bool:
    return all(t is None or t.is_known for t in results)


def _inferred(opsets: Opsets, call: NodeCall, node: NodeProto) -> Results:
    """By onnx's own inference; what it refuses is not known, and the call says why."""
    try:
        made = _by_onnx(opsets, call, node)
    except MalformedError as error:
        call.refused = str(error)
        return unknown_results(node)
    try:
        ours = corrected(call, made)
    except BROKEN:
        return made
    return _put(made, typed(list(node.output), ours)) if ours else made


def _put(results: Results, others: Results) -> Results:
    """Other types in place of the first ones, known or not."""
    return [new or now for now, new in zip(results, others, strict=True)]


def _by_onnx(opsets: Opsets, call: NodeCall, node: NodeProto) -> Results:
    plain = call.domain and not call.attr("channels_last", 0)
    form, count = (STANDARD_FORM.get(call.op_type) if plain else None), len(node.input)
    if call.domain == NCHWC:
        form = call.op_type if call.op_type in AS_STANDARD else None
        count = AS_STANDARD.get(call.op_type, count)
    if form is None:
        return infer(node, call.version, call.operands, opsets.imports)
    version = opsets.version("")
    schema_node = _as_standard(node, form, version)
    count = OPERANDS_OF_STANDARD.get(call.op_type, count)
    del schema_node.input[count:]
    return infer(schema_node, version, call.operands[:count], opsets.imports)


def _completed(
    walk: Walk,
    call: NodeCall,
    names: list[str],
    results: Results,
    declared: Mapping[str, Tensor],
) -> Results:
    """What onnx leaves open: rules for contributed operators, what the file says, bounds.

    A rule may take what onnx refuses. What the file says may not: it is of other sizes then.
    """
    try:
        found = blocked(call) or standard(call) or contributed(call) or rare(call) or old_form(call)
        own = typed(names, found)
    except BROKEN as error:
        own = []
        if isinstance(error, MalformedError) and entry_of(call.domain, call.op_type) is not None:
            call.refused = call.refused or misfit(error)
    results = _fill(results, own, names)
    if _all_known(results):
        call.refused = ""
    if call.refused or _all_known(results):
        return results
    results = _fill(results, [declared.get(name) for name in names], names)
    asked = walk.bound.given_for(call.name)
    if asked is None and _all_known(results):
        return results
    return _fill(results, _bounded(walk, call, names, asked), names, over=asked is not None)


def _bounded(walk: Walk, call: NodeCall, names: list[str], asked: int | None) -> Results:
    """Where data decide: as much as was asked for, else the most there could be."""
    try:
        most = largest(call, asked) if not call.domain else []
    except BROKEN:
        most = []
    if most and asked is None:
        walk.note(
            f"{call.op_type} {call.name!r} keeps as much as its data say:"
            f" the most it could is counted; {option_for(walk.bound.name_of(call.name))} gives"
            " another number"
        )
    return typed(names, most)


def _fill(
    results: Sequence[Tensor | None],
    better: Sequence[Tensor | None],
    names: list[str],
    *,
    over: bool = False,
) -> list[Tensor | None]:
    """Put known types in for unknown ones."""
    filled: list[Tensor | None] = []
    for place, name in enumerate(names):
        now = results[place] if place < len(results) else None
        new = better[place] if place < len(better) else None
        if name and new is not None and new.is_known and (over or now is None or not now.is_known):
            now = replace(new, name=name, is_weight=False, ident=now.ident if now else new.ident)
        filled.append(now if name else None)
    return filled


def _set_value(result: Tensor, value: Any) -> None:
    result.value = value
    result.dims = tuple(value.shape)
    if not result.elem:
        elem = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        made = from_type(result.name, onnx.helper.make_tensor_type_proto(elem, value.shape), {})
        result.elem, result.dtype = made.elem, made.dtype


def _as_standard(node: NodeProto, op_type: str, version: int) -> NodeProto:
    """The node as the standard operator it extends, with the attributes that one has."""
    schema = schema_of(op_type, version, "")
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain, copy.op_type = "", op_type
    del copy.attribute[:]
    copy.attribute.extend(
        a for a in node.attribute if schema is not None and a.name in schema.attributes
    )
    return copy

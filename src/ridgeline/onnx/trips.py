"""How often a loop runs whose condition is a matter of small numbers: they are worked out.

Exporters write `while i < n: ...; i += 1` as a Loop without a limit. The few nodes of its body that
the condition comes from are walked pass by pass, until it is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx.asking import option_for, shown
from ridgeline.onnx.dims import Bound
from ridgeline.onnx.dtypes import BOOL, INT64, dtype_of
from ridgeline.onnx.infer import from_array
from ridgeline.onnx.inner import walked
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.onnx.scope import Scope

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from ridgeline.onnx.walk import Walk

MOST_STEPS = 1 << 14  # nodes of a file that are walked to find out
MOST_LIMIT = 1 << 40  # passes of a loop without a limit


def missing_passes(loops: Mapping[str, str], bound: Bound) -> RidgelineError:
    """The error that asks for them, all at once; operators by the names of their nodes."""
    named = ", ".join(f"{op_type} {name!r}" for name, op_type in loops.items())
    return RidgelineError(
        f"how often these run is not in the file, or takes too long to find out: {named}",
        hint=f"give {' and '.join(option_for(bound.name_of(name)) for name in loops)}",
    )


def told_passes(walk: Walk, call: NodeCall, told: int, *, is_most: bool = False) -> int:
    """The passes that the file tells of, or the most; another number that was given is an error.

    Inside of functions and other loops it is a note: there the same node may run several times,
    and the given number is for the runs of which the file tells nothing.
    """
    given = walk.bound.given_for(call.name)
    if given is None or given == told:
        return told
    if is_most and given < told:
        return given
    if walk.limits.is_nested:
        walk.note(
            f"where the file has the passes of {call.op_type} {call.name!r}, these are counted,"
            f" not the {given} given"
        )
        return told
    many = f"at most {told}" if is_most else f"{told}"
    raise RidgelineError(
        f"the passes of {call.op_type} {call.name!r} are {many} in the file, not {given}",
        hint=f"leave --dim {shown(walk.bound.name_of(call.name))} out,"
        " or export the model with a dynamic number of passes",
    )


def refuse_passes(walk: Walk, call: NodeCall) -> None:
    """A number of passes for an operator that has none is an error."""
    given = walk.bound.given_for(call.name)
    if given is not None:
        raise RidgelineError(
            f"{call.op_type} {call.name!r} has no passes, so they cannot be {given}",
            hint=f"leave --dim {shown(walk.bound.name_of(call.name))} out",
        )


def with_passes(walk: Walk, call: NodeCall, scope: Scope, path: str) -> NodeCall:
    """A loop that ends by its condition, as one of so many passes where that can be told."""
    is_given = walk.bound.given_for(call.name) is not None
    if (call.domain, call.op_type) != ("", "Loop"):
        return call
    _check_types(call)
    if is_given and walk.limits.is_nested:
        return call
    limit, body = call.get(0), call.attr("body")
    most = _number(limit)
    if (limit is not None and most is None) or not hasattr(body, "node"):
        return call
    if not call.has(1) and most is not None:  # the body's condition is ignored then
        _note_ignored(walk, call, body, scope, path, most)
        return call
    before = walk.steps
    passes = _passes(walk, call, body, scope, path, most)
    if passes is None:
        walk.steps = before if is_given else walk.steps
        return call
    if not call.has(1):
        walk.note(
            f"Loop {call.name!r} has neither a limit nor a condition, so by ONNX it never ends; the"
            f" {passes} passes are counted after which onnxruntime stops by its body's condition"
        )
    known = from_array("", np.asarray(passes, np.int64))
    return replace(call, operands=(known, None, *call.operands[2:]))


def _note_ignored(
    walk: Walk, call: NodeCall, body: GraphProto, scope: Scope, path: str, most: int
) -> None:
    """By ONNX a body's condition means nothing to a loop without one; onnxruntime stops by it."""
    if most < 2 or not body.output:
        return
    steps, walk.steps = walk.steps, walk.looked
    passes = _passes(walk, call, body, scope, path, most)
    walk.looked, walk.steps = walk.steps, steps
    if passes == most:
        return
    stops = "may stop earlier" if passes is None else f"stops after {passes}"
    walk.note(
        f"Loop {call.name!r} has no condition, so all {most} passes are counted; its body has one"
        f" that ONNX ignores, and by which onnxruntime {stops}"
    )


def _check_types(call: NodeCall) -> None:
    """A limit and a condition of other types are no numbers of passes."""
    for place, what, elem in ((0, "limit", INT64), (1, "condition", BOOL)):
        given = call.get(place)
        if given is not None and given.elem not in (elem, 0):
            raise MalformedError(f"its {what} is {given.dtype.name}, not {dtype_of(elem).name}")


def _number(tensor: Tensor | None) -> int | None:
    if tensor is None or tensor.value is None or tensor.value.size != 1:
        return None
    return int(tensor.value.ravel()[0])


def _passes(
    walk: Walk, call: NodeCall, body: GraphProto, scope: Scope, path: str, most: int | None
) -> int | None:
    """Until the condition is false, or the limit is reached; None where data decide."""
    end = MOST_LIMIT if most is None else most
    part = _condition_part(body)
    if part is None or (call.has(1) and _number(call.get(1)) is None):
        return None
    if call.has(1) and not _number(call.get(1)):
        return 0
    states: list[Tensor | None] = list(call.operands[2:])
    done = 0
    while done < end:
        walk.steps += len(part.node)
        if walk.steps > MOST_STEPS:
            return None
        results = _one_pass(walk, part, done, states, scope, path)
        goes_on = _number(results.get(body.output[0].name))
        if goes_on is None:
            return None
        done += 1
        if not goes_on:
            return done
        if not _can_change(part, body):
            return most
        states = [results.get(output.name) for output in body.output[1 : 1 + len(states)]]
    return max(end, 0)


def _one_pass(
    walk: Walk, part: GraphProto, done: int, states: list[Tensor | None], scope: Scope, path: str
) -> dict[str, Tensor]:
    """The values that the part gives, by name; nothing of it is counted."""
    numbers = [from_array("", np.asarray(done, np.int64)), from_array("", np.asarray(True))]
    notes = dict(walk.notes)
    results, _ = walked(walk, part, (*numbers, *states), scope, path)
    walk.notes = notes
    return {output.name: t for output, t in zip(part.output, results, strict=True)}


def _condition_part(body: GraphProto) -> GraphProto | None:
    """The body's nodes that its condition comes from, through the states of other passes."""
    makers = {name: node for node in body.node for name in node.output if name}
    states = {i.name: o.name for i, o in zip(body.input[2:], body.output[1:], strict=False)}
    wanted, seen = [body.output[0].name] if body.output else [], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in states:
            wanted.append(states[name])
        elif name in makers:
            wanted += [operand for operand in makers[name].input if operand]
    nodes = [node for node in body.node if seen.intersection(node.output)]
    if not seen or any(_has_graph(node) for node in nodes):
        return None
    part = onnx.GraphProto(name=body.name)
    part.node.extend(nodes)
    part.input.extend(body.input)
    part.output.extend(o for o in body.output if o.name in seen)
    part.initializer.extend(t for t in body.initializer if t.name in seen)
    return part


def _can_change(part: GraphProto, body: GraphProto) -> bool:
    """Whether the condition has to do with the number of the pass or with a state."""
    changing = {i.name for place, i in enumerate(body.input) if place != 1}
    used = {name for node in part.node for name in node.input} | {body.output[0].name}
    return bool(changing & used)


def _has_graph(node: NodeProto) -> bool:
    return any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)

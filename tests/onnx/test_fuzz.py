"""Mutated models: whatever is in a file, it ends in a count or in our error, and soon.

The models are onnx's own node tests, models of its wheel, and onnxruntime's operators from our
tables. Bytes are changed, or attributes, sizes, element types, operands, results and versions.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from tests.onnx.models import MS, Case, check_formulas, one_node
from tests.onnx.test_nodes_of_onnx import LIGHT, cases, open_dims, values_of

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx

EXAMPLES = int(os.environ.get("RIDGELINE_FUZZ_EXAMPLES", "300"))  # by hand: a million
MOST_S = 20.0  # a busy machine is slow; what has no end takes longer

Seed = tuple[onnx.ModelProto, dict[str, int], dict[str, Any]]


@cache
def seeds() -> list[Seed]:
    """Models with the sizes and values that they need."""
    nodes = [(case.model, open_dims(case), values_of(case)) for case in cases()]
    light: list[Seed] = [(onnx.load(path), {}, {}) for path in sorted(LIGHT.glob("light_s*.onnx"))]
    return [*nodes, *light * 20, *((model, {}, {}) for model in contributed())]


@cache
def contributed() -> list[onnx.ModelProto]:
    """onnxruntime's operators, as our tables of hand-computed numbers have them."""
    from tests.onnx import test_contributed, test_ops

    marks = [
        mark
        for module in (test_contributed, test_ops)
        for value in vars(module).values()
        for mark in getattr(value, "pytestmark", [])
        if mark.name == "parametrize"
    ]
    tabled = [case for mark in marks for case in mark.args[1] if isinstance(case, Case)]
    return [
        one_node(case.op, case.operands, domain=case.domain, outputs=case.outputs,
                 opset=case.opset, **case.attributes)
        for case in tabled if case.domain == MS
    ]  # fmt: skip


WHOLE = st.sampled_from([0, 1, -1, 2, 3, 7, -2, 64, 255, 1 << 20, 1 << 31, -(1 << 31), 1 << 40,
                         (1 << 63) - 1, -(1 << 63)])  # fmt: skip
REAL = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("inf"), float("nan")])
TEXT = st.sampled_from(["", "a", "NOTSET", "SAME_UPPER", "VALID", "linear", "cubic", "tanh", "\0",
                        "bidirectional", "ij,jk->ik", "ab,,c", "i...,...i", "LOGISTIC",
                        "é" * 300])  # fmt: skip
VALUES = st.one_of(
    WHOLE, REAL, TEXT, st.just(b"\xff\xfe"), st.builds(lambda n: [n] * 3000, WHOLE),
    *(st.lists(each, min_size=1, max_size=6) for each in (WHOLE, REAL, TEXT)),
)  # fmt: skip
ELEMENT_TYPES = st.integers(0, 30)
VERSIONS = st.sampled_from([0, 1, 2, 5, 6, 7, 9, 11, 13, 15, 18, 21, 23, 25, 30, 1000, -1, 1 << 31])


def pick(data: st.DataObject, among: Any) -> Any:
    return among[data.draw(st.integers(0, len(among) - 1))]


def change_attribute(node: onnx.NodeProto, data: st.DataObject) -> None:
    """Another value, another type, another length, or none."""
    attribute = pick(data, node.attribute)
    how = data.draw(st.sampled_from(["other", "other", "type", "shorter", "longer", "gone"]))
    if how == "type":
        attribute.type = data.draw(st.integers(0, 14))
    elif how == "shorter" and attribute.ints:
        del attribute.ints[data.draw(st.integers(0, len(attribute.ints))) :]
    elif how == "longer" and attribute.ints:
        attribute.ints.extend(list(attribute.ints) * data.draw(st.sampled_from([1, 2, 70])))
    else:
        name = attribute.name
        node.attribute.remove(attribute)
        if how != "gone":
            node.attribute.append(helper.make_attribute(name, data.draw(VALUES)))


def add_attribute(node: onnx.NodeProto, data: st.DataObject) -> None:
    """One that the operator has, or that another has, once or twice."""
    names = ["axis", "axes", "K", "N", "bits", "num_heads", "kernel_shape", "group", "to", "body"]
    if onnx.defs.has(node.op_type, node.domain):
        names += list(onnx.defs.get_schema(node.op_type, node.domain).attributes) * 3
    name = data.draw(st.sampled_from(names))
    node.attribute.append(helper.make_attribute(name, data.draw(VALUES)))


def change_operands(model: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """One gone or left out; one that is there already, behind the others or instead of one."""
    names = [value.name for value in model.graph.input] + list(node.input)
    how = data.draw(st.sampled_from(["empty", "gone", "other", "more"]))
    if how == "more" and names:
        node.input.extend([pick(data, names)] * data.draw(st.sampled_from([1, 2, 30])))
    elif node.input:
        number = data.draw(st.integers(0, len(node.input) - 1))
        if how == "gone":
            del node.input[number]
        else:
            node.input[number] = pick(data, names) if how == "other" else ""


def change_input(model: onnx.ModelProto, data: st.DataObject) -> None:
    """A size, one more or one fewer dimension, none at all; the type; stored instead."""
    value = pick(data, model.graph.input)
    kind = value.type.tensor_type
    how = data.draw(st.sampled_from(["size", "more", "fewer", "none", "type", "stored"]))
    if how == "none":
        kind.ClearField("shape")
    elif how == "type":
        kind.elem_type = data.draw(ELEMENT_TYPES)
    elif how == "stored":
        dims = data.draw(st.lists(WHOLE, max_size=4))
        kinds = data.draw(ELEMENT_TYPES)
        model.graph.initializer.add(name=value.name, data_type=kinds, dims=dims)
    elif how == "more" or not kind.shape.dim:
        kind.shape.dim.add().dim_value = data.draw(WHOLE)
    elif how == "fewer":
        del kind.shape.dim[data.draw(st.integers(0, len(kind.shape.dim) - 1))]
    else:
        pick(data, kind.shape.dim).dim_value = data.draw(WHOLE)


def change(model: onnx.ModelProto, data: st.DataObject) -> None:
    """One thing that is wrong."""
    node = pick(data, model.graph.node)
    what = data.draw(st.sampled_from(
        ["attribute"] * 4 + ["added", "operands", "input", "version", "operator"]
    ))  # fmt: skip
    if what == "attribute" and node.attribute:
        change_attribute(node, data)
    elif what == "operands":
        change_operands(model, node, data)
    elif what == "input" and model.graph.input:
        change_input(model, data)
    elif what == "version" and model.opset_import:
        pick(data, model.opset_import).version = data.draw(VERSIONS)
    elif what == "operator":
        other = pick(data, seeds())[0].graph.node[0]
        node.op_type, node.domain = other.op_type, other.domain
    else:
        add_attribute(node, data)


def ends_well(content: bytes, mode: str, **settings: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        start_s = perf_counter()
        try:
            result = count_onnx(path, mode=mode, **settings)
        except RidgelineError as error:
            assert error.problem and error.hint
        else:
            for op in result.op_costs:
                cost = op.cost
                numbers = (cost.macs, cost.other_flops, cost.transcendentals, cost.read_bytes,
                           cost.written_bytes)  # fmt: skip
                assert all(type(n) is int and n >= 0 for n in numbers), (op.op, cost)
            check_formulas(result)
            result.to_dict()
            result.layers(depth=1)
        assert perf_counter() - start_s < MOST_S


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_nodes(data: st.DataObject) -> None:
    original, dims, values = pick(data, seeds())
    model = onnx.ModelProto()
    model.CopyFrom(original)
    for _ in range(data.draw(st.integers(1, 3))):
        change(model, data)
    mode = data.draw(st.sampled_from(["infer", "train"]))
    values = values if data.draw(st.booleans()) else {}
    ends_well(model.SerializeToString(), mode, dims=dims, values=values)


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), changes=CHANGES, cut=st.integers(0, 1 << 30))
def test_changed_bytes(data: st.DataObject, changes: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(pick(data, seeds())[0].SerializeToString())
    for number, byte in changes:
        content[number % len(content)] = byte
    if cut % 4 == 0:
        del content[cut % len(content) :]
    ends_well(bytes(content), data.draw(st.sampled_from(["infer", "train"])))

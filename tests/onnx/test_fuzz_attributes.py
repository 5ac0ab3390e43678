"""Real nodes with a few things wrong: each ends in a count or in our error, and soon.

The models are onnx's own node tests, models of its wheel, and onnxruntime's operators from our
tables. What is changed: attributes (value, kind, number, name), sizes, element types, operands,
results, versions.
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
from onnx import AttributeProto, helper
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

    found = []
    for module in (test_contributed, test_ops):
        for value in vars(module).values():
            for mark in getattr(value, "pytestmark", []):
                tabled = mark.args[1] if mark.name == "parametrize" else []
                found += [case for case in tabled if isinstance(case, Case) and case.domain == MS]
    return [
        one_node(case.op, case.operands, domain=case.domain, outputs=case.outputs,
                 opset=case.opset, **case.attributes)
        for case in found
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


def change(model: onnx.ModelProto, data: st.DataObject) -> None:
    """One thing that is wrong."""
    node = pick(data, model.graph.node)
    kind = data.draw(st.sampled_from(list(CHANGES)))
    CHANGES[kind](model, node, data)


def attribute_value(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """Another value, usually of the same kind."""
    if not node.attribute:
        return attribute_added(_, node, data)
    attribute = pick(data, node.attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i = data.draw(WHOLE)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = data.draw(REAL)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = data.draw(TEXT).encode()
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        place = data.draw(st.integers(0, len(attribute.ints) - 1))
        attribute.ints[place] = data.draw(WHOLE)
    else:
        attribute_kind(_, node, data)
    return None


def attribute_kind(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """Another kind under the same name, or only another word for the kind."""
    if not node.attribute:
        return
    place = data.draw(st.integers(0, len(node.attribute) - 1))
    if data.draw(st.booleans()):
        node.attribute[place].type = data.draw(st.integers(0, 14))
        return
    name = node.attribute[place].name
    del node.attribute[place]
    node.attribute.append(helper.make_attribute(name, data.draw(VALUES)))


def attribute_length(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    lists = [a for a in node.attribute if a.ints or a.floats or a.strings]
    if not lists:
        return
    attribute = pick(data, lists)
    values = attribute.ints or attribute.floats or attribute.strings
    if data.draw(st.booleans()):
        del values[data.draw(st.integers(0, len(values))) :]
    else:
        values.extend(list(values) * data.draw(st.sampled_from([1, 2, 70])))


def attribute_gone(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    if node.attribute:
        del node.attribute[data.draw(st.integers(0, len(node.attribute) - 1))]


def attribute_added(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """One that the operator has, or that another has, once or twice."""
    names = ["axis", "axes", "K", "N", "bits", "num_heads", "kernel_shape", "group", "to", "body"]
    if onnx.defs.has(node.op_type, node.domain):
        names += list(onnx.defs.get_schema(node.op_type, node.domain).attributes) * 3
    name = data.draw(st.sampled_from(names))
    node.attribute.append(helper.make_attribute(name, data.draw(VALUES)))


def operand_gone(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    if node.input:
        place = data.draw(st.integers(0, len(node.input) - 1))
        if data.draw(st.booleans()):
            node.input[place] = ""
        else:
            del node.input[place]


def operand_added(model: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """One that is there already, behind the others or in place of one."""
    names = [value.name for value in model.graph.input] + list(node.input)
    if not names:
        return
    name = pick(data, names)
    if node.input and data.draw(st.booleans()):
        node.input[data.draw(st.integers(0, len(node.input) - 1))] = name
    else:
        node.input.extend([name] * data.draw(st.sampled_from([1, 2, 30])))


def results(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    if node.output and data.draw(st.booleans()):
        node.output[data.draw(st.integers(0, len(node.output) - 1))] = ""
    else:
        node.output.append("extra")


def sizes(model: onnx.ModelProto, _: onnx.NodeProto, data: st.DataObject) -> None:
    """The shape of an input: a size, one more or one fewer dimension, none at all."""
    if not model.graph.input:
        return
    kind = pick(data, model.graph.input).type.tensor_type
    how = data.draw(st.sampled_from(["size", "more", "fewer", "none"]))
    if how == "none":
        kind.ClearField("shape")
    elif how == "more" or not kind.shape.dim:
        kind.shape.dim.add().dim_value = data.draw(WHOLE)
    elif how == "fewer":
        del kind.shape.dim[data.draw(st.integers(0, len(kind.shape.dim) - 1))]
    else:
        pick(data, kind.shape.dim).dim_value = data.draw(WHOLE)


def stored(model: onnx.ModelProto, _: onnx.NodeProto, data: st.DataObject) -> None:
    """An input becomes a stored tensor of odd sizes and type, or a stored one changes."""
    if model.graph.initializer and data.draw(st.booleans()):
        tensor = pick(data, model.graph.initializer)
    elif model.graph.input:
        tensor = model.graph.initializer.add(name=pick(data, model.graph.input).name, data_type=1)
    else:
        return
    tensor.data_type = data.draw(ELEMENT_TYPES)
    if data.draw(st.booleans()):
        del tensor.dims[:]
        tensor.dims.extend(data.draw(st.lists(WHOLE, max_size=4)))


def element_type(model: onnx.ModelProto, _: onnx.NodeProto, data: st.DataObject) -> None:
    if model.graph.input:
        kind = pick(data, model.graph.input).type.tensor_type
        kind.elem_type = data.draw(ELEMENT_TYPES)


def version(model: onnx.ModelProto, _: onnx.NodeProto, data: st.DataObject) -> None:
    if model.opset_import and data.draw(st.booleans()):
        pick(data, model.opset_import).version = data.draw(VERSIONS)
    else:
        del model.opset_import[:]


def operator(_: onnx.ModelProto, node: onnx.NodeProto, data: st.DataObject) -> None:
    """Another operator with these operands and attributes."""
    other = pick(data, [model.graph.node[0] for model, _, _ in seeds()])
    node.op_type, node.domain = other.op_type, other.domain


CHANGES = {
    function.__name__: function
    for function in (
        attribute_value, attribute_kind, attribute_length, attribute_gone, attribute_added,
        operand_gone, operand_added, results, sizes, stored, element_type, version, operator,
    )
}  # fmt: skip


def ends_well(model: onnx.ModelProto, mode: str, **given: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        start_s = perf_counter()
        try:
            result = count_onnx(path, mode=mode, **given)
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

    ends_well(model, mode, dims=dims, values=values if data.draw(st.booleans()) else {})

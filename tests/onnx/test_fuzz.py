"""Mutated models: whatever is in a file, it ends in a count or in our error."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from tests.onnx.models import MS, model, x
from tests.onnx.test_nodes_of_onnx import LIGHT

from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx


@cache
def seeds() -> list[bytes]:
    """Real models of the wheel, and small ones with the parts that those lack."""
    real = [(LIGHT / f"light_{name}.onnx").read_bytes() for name in ("squeezenet", "shufflenet")
            if (LIGHT / f"light_{name}.onnx").exists()]  # fmt: skip
    return [*real, *(proto.SerializeToString() for proto in (_mixed(), _looped()))]


def _mixed() -> Any:
    nodes = [
        helper.make_node("Attention", ["a", "w"], ["b"], domain=MS, num_heads=2),
        helper.make_node("LSTM", ["b", "wx", "wh"], ["c", "", ""], hidden_size=4),
        helper.make_node("Einsum", ["c", "c"], ["d"], equation="abcd,abcd->ad"),
        helper.make_node("Resize", ["d", "", "scales"], ["e"]),
        helper.make_node("Shape", ["e"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["y"]),
    ]
    stored = {
        "w": np.zeros((8, 24), np.float32), "wx": np.zeros((1, 16, 8), np.float32),
        "wh": np.zeros((1, 16, 4), np.float32), "scales": np.ones(2, np.float32),
    }  # fmt: skip
    return model(nodes, {"a": x("batch", 3, 8)}, ["y"], stored=stored)


def _looped() -> Any:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Relu", ["h"], ["h2"])],
        "body",
        [helper.make_tensor_value_info("i", 7, ()), helper.make_tensor_value_info("go", 9, ()),
         helper.make_tensor_value_info("h", 1, (2, 3))],
        [helper.make_tensor_value_info("go2", 9, ()), helper.make_tensor_value_info("h2", 1, None)],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", "", "h0"], ["y"], name="steps", body=inner)]
    return model(nodes, {"h0": x(2, 3)}, ["y"], stored={"n": np.asarray(3)})


def ends_well(content: bytes, mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        try:
            result = count_onnx(path, batch_size=2, mode=mode)
        except RidgelineError as error:
            assert error.problem and error.hint
        else:
            assert isinstance(result, CountResult)
            result.to_dict()
            result.layers(depth=1)


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 3), changes=CHANGES, cut=st.integers(0, 1 << 30), train=st.booleans())
def test_changed_bytes(seed: int, changes: list[tuple[int, int]], cut: int, train: bool) -> None:
    content = bytearray(seeds()[seed % len(seeds())])
    for place, byte in changes:
        content[place % len(content)] = byte
    if cut % 4 == 0:
        del content[cut % len(content) :]

    ends_well(bytes(content), "train" if train else "infer")


OPS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_graphs(data: st.DataObject) -> None:
    """Files that parse, with other operators, operands, attributes, shapes and types in them."""
    proto = onnx.ModelProto()
    proto.ParseFromString(seeds()[data.draw(st.integers(0, len(seeds()) - 1))])
    for _ in range(data.draw(st.integers(1, 4))):
        _change(proto.graph, data)

    ends_well(proto.SerializeToString(), data.draw(st.sampled_from(["infer", "train"])))


def _change(graph: onnx.GraphProto, data: st.DataObject) -> None:
    node = graph.node[data.draw(st.integers(0, len(graph.node) - 1))]
    names = [name for other in graph.node for name in (*other.input, *other.output)]
    kind = data.draw(st.sampled_from(["op", "operand", "attribute", "dims", "type", "drop"]))
    if kind == "op":
        node.op_type = data.draw(st.sampled_from(OPS))
        node.domain = data.draw(st.sampled_from(["", MS, "ai.onnx.ml"]))
    elif kind == "operand":
        node.input.append(data.draw(st.sampled_from(names)))
    elif kind == "attribute" and node.attribute:
        attribute = node.attribute[data.draw(st.integers(0, len(node.attribute) - 1))]
        attribute.i = data.draw(st.integers(-(2**62), 2**62))
        if attribute.ints:
            attribute.ints[0] = data.draw(st.integers(-(2**40), 2**40))
    elif kind == "dims" and graph.initializer:
        tensor = graph.initializer[data.draw(st.integers(0, len(graph.initializer) - 1))]
        tensor.dims.append(data.draw(st.integers(0, 2**40)))
    elif kind == "type" and graph.initializer:
        tensor = graph.initializer[data.draw(st.integers(0, len(graph.initializer) - 1))]
        tensor.data_type = data.draw(st.integers(0, 28))
    elif kind == "drop" and node.input:
        del node.input[data.draw(st.integers(0, len(node.input) - 1))]

"""Files that are large, broken or hostile: weights are never read, and there is one clear error."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import model, one_node, x

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx, graph, load
from ridgeline.onnx.load import read_skeleton

MIB = 1 << 20


def field(number: int, body: bytes) -> bytes:
    """A field of bytes in protobuf's wire format."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def external(location: str, dims: tuple[int, ...] = (4, 3)) -> onnx.ModelProto:
    proto = model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": x(2, 4)}, ["y"])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    proto.graph.initializer.append(tensor)
    return proto


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_need_not_be_there(tmp_path: Path) -> None:
    result = count_onnx(saved(external("weights.bin"), tmp_path))
    assert (result.total.macs, result.params, result.memory.parameter_bytes) == (24, 12, 48)
    # nor fit on any disk
    proto = external("weights.bin", (160_000, 160_000))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 160_000
    result = count_onnx(saved(proto, tmp_path))
    assert (result.params, result.total.macs) == (160_000**2, 2 * 160_000**2)


def test_a_file_above_2_gib_is_stepped_through(tmp_path: Path) -> None:
    # GIVEN a file with 3 GiB of weights inside, most of it a hole on the disk
    size = 3 << 30
    tensor = b"\x08" + varint(size // 4) + b"\x10\x01" + b"\x42\x01w"  # dims, float, name "w"
    raw = varint(9 << 3 | 2) + varint(size)
    head = varint(5 << 3 | 2) + varint(len(tensor) + len(raw) + size) + tensor + raw
    proto = model([helper.make_node("Mul", ["a", "w"], ["y"])], {"a": x(1)}, ["y"])
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        file.write(varint(7 << 3 | 2) + varint(len(graph) + len(head) + size) + graph + head)
        file.truncate(file.tell() + size)
    # WHEN it is counted
    start_s = perf_counter()
    tracemalloc.start()
    result = count_onnx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # THEN nothing of the weights was read
    assert result.params == size // 4
    assert peak < 50 * MIB and perf_counter() - start_s < 10


def test_weights_are_left_out_of_the_skeleton(tmp_path: Path) -> None:
    weights = np.zeros((1000, 1000), np.float32)
    node = helper.make_node("MatMul", ["a", "w"], ["y"])
    path = saved(model([node], {"a": x(2, 1000)}, ["y"], stored={"w": weights}), tmp_path)
    assert len(read_skeleton(path)) < 200 < path.stat().st_size
    assert count_onnx(path).total.macs == 2 * 10**6


WHOLE = one_node("Conv", [x(1, 2, 5, 5), x(3, 2, 3, 3)]).SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not onnx at all, only words",
        b"\x80\x04\x95 pickle",
        b"PK\x03\x04" + bytes(100),
        b"\xff" * 50,
        bytes(1000),
        field(7, b""),
        WHOLE[:-5],
        WHOLE[: len(WHOLE) // 2],
    ],
    ids=["empty", "text", "pickle", "zip", "ones", "zeros", "no graph", "cut", "half"],
)
def test_files_that_are_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(RidgelineError) as raised:
        count_onnx(path)
    assert "is not a readable ONNX model" in raised.value.problem and raised.value.hint


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="there is no file"):
        count_onnx(tmp_path / "none.onnx")
    with pytest.raises(RidgelineError, match="is not a file"):
        count_onnx(tmp_path)


def test_graphs_in_graphs_without_end(tmp_path: Path) -> None:
    body = b""
    for _ in range(2000):  # graph { node { attribute { g
        body = field(1, field(5, field(6, body)))
    path = tmp_path / "model.onnx"
    path.write_bytes(field(7, body))
    with pytest.raises(RidgelineError, match="nested more than 90 deep"):
        count_onnx(path)


@pytest.mark.parametrize("last", ["b", "a"], ids=["a cycle", "out of order"])
def test_nodes_that_use_what_is_not_made(last: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["c"], ["b"], name="first"),
        helper.make_node("Relu", [last], ["c"], name="second"),
    ]
    with pytest.raises(RidgelineError, match="node 'first' uses 'c' before it is made"):
        count_onnx(saved(model(nodes, {"a": x(6)}, ["c"]), tmp_path))


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    function = helper.make_function(
        "own", "f", ["a"], ["b"], [helper.make_node("f", ["a"], ["b"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )  # fmt: skip
    node = helper.make_node("f", ["a"], ["b"], domain="own")
    with pytest.raises(RidgelineError, match="nested more than 40 deep"):
        count_onnx(saved(model([node], {"a": x(1)}, ["b"], functions=[function]), tmp_path))


WITHOUT_ONNX = """
import sys
sys.modules["onnx"] = None
import ridgeline.pipeline.count_models  # what `ridgeline count MODEL` imports needs no onnx
from ridgeline.cli import main
main(["count", "model.onnx"])
"""


def test_without_onnx_models_still_count_and_files_say_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ONNX], capture_output=True, text=True)
    assert done.returncode == 2
    assert "onnx cannot be imported" in done.stderr
    assert "hint: pip install 'ridgeline[onnx]'" in done.stderr
    assert "torch" not in done.stderr and "internal error" not in done.stderr


def test_impossible_dimensions(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["w"], ["y"])], {}, ["y"])
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[-5, 3]))
    with pytest.raises(RidgelineError, match="impossible dimensions"):
        count_onnx(saved(proto, tmp_path))


# ---------------------------------------------------------------- hostile

MOST_S = 30  # a few seconds, but not beside other tests
NODE = field(1, field(1, b"a") + field(2, b"y") + field(4, b"Relu"))


def stored(dims: bytes) -> bytes:
    """An initializer `w` of int64."""
    return field(5, dims + b"\x10\x07" + field(8, b"w"))


def open_input(name: bytes, rank: int) -> bytes:
    shape = field(2, field(1, b"") * rank)
    return field(11, field(1, name) + field(2, field(1, b"\x08\x01" + shape)))


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "dimensions of many tensors": (
        lambda: NODE + stored(dims=field(1, b"\x01" * 60_000)) * 4000,
        "its graph alone is larger than 128 MiB"),
    "an input of many dimensions": (
        lambda: NODE + open_input(b"x", 1900), "too many or too large dimensions"),
    "inputs of many dimensions": (
        lambda: NODE + b"".join(open_input(b"x%d" % n, 60) for n in range(20_000)),
        "too many or too large dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_the_file(name: str, tmp_path: Path) -> None:
    make, says = BOMBS[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(field(7, make()))
    start_s = perf_counter()
    with pytest.raises(RidgelineError, match=says):
        count_onnx(path)
    assert perf_counter() - start_s < MOST_S


def test_text_that_nothing_needs_is_left_out(tmp_path: Path) -> None:
    # given a node with 50 MiB of text, as compiled models are kept in, beside a plain one
    made = one_node("Relu", [x(2, 3)])
    made.graph.node.append(
        helper.make_node("Engine", ["in0"], ["z"], domain="own", blob=b"a" * (50 * MIB))
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    assert len(load.read_skeleton(path)) < 1000
    result = count_onnx(path)
    assert (result.total.other_flops, list(result.unknown)) == (6, ["own::Engine"])


# ---------------------------------------------------------------- small files that multiply


RELU = helper.make_node("Relu", ["a"], ["b"])


def test_calls_that_double_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 21)]
    functions = [helper.make_function("own", "f30", ["a"], ["b"], [RELU], opsets)]
    for n in range(30):
        inner = [helper.make_node(f"f{n + 1}", ["a"], ["c"], domain="own"),
                 helper.make_node(f"f{n + 1}", ["c"], ["b"], domain="own")]  # fmt: skip
        functions.append(helper.make_function("own", f"f{n}", ["a"], ["b"], inner, opsets))
    node = helper.make_node("f0", ["a"], ["b"], domain="own")
    path = tmp_path / "model.onnx"
    made = model([node], {"a": x(1)}, ["b"], functions=functions)
    path.write_bytes(made.SerializeToString())
    monkeypatch.setattr(graph, "MOST_CALLS", 1000)  # so that the test is quick
    with pytest.raises(RidgelineError, match="functions and loops make more than 1,000 nodes"):
        count_onnx(path)

"""What a file says of its results' shapes: it fills in what is unknown, and mends nothing."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper
from tests.onnx.models import count, int64, model, x

Sizes = tuple[int | str, ...]


def test_what_is_not_known_is_filled_in(tmp_path: Path) -> None:
    # given a shape that is data, of a result that the file calls (s, 4)
    nodes = [helper.make_node("Reshape", ["a", "shape"], ["y"]),
             helper.make_node("Relu", ["y"], ["z"])]  # fmt: skip
    proto = model(nodes, {"a": x(4, "s"), "shape": int64(2)}, ["z"])
    stated = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("s", 4))
    proto.graph.value_info.append(stated)
    result = count(proto, tmp_path, dims={"s": 3})
    assert (result.total.flops, result.notes, result.coverage) == (12, (), 1)

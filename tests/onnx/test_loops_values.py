"""For tests/onnx/test_trips.py, once loops.py keeps values that shapes depend on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from tests.onnx.models import count, model, x


def test_shapes_in_the_body_may_depend_on_a_counter(tmp_path: Path) -> None:
    # given `while i < 3: s.append(exp(a[at[i]:at[i + 1]])); i += 1`, rows 0:1, 1:3 and 3:6
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["i", "one"], ["i_out"]),
         helper.make_node("Add", ["i_out", "one"], ["after"]),
         helper.make_node("Slice", ["at", "i", "i_out"], ["first"]),
         helper.make_node("Slice", ["at", "i_out", "after"], ["last"]),
         helper.make_node("Slice", ["a", "first", "last"], ["rows"]),
         helper.make_node("Exp", ["rows"], ["e"], name="exp"),
         helper.make_node("ReduceSum", ["e", "zero"], ["s"], name="sum"),
         helper.make_node("Less", ["i_out", "end"], ["less"]),
         helper.make_node("Squeeze", ["less"], ["on"])],
        "body",
        [info("n", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()),
         info("i", TensorProto.INT64, (1,))],
        [info("on", TensorProto.BOOL, ()), info("i_out", TensorProto.INT64, (1,)),
         info("s", TensorProto.FLOAT, (1, 4))],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["", "true", "zero"], ["i_end", "y"], name="bags", body=body)
    stored = {"true": np.asarray(True), "zero": np.asarray([0]), "one": np.asarray([1]),
              "end": np.asarray([3]), "at": np.asarray([0, 1, 3, 6])}  # fmt: skip

    # when it is counted
    result = count(model([loop], {"a": x(6, 4)}, ["y"], stored=stored), tmp_path)

    # then each pass has its own rows
    exps = [op.cost.transcendentals for op in result.op_costs if op.path == "bags.exp"]
    assert exps == [1 * 4, 2 * 4, 3 * 4]
    assert (result.coverage, result.notes) == (1.0, ())

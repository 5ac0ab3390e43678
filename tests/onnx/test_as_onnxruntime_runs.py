"""What onnxruntime runs, and writes, beyond the letter of ONNX: versions, domains, passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import count, int64, model, one_node, typed, value_info, x

BOOL = TensorProto.BOOL
W = {"w": np.zeros((8, 8), np.float32)}
node = helper.make_node


@pytest.mark.parametrize("opset", [1, 9, 13, 16, 17])
def test_a_layer_norm_in_any_opset(opset: int, tmp_path: Path) -> None:
    # given a fused norm of 6 rows of 8, before a product with an 8 × 8 weight
    nodes = [node("LayerNormalization", ["a", "s", "b"], ["n", "mean", "std"]),
             node("MatMul", ["n", "w"], ["y"])]  # fmt: skip
    stored = {**W, "s": np.zeros(8, np.float32), "b": np.zeros(8, np.float32)}

    result = count(model(nodes, {"a": x(2, 3, 8)}, ["y"], stored=stored, opset=opset), tmp_path)

    # then 8 FLOPs an element: statistics 4, x − mean and its scale 2, weight and bias 2
    total = result.total
    assert (total.macs, total.other_flops, total.transcendentals) == (6 * 64, 48 * 8, 6)
    assert (result.coverage, result.notes) == (1, ())


@pytest.mark.parametrize("opset", [9, 16])
def test_an_axis_that_onnx_does_not_survive_in_any_opset(opset: int, tmp_path: Path) -> None:
    made = one_node("LayerNormalization", [x(3, 4), x(4)], opset=opset, axis=2**63 - 1)

    assert "its axis is none of its operand's" in count(made, tmp_path).notes[0]


@pytest.mark.parametrize("opset", [1, 7, 9])
def test_a_thresholded_relu_in_any_opset(opset: int, tmp_path: Path) -> None:
    nodes = [node("ThresholdedRelu", ["a"], ["b"]), node("MatMul", ["b", "w"], ["y"])]

    result = count(model(nodes, {"a": x(3, 8)}, ["y"], stored=W, opset=opset), tmp_path)

    assert (result.total.macs, result.coverage) == (3 * 64, 1)


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_the_standard_domain_by_its_longer_name(imported: str, tmp_path: Path) -> None:
    # given x·w, then x·w in a branch, then a Slice whose bounds come from a shape
    inner = helper.make_graph([node("MatMul", ["t", "w"], ["u"], domain="ai.onnx")], "then", [],
                              [value_info("u", x(4, 8))])  # fmt: skip
    nodes = [
        node("MatMul", ["a", "w"], ["t"]),
        node("If", ["true"], ["v"], then_branch=inner, else_branch=inner),
        node("Shape", ["v"], ["end"]),
        node("Slice", ["v", "start", "end"], ["y"]),
    ]
    for one in nodes:
        one.domain = "ai.onnx"
    stored = {**W, "true": np.asarray(True), "start": np.asarray([1, 1])}
    made = model(nodes, {"a": x(4, 8)}, ["y"], stored=stored)
    del made.opset_import[:]
    made.opset_import.append(helper.make_opsetid(imported, 21))

    result = count(made, tmp_path)

    assert (result.total.macs, result.coverage, result.notes) == (2 * 4 * 64, 1, ())
    assert result.modules[""].output_shapes == ((3, 7),)


@pytest.mark.parametrize("domains", [("ai.onnx", ""), ("", "ai.onnx"), ("ai.onnx", "ai.onnx")])
def test_a_function_in_the_standard_domain(domains: tuple[str, str], tmp_path: Path) -> None:
    inner = [node("MatMul", ["p", "q"], ["r"], domain="ai.onnx")]
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function(domains[0], "f", ["p", "q"], ["r"], inner, opsets)
    calls = [node("f", ["a", "w"], ["y"], domain=domains[1])]

    result = count(model(calls, {"a": x(4, 8)}, ["y"], stored=W, functions=[function]), tmp_path)

    assert (result.total.macs, result.coverage) == (4 * 64, 1)


def batched_scan(lengths: list[int] | None) -> Any:
    """Scan of opset 8: 3 sequences of at most 5 steps, 4·8·8 MACs a step; lengths or data."""
    body = helper.make_graph(
        [node("Add", ["h", "e"], ["t"]), node("MatMul", ["t", "w"], ["h_out"]),
         node("Relu", ["h_out"], ["o"])],
        "body",
        [value_info("h", x(4, 8)), value_info("e", x(4, 8))],
        [value_info("h_out", x(4, 8)), value_info("o", x(4, 8))],
    )  # fmt: skip
    scan = node("Scan", ["lengths", "h0", "es"], ["h_end", "os"], name="scan", body=body,
                num_scan_inputs=1)  # fmt: skip
    inputs = {"h0": x(3, 4, 8), "es": x(3, 5, 4, 8)}
    stored: dict[str, Any] = dict(W)
    if lengths is None:
        inputs["lengths"] = int64(3)
    else:
        stored["lengths"] = np.asarray(lengths, np.int64)
    return model([scan], inputs, ["h_end", "os"], stored=stored, opset=8)


def loop(limit: str, condition: list[Any]) -> Any:
    """`h = h·w`, stacking the first row of h in every pass."""
    body = helper.make_graph(
        [node("MatMul", ["h", "w"], ["h_out"]), node("Gather", ["h", "zero"], ["row"]),
         *condition],
        "body",
        [value_info("n", int64()), value_info("go", typed(BOOL)), value_info("h", x(4, 8))],
        [value_info("on", typed(BOOL)), value_info("h_out", x(4, 8)), value_info("row", x(8))],
    )  # fmt: skip
    nodes = [node("Loop", [limit, "", "a"], ["h_end", "rows"], name="it", body=body),
             node("MatMul", ["rows", "w"], ["y"])]  # fmt: skip
    stored = {**W, "none": np.asarray(0), "zero": np.asarray(0), "three": np.asarray(3)}
    return model(nodes, {"a": x(4, 8)}, ["h_end", "rows", "y"], stored=stored)


def test_a_loop_that_is_not_run_stacks_nothing(tmp_path: Path) -> None:
    result = count(loop("none", [node("Identity", ["go"], ["on"])]), tmp_path)

    assert result.modules[""].output_shapes == ((4, 8), (0, 8), (0, 8))
    assert [op.path for op in result.op_costs] == ["MatMul_1"]
    assert (result.total.macs, result.coverage, result.notes) == (0, 1, ())

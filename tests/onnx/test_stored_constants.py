"""Where a weight is stored, as an initializer or in a Constant, changes nothing of the count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.models import MS, Operand, count, model, value_info, weight, x

from ridgeline.count.result import CountResult

F = 4  # bytes of a float32
W = np.ones((4, 4), np.float32)
PRODUCT = helper.make_node("MatMul", ["a", "w"], ["y"])


def constant(name: str, array: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def in_initializer() -> onnx.ModelProto:
    return model([PRODUCT], {"a": x(2, 4)}, ["y"], stored={"w": W})


def in_constant() -> onnx.ModelProto:
    return model([constant("w", W), PRODUCT], {"a": x(2, 4)}, ["y"])


def in_floats() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["flat"], value_floats=W.ravel().tolist()),
        constant("shape", np.asarray([4, 4])),
        helper.make_node("Reshape", ["flat", "shape"], ["w"]),
        PRODUCT,
    ]
    return model(nodes, {"a": x(2, 4)}, ["y"])


def in_sparse_constant() -> onnx.ModelProto:
    values, places = np.ones(3, np.float32), np.asarray([0, 5, 9])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values), numpy_helper.from_array(places), [4, 4]
    )
    node = helper.make_node("Constant", [], ["w"], sparse_value=sparse)
    return model([node, PRODUCT], {"a": x(2, 4)}, ["y"])


def function(attributes: list[str] | None = None) -> Any:
    """a·w, with w inside, or in an attribute of the call."""
    inner = constant("w", W)
    if attributes:
        del inner.attribute[:]
        given = inner.attribute.add()
        given.name, given.ref_attr_name = "value", attributes[0]
        given.type = onnx.AttributeProto.TENSOR
    return helper.make_function(
        "own", "Linear", ["a"], ["y"], [inner, PRODUCT], [helper.make_opsetid("", 21)], attributes
    )


def in_function() -> onnx.ModelProto:
    node = helper.make_node("Linear", ["a"], ["y"], domain="own")
    return model([node], {"a": x(2, 4)}, ["y"], functions=[function()])


def in_attribute_of_a_call() -> onnx.ModelProto:
    given = numpy_helper.from_array(W)
    node = helper.make_node("Linear", ["a"], ["y"], domain="own", given=given)
    return model([node], {"a": x(2, 4)}, ["y"], functions=[function(["given"])])


def in_branch() -> onnx.ModelProto:
    results = [value_info("y", x(2, 4))], [value_info("z", x(2, 4))]
    product = helper.make_graph([constant("w", W), PRODUCT], "product", [], results[0])
    other = helper.make_graph([helper.make_node("Relu", ["a"], ["z"])], "other", [], results[1])
    node = helper.make_node("If", ["c"], ["out"], then_branch=product, else_branch=other)
    return model([node], {"a": x(2, 4), "c": Operand((), TensorProto.BOOL)}, ["out"])


PLACES = [in_constant, in_function, in_attribute_of_a_call, in_branch, in_sparse_constant]


@pytest.mark.parametrize("made", [in_initializer, *PLACES])
def test_a_weight_is_one_wherever_it_is_stored(
    made: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    infer = count(made(), tmp_path)
    train = count(made(), tmp_path, mode="train")

    # (2, 4)·(4, 4), and the weight's gradient; the condition of the If is never read
    assert (infer.params, infer.total.macs, train.total.macs) == (16, 32, 32 + 32)
    assert train.phase("weight-grad").written_bytes == 16 * F
    assert train.phase("optimizer").flops == 2 * 16
    assert (infer.memory.parameter_bytes, infer.memory.buffer_bytes) == (16 * F, 0)
    assert (infer.fused.read_bytes, infer.fused.written_bytes) == ((8 + 16) * F, 8 * F)
    assert infer.memory.peak_bytes - infer.memory.input_bytes == (16 + 8) * F
    assert (train.memory.gradient_bytes, train.memory.activation_bytes) == (16 * F, 8 * F)


def test_a_list_of_floats_is_stored_too(tmp_path: Path) -> None:
    result = count(in_floats(), tmp_path, mode="train")

    assert (result.params, result.phase("weight-grad").macs) == (16, 32)
    assert (result.memory.parameter_bytes, result.memory.buffer_bytes) == (16 * F, 2 * 8)


def test_calls_of_a_function_share_its_weight(tmp_path: Path) -> None:
    # given two calls one after the other
    nodes = [
        helper.make_node("Linear", ["a"], ["b"], domain="own"),
        helper.make_node("Linear", ["b"], ["c"], domain="own"),
    ]
    made = model(nodes, {"a": x(2, 4)}, ["c"], functions=[function()])

    result = count(made, tmp_path, mode="train")

    # then it is stored once and read twice, and its two gradients are added
    assert (result.params, result.memory.parameter_bytes) == (16, 16 * F)
    assert result.phase("forward").read_bytes == 2 * (8 + 16) * F
    assert (result.phase("weight-grad").macs, result.phase("input-grad").macs) == (2 * 32, 32)
    assert result.phase("weight-grad").flops == 2 * 2 * 32 + 16


@pytest.mark.parametrize("is_constant", [False, True], ids=["initializer", "constant"])
def test_passes_of_a_loop_share_its_weight(is_constant: bool, tmp_path: Path) -> None:
    # given three passes of a·w on 2, 3 and 4 rows: each adds its first row to the end
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Slice", ["m", "zero", "one", "zero"], ["row"]),
        helper.make_node("Concat", ["m", "row"], ["next"], axis=0),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    flag, rows = Operand((), TensorProto.BOOL), x("rows", 4)
    body = helper.make_graph(
        [*([constant("w", W)] if is_constant else []), *nodes],
        "body",
        [
            value_info("i", Operand((), TensorProto.INT64)),
            value_info("go", flag),
            value_info("h", rows),
        ],
        [value_info("on", flag), value_info("next", rows)],
        [] if is_constant else [numpy_helper.from_array(W, "w")],
    )
    stored = {"three": np.asarray(3), "zero": np.asarray([0]), "one": np.asarray([1])}
    loop = helper.make_node("Loop", ["three", "", "a"], ["y"], body=body)

    result = count(model([loop], {"a": x(2, 4)}, ["y"], stored=stored), tmp_path)

    assert (result.params, result.total.macs) == (16, (2 + 3 + 4) * 16)


def test_a_large_constant_has_its_shape(tmp_path: Path) -> None:
    # given 128 KiB, which are not read
    nodes = [constant("w", weight(128, 256)), PRODUCT]

    result = count(model(nodes, {"a": x(2, 128)}, ["y"]), tmp_path)

    assert (result.params, result.total.macs) == (128 * 256, 2 * 128 * 256)
    assert result.fused.read_bytes == (2 * 128 + 128 * 256) * F


def test_packed_weights_in_constants(tmp_path: Path) -> None:
    # given 8·64 weights of 4 bits, and a scale for each block of 32
    nodes = [
        constant("w", np.zeros((8, 2, 16), np.uint8)),
        constant("s", np.ones((8, 2), np.float32)),
        helper.make_node(
            "MatMulNBits", ["a", "w", "s"], ["y"], domain=MS, N=8, K=64, block_size=32, bits=4
        ),
    ]
    result = count(model(nodes, {"a": x(2, 64)}, ["y"]), tmp_path)

    assert (result.params, result.memory.parameter_bytes) == (8 * 64, 8 * 32)
    assert result.memory.buffer_bytes == 16 * F


def resized(is_constant: bool) -> onnx.ModelProto:
    """The image's sides times [1.5, 1.5], as a float, give the size of the result."""
    arrays = {
        "sides": np.asarray([2, 3]), "factor": np.asarray([1.5, 1.5], np.float32),
        "front": np.asarray([1, 3]), "half": np.asarray(0.5, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["a"], ["shape"]),
        helper.make_node("Gather", ["shape", "sides"], ["hw"]),
        helper.make_node("Cast", ["hw"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "factor"], ["larger"]),
        helper.make_node("Cast", ["larger"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Concat", ["front", "whole"], ["sizes"], axis=0),
        helper.make_node("Resize", ["a", "", "", "sizes"], ["big"]),
        helper.make_node("Mul", ["big", "half"], ["y"], name="last"),
    ]
    if is_constant:
        nodes = [*(constant(name, array) for name, array in arrays.items()), *nodes]
    return model(nodes, {"a": x(1, 3, 4, 4)}, ["y"], stored={} if is_constant else arrays)


def totals(result: CountResult) -> tuple[object, ...]:
    return result.total, result.params, result.memory, result.fused


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_numbers_of_shapes_and_scalars_are_no_parameters(mode: str, tmp_path: Path) -> None:
    one, other = (count(resized(is_constant), tmp_path, mode=mode) for is_constant in (False, True))

    assert one.params == other.params == 0
    assert one.modules[""].output_shapes == ((1, 3, 6, 6),)
    assert totals(one) == totals(other)

"""Loops that end by their condition: how often they run is worked out where numbers tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.models import count, int64, model, x

from ridgeline.errors import RidgelineError

W = np.zeros((3, 3), np.float32)


def while_loop(limit: str = "", start: str = "start", end: str = "end") -> onnx.NodeProto:
    """`while i < end: h = h·w; i += step`."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["h_out"]),
         helper.make_node("Add", ["i", "step"], ["i_out"]),
         helper.make_node("Less", ["i_out", end], ["on"])],
        "body",
        [info("n", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()),
         info("h", TensorProto.FLOAT, (2, 3)), info("i", TensorProto.INT64, ())],
        [info("on", TensorProto.BOOL, ()), info("h_out", TensorProto.FLOAT, (2, 3)),
         info("i_out", TensorProto.INT64, ())],
    )  # fmt: skip
    return helper.make_node("Loop", [limit, "true", "a", start], ["y", "i_end"], name="steps",
                            body=body)  # fmt: skip


def numbers(**more: int) -> dict[str, Any]:
    return {"w": W, "true": np.asarray(True)} | {k: np.asarray(v) for k, v in more.items()}


@pytest.mark.parametrize(
    ("start", "end", "step", "passes"), [(0, 10, 1, 10), (0, 10, 3, 4), (7, 3, 1, 1), (-5, 2, 2, 4)]
)
def test_a_loop_over_constants(
    start: int, end: int, step: int, passes: int, tmp_path: Path
) -> None:
    proto = model([while_loop()], {"a": x(2, 3)}, ["y"],
                  stored=numbers(start=start, end=end, step=step))  # fmt: skip

    result = count(proto, tmp_path)

    assert (result.total.macs, result.notes) == (passes * 2 * 9, ())


def test_the_limit_goes_before_the_condition(tmp_path: Path) -> None:
    stored = numbers(start=0, end=10, step=1, most=6)
    proto = model([while_loop("most")], {"a": x(2, 3)}, ["y"], stored=stored)

    assert count(proto, tmp_path).total.macs == 6 * 2 * 9


def test_a_loop_over_a_dimension(tmp_path: Path) -> None:
    # given `while i < b.shape[0]`
    nodes = [helper.make_node("Shape", ["b"], ["shape"]),
             helper.make_node("Squeeze", ["shape"], ["rows"]), while_loop(end="rows")]  # fmt: skip
    proto = model(nodes, {"a": x(2, 3), "b": x("rows_b")}, ["y"], stored=numbers(start=0, step=1))

    result = count(proto, tmp_path, dims={"rows_b": 5})

    assert result.total.macs == 5 * 2 * 9


def test_what_data_decide_is_asked_for(tmp_path: Path) -> None:
    proto = model([while_loop()], {"a": x(2, 3), "end": int64()}, ["y"],
                  stored=numbers(start=0, step=1))  # fmt: skip

    with pytest.raises(RidgelineError) as raised:
        count(proto, tmp_path)

    assert str(raised.value) == (
        "how often these run is not in the file, or takes too long to find out: Loop 'steps'"
        "\n  hint: give --dim steps=N"
    )
    assert count(proto, tmp_path, dims={"end": 7}).total.macs == 7 * 2 * 9
    assert count(proto, tmp_path, dims={"steps": 4}).total.macs == 4 * 2 * 9


def test_a_loop_without_end_is_asked_for(tmp_path: Path) -> None:
    proto = model([while_loop()], {"a": x(2, 3)}, ["y"], stored=numbers(start=0, end=9, step=0))

    with pytest.raises(RidgelineError, match="Loop 'steps'"):
        count(proto, tmp_path)


def steady_loop(most: Any, condition: str = "") -> onnx.ModelProto:
    """`for _ in range(most): h = h·w`."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["h_out"]),
         helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [info("n", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()),
         info("h", TensorProto.FLOAT, (2, 3))],
        [info("on", TensorProto.BOOL, ()), info("h_out", TensorProto.FLOAT, (2, 3))],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["most", condition, "a"], ["y"], name="steps", body=body)
    return model([loop], {"a": x(2, 3)}, ["y"], stored=numbers() | {"most": np.asarray(most)})


@pytest.mark.parametrize("condition", ["", "true"])
@pytest.mark.parametrize("passes", [2**32, 2**40, 2**62, 2**63 - 1])
def test_passes_are_multiplied_exactly(passes: int, condition: str, tmp_path: Path) -> None:
    proto = steady_loop(passes, condition)

    result = count(proto, tmp_path)

    assert (result.total.macs, result.notes) == (passes * 2 * 9, ())
    assert refusal(proto, tmp_path, steps=10).startswith(
        f"the passes of Loop 'steps' are {passes} in the file, not 10\n"
    )


def loop_without_condition(most: int, *condition: Any) -> onnx.ModelProto:
    """`for n in range(most): h = h·w`, whose body has a condition `on` that ONNX ignores."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["h_out"]), *condition],
        "body",
        [info("n", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()),
         info("h", TensorProto.FLOAT, (2, 3))],
        [info("on", TensorProto.BOOL, ()), info("h_out", TensorProto.FLOAT, (2, 3))],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["most", "", "a"], ["y"], name="steps", body=body)
    stored = numbers(most=most, two=2) | {"zero": np.float32(0)}
    return model([loop], {"a": x(2, 3)}, ["y"], stored=stored)


IGNORED = (
    "Loop 'steps' has no condition, so all {most} passes are counted; its body has one that ONNX"
    " ignores, and by which onnxruntime "
)
BY_PASS = [helper.make_node("Less", ["n", "two"], ["on"])]
BY_SUM = [helper.make_node("ReduceSum", ["h_out"], ["sum"], keepdims=0),
          helper.make_node("Greater", ["sum", "zero"], ["on"])]  # fmt: skip


@pytest.mark.parametrize(
    ("most", "condition", "notes"),
    [
        (50, BY_PASS, (IGNORED.format(most=50) + "stops after 3",)),
        (50, BY_SUM, (IGNORED.format(most=50) + "may stop earlier",)),
        (3, BY_PASS, ()),
        (1, BY_SUM, ()),
        (50, [helper.make_node("Identity", ["go"], ["on"])], ()),
        (50, [helper.make_node("Identity", ["true"], ["on"])], ()),
        (10**6, [helper.make_node("Less", ["n", "most"], ["on"])],
         (IGNORED.format(most=10**6) + "may stop earlier",)),
    ],
    ids=["after 3", "by data", "at its end", "once", "its own", "true", "too long to tell"],
)  # fmt: skip
def test_a_condition_of_the_body_alone_is_ignored(
    most: int, condition: list[Any], notes: tuple[str, ...], tmp_path: Path
) -> None:
    result = count(loop_without_condition(most, *condition), tmp_path)

    assert (result.total.macs, result.notes) == (most * 2 * 9, notes)


def test_conditions_that_are_ignored_leave_time_for_those_that_are_not(tmp_path: Path) -> None:
    # given one that takes too long to tell, and then `while i < 10`
    made = loop_without_condition(10**6, helper.make_node("Less", ["n", "most"], ["on"]))
    made.graph.node[0].output[0] = "b"
    after = while_loop()
    after.name, after.input[2] = "after", "b"
    made.graph.node.append(after)
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in {"start": 0, "end": 10, "step": 1}.items()
    )

    assert count(made, tmp_path).total.macs == (10**6 + 10) * 2 * 9


@pytest.mark.parametrize(
    ("most", "type_"),
    [(np.float32(5.7), "fp32"), (np.complex64(5), "complex64"), (np.int32(5), "int32")],
)
def test_a_number_of_passes_is_a_whole_one(most: Any, type_: str, tmp_path: Path) -> None:
    result = count(steady_loop(most), tmp_path)

    assert (result.total.macs, result.coverage) == (0, 0)
    assert result.notes == (
        "onnx::Loop 'steps' not counted: its operands do not fit the operator"
        f" (its limit is {type_}, not int64)",
    )


# ---------------------------------------------------------------- passes that are given, too

ALL_KNOWN = numbers(start=0, end=10, step=1)
BY_DATA = numbers(start=0, step=1)


def refusal(proto: onnx.ModelProto, folder: Path, **passes: int) -> str:
    with pytest.raises(RidgelineError) as raised:
        count(proto, folder, dims=passes)
    return str(raised.value)


def test_other_passes_than_the_numbers_make_are_refused(tmp_path: Path) -> None:
    # given a loop that ends after 10 passes
    proto = model([while_loop()], {"a": x(2, 3)}, ["y"], stored=ALL_KNOWN)

    assert count(proto, tmp_path, dims={"steps": 10}).total.macs == 10 * 2 * 9
    assert refusal(proto, tmp_path, steps=9) == (
        "the passes of Loop 'steps' are 10 in the file, not 9\n"
        "  hint: leave --dim steps out, or export the model with a dynamic number of passes"
    )


def test_other_passes_than_a_given_input_makes_are_refused(tmp_path: Path) -> None:
    proto = model([while_loop()], {"a": x(2, 3), "end": int64()}, ["y"], stored=BY_DATA)

    assert refusal(proto, tmp_path, end=5, steps=6).startswith(
        "the passes of Loop 'steps' are 5 in the file, not 6\n"
    )


def test_fewer_passes_than_the_limit_are_those_that_data_may_decide(tmp_path: Path) -> None:
    # given a loop of at most 6 passes
    stored = {**BY_DATA, "most": np.asarray(6)}
    proto = model([while_loop("most")], {"a": x(2, 3), "end": int64()}, ["y"], stored=stored)

    four = count(proto, tmp_path, dims={"steps": 4})
    assert (four.total.macs, four.notes) == (4 * 2 * 9, ())
    assert refusal(proto, tmp_path, steps=7).startswith(
        "the passes of Loop 'steps' are at most 6 in the file, not 7\n"
    )


@pytest.mark.parametrize(("end", "step"), [(9, 0), (20_000, 1)], ids=["no end", "too long"])
def test_passes_that_cannot_be_told_may_be_any(end: int, step: int, tmp_path: Path) -> None:
    stored = numbers(start=0, end=end, step=step)
    proto = model([while_loop()], {"a": x(2, 3)}, ["y"], stored=stored)

    assert count(proto, tmp_path, dims={"steps": 4}).total.macs == 4 * 2 * 9


def test_a_function_may_tell_its_passes_in_one_call_and_not_in_another(tmp_path: Path) -> None:
    # given a loop of at most `most` passes in a function: 2 in the first call, the second by data
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "h"], ["h_out"]),
         helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info("n", TensorProto.INT64, ()),
         helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, (3, 3))],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("h_out", TensorProto.FLOAT, (3, 3))],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["most", "", "a"], ["y"], name="steps", body=body)
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "f", ["a", "most"], ["y"], [loop], opsets)
    calls = [helper.make_node("f", ["a", "two"], ["b"], domain="own"),
             helper.make_node("f", ["b", "most"], ["y"], domain="own")]  # fmt: skip
    proto = model(calls, {"a": x(3, 3), "most": int64()}, ["y"],
                  stored={"two": np.asarray(2)}, functions=[function])  # fmt: skip

    result = count(proto, tmp_path, dims={"steps": 5})

    assert result.total.macs == (2 + 5) * 27
    assert result.notes == (
        "where the file has the passes of Loop 'steps', these are counted, not the 5 given",
    )

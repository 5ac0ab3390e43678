"""Functions of one name: an overload tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from tests.onnx.models import count, model, weight, x

from ridgeline.errors import RidgelineError

STANDARD, OWN = helper.make_opsetid("", 21), helper.make_opsetid("own", 1)


def product(left: str, result: str) -> Any:
    return helper.make_node("MatMul", [left, "w"], [result])


def call(operand: str, result: str, overload: str = "") -> Any:
    """A call of own::f or of one of its overloads."""
    return helper.make_node("f", [operand, "w"], [result], name=result, domain="own",
                            overload=overload)  # fmt: skip


def function(nodes: list[Any], overload: str = "") -> Any:
    """own::f(a, w) of these nodes, which end in `b`."""
    return helper.make_function("own", "f", ["a", "w"], ["b"], nodes, [STANDARD, OWN],
                                overload=overload)  # fmt: skip


ONE = function([product("a", "b")])
TWO = function([product("a", "t"), product("t", "b")], "two")


def calling(*calls: Any, functions: list[Any]) -> Any:
    stored = {"w": weight(3, 3)}
    return model(calls, {"a": x(2, 3)}, ["y"], stored=stored, functions=functions)


@pytest.mark.parametrize("functions", [[ONE, TWO], [TWO, ONE]])
def test_each_overload_has_its_own_body(functions: list[Any], tmp_path: Path) -> None:
    # given f of one product and its overload of two, each called once
    proto = calling(call("a", "h"), call("h", "y", "two"), functions=functions)

    result = count(proto, tmp_path)

    # then there are three of (2, 3)·(3, 3)
    assert [(op.path, op.cost.macs) for op in result.op_costs] == [
        ("h.MatMul_0", 18), ("y.MatMul_0", 18), ("y.MatMul_1", 18),
    ]  # fmt: skip
    assert (result.total.macs, result.coverage, result.notes) == (54, 1, ())


def test_an_overload_may_call_another(tmp_path: Path) -> None:
    # given f:both = f:two, then f, which is no function that calls itself
    both = function([call("a", "t", "two"), call("t", "b")], "both")

    result = count(calling(call("a", "y", "both"), functions=[ONE, TWO, both]), tmp_path)

    assert (result.total.macs, result.coverage) == (3 * 18, 1)


def test_an_overload_that_is_not_there_is_no_other_function(tmp_path: Path) -> None:
    result = count(calling(call("a", "y", "three"), functions=[ONE, TWO]), tmp_path)

    assert (result.total.macs, result.coverage, list(result.unknown)) == (0, 0, ["own::f"])


@pytest.mark.parametrize(("twice", "name"), [(ONE, "own::f"), (TWO, "own::f::two")])
def test_a_function_that_is_there_twice(twice: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(RidgelineError) as raised:
        count(calling(call("a", "y"), functions=[ONE, TWO, twice]), tmp_path)

    assert str(raised.value) == (
        f"{tmp_path / 'model.onnx'}: it has the function {name!r} more than once\n"
        "  hint: which one is meant is not in the file; export the model again"
    )

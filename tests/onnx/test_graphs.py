"""Graphs inside the graph: functions, If, Loop, Scan; shared weights; nodes and their paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import MS, Operand, count, int64, model, typed, value_info, x

from ridgeline.errors import RidgelineError

BOOL = TensorProto.BOOL


def body(nodes: list[Any], inputs: dict[str, Operand], outputs: dict[str, Operand]) -> Any:
    return helper.make_graph(
        nodes,
        "body",
        [value_info(name, o) for name, o in inputs.items()],
        [value_info(name, o) for name, o in outputs.items()],
    )


def branch(op: str, times: int) -> Any:
    names = ["a", *(f"t{n}" for n in range(1, times)), "out"]
    nodes = [helper.make_node(op, [names[n]], [names[n + 1]]) for n in range(times)]
    return body(nodes, {}, {"out": x(6)})


def choice() -> Any:
    return helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("Relu", 1),
                            else_branch=branch("Relu", 3))  # fmt: skip


def test_if_takes_the_costlier_branch_and_says_so(tmp_path: Path) -> None:
    result = count(model([choice()], {"a": x(6), "c": typed(BOOL)}, ["y"]), tmp_path)
    assert result.total.other_flops == 18
    assert result.notes == (
        "If 'choice' is decided by data: its else branch, the costlier one, is counted",
    )
    assert [op.path for op in result.op_costs] == [f"choice.Relu_{n}" for n in range(3)]


def test_if_takes_the_branch_that_is_known(tmp_path: Path) -> None:
    stored = {"c": np.asarray(True)}
    result = count(model([choice()], {"a": x(6)}, ["y"], stored=stored), tmp_path)
    assert (result.total.other_flops, result.notes) == (6, ())


def loop(limit: str, grows: bool = False) -> Any:
    step = (
        [helper.make_node("Concat", ["h", "h0"], ["h_out"], axis=0)]
        if grows
        else [helper.make_node("MatMul", ["h", "w"], ["h_out"])]
    )
    inner = body(
        [helper.make_node("Identity", ["go"], ["go_out"]), *step,
         helper.make_node("Exp", ["h_out"], ["scan"])],
        {"i": int64(), "go": typed(BOOL), "h": x("rows", 3)},
        {"go_out": typed(BOOL), "h_out": x("more", 3), "scan": x("more", 3)},
    )  # fmt: skip
    return helper.make_node("Loop", [limit, "", "h0"], ["h_end", "y"], name="steps", body=inner)


W = np.zeros((3, 3), np.float32)


def test_loop_multiplies_by_its_trip_count(tmp_path: Path) -> None:
    proto = model([loop("n")], {"h0": x(2, 3)}, ["y"],
                  stored={"w": W, "n": np.asarray(7)})  # fmt: skip
    result = count(proto, tmp_path)
    assert (result.total.macs, result.total.transcendentals) == (7 * 2 * 9, 7 * 6)
    assert result.op_costs[1].formula == "2·times·M·N·K = 2·7·2·3·3 = 252"
    assert result.modules[""].output_shapes == ((7, 2, 3),)
    assert result.params == 9
    # and a number that the user gives goes first
    assert count(proto, tmp_path, dims={"steps": 9}).total.macs == 9 * 2 * 9


def test_loop_asks_for_its_trip_count(tmp_path: Path) -> None:
    proto = model([loop("n")], {"h0": x(2, 3), "n": int64()}, ["y"], stored={"w": W})
    with pytest.raises(RidgelineError) as raised:
        count(proto, tmp_path)
    assert str(raised.value) == (
        "the trip counts of these loops are not in the file: Loop 'steps'"
        "\n  hint: give --dim steps=N"
    )
    by_loop = count(proto, tmp_path, dims={"steps": 4}).total.macs
    by_input = count(proto, tmp_path, dims={"n": 4}).total.macs
    assert by_loop == by_input == 4 * 2 * 9


def test_a_loop_whose_shapes_grow_is_counted_at_its_first_ones(tmp_path: Path) -> None:
    # given h = Concat(h, h0) three times, from 2 rows of 3: exp(h) of 4, 6 and 8 rows
    proto = model([loop("n", grows=True)], {"h0": x(2, 3)}, ["h_end"],
                  stored={"n": np.asarray(3)})  # fmt: skip
    result = count(proto, tmp_path)
    # then the first iteration counts three times, and the result is as after it
    assert result.total.transcendentals == 3 * 4 * 3
    assert result.modules[""].output_shapes == ((4, 3),)
    assert result.notes == (
        "the shapes in Loop 'steps' change from iteration to iteration: all are counted with those"
        " of the first",
    )


def conditional(nodes: list[Any]) -> Any:
    """h = h·w up to 5 times, while a condition holds that is true at first."""
    inner = body([helper.make_node("MatMul", ["h", "w"], ["h2"]), *nodes],
                 {"i": int64(), "go": typed(BOOL), "h": x(2, 3)},
                 {"on": typed(BOOL), "h2": x(2, 3)})  # fmt: skip
    node = helper.make_node("Loop", ["n", "yes", "h0"], ["y"], name="it", body=inner)
    stored = {"n": np.asarray(5), "yes": np.asarray(True), "w": W}
    return model([node], {"h0": x(2, 3)}, ["y"], stored=stored)


def test_a_condition_by_data_is_noted(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMax", ["h2"], ["m"], keepdims=0),
             helper.make_node("Cast", ["m"], ["on"], to=BOOL)]  # fmt: skip
    result = count(conditional(nodes), tmp_path)
    assert result.total.macs == 5 * 2 * 9
    assert result.notes == ("Loop 'it' is taken to run to its limit of 5",)


def test_scan_runs_over_its_axis(tmp_path: Path) -> None:
    inner = body([helper.make_node("Add", ["s", "e"], ["s_out"]),
                  helper.make_node("Exp", ["s_out"], ["o"])],
                 {"s": x(4), "e": x(4)}, {"s_out": x(4), "o": x(4)})  # fmt: skip
    node = helper.make_node("Scan", ["s0", "xs"], ["s_end", "y"], name="scan", body=inner,
                            num_scan_inputs=1, scan_input_axes=[1])  # fmt: skip
    proto = model([node], {"s0": x(4), "xs": x(4, 9)}, ["y"])
    result = count(proto, tmp_path)
    assert (result.total.other_flops, result.total.transcendentals) == (9 * 4, 9 * 4)
    assert result.modules[""].output_shapes == ((9, 4),)


def test_function_bodies_take_the_place_of_calls(tmp_path: Path) -> None:
    # GIVEN own.dense(x, w, along) = x·w, twice side by side along an axis; called twice
    inner = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Concat", ["p", "p"], ["q"], name="join"),
    ]
    reference = inner[1].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "axis", "along", 2
    function = helper.make_function(
        "own", "dense", ["x", "w"], ["q"], inner, [helper.make_opsetid("", 21)], ["along"]
    )
    calls = [
        helper.make_node("dense", ["a", "w"], ["b"], name="one", domain="own", along=0),
        helper.make_node("dense", ["b", "w"], ["y"], name="two", domain="own", along=1),
    ]
    proto = model(calls, {"a": x(2, 3)}, ["y"], stored={"w": W}, functions=[function])
    result = count(proto, tmp_path)
    assert [(op.path, op.cost.macs) for op in result.op_costs] == [
        ("one.MatMul_0", 18), ("one.join", 0), ("two.MatMul_0", 36), ("two.join", 0),
    ]  # fmt: skip
    assert result.modules[""].output_shapes == ((4, 6),)


def test_a_shared_weight_is_stored_once_and_read_at_each_use(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["a", "w"], ["b"]),
             helper.make_node("MatMul", ["b", "w"], ["y"])]  # fmt: skip
    result = count(model(nodes, {"a": x(2, 3)}, ["y"], stored={"w": W}), tmp_path)
    assert (result.params, result.memory.parameter_bytes) == (9, 36)
    assert result.total.read_bytes == 2 * (2 * 3 + 9) * 4
    assert result.fused.total_bytes == (6 + 9 + 6) * 4


def test_an_unknown_operator_is_listed_with_its_share(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Secret", ["b"], ["y"], domain="own")]  # fmt: skip
    proto = model(nodes, {"a": x(6)}, ["y"])
    result = count(proto, tmp_path)
    assert result.unknown == {"own::Secret": {"calls": 1, "bytes": 24, "share": 24 / 72}}


def test_paths_follow_the_modules_of_the_exporters(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["a"], ["b"], name="/layer1/layer1.0/relu/Relu"),
        helper.make_node("Relu", ["b"], ["c"], name="node_relu_1"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"], name="node_of_none"),
    ]
    for node, scopes in (
        (nodes[1], "['', 'layer2', 'layer2.act', 'relu_1']"),
        (nodes[3], "['_empty_nn_module_stack_from_metadata_hook', 'relu_2']"),
    ):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    result = count(model(nodes, {"a": x(6)}, ["y"]), tmp_path)
    assert [op.path for op in result.op_costs] == [
        "layer1.0.relu.Relu", "layer2.act.node_relu_1", "Relu_2", "node_of_none",
    ]  # fmt: skip
    assert list(result.layers(depth=1)["path"]) == [
        "(model)", "layer1", "layer2", "Relu_2", "node_of_none",
    ]  # fmt: skip


def test_settings_that_change_the_cost_are_shown(tmp_path: Path) -> None:
    node = helper.make_node("Attention", ["q", "q", "q"], ["y"], q_num_heads=2, kv_num_heads=2,
                            softcap=8.0, qk_matmul_output_mode=1)  # fmt: skip
    (op,) = count(model([node], {"q": x(1, 5, 8)}, ["y"], opset=23), tmp_path).op_costs
    assert op.settings == "kv_num_heads=2 q_num_heads=2 qk_matmul_output_mode=1 softcap=8.0"


# ---------------------------------------------------------------- overloads and versions


def product(left: str, result: str) -> Any:
    return helper.make_node("MatMul", [left, "w"], [result])


def call(operand: str, result: str, overload: str = "") -> Any:
    """A call of own::f or of one of its overloads."""
    return helper.make_node("f", [operand, "w"], [result], name=result, domain="own",
                            overload=overload)  # fmt: skip


def function(nodes: list[Any], overload: str = "", opset: int = 21) -> Any:
    """own::f(a, w) of these nodes, which end in `b`."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", "f", ["a", "w"], ["b"], nodes, opsets, overload=overload)


ONE = function([product("a", "b")])
TWO = function([product("a", "t"), product("t", "b")], "two")
BOTH = function([call("a", "t", "two"), call("t", "b")], "both")


def calling(*calls: Any, functions: list[Any]) -> Any:
    return model(calls, {"a": x(2, 3)}, ["y"], stored={"w": W}, functions=functions)


def test_each_overload_has_its_own_body(tmp_path: Path) -> None:
    # given f of one product, its overload of two, and one that calls both
    nodes = [call("a", "h"), call("h", "g", "two"), call("g", "y", "both")]
    result = count(calling(*nodes, functions=[ONE, BOTH, TWO]), tmp_path)
    # then there are six of (2, 3)·(3, 3)
    assert [op.path for op in result.op_costs[:3]] == ["h.MatMul_0", "g.MatMul_0", "g.MatMul_1"]
    assert (result.total.macs, result.coverage, result.notes) == (6 * 18, 1, ())
    # and an overload that is not there is no other function
    lost = count(calling(call("a", "y", "three"), functions=[ONE, TWO]), tmp_path)
    assert (lost.total.macs, lost.coverage, list(lost.unknown)) == (0, 0, ["own::f"])


# ---------------------------------------------------------------- weights

F = 4  # bytes of a float32


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def packed(*shape: int) -> Any:
    return np.zeros(shape, np.uint8)


# a linear layer of 64 features to 8 in blocks of 32: N = 8, K = 64, two blocks a row
N_BITS = {"N": 8, "K": 64, "block_size": 32}


@pytest.mark.parametrize(
    ("stored", "attributes", "params", "param_bytes", "buffer_bytes"),
    [
        ({"w": packed(8, 2, 16), "s": floats(8, 2)}, {"bits": 4}, 8 * 64, 8 * 32, 16 * F),
        ({"w": packed(8, 2, 32), "s": floats(8, 2)}, {"bits": 8}, 8 * 64, 8 * 64, 16 * F),
        ({"w": packed(8, 2, 8), "s": floats(8, 2)}, {"bits": 2}, 8 * 64, 8 * 16, 16 * F),
        # zero points and the order of groups are buffers too, a bias is not
        ({"w": packed(8, 2, 16), "s": floats(8, 2), "z": packed(8, 1),
          "g": np.zeros(64, np.int32), "b": floats(8)},
         {"bits": 4}, 8 * 64 + 8, 8 * 32 + 8 * F, 16 * F + 8 + 64 * 4),
        # K = 40 is stored as two blocks of 32: what pads the last one is no weight
        ({"w": packed(8, 2, 16), "s": floats(8, 2)}, {"bits": 4, "K": 40}, 8 * 40, 8 * 32, 16 * F),
    ],
    ids=["4 bits", "8 bits", "2 bits", "all operands", "a padded block"],
)  # fmt: skip
def test_packed_weights_are_parameters_one_by_one(
    stored: Mapping[str, Any], attributes: Mapping[str, int], params: int, param_bytes: int,
    buffer_bytes: int, tmp_path: Path,
) -> None:  # fmt: skip
    settings: dict[str, Any] = {**N_BITS, **attributes}
    node = helper.make_node("MatMulNBits", ["a", *stored], ["y"], domain=MS, **settings)
    made = model([node], {"a": x(2, settings["K"])}, ["y"], stored=stored)
    result = count(made, tmp_path)
    assert (result.params, result.total.macs) == (params, 2 * 8 * settings["K"])
    assert result.memory.parameter_bytes == param_bytes  # as stored
    assert result.memory.buffer_bytes == buffer_bytes
    assert result.layers().iloc[0]["params"] == params


def test_weights_that_do_not_fit_their_bytes_are_not_counted(tmp_path: Path) -> None:
    # given 256 bytes, that hold 512 weights of 4 bits and not the 1024 of N = 16
    stored = {"w": packed(8, 2, 16), "s": floats(8, 2)}
    node = helper.make_node(
        "MatMulNBits", ["a", *stored], ["y"], domain=MS, N=16, K=64, block_size=32, bits=4
    )
    result = count(model([node], {"a": x(2, 64)}, ["y"], stored=stored), tmp_path)
    assert list(result.unknown) == ["com.microsoft::MatMulNBits"]
    assert "256 bytes do not hold 16·64 weights of 4 bits" in result.notes[0]


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_a_single_number_is_no_parameter(op: str, tmp_path: Path) -> None:
    # given a product with 3x4 weights, and a number that every element is multiplied with
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node(op, ["h", "scale"], ["y"], name="scaled"),
    ]
    stored = {"w": np.ones((3, 4), np.float32), "scale": np.ones(1, np.float32)}
    result = count(model(nodes, {"a": x(2, 3)}, ["y"], stored=stored), tmp_path, mode="train")
    # then it has no gradient and no update
    phases = {op.phase for op in result.op_costs if op.path == "scaled"}
    assert (result.params, phases - {"input-grad"}) == (12, {"forward"})


# ---------------------------------------------------------------- stated shapes


def test_what_is_not_known_is_filled_in(tmp_path: Path) -> None:
    # given a shape that is data, of a result that the file calls (s, 4)
    nodes = [helper.make_node("Reshape", ["a", "shape"], ["y"]),
             helper.make_node("Relu", ["y"], ["z"])]  # fmt: skip
    proto = model(nodes, {"a": x(4, "s"), "shape": int64(2)}, ["z"])
    stated = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("s", 4))
    proto.graph.value_info.append(stated)
    result = count(proto, tmp_path, dims={"s": 3})
    assert (result.total.flops, result.notes, result.coverage) == (12, (), 1)

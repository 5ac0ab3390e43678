"""Gradients through Loop and Scan: by hand, and as torch's autograd runs the same passes.

A state is [2, 8] and its weights [8, 8], so that each product has 2 · 8 · 8 = 128 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from tests.onnx.models import Operand, count, int64, model, typed, value_info, weight, x
from torch import nn

import ridgeline
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.onnx import loops, tape

M = 2 * 8 * 8
BOOL = TensorProto.BOOL
node = helper.make_node


def graph(nodes: list[Any], inputs: dict[str, Operand], outputs: list[str]) -> Any:
    return helper.make_graph(
        nodes,
        "body",
        [value_info(name, operand) for name, operand in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )


def loop(
    nodes: list[Any], states: dict[str, str], after: list[str], results: list[str], n: str = "n"
) -> Any:
    """`states` are names in the body and what they are at first; `after` what a pass makes."""
    inputs = {"i": int64(), "go": typed(BOOL), **{name: x(2, 8) for name in states}}
    body = graph([node("Identity", ["go"], ["on"]), *nodes], inputs, ["on", *after])
    return node("Loop", [n, "", *states.values()], results, name=f"loop_{n}", body=body)


def times_w(trips: int, *, first: str = "input") -> Any:
    """h = h·w, so many times; h is an input at first, or a layer's result, or a weight."""
    nodes = [loop([node("MatMul", ["h", "w"], ["h2"])], {"h": "h0"}, ["h2"], ["y"])]
    stored = {"w": weight(8, 8), "n": np.asarray(trips)}
    if first == "weight":
        return model(nodes, {}, ["y"], stored={**stored, "h0": weight(2, 8)})
    if first == "input":
        return model(nodes, {"h0": x(2, 8)}, ["y"], stored=stored)
    nodes = [node("MatMul", ["a", "u"], ["h0"], name="layer"), *nodes]
    return model(nodes, {"a": x(2, 8)}, ["y"], stored={**stored, "u": weight(8, 8)})


def macs(result: CountResult) -> dict[str, int]:
    return {name: cost.macs for name, cost in result.phases.items() if cost.macs}


@pytest.mark.parametrize("trips", [1, 2, 12, 10**9])
def test_a_state_that_is_an_input_at_first(trips: int, tmp_path: Path) -> None:
    result = count(times_w(trips), tmp_path, mode="train")

    # the first pass needs no gradient of its state; every pass needs one of the weight
    expected = {
        "forward": trips * M,
        "input-grad": (trips - 1) * M,
        "weight-grad": trips * M,
    }
    assert macs(result) == {name: number for name, number in expected.items() if number}
    # and those of the weight are added: 8 · 8 for every pass but one
    assert result.phase("weight-grad").other_flops == (trips - 1) * 64
    assert len(result.op_costs) <= 6  # however many passes there are


def test_twelve_passes_row_by_row(tmp_path: Path) -> None:
    result = count(times_w(12), tmp_path, mode="train")

    rows = [(op.op, op.phase, op.formula) for op in result.op_costs if "grad" in op.phase]
    assert rows == [
        ("onnx::MatMul", "input-grad", "2·times·M·N·K = 2·11·2·8·8 = 2816"),
        ("onnx::MatMul", "weight-grad", "2·times·M·N·K = 2·12·2·8·8 = 3072"),
        ("onnx::Add", "weight-grad", "n = 704"),
    ]
    assert result.memory.activation_bytes == 12 * 2 * 8 * 4  # what each pass made is kept


@pytest.mark.parametrize("trips", [0, 1, 2, 12])
def test_a_state_that_a_layer_makes_at_first(trips: int, tmp_path: Path) -> None:
    result = count(times_w(trips, first="layer"), tmp_path, mode="train")

    # every pass needs both; the layer has a weight's gradient alone
    expected = {
        "forward": (trips + 1) * M,
        "input-grad": trips * M,
        "weight-grad": (trips + 1) * M,
    }
    assert macs(result) == {name: number for name, number in expected.items() if number}


def test_a_state_that_is_a_weight_at_first(tmp_path: Path) -> None:
    result = count(times_w(12, first="weight"), tmp_path, mode="train")

    assert result.total.macs == 12 * M + 12 * M + 12 * M


def test_a_scan_of_no_step_hands_on_its_state(tmp_path: Path) -> None:
    # given a state from a layer, a scan over nothing, and a layer after it
    body = graph([node("Add", ["h", "e"], ["h2"])], {"h": x(2, 8), "e": x(2, 8)}, ["h2"])
    nodes = [node("MatMul", ["a", "u"], ["h0"]),
             node("Scan", ["h0", "es"], ["h_end"], name="scan", body=body, num_scan_inputs=1),
             node("MatMul", ["h_end", "v"], ["y"])]  # fmt: skip
    stored = {"u": weight(8, 8), "v": weight(8, 8)}
    proto = model(nodes, {"a": x(2, 8), "es": x(0, 2, 8)}, ["y"], stored=stored)

    result = count(proto, tmp_path, mode="train")

    assert macs(result) == {"forward": 2 * M, "input-grad": M, "weight-grad": 2 * M}


# ---------------------------------------------------------------- beside torch


class Net(nn.Module):
    """A function of weights and inputs as a module."""

    def __init__(self, forward: Callable[..., Any], weights: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.function = forward
        for name, shape in weights.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def recurrent(net: Any, h: torch.Tensor, a: torch.Tensor) -> Any:
    made = []
    for e in (a @ net.z).unbind(0):
        h = e @ net.u + h @ net.w
        made.append(h)
    return torch.stack(made) @ net.v


def recurrent_file() -> Any:
    cell = [node("MatMul", ["e", "u"], ["p"]), node("MatMul", ["h", "w"], ["q"]),
            node("Add", ["p", "q"], ["h2"]), node("Identity", ["h2"], ["o"])]  # fmt: skip
    body = graph(cell, {"h": x(2, 8), "e": x(2, 8)}, ["h2", "o"])
    return [node("MatMul", ["a", "z"], ["es"]),
            node("Scan", ["h0", "es"], ["", "os"], name="scan", body=body, num_scan_inputs=1),
            node("MatMul", ["os", "v"], ["y"])]  # fmt: skip


def state_space(net: Any, h: torch.Tensor, a: torch.Tensor) -> Any:
    made = []
    for e in a.unbind(0):
        made.append(h @ net.v)
        h = e @ net.u + h @ net.w  # the last one is used by nobody
    return torch.stack(made)


def state_space_file() -> Any:
    cell = [node("MatMul", ["h", "v"], ["o"]), node("MatMul", ["e", "u"], ["p"]),
            node("MatMul", ["h", "w"], ["q"]), node("Add", ["p", "q"], ["h2"])]  # fmt: skip
    body = graph(cell, {"h": x(2, 8), "e": x(2, 8)}, ["h2", "o"])
    return [node("Scan", ["h0", "a"], ["", "y"], name="scan", body=body, num_scan_inputs=1)]


def nested(net: Any, h: torch.Tensor) -> Any:
    for _ in range(3):
        for _ in range(4):
            h = h @ net.w
        h = h @ net.v
    return h


def nested_file() -> Any:
    inner = loop([node("MatMul", ["k", "w"], ["k2"])], {"k": "h"}, ["k2"], ["mid"], n="four")
    return [loop([inner, node("MatMul", ["mid", "v"], ["h2"])], {"h": "h0"}, ["h2"], ["y"])]


def delayed(net: Any, first: torch.Tensor) -> Any:
    a = b = c = first
    for _ in range(3):
        a, b, c = a @ net.w, a, b + c @ net.v  # only from the third pass on has c a w in it
    return c


def delayed_file() -> Any:
    step = [node("MatMul", ["a", "w"], ["a2"]), node("Identity", ["a"], ["b2"]),
            node("MatMul", ["c", "v"], ["t"]), node("Add", ["b", "t"], ["c2"])]  # fmt: skip
    first = {"a": "h0", "b": "h0", "c": "h0"}
    return [loop(step, first, ["a2", "b2", "c2"], ["", "", "y"])]


def unchanged(net: Any, h: torch.Tensor, a: torch.Tensor) -> Any:
    k = a @ net.v
    for _ in range(3):
        h = h @ net.w + k
    return h


def unchanged_file(*, is_state: bool) -> Any:
    """The k of `unchanged` as a state that no pass changes, or taken from around the loop."""
    step = [node("MatMul", ["h", "w"], ["t"]), node("Add", ["t", "k"], ["h2"])]
    states, after, results = {"h": "h0"}, ["h2"], ["y"]
    if is_state:
        states, after, results = {**states, "k": "k0"}, [*after, "k"], [*results, ""]
    return [node("MatMul", ["a", "v"], ["k0" if is_state else "k"]),
            loop(step, states, after, results)]  # fmt: skip


def growing(net: Any, h: torch.Tensor) -> Any:
    for _ in range(3):
        h = torch.cat([h @ net.w, h])
    return h


def growing_file() -> Any:
    step = [node("MatMul", ["h", "w"], ["t"]), node("Concat", ["t", "h"], ["h2"], axis=0)]
    return [loop(step, {"h": "h0"}, ["h2"], ["y"])]


Shapes = dict[str, tuple[int, ...]]
H: Shapes = {"h0": (2, 8)}
A: Shapes = {"h0": (2, 8), "a": (5, 2, 8)}
CASES: dict[str, tuple[Any, Any, Shapes, str, int]] = {
    # z: 5 steps, a weight's gradient; u: both, 5 times; w: 5, and 4 of the state; v: both, of 5
    "scan between layers": (recurrent, recurrent_file(), A, "zuwv", 5 + 10 + (5 + 4) + 10),
    # v: 5, and 4 of the state; u: 4 of the weight; w: 4, and 3 of the state
    "a last state that is not used": (state_space, state_space_file(), A, "uwv", 9 + 4 + 7),
    # 12 of w and 3 of v, both gradients, but for the first state
    "loop in a loop": (nested, nested_file(), H, "wv", 2 * 15 - 1),
    # w: of the first pass alone, the others do not get as far as c; v: 3, and c from pass 2 on
    "states that follow each other": (delayed, delayed_file(), H, "wv", 1 + 3 + 2),
    # w: 3, and 2 of the state; v: its weight
    "a state that stays": (unchanged, unchanged_file(is_state=True),
                           {"h0": (2, 8), "a": (2, 8)}, "wv", 5 + 1),
    "a value from around": (unchanged, unchanged_file(is_state=False),
                            {"h0": (2, 8), "a": (2, 8)}, "wv", 5 + 1),
    # 2, 4 and 8 rows: products of 1, 2 and 4 M; no gradient of the first state
    "a state that grows": (growing, growing_file(), H, "w", (1 + 2 + 4) + (2 + 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_torch_does(name: str, tmp_path: Path) -> None:
    # given the same passes in Python and in a file, all weights [8, 8]
    function, nodes, inputs, names, products = CASES[name]
    module = Net(function, dict.fromkeys(names, (8, 8)))
    stored = {**{name: weight(8, 8) for name in names}, "n": np.asarray(3), "four": np.asarray(4)}
    proto = model(nodes, {name: x(*shape) for name, shape in inputs.items()}, ["y"], stored=stored)
    # when both are counted
    theirs = ridgeline.count(module, tuple(map(torch.empty, inputs.values())), mode="train")
    ours = count(proto, tmp_path, mode="train")
    # then the products are the same, those by hand; and so is the number of additions
    assert macs(ours) == macs(theirs)
    backward = [r.phase("input-grad") + r.phase("weight-grad") for r in (ours, theirs)]
    assert backward[0].macs == products * M
    assert backward[0].other_flops == backward[1].other_flops


def appended(net: Any, h: torch.Tensor) -> Any:
    kept, row = h, h
    for _ in range(61):
        kept = torch.cat([kept, row @ net.w])
        row = row + (row @ kept.T) @ kept
    return row


def appended_file() -> Any:
    step = [node("MatMul", ["row", "w"], ["t"]), node("Concat", ["k", "t"], ["k2"], axis=0),
            node("Transpose", ["k2"], ["kt"], perm=[1, 0]), node("MatMul", ["row", "kt"], ["s"]),
            node("MatMul", ["s", "k2"], ["u"]), node("Add", ["row", "u"], ["row2"])]  # fmt: skip
    inputs = {"i": int64(), "go": typed(BOOL), "k": x("rows", 8), "row": x(2, 8)}
    body = graph([node("Identity", ["go"], ["on"]), *step], inputs, ["on", "k2", "row2"])
    return [node("Loop", ["n", "", "h0", "h0"], ["", "y"], name="append", body=body)]


def test_gradients_of_a_loop_that_grows_are_summed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given 61 passes that each append 2 rows and look at all of them; only 20 are walked
    monkeypatch.setattr(loops, "MOST_UNROLLED", 20)
    proto = model(appended_file(), {"h0": x(2, 8)}, ["y"],
                  stored={"w": weight(8, 8), "n": np.asarray(61)})  # fmt: skip

    theirs = ridgeline.count(Net(appended, {"w": (8, 8)}), torch.empty(2, 8), mode="train")
    ours = count(proto, tmp_path, mode="train")

    # then forward: 2 · 8 · 8, and both products with 2·(i + 2) rows
    looked_at = sum(2 * 8 * 2 * (i + 2) for i in range(61))
    assert ours.phase("forward").macs == 61 * M + 2 * looked_at
    assert macs(ours) == macs(theirs)
    assert len(ours.notes) == 2


def test_a_weight_of_several_nodes_has_its_gradients_added(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["a", "w"], ["b"]), node("MatMul", ["b", "w"], ["c"]),
             node("MatMul", ["c", "w"], ["y"])]  # fmt: skip
    proto = model(nodes, {"a": x(2, 8)}, ["y"], stored={"w": weight(8, 8)})

    result = count(proto, tmp_path, mode="train")

    assert result.phase("weight-grad").other_flops == 2 * 64  # three gradients, two sums


def test_loops_whose_answers_are_not_differentiable(tmp_path: Path) -> None:
    # given a loop that gives only the place of the largest: the file has no loss to say otherwise
    step = [node("MatMul", ["h", "w"], ["h2"]), node("ArgMax", ["h2"], ["o"])]
    nodes = [loop(step, {"h": "h0"}, ["h2", "o"], ["", "y"])]
    stored = {"w": weight(8, 8), "n": np.asarray(3)}
    proto = model(nodes, {"h0": x(2, 8)}, ["y"], stored=stored)

    result = count(proto, tmp_path, mode="train")

    # then the products have their gradients, as outside of loops
    assert macs(result) == {"forward": 3 * M, "input-grad": 2 * M, "weight-grad": 3 * M}


def test_loops_that_multiply_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "MOST_STEPS", 5)
    stored = {"w": weight(8, 8), "v": weight(8, 8), "n": np.asarray(3), "four": np.asarray(4)}
    proto = model(nested_file(), {"h0": x(2, 8)}, ["y"], stored=stored)

    with pytest.raises(RidgelineError, match="the gradients of the loops take more than 5 steps"):
        count(proto, tmp_path, mode="train")

"""How far gradients reach, and what is no weight: by hand, and as PyTorch's backward has it.

Data are [6, 8], the layers `l` 8 to 8 and `m` 8 to 4: L and M multiply-adds.
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
from torch.nn import functional

import ridgeline
from ridgeline.count.result import CountResult
from ridgeline.onnx import count_onnx
from ridgeline.records import Cost

L, M = 6 * 8 * 8, 6 * 8 * 4
node = helper.make_node
Forward = Callable[[Any, torch.Tensor], Any]


def macs(result: CountResult) -> tuple[int, int]:
    return result.phase("input-grad").macs, result.phase("weight-grad").macs


def additions(result: CountResult) -> int:
    return result.phase("input-grad").other_flops + result.phase("weight-grad").other_flops


class Net(nn.Module):
    """Two layers and a table, put together by a function."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function
        self.l, self.m, self.e = nn.Linear(8, 8), nn.Linear(8, 4), nn.Embedding(16, 8)

    def forward(self, a: torch.Tensor) -> Any:
        return self.function(self, a)


def both(module: nn.Module, shape: tuple[int, ...], folder: Path) -> list[CountResult]:
    """The module and its file at opset 13, without open dimensions."""
    path, data = folder / "it.onnx", torch.rand(shape)
    torch.onnx.export(
        module, (data,), str(path), dynamo=False, opset_version=13, do_constant_folding=False
    )
    return [ridgeline.count(module, data, mode="train"), count_onnx(path, mode="train")]


def rounded_for_8_bits(net: Any, a: torch.Tensor) -> Any:
    return net.m(torch.fake_quantize_per_tensor_affine(net.l(a), 0.1, 0, -128, 127))


def used_and_returned(net: Any, a: torch.Tensor) -> Any:
    h = net.l(a)
    return h, net.m(h)


REACH: dict[str, tuple[Forward, int, int]] = {  # products towards values, and towards weights
    # nothing goes back through the place of the largest: `m` and the table, not `l`
    "argmax": (lambda n, a: n.m(n.e(n.l(a).argmax(-1))), M, M),
    "cast": (lambda n, a: n.m(n.e(n.l(a).sum(-1).clamp(0, 15).long())), M, M),
    "comparison": (lambda n, a: n.m(a * (n.l(a) > 0).float()), 0, M),
    "condition": (lambda n, a: n.m(torch.where(n.l(a) > 0, a, -a)), 0, M),
    "places of the largest": (lambda n, a: n.m(n.l(a).topk(8)[1].float()), 0, M),
    "shape": (lambda n, a: n.m(a + torch.randn_like(n.l(a))), 0, M),
    "not differentiable output": (lambda n, a: (n.m(a), n.l(a).argmax(-1)), 0, M),
    # the gradient is zero, yet the layer before has its products
    "round": (lambda n, a: n.m(torch.round(n.l(a))), M, L + M),
    "floor": (lambda n, a: n.m(torch.floor(n.l(a))), M, L + M),
    "ceil": (lambda n, a: n.m(torch.ceil(n.l(a))), M, L + M),
    "sign": (lambda n, a: n.m(torch.sign(n.l(a))), M, L + M),
    "8 bits": (rounded_for_8_bits, M, L + M),
    # values and places: the values have one
    "one of two results": (lambda n, a: n.m(n.l(a).topk(8)[0]), M, L + M),
    "an output that is used": (used_and_returned, M, L + M),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REACH)
def test_as_torch_does(name: str, tmp_path: Path) -> None:
    function, towards_values, towards_weights = REACH[name]

    theirs, ours = both(Net(function), (6, 8), tmp_path)

    assert macs(ours) == macs(theirs) == (towards_values, towards_weights)
    if name != "one of two results":  # how values are put back into place is by rule
        assert additions(ours) == additions(theirs)


def layers(*after: Any, outputs: list[str] | None = None) -> Any:
    """h = a·l, then these nodes; `m` is the weight of another layer."""
    stored = {"l": weight(8, 8) + 1, "m": weight(8, 4) + 1, "zero": np.float32(0)}
    nodes = [node("MatMul", ["a", "l"], ["h"], name="first"), *after]
    return model(nodes, {"a": x(6, 8)}, outputs or ["y"], stored=stored)


def test_what_nobody_uses_has_no_gradient(tmp_path: Path) -> None:
    made = layers(node("MatMul", ["h", "m"], ["gone"]), node("Relu", ["h"], ["y"]))

    result = count(made, tmp_path, mode="train")

    assert (result.phase("forward").macs, *macs(result)) == (L + M, 0, L)


def test_where_no_output_has_one_all_have(tmp_path: Path) -> None:
    # given a classifier that ends with the largest logit's place: its loss was before that
    made = layers(node("MatMul", ["h", "m"], ["logits"]), node("ArgMax", ["logits"], ["y"]))

    result = count(made, tmp_path, mode="train")

    assert macs(result) == (M, L + M)


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "EyeLike", "Hardmax"])
def test_operators_that_hand_none_on(op: str, tmp_path: Path) -> None:
    made = layers(node(op, ["h"], ["r"]), node("MatMul", ["r", "m"], ["y"]))

    assert macs(count(made, tmp_path, mode="train")) == (0, M)


def test_through_an_operator_that_nobody_knows(tmp_path: Path) -> None:
    # given one between two layers; the file says what shape it makes
    made = layers(node("Odd", ["h"], ["r"], domain="mine"), node("MatMul", ["r", "m"], ["y"]))
    made.graph.value_info.append(value_info("r", x(6, 8)))

    result = count(made, tmp_path, mode="train")

    # then its own gradient is not known, those of the layers are
    assert macs(result) == (M, L + M)
    assert [op.phase for op in result.op_costs if op.op == "mine::Odd"] == ["forward", "input-grad"]


def test_a_gradient_of_zeros_is_written_alone(tmp_path: Path) -> None:
    made = layers(node("Floor", ["h"], ["r"], name="it"), node("MatMul", ["r", "m"], ["y"]))

    result = count(made, tmp_path, mode="train")

    found = [op.cost for op in result.op_costs if (op.path, op.phase) == ("it", "input-grad")]
    assert found == [Cost(written_bytes=6 * 8 * 4)]


def body(nodes: list[Any], inputs: dict[str, Operand], outputs: list[str]) -> Any:
    found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    given = [value_info(name, operand) for name, operand in inputs.items()]
    return helper.make_graph(nodes, "body", given, found)


@pytest.mark.parametrize(("is_compared", "products"), [(False, (M, L + M)), (True, (0, M))])
def test_through_a_branch(is_compared: bool, products: tuple[int, int], tmp_path: Path) -> None:
    inner = [node("Greater", ["h", "zero"], ["b"]), node("Cast", ["b"], ["r"], to=1)]
    branch = body(inner if is_compared else [node("Tanh", ["h"], ["r"])], {}, ["r"])
    made = layers(node("If", ["c"], ["r"], then_branch=branch, else_branch=branch),
                  node("MatMul", ["r", "m"], ["y"]))  # fmt: skip
    made.graph.input.append(value_info("c", typed(TensorProto.BOOL)))

    assert macs(count(made, tmp_path, mode="train")) == products


def test_a_loop_that_leads_to_whole_numbers(tmp_path: Path) -> None:
    # given h = h·l, three times, of which the place of the largest picks rows of a table
    step = [node("Identity", ["go"], ["on"]), node("MatMul", ["h", "l"], ["h2"])]
    inputs = {"i": int64(), "go": typed(TensorProto.BOOL), "h": x(6, 8)}
    nodes = [node("Loop", ["n", "", "a"], ["end"], body=body(step, inputs, ["on", "h2"])),
             node("ArgMax", ["end"], ["place"], axis=-1, keepdims=0),
             node("Gather", ["table", "place"], ["rows"]),
             node("MatMul", ["rows", "m"], ["y"])]  # fmt: skip
    stored = {"l": weight(8, 8), "m": weight(8, 4), "table": weight(16, 8), "n": np.asarray(3)}
    made = model(nodes, {"a": x(6, 8)}, ["y"], stored=stored)

    result = count(made, tmp_path, mode="train")

    assert (result.phase("forward").macs, *macs(result)) == (3 * L + M, M, M)


def test_through_a_sequence_that_is_mapped(tmp_path: Path) -> None:
    # given h cut into 6 rows, each through a layer, joined, and through another
    each = body([node("MatMul", ["row", "w"], ["made"])], {"row": x(1, 8)}, ["made"])
    made = layers(node("SplitToSequence", ["h"], ["cut"], axis=0),
                  node("SequenceMap", ["cut"], ["mapped"], body=each),
                  node("ConcatFromSequence", ["mapped"], ["r"], axis=0),
                  node("MatMul", ["r", "m"], ["y"]))  # fmt: skip
    made.graph.initializer.append(helper.make_tensor("w", 1, [8, 8], [1.0] * 64))

    result = count(made, tmp_path, mode="train")

    # then it is as three layers on the whole
    assert (result.phase("forward").macs, *macs(result)) == (2 * L + M, L + M, 2 * L + M)


# ---------------------------------------------------------------- what is no weight


class Cells(nn.Module):
    """A cell from zeros on, over 6 steps, and a layer: 2 sequences of 8 features to 12 units."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell, self.o = cell(8, 12), nn.Linear(12, 3)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(6):
            state = self.cell(a[:, step], state)
        out: torch.Tensor = self.o(state[0] if isinstance(state, tuple) else state)
        return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("cell", "gates"), [(nn.RNNCell, 1), (nn.GRUCell, 3), (nn.LSTMCell, 4)])
def test_zeros_before_a_cell_are_not_learned(cell: Any, gates: int, tmp_path: Path) -> None:
    theirs, ours = both(Cells(cell), (2, 6, 8), tmp_path)

    # 6 steps of both products for the weights; 5 towards the state before; and the layer's
    rows = 2 * 12 * gates
    expected = (5 * rows * 12 + 2 * 12 * 3, 6 * rows * (8 + 12) + 2 * 12 * 3)
    assert macs(ours) == macs(theirs) == expected
    assert ours.params == theirs.params == gates * 12 * (8 + 12 + 2) + 3 * 13


def left(stored: Any, **more: Any) -> Any:
    """stored·l + a·l"""
    nodes = [node("MatMul", ["s", "l"], ["p"]), node("MatMul", ["a", "l"], ["q"]),
             node("Add", ["p", "q"], ["y"])]  # fmt: skip
    return model(nodes, {"a": x(6, 8)}, ["y"], stored={"s": stored, "l": weight(8, 8) + 1, **more})


def table_of_waves(rows: int, size: int) -> Any:
    angles = np.arange(rows)[:, None] / 100 ** (np.arange(size // 2) / size)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


@pytest.mark.parametrize(
    ("stored", "is_learned"),
    [
        (weight(6, 8), False),
        (table_of_waves(6, 8), False),
        (table_of_waves(6, 8).reshape(6, 2, 4).swapaxes(1, 2).reshape(6, 8), False),
        (weight(6, 8) + 1, True),  # as the queries of a decoder that are learned
        (np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8), True),
    ],
    ids=["zeros", "waves in halves", "waves side by side", "queries", "others"],
)
def test_data_on_the_left_of_a_weight(stored: Any, is_learned: bool, tmp_path: Path) -> None:
    result = count(left(stored), tmp_path, mode="train")

    assert result.params == 64 + 48 * is_learned
    # both products have a gradient of `l`, and one of what is learned on the left
    assert macs(result) == (0, 2 * L + L * is_learned)


@pytest.mark.parametrize("rows", [512, 513], ids=["4,096 elements", "more"])
def test_waves_are_seen_up_to_4096_elements(rows: int, tmp_path: Path) -> None:
    nodes = [node("Add", ["a", "s"], ["y"])]
    made = model(nodes, {"a": x(rows, 8)}, ["y"], stored={"s": table_of_waves(rows, 8)})

    assert count(made, tmp_path).params == (0 if rows == 512 else rows * 8)


def test_a_low_rank_part_that_begins_as_zeros_is_learned(tmp_path: Path) -> None:
    # given a·(l + u·v) with u all zeros, as at the beginning of such a training
    nodes = [node("MatMul", ["u", "v"], ["uv"]), node("Add", ["l", "uv"], ["w"]),
             node("MatMul", ["a", "w"], ["y"])]  # fmt: skip
    stored = {"l": weight(8, 8) + 1, "u": weight(8, 2), "v": weight(2, 8) + 1}
    made = model(nodes, {"a": x(6, 8)}, ["y"], stored=stored)

    result = count(made, tmp_path, mode="train")

    assert result.params == 64 + 16 + 16
    assert macs(result) == (0, L + 2 * 8 * 2 * 8)


@pytest.mark.parametrize(
    ("op", "operands", "shape", "params"),
    [
        ("Mul", ["a", "s"], (6, 8), 0),  # a state beside its gate
        ("Mul", ["s", "a"], (6, 8), 0),
        ("Sub", ["s", "a"], (6, 8), 0),
        ("Sub", ["a", "s"], (6, 8), 48),
        ("Mul", ["a", "s"], (1, 8), 8),  # a scale that begins as zeros
        ("Mul", ["a", "s"], (8,), 8),
        ("Add", ["a", "s"], (6, 8), 48),  # positions that begin as zeros
    ],
)
def test_zeros_beside_data(
    op: str, operands: list[str], shape: tuple[int, ...], params: int, tmp_path: Path
) -> None:
    made = model([node(op, operands, ["y"])], {"a": x(6, 8)}, ["y"], stored={"s": weight(*shape)})

    assert count(made, tmp_path).params == params


class Positions(nn.Module):
    """Sines and cosines of positions, made on the way, through a layer; a product with data."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", 1 / 100 ** (torch.arange(0, 8, 2) / 8))
        self.l, self.k = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        angles = torch.einsum("i,j->ij", torch.arange(a.shape[1]).float(), self.rates)
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        out: torch.Tensor = functional.linear(self.l(a), self.k(waves))
        return out


@pytest.mark.filterwarnings("ignore")
def test_frequencies_are_not_learned(tmp_path: Path) -> None:
    theirs, ours = both(Positions(), (2, 6, 8), tmp_path)

    # `l` on 12 rows, `k` on 6; their product of 12 · 6 · 16 has both gradients
    assert macs(ours) == macs(theirs) == (2 * 1152, 12 * 8 * 16 + 6 * 8 * 16)
    assert ours.params == theirs.params == 2 * (8 * 16 + 16)
    assert additions(ours) == additions(theirs)


def test_weights_before_a_sine_are_learned(tmp_path: Path) -> None:
    # given sin(c·w)·v of stored coordinates, and data added to it
    nodes = [node("MatMul", ["c", "l"], ["t"]), node("Sin", ["t"], ["s"]),
             node("MatMul", ["s", "m"], ["u"]), node("Add", ["u", "a"], ["y"])]  # fmt: skip
    stored = {"c": np.arange(12, dtype=np.float32).reshape(6, 2), "l": weight(2, 8) + 1,
              "m": weight(8, 4) + 1}  # fmt: skip
    made = model(nodes, {"a": x(6, 4)}, ["y"], stored=stored)

    result = count(made, tmp_path)

    assert result.params == 12 + 16 + 32  # the coordinates too: nothing tells them apart

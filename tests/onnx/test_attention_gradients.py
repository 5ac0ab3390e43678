"""Gradients of attention: only the products that somebody needs, as in PyTorch."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import helper
from tests.onnx.models import MS, Operand, check_formulas, count, model, uint8, weight, x
from torch import nn
from torch.nn import functional

import ridgeline
from ridgeline.count.result import CountResult

B, H, Q, K, D, V = 2, 3, 5, 7, 4, 6  # sizes that cannot be taken for one another
PAIRS = B * H * Q * K


def macs_of(result: CountResult, path: str) -> dict[str, int]:
    """MACs of a node by phase."""
    return {op.phase: op.cost.macs for op in result.op_costs if op.path == path and op.cost.macs}


def attending(*learned: bool) -> Any:
    """Queries, keys and values, each learned or data."""
    sizes = {"q": (Q, D), "k": (K, D), "v": (K, V)}
    nodes, inputs = [], {}
    for (name, (tokens, dim)), is_learned in zip(sizes.items(), learned, strict=True):
        inputs[f"{name}0"] = x(B, H, tokens, dim)
        op, more = ("Mul", [f"{name}w"]) if is_learned else ("Identity", [])
        nodes.append(helper.make_node(op, [f"{name}0", *more], [name]))
    nodes.append(helper.make_node("Attention", ["q", "k", "v"], ["y"], name="it"))
    stored = {f"{name}w": weight(1) for name, one in zip(sizes, learned, strict=True) if one}
    return model(nodes, inputs, ["y"], stored=stored, opset=23)


class Attending(nn.Module):
    """The same in PyTorch."""

    def __init__(self, *learned: bool) -> None:
        super().__init__()
        self.learned = learned
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(1)) for one in learned if one)

    def forward(self, *data: torch.Tensor) -> torch.Tensor:
        scales = iter(self.scales)
        q, k, v = (one * next(scales) if is_learned else one
                   for one, is_learned in zip(data, self.learned, strict=True))  # fmt: skip
        return functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(
    ("learned", "dims"),
    [
        ((True, True, True), 2 * (D + V)),  # dV, dP, dQ, dK
        ((True, False, False), V + D),  # dP, dQ
        ((False, True, False), V + D),  # dP, dK
        ((False, False, True), V),  # dV
        ((True, True, False), V + 2 * D),  # dP, dQ, dK
        ((True, False, True), 2 * V + D),  # dV, dP, dQ
    ],
)
def test_only_what_somebody_needs(learned: tuple[bool, ...], dims: int, tmp_path: Path) -> None:
    result = count(attending(*learned), tmp_path, mode="train")
    assert macs_of(result, "it") == {"forward": PAIRS * (D + V), "input-grad": PAIRS * dims}
    check_formulas(result)


@pytest.mark.parametrize("learned", [one for one in product((True, False), repeat=3) if any(one)])
def test_as_in_pytorch(learned: tuple[bool, ...], tmp_path: Path) -> None:
    data = [torch.empty(B, H, *sizes) for sizes in ((Q, D), (K, D), (K, V))]
    theirs = ridgeline.count(Attending(*learned), tuple(data), mode="train")
    ours = count(attending(*learned), tmp_path, mode="train")
    assert {name: cost.macs for name, cost in ours.phases.items()} == {
        name: cost.macs for name, cost in theirs.phases.items()
    }


TOKENS, WIDTH = 4, 8
PROJECTED = TOKENS * WIDTH * 3 * WIDTH
ATTENDED = 2 * TOKENS * TOKENS * (4 + 4)  # two heads of 4


def projecting(*, is_first: bool, w: Operand | None = None) -> Any:
    nodes = [helper.make_node("Attention", ["h", "w", "b"], ["y"], name="it", domain=MS,
                              num_heads=2)]  # fmt: skip
    before = helper.make_node("MatMul", ["a", "w0"], ["h"])
    inputs = {"h" if is_first else "a": x(1, TOKENS, WIDTH)}
    stored = {"b": weight(3 * WIDTH)}
    if not is_first:
        nodes, stored = [before, *nodes], {**stored, "w0": weight(WIDTH, WIDTH)}
    if w is None:
        stored["w"] = weight(WIDTH, 3 * WIDTH)
    else:
        inputs["w"] = w
    return model(nodes, inputs, ["y"], stored=stored)


def test_a_projection_that_is_first_has_no_gradient_of_its_input(tmp_path: Path) -> None:
    first = count(projecting(is_first=True), tmp_path, mode="train")
    later = count(projecting(is_first=False), tmp_path, mode="train")

    forward = {"forward": PROJECTED + ATTENDED}
    assert macs_of(first, "it") == {
        **forward, "input-grad": 2 * ATTENDED, "weight-grad": PROJECTED,
    }  # fmt: skip
    assert macs_of(later, "it") == {
        **forward, "input-grad": 2 * ATTENDED + PROJECTED, "weight-grad": PROJECTED,
    }  # fmt: skip
    [bias] = [op.cost for op in first.op_costs if (op.path, op.phase) == ("it", "weight-grad")]
    assert bias.other_flops == TOKENS * 3 * WIDTH
    assert bias.written_bytes == (WIDTH + 1) * 3 * WIDTH * 4
    for result in (first, later):
        check_formulas(result)


def test_a_weight_that_is_data_has_no_gradient(tmp_path: Path) -> None:
    result = count(projecting(is_first=False, w=x(WIDTH, 3 * WIDTH)), tmp_path, mode="train")
    assert macs_of(result, "it") == {
        "forward": PROJECTED + ATTENDED, "input-grad": 2 * ATTENDED + PROJECTED,
    }  # fmt: skip


def test_a_quantised_projection_learns_nothing(tmp_path: Path) -> None:
    node = helper.make_node("QAttention", ["a", "w", "b", "s", "t"], ["y"], name="it", domain=MS,
                            num_heads=2)  # fmt: skip
    inputs = {"a": uint8(1, TOKENS, WIDTH), "w": uint8(WIDTH, 3 * WIDTH),
              "b": x(3 * WIDTH), "s": x(1), "t": x(1)}  # fmt: skip
    result = count(model([node], inputs, ["y"]), tmp_path, mode="train")
    assert macs_of(result, "it") == {"forward": PROJECTED + ATTENDED}

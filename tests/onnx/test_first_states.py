"""Recurrent layers: first states that are zero are not learned; lengths that only data tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import MS, Operand, count, model, one_node, typed, weight, x

# 7 steps of 3 sequences of 8 features, to 16 units
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, SIZE, HIDDEN = 7, 3, 8, 16


def layer(kind: str, state: str, *, batch: int = BATCH, before: list[Any] | None = None,
          **stored: Any) -> Any:  # fmt: skip
    rows = GATES[kind] * HIDDEN
    weights = {"w": weight(1, rows, SIZE), "r": weight(1, rows, HIDDEN)}
    operands = ["a", "w", "r", "", "", state, *([state] if kind == "LSTM" else [])]
    node = helper.make_node(kind, operands, ["", "y"], hidden_size=HIDDEN)
    return model(
        [*(before or []), node],
        {"a": x(STEPS, batch, SIZE)},
        ["y"],
        stored={**weights, **stored},
    )


def weights_of(kind: str) -> int:
    return GATES[kind] * HIDDEN * (SIZE + HIDDEN)


def towards_states(kind: str, batch: int, steps: int) -> int:
    """MACs of the gradients that go to the state before each of so many steps."""
    return GATES[kind] * HIDDEN * HIDDEN * batch * steps


@pytest.mark.parametrize("kind", GATES)
def test_zeros_before_the_first_step_are_not_learned(kind: str, tmp_path: Path) -> None:
    made = layer(kind, "zeros", zeros=weight(1, BATCH, HIDDEN))

    result = count(made, tmp_path, mode="train")

    assert result.params == weights_of(kind)
    assert result.memory.buffer_bytes == BATCH * HIDDEN * 4
    # a first layer: none towards its input, none towards the state before the first step
    assert result.phase("input-grad").macs == towards_states(kind, BATCH, STEPS - 1)
    assert result.phase("weight-grad").macs == STEPS * BATCH * weights_of(kind)


@pytest.mark.parametrize("kind", GATES)
def test_other_numbers_are_learned(kind: str, tmp_path: Path) -> None:
    made = layer(kind, "first", first=np.full((1, BATCH, HIDDEN), 0.5, np.float32))

    result = count(made, tmp_path, mode="train")

    assert result.params == weights_of(kind) + BATCH * HIDDEN
    assert result.phase("input-grad").macs == towards_states(kind, BATCH, STEPS)


def test_zeros_that_were_cut_or_repeated(tmp_path: Path) -> None:
    # given the states of two layers in one, and those of one sequence for 300
    cut = helper.make_node("Slice", ["zeros", "begin", "end", "begin"], ["state"])
    begin, end = np.asarray([0]), np.asarray([1])
    one = layer("GRU", "state", before=[cut], zeros=weight(2, BATCH, HIDDEN), begin=begin, end=end)
    repeated = helper.make_node("Expand", ["zeros", "shape"], ["state"])
    other = layer("GRU", "state", batch=300, before=[repeated], zeros=weight(1, 1, HIDDEN),
                  shape=np.asarray([1, 300, HIDDEN]))  # fmt: skip

    # when both are trained
    cut_result, repeated_result = (count(made, tmp_path, mode="train") for made in (one, other))

    # then neither is learned
    assert cut_result.params == repeated_result.params == weights_of("GRU")
    assert cut_result.phase("input-grad").macs == towards_states("GRU", BATCH, STEPS - 1)
    assert repeated_result.phase("input-grad").macs == towards_states("GRU", 300, STEPS - 1)


@pytest.mark.parametrize(("batch", "is_told"), [(1000, True), (2000, False)])
def test_zeros_are_seen_up_to_64_kib(batch: int, is_told: bool, tmp_path: Path) -> None:
    # given 62.5 and 125 KiB of zeros
    made = layer("GRU", "zeros", batch=batch, zeros=weight(1, batch, HIDDEN))

    result = count(made, tmp_path, mode="train")

    assert result.params == weights_of("GRU") + (0 if is_told else batch * HIDDEN)
    steps = STEPS - is_told
    assert result.phase("input-grad").macs == towards_states("GRU", batch, steps)


# ---------------------------------------------------------------- lengths


LENGTHS = typed(TensorProto.INT32, BATCH)
FULL = "the lengths of the sequences are data, so all are counted as full"


@pytest.mark.parametrize("kind", GATES)
def test_lengths_that_are_not_known_are_full(kind: str, tmp_path: Path) -> None:
    rows = GATES[kind] * HIDDEN
    operands = [x(STEPS, BATCH, SIZE), x(1, rows, SIZE), x(1, rows, HIDDEN), None, LENGTHS]
    made = one_node(kind, operands, outputs=2, hidden_size=HIDDEN)

    open_lengths = count(made, tmp_path)
    known = count(made, tmp_path, values={"in4": np.asarray([7, 2, 1], np.int32)})

    assert open_lengths.notes == (f"onnx::{kind} 'it': {FULL}",)
    assert open_lengths.total.macs == STEPS * BATCH * weights_of(kind)
    assert known.notes == ()
    assert known.total.macs == (7 + 2 + 1) * weights_of(kind)


def test_layers_without_known_lengths_are_one_note(tmp_path: Path) -> None:
    # given 6 layers on one input
    stored = {"w": weight(1, HIDDEN, SIZE), "r": weight(1, HIDDEN, HIDDEN)}
    nodes = [
        helper.make_node("RNN", ["a", "w", "r", "", "n"], ["", f"y{n}"], name=f"layer{n}",
                         hidden_size=HIDDEN)
        for n in range(6)
    ]  # fmt: skip
    inputs = {"a": x(STEPS, BATCH, SIZE), "n": LENGTHS}

    result = count(model(nodes, inputs, [f"y{n}" for n in range(6)], stored=stored), tmp_path)

    names = "'layer0', 'layer1', 'layer2', 'layer3', 'layer4' and 1 more"
    assert result.notes == (f"onnx::RNN {names}: {FULL}",)


def test_packed_attention_without_known_lengths(tmp_path: Path) -> None:
    # given 9 tokens of 2 sequences, of up to 6, in 3 heads of 4
    operands = [x(9, 12), x(9, 12), x(9, 12), None, typed(TensorProto.INT32, 2, 6),
                Operand((3,), TensorProto.INT32)]  # fmt: skip
    made = one_node("PackedMultiHeadAttention", operands, domain=MS, num_heads=3)

    result = count(made, tmp_path)

    assert result.total.macs == 2 * 3 * 6 * 6 * (4 + 4)
    assert result.notes == (f"com.microsoft::PackedMultiHeadAttention 'it': {FULL}",)

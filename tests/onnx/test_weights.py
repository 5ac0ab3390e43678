"""What of a file counts as parameters, and how many weights a packed tensor holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.onnx.models import MS, count, model, x

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


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("val_70", 12),
        ("onnx::Mul_12", 12),
        ("340", 12),
        ("/attn/Sqrt_output_0", 12),
        # the path of a parameter
        ("scale", 12 + 1),
        ("layers.0.scale", 12 + 1),
    ],
)
@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_a_single_number_that_an_exporter_named(
    op: str, name: str, params: int, tmp_path: Path
) -> None:
    # given a product with 3x4 weights, and a number that every element is multiplied with
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node(op, ["h", name], ["y"], name="scaled"),
    ]
    stored = {"w": np.ones((3, 4), np.float32), name: np.ones(1, np.float32)}
    result = count(model(nodes, {"a": x(2, 3)}, ["y"], stored=stored), tmp_path, mode="train")
    # then it is a parameter, with a gradient and an update, if its name is that of one
    learned = [phase for path, phase in {(op.path, op.phase) for op in result.op_costs}
               if path == "scaled" and phase in ("weight-grad", "optimizer")]  # fmt: skip
    assert result.params == params
    assert sorted(learned) == (["optimizer", "weight-grad"] if params > 12 else [])

"""Attention that sees less than all: windows, packed sequences, rows of rotary tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import (
    MS,
    Operand,
    check_formulas,
    count,
    known,
    model,
    one_node,
    typed,
    weight,
    x,
)

F = 4  # bytes of a float32
SCORE = 4 + 1  # FLOPs of the softmax and the scale


def grouped(tokens: int, past: int = 0, **settings: Any) -> Any:
    """2 heads of 8 with one of keys; a past of so many tokens."""
    before: list[Operand | None] = [x(1, 1, past, 8), x(1, 1, past, 8)] if past else [None, None]
    operands = [x(1, tokens, 16), x(1, tokens, 8), x(1, tokens, 8), *before,
                typed(TensorProto.INT32, 1), typed(TensorProto.INT32)]  # fmt: skip
    return one_node("GroupQueryAttention", operands, domain=MS, outputs=3, num_heads=2,
                    kv_num_heads=1, **settings)  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "past", "window", "causal", "pairs"),
    [
        (9, 0, 4, "half", 1 + 2 + 3 + 4 * 6),  # as onnxruntime's kernel has them
        (9, 0, 1, "half", 9),
        (9, 0, 20, "half", 45),  # wider than all there is
        (9, 0, -1, "half", 45),
        (9, 0, 4, "full", 81),
        (3, 5, 7, "half", 6 + 7 + 7),  # the past is seen too
        (1, 99, 16, "half", 16),
    ],
)
def test_a_window_leaves_the_last_keys(
    tokens: int, past: int, window: int, causal: str, pairs: int, tmp_path: Path
) -> None:
    result = count(grouped(tokens, past, local_window_size=window), tmp_path, causal=causal)

    assert result.total.macs == 2 * pairs * (8 + 8)
    assert result.total.other_flops == SCORE * 2 * pairs
    check_formulas(result)


@pytest.mark.parametrize(
    ("settings", "pairs"),
    [
        ({"is_causal": 1, "left_window_size": 3}, 1 + 2 + 3 + 4 * 6),
        ({"is_causal": 1, "left_window_size": 0}, 9),
        ({"is_causal": 1}, 45),
        ({"right_window_size": 0, "left_window_size": 3}, 30),  # causal by another name
        ({"right_window_size": 1, "left_window_size": 3}, 81),  # not causal, so all
    ],
)
def test_a_window_of_onnx(settings: dict[str, Any], pairs: int, tmp_path: Path) -> None:
    made = one_node("Attention", [x(1, 2, 9, 8)] * 3, opset=25, **settings)

    assert count(made, tmp_path, causal="half").total.macs == 2 * pairs * (8 + 8)


# ---------------------------------------------------------------- packed sequences


ENDS = known([0, 6, 9], np.int32)  # sequences of 6 and of 3 tokens
OFFSETS = typed(TensorProto.INT32, 2, 6)
PAIRS = 6 * 6 + 3 * 3


def test_packed_sequences_attend_to_themselves(tmp_path: Path) -> None:
    # given 3 heads of 4
    operands = [x(9, 12), x(9, 12), x(9, 12), None, OFFSETS, ENDS]
    made = one_node("PackedMultiHeadAttention", operands, domain=MS, num_heads=3)

    result = count(made, tmp_path)

    assert result.total.macs == 3 * PAIRS * (4 + 4)
    assert result.total.other_flops == SCORE * 3 * PAIRS
    assert result.notes == ()
    check_formulas(result)


def test_packed_sequences_with_a_projection(tmp_path: Path) -> None:
    # given 9 tokens of 10 features to 3·12, in 3 heads of 4
    operands = [x(9, 10), x(10, 36), x(36), OFFSETS, ENDS]
    made = one_node("PackedAttention", operands, domain=MS, num_heads=3)

    result = count(made, tmp_path)

    assert result.total.macs == 9 * 10 * 36 + 3 * PAIRS * (4 + 4)
    assert result.total.other_flops == SCORE * 3 * PAIRS + 9 * 36
    check_formulas(result)


def test_ends_that_fall_are_not_counted(tmp_path: Path) -> None:
    operands = [x(9, 12), x(9, 12), x(9, 12), None, OFFSETS, known([0, 9, 6], np.int32)]
    made = one_node("PackedMultiHeadAttention", operands, domain=MS, num_heads=3)

    result = count(made, tmp_path)

    assert list(result.unknown) == ["com.microsoft::PackedMultiHeadAttention"]
    assert "a sequence ends before it begins" in result.notes[0]


# ---------------------------------------------------------------- rotary tables


TABLE = weight(4096, 4)  # cosines or sines of 4,096 places, for heads of 8


def turned(past: int, *, do_rotary: int = 1) -> Any:
    """5 tokens of 2 sequences, in 2 heads of 8 with one of keys."""
    inputs = {"q": x(2, 5, 16), "k": x(2, 5, 8), "v": x(2, 5, 8), "pk": x(2, 1, past, 8),
              "pv": x(2, 1, past, 8), "n": typed(TensorProto.INT32, 2),
              "t": typed(TensorProto.INT32)}  # fmt: skip
    node = helper.make_node(
        "GroupQueryAttention", [*inputs, "cos", "sin"], ["y", "nk", "nv"], domain=MS, num_heads=2,
        kv_num_heads=1, do_rotary=do_rotary,
    )  # fmt: skip
    return model([node], inputs, ["y", "nk", "nv"], stored={"cos": TABLE, "sin": TABLE})


@pytest.mark.parametrize(
    ("past", "do_rotary", "rows"),
    [(0, 1, 5), (3, 1, 2 * 5), (3, 0, 0)],
    ids=["at the start all are at the same places", "each at its own", "not turned"],
)
def test_rows_of_tables_inside_attention(
    past: int, do_rotary: int, rows: int, tmp_path: Path
) -> None:
    made = turned(past, do_rotary=do_rotary)

    result = count(made, tmp_path)

    inputs = (2 * 5 * (16 + 8 + 8) + 2 * 2 * past * 8) * F + 3 * 4
    assert result.total.read_bytes == inputs + 2 * rows * 4 * F
    assert result.fused.read_bytes == result.total.read_bytes
    assert result.params == 0
    assert result.memory.buffer_bytes == 2 * TABLE.nbytes


def test_tables_of_sparse_attention(tmp_path: Path) -> None:
    # given 3 tokens of 2 sequences, 7 with those before, in 4 heads of 5 with 2 of keys
    operands = {
        "q": x(2, 3, 20), "k": x(2, 3, 10), "v": x(2, 3, 10), "pk": x(2, 2, 32, 5),
        "pv": x(2, 2, 32, 5), "rows": typed(TensorProto.INT32, 1, 3),
        "columns": typed(TensorProto.INT32, 1, 3),
    }  # fmt: skip
    node = helper.make_node(
        "SparseAttention", [*operands, "total", "n", "cos", "sin"], ["y", "nk", "nv"], domain=MS,
        num_heads=4, kv_num_heads=2, sparse_block_size=16, do_rotary=1,
    )  # fmt: skip
    stored = {"total": np.asarray(7, np.int32), "n": np.asarray([7, 7], np.int32),
              "cos": weight(4096, 2), "sin": weight(4096, 2)}  # fmt: skip

    result = count(model([node], operands, ["y", "nk", "nv"], stored=stored), tmp_path)

    inputs = (2 * 3 * 40 + 2 * 2 * 2 * 32 * 5) * F + (3 + 3 + 1 + 2) * 4
    assert result.total.read_bytes == inputs + 2 * (2 * 3) * 2 * F
    assert result.params == 0

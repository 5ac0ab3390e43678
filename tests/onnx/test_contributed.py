"""The operators of onnxruntime that are counted, by hand, and one that is not."""

from __future__ import annotations

from pathlib import Path

from tests.onnx.models import (
    MS,
    Case,
    check,
    count,
    int64,
    one_node,
    table,
    x,
)

F = 4
# FLOPs an element
GELU_TANH = 8


@table(
    Case("gelu by tanh", "FastGelu", [x(2, 7)], other=GELU_TANH * 14, transcendental=14,
         domain=MS),
    Case("gelu by tanh, of a sum", "FastGelu", [x(2, 7), x(7)], other=(1 + GELU_TANH) * 14,
         transcendental=14, read=(14 + 7) * F, domain=MS),
    Case("rotary", "RotaryEmbedding", [x(2, 3, 5, 8), int64(2, 5), x(1000, 4), x(1000, 4)],
         other=3 * 240, read=240 * F + 80 + 2 * 10 * 4 * F, written=240 * F, domain=MS),
    Case("rotary, a part of each head", "RotaryEmbedding",
         [x(2, 5, 24), int64(2, 5), x(11, 3), x(11, 3)], other=3 * 10 * 3 * 6, written=240 * F,
         domain=MS, attributes={"num_heads": 3, "rotary_embedding_dim": 6}),
)  # fmt: skip
def test_contributed(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_an_operator_without_a_formula_is_listed_with_its_bytes(tmp_path: Path) -> None:
    # given one of the operators that are not counted, on 6 elements of 4 bytes
    result = count(one_node("ScaledSiLU", [x(6)], domain=MS), tmp_path)
    assert (list(result.unknown), result.coverage) == (["com.microsoft::ScaledSiLU"], 0)
    assert (result.total.macs, result.total.flops, result.total.read_bytes) == (0, 0, 24)

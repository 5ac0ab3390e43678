"""A formula that is printed with its numbers has the value of the row it stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.onnx.models import MS, check_formulas, count, int64, known, one_node, x


@pytest.mark.parametrize(
    ("made", "formula"),
    [
        (one_node("Einsum", [x(2, 3), x(3, 4), x(4, 5)], equation="ab,bc,cd->ad"),
         "2·a·b·c + 2·a·c·d = 2·2·3·4 + 2·2·4·5 = 128"),
        (one_node("Einsum", [x(2), x(3), x(4)], equation="i,j,k->ijk"),
         "i·j + i·j·k = 2·3 + 2·3·4 = 30"),
        (one_node("Einsum", [x(5, 3)], equation="ij->i"), "i·j = 5·3 = 15"),
        (one_node("ReduceMean", [x(2, 6)], keepdims=0), "n + results = 12 + 1 = 13"),
        (one_node("AveragePool", [x(1, 2, 6, 6)], kernel_shape=[2, 2], strides=[2, 2]),
         "n·window + n = 18·4 + 18 = 90"),
        (one_node("TopK", [int64(2, 6), known([4])], outputs=2), ""),  # no floating-point work
        (one_node("Attention", [x(2, 5, 16), x(16, 48), x(48)], domain=MS, num_heads=4),
         "2·B·H·pairs·(Dqk+Dv) + 2·tokens·Cin·(q+k+v) + other"
         " = 2·8·25·8 + 2·10·16·48 + 1480 = 20040"),
    ],
    ids=["three operands", "outer products", "a sum", "mean", "pool", "integers", "projection"],
)  # fmt: skip
def test_the_formula_is_the_one_that_was_used(made: Any, formula: str, tmp_path: Path) -> None:
    result = count(made, tmp_path)
    assert result.op_costs[0].formula == formula
    check_formulas(result)

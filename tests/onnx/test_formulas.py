"""A formula that is printed with its numbers has the value of the row it stands in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.onnx.models import MS, check_formulas, count, int64, known, one_node, x
from tests.onnx.test_nodes_of_onnx import cases, counted

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx


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


def test_a_repeated_sum_of_products(tmp_path: Path) -> None:
    # given the Einsum above in a loop that runs 7 times
    einsum = one_node("Einsum", [x(2, 3), x(3, 4), x(4, 5)], equation="ab,bc,cd->ad")
    body = einsum.graph
    go = onnx.helper.make_node("Identity", ["go"], ["on"])
    body.node.append(go)
    del body.input[:]
    body.input.extend([onnx.helper.make_tensor_value_info("i", 7, ()),
                       onnx.helper.make_tensor_value_info("go", 9, ())])  # fmt: skip
    body.output.insert(0, onnx.ValueInfoProto(name="on"))
    loop = onnx.helper.make_node("Loop", ["n", ""], ["out0"], name="steps", body=body)
    made = one_node("Identity", [x(2, 3), x(3, 4), x(4, 5)])
    del made.graph.node[:]
    made.graph.node.append(loop)
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(7), "n"))

    result = count(made, tmp_path)

    assert result.op_costs[0].formula == (
        "2·times·a·b·c + 2·times·a·c·d = 2·7·2·3·4 + 2·7·2·4·5 = 896"
    )
    assert result.total.macs == 7 * 64


@pytest.mark.slow
def test_every_node_test_has_formulas_with_its_numbers(tmp_path: Path) -> None:
    written = sum(check_formulas(result) for _, result in counted(tmp_path))

    assert written > 3000


@pytest.mark.slow
def test_gradients_have_formulas_with_their_numbers(tmp_path: Path) -> None:
    """The node tests again, with every operand but the first stored, in training."""
    path, written = tmp_path / "model.onnx", 0

    for case in cases():
        path.write_bytes(_stored(case).SerializeToString())
        try:
            result = count_onnx(path, mode="train")
        except RidgelineError:  # an open dimension, a loop without a number of passes
            continue
        written += check_formulas(result)

    assert written > 5000


def _stored(case: Any) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value, array in list(zip(model.graph.input, case.data_sets[0][0], strict=False))[1:]:
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return model

"""Versions of operators that a file names oddly, or not at all: a note says what is taken."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper
from tests.onnx.models import count, model, one_node, weight, x

NEWEST = onnx.defs.onnx_opset_version()
TAKEN = f"the newest, {NEWEST}, is taken"


@pytest.mark.parametrize(
    ("versions", "notes"),
    [
        ([("", 21)], ()),
        ([("", NEWEST)], ()),
        ([("ai.onnx", 21), ("", 21)], ()),
        ([("", 99)], (f"onnx knows no version 99 of ai.onnx: {TAKEN}",)),
        ([("", 0)], (f"onnx knows no version 0 of ai.onnx: {TAKEN}",)),
        ([("", -3)], (f"onnx knows no version -3 of ai.onnx: {TAKEN}",)),
        ([], (f"the file does not say its version of ai.onnx: {TAKEN}",)),
        ([("own", 1)], (f"the file does not say its version of ai.onnx: {TAKEN}",)),
        ([("", 21), ("ai.onnx", 7)],
         ("the file names several versions of ai.onnx: 7, the last one, is taken",)),
        ([("", 21), ("own", 2), ("own", 1)],
         ("the file names several versions of own: 1, the last one, is taken",)),
    ],
)  # fmt: skip
def test_versions(versions: list[tuple[str, int]], notes: tuple[str, ...], tmp_path: Path) -> None:
    made = one_node("MatMul", [x(2, 3), x(3, 4)])
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*version) for version in versions)

    result = count(made, tmp_path)

    assert (result.total.macs, result.coverage, result.notes) == (2 * 3 * 4, 1, notes)


def test_a_function_that_names_an_odd_version(tmp_path: Path) -> None:
    # given own::f, written in version 99; it is called in a file of 21
    inner = [helper.make_node("MatMul", ["a", "b"], ["c"])]
    made = one_node("f", [x(2, 3), x(3, 4)], domain="own")
    made.functions.append(
        helper.make_function("own", "f", ["a", "b"], ["c"], inner, [helper.make_opsetid("", 99)])
    )

    result = count(made, tmp_path)

    notes = (f"onnx knows no version 99 of ai.onnx: {TAKEN}",)
    assert (result.total.macs, result.notes) == (2 * 3 * 4, notes)


def test_a_file_of_opset_1_is_converted(tmp_path: Path) -> None:
    # given a Reshape by an attribute, a Concat without an axis and a Gemm that broadcasts its bias
    nodes = [
        helper.make_node("Reshape", ["a"], ["b"], shape=[0, -1]),
        helper.make_node("Concat", ["b", "b"], ["c"]),
        helper.make_node("Gemm", ["c", "w", "d"], ["y"], broadcast=1),
    ]
    stored = {"w": weight(12, 5), "d": weight(5)}
    made = model(nodes, {"a": x("batch", 2, 3)}, ["y"], stored=stored, opset=1)

    result = count(made, tmp_path, batch_size=2)

    assert (result.total.macs, result.total.other_flops) == (2 * 12 * 5, 2 * 5)
    assert result.coverage == 1

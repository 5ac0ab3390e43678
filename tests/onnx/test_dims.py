"""Open dimensions: named, bound, asked for, never taken for 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from tests.onnx.models import Operand, count, int64, known, model, one_node, typed, weight, x

from ridgeline.errors import RidgelineError

NO_BATCH = (
    "so the batch cannot be 8\n"
    "  hint: leave --batch-size out, or export the model with a dynamic batch dimension;"
    " --dim NAME=N gives any open dimension by its name"
)
RELU = [helper.make_node("Relu", ["a"], ["y"])]


def relu(*shape: Any) -> Any:
    return model(RELU, {"a": x(*shape)}, ["y"])


@pytest.mark.parametrize(
    ("shape", "settings", "flops", "batch"),
    [
        (("batch", 3), {"batch_size": 8}, 24, 8),
        (("N", 3), {"batch_size": 8}, 24, 8),
        (("s77", 3), {"batch_size": 8}, 24, 8),
        ((None, 3), {"batch_size": 8}, 24, 8),
        (("batch", "seq"), {"batch_size": 8, "dims": {"seq": 5}}, 40, 8),
        (("seq", "batch"), {"batch_size": 8, "dims": {"seq": 5}}, 40, 8),
        (("batch", "seq"), {"dims": {"seq": 5, "batch": 8}}, 40, 8),
        ((None, None), {"dims": {"a_1": 5, "a_0": 8}}, 40, 8),
        (("batch", "2*batch"), {"batch_size": 3, "dims": {"2*batch": 6}}, 18, 3),
        (("x_batch", "batch"), {"batch_size": 8, "dims": {"x_batch": 5}}, 40, 8),
        (("batch_x", "Batch_Size"), {"batch_size": 8, "dims": {"batch_x": 5}}, 40, 8),
        (("n", "k", "n-k"), {"batch_size": 2, "dims": {"k": 3, "n-k": 5}}, 30, 2),
        (("batch", "past + 1"), {"batch_size": 2, "dims": {"past + 1": 4}}, 8, 2),
        ((4, 3), {}, 12, 4),
        ((4, 3), {"batch_size": 4}, 12, 4),
    ],
)
def test_dimensions_are_bound(
    shape: tuple[Any, ...], settings: dict[str, Any], flops: int, batch: int, tmp_path: Path
) -> None:
    result = count(relu(*shape), tmp_path, **settings)
    assert (result.total.other_flops, result.batch_size) == (flops, batch)
    is_open = shape[0] != 4
    assert [note.startswith(f"the batch of {batch} is") for note in result.notes] == [
        True
    ] * is_open


@pytest.mark.parametrize(
    ("shape", "settings", "says"),
    [
        (("batch", "seq"), {},
         "the file leaves 2 dimensions open: batch (of a[0]); seq (of a[1])\n"
         "  hint: give --batch-size N (it is 'batch') and --dim seq=N"),
        (("batch", "seq"), {"batch_size": 2},
         "the file leaves 1 dimension open: seq (of a[1])\n  hint: give --dim seq=N"),
        (("seq_len", 3), {"batch_size": 2},
         "the file leaves 1 dimension open: seq_len (of a[0])\n  hint: give --dim seq_len=N"),
        ((4, 3), {"batch_size": 8}, f"the file has a batch of 4, {NO_BATCH}"),
        (("batch", 3), {"batch_size": 8, "dims": {"batch": 4}},
         "--batch-size 8 and --dim batch=4 name the same dimension\n  hint: give one of them"),
        (("batch", 3), {"batch_size": 8, "dims": {"sqe": 4}},
         "no dimension or loop is called 'sqe'\n"
         "  hint: the open dimensions of this file: batch"),
        (("batch", "past + seq"), {"batch_size": 3},
         "the file leaves 1 dimension open: past + seq (of a[1])\n"
         "  hint: give --dim 'past + seq=N'"),
        (("batch", 3), {"batch_size": 0},
         "--batch-size: 0 is not a valid size\n"
         f"  hint: sizes are whole numbers from 1 to {1 << 48}"),
        (("n", 3), {"dims": {"n": 0}},
         "--dim n=0: this dimension is taken for the batch\n  hint: give 1 or more"),
    ],
)  # fmt: skip
def test_what_is_missing_is_asked_for(
    shape: tuple[Any, ...], settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(RidgelineError) as raised:
        count(relu(*shape), tmp_path, **settings)
    assert str(raised.value) == says


def test_weights_among_the_inputs_are_no_inputs(tmp_path: Path) -> None:
    proto = model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": x("batch", 3)}, ["y"],
                  stored={"w": known([[1.0]] * 3, "float32").array})  # fmt: skip
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, (3, 1)))
    result = count(proto, tmp_path, batch_size=2)
    assert (result.total.macs, result.params) == (6, 3)


# ---------------------------------------------------------------- computed shapes


def computed(*nodes: Any, inputs: dict[str, Operand] | None = None, **stored: Any) -> Any:
    arrays = {name: known(value).array for name, value in stored.items()}
    return model(nodes, inputs or {"a": x("batch", 6, 4)}, ["y"], stored=arrays)


def node(op: str, operands: str, result: str, **attributes: Any) -> Any:
    return helper.make_node(op, operands.split(), [result], name=result, **attributes)


def test_an_unknown_shape_is_listed(tmp_path: Path) -> None:
    proto = model([node("Reshape", "a target", "b"), node("Exp", "b", "y")],
                  {"a": x(2, 6), "target": int64(2)}, ["y"])  # fmt: skip
    result = count(proto, tmp_path)
    assert result.unknown == {"onnx::Exp": {"calls": 1, "bytes": 0, "share": 0.0}}
    assert result.coverage == 0.5
    assert result.notes == (
        "onnx::Reshape 'b': the shape of its result is not known",
        "not counted further on, of operands without a shape: 'y'",
    )


def test_a_number_among_the_inputs_may_be_given(tmp_path: Path) -> None:
    proto = one_node("TopK", [x(4, 8), int64(1)], outputs=2)  # its k is an input
    note = "onnx::TopK 'it': not counted: the shape of 'out0', 'out1' is not known"
    assert count(proto, tmp_path).notes == (note,)
    assert count(proto, tmp_path, dims={"in1": 3}).op_costs[0].call.outputs[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (one_node("NonZero", [x(4, 3)]), 2 * 12 * 8),
        (one_node("Compress", [x(4, 3), typed(TensorProto.BOOL, 4)], axis=0), 12 * 4),
        (one_node("Compress", [x(4, 3), typed(TensorProto.BOOL, 2)], axis=0), 6 * 4),
        (one_node("Compress", [x(4, 3), typed(TensorProto.BOOL, 7)]), 7 * 4),
        (one_node("Unique", [x(4, 3)]), 12 * 4),
        (one_node("NonMaxSuppression", [x(1, 10, 4), x(1, 3, 10), known([2])]), 6 * 3 * 8),
    ],
    ids=["NonZero", "Compress", "short condition", "flat", "Unique", "boxes"],
)
def test_no_more_is_kept_than_there_is(made: Any, written: int, tmp_path: Path) -> None:
    result = count(made, tmp_path)
    assert result.total.written_bytes == written
    assert "keeps as much as its data say: the most it could is counted" in result.notes[0]


# ---------------------------------------------------------------- inputs without a shape


@pytest.mark.parametrize(
    ("settings", "macs", "coverage"),
    [
        ({"dims": {"a_0": 3, "a_1": 8}}, 3 * 8 * 4, 1),
        ({"batch_size": 3, "dims": {"a_1": 8}}, 3 * 8 * 4, 1),
        ({"dims": {"a_0": 3, "a_1": 5, "a_2": 8}}, 3 * 5 * 8 * 4, 1),
        ({}, 0, 0),
    ],
)
def test_sizes_from_the_user_make_the_shape(
    settings: dict[str, Any], macs: int, coverage: float, tmp_path: Path
) -> None:
    product = helper.make_node("MatMul", ["a", "w"], ["y"], name="product")
    made = model([product], {}, ["y"], stored={"w": weight(8, 4)})
    made.graph.input.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    result = count(made, tmp_path, **settings)
    assert (result.total.macs, result.coverage) == (macs, coverage)

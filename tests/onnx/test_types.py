"""What a file says of inputs and outputs, however much that is: names and shapes are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from tests.onnx.models import count, model, weight, x

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx, skeleton


def product(shape: tuple[Any, ...] = (2, 3)) -> Any:
    """a·w, with w of (3, 3)."""
    nodes = [helper.make_node("MatMul", ["a", "w"], ["y"])]
    made = model(nodes, {"a": x(*shape)}, ["y"], stored={"w": weight(3, 3)})
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return made


def documented(value: Any) -> None:
    value.doc_string = "d" * 200_000


def with_metadata(value: Any) -> None:
    value.metadata_props.add(key="k", value="v" * 100_000)


def denoted(value: Any) -> None:
    value.type.denotation = "q" * 10_000


def with_denoted_sides(value: Any) -> None:
    for dim in value.type.tensor_type.shape.dim:
        dim.denotation = "q" * 10_000


@pytest.mark.parametrize("say", [documented, with_metadata, denoted, with_denoted_sides])
def test_notes_beside_a_type_are_left_out(say: Callable[[Any], None], tmp_path: Path) -> None:
    made = product()
    for value in (*made.graph.input, *made.graph.output):
        say(value)

    result = count(made, tmp_path)

    assert (result.total.macs, result.coverage, result.notes) == (2 * 3 * 3, 1, ())
    assert result.modules[""].input_shapes == result.modules[""].output_shapes == ((2, 3),)
    assert len(skeleton.read_skeleton(tmp_path / "model.onnx")) < 500


def test_a_sequence_with_notes(tmp_path: Path) -> None:
    items = helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 3))
    items.denotation = "q" * 10_000
    made = model([helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)], {}, ["y"])
    made.graph.input.append(helper.make_value_info("xs", helper.make_sequence_type_proto(items)))

    result = count(made, tmp_path, dims={"xs_length": 5})

    assert result.modules[""].output_shapes == ((10, 3),)


LONG = "s" * 5000


def test_a_name_beyond_64_kib(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="a name in it is longer than 64 KiB"):
        count(product(("s" * 70_000, 3)), tmp_path)


@pytest.mark.parametrize("rank", [65, 4000, 20_000])
def test_an_input_of_too_many_dimensions(rank: int, tmp_path: Path) -> None:
    with pytest.raises(RidgelineError) as raised:
        count(product((1,) * rank), tmp_path)

    assert str(raised.value) == (
        f"{tmp_path / 'model.onnx'} is not a readable ONNX model:"
        " the input 'a' has more than 64 dimensions\n"
        "  hint: check that the file is whole and that it is ONNX"
    )


def test_an_output_of_too_many_dimensions_is_not_believed(tmp_path: Path) -> None:
    made = product()
    made.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (1 << 40,) * 20_000)
    )

    result = count(made, tmp_path)

    assert (result.total.macs, result.modules[""].output_shapes) == (18, ((2, 3),))


@pytest.mark.parametrize("side", [2**48 + 1, 2**62])
def test_a_side_that_nothing_has(side: int, tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match=f"a side of the input 'a' is too large: {side}\n"):
        count(product((side, 3)), tmp_path)


def test_an_input_that_nothing_has_room_for(tmp_path: Path) -> None:
    side = 2**40

    with pytest.raises(RidgelineError) as raised:
        count(product(("b", side, side)), tmp_path, batch_size=side)

    assert str(raised.value) == (
        f"the input 'a' is too large: {side}·{side}·{side}\n"
        "  hint: give smaller sizes, or check those in the file"
    )


def test_inputs_whose_names_are_too_long_together(tmp_path: Path) -> None:
    # given 300 of 60,000 characters, each of which is fine
    made = product()
    for n in range(300):
        made.graph.input.append(
            helper.make_tensor_value_info(f"{n}" + "i" * 60_000, TensorProto.FLOAT, (1,))
        )
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())

    with pytest.raises(RidgelineError, match="its inputs and outputs take more than 16 MiB"):
        count_onnx(path)


def test_a_side_of_items_whose_name_is_no_text(tmp_path: Path) -> None:
    # given a sequence of tensors, one side of which is called by bytes that are no UTF-8
    items = helper.make_tensor_type_proto(TensorProto.FLOAT, ["NAME", 5])
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(items))
    made = model([helper.make_node("SequenceLength", ["s"], ["y"])], {}, ["y"])
    made.graph.input.append(sequence)
    file = tmp_path / "bytes.onnx"
    file.write_bytes(made.SerializeToString().replace(b"NAME", b"\xff\xfe\xfd\xfc"))

    with pytest.raises(RidgelineError, match="a name in it is not text"):
        count_onnx(file)


def test_an_input_of_a_long_name_is_shortened_and_escaped_once(tmp_path: Path) -> None:
    name = "\x1b" + "n" * 5000
    made = model([helper.make_node("Relu", [name], ["y"])], {name: x("N", 3)}, ["y"])

    (note,) = count(made, tmp_path, batch_size=2).notes

    assert note == (f"the batch of 2 is the dimension 'N' (input '\\x1b{'n' * 199}…', axis 0)")

"""Files that would take gigabytes or hours: one clear error, soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest
from onnx import helper
from tests.onnx.models import model, one_node, x
from tests.onnx.test_loading import MIB, field

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx, graph, load

MOST_S = 30  # a few seconds, but not beside other tests
NODE = field(1, field(1, b"a") + field(2, b"y") + field(4, b"Relu"))


def stored(dims: bytes) -> bytes:
    """An initializer `w` of int64."""
    return field(5, dims + b"\x10\x07" + field(8, b"w"))


def open_input(name: bytes, rank: int) -> bytes:
    shape = field(2, field(1, b"") * rank)
    return field(11, field(1, name) + field(2, field(1, b"\x08\x01" + shape)))


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "dimensions of many tensors": (
        lambda: NODE + stored(dims=field(1, b"\x01" * 60_000)) * 4000,
        "its graph alone is larger than 128 MiB"),
    "an input of many dimensions": (
        lambda: NODE + open_input(b"x", 1900), "too many or too large dimensions"),
    "inputs of many dimensions": (
        lambda: NODE + b"".join(open_input(b"x%d" % n, 60) for n in range(20_000)),
        "too many or too large dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_the_file(name: str, tmp_path: Path) -> None:
    make, says = BOMBS[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(field(7, make()))
    start_s = perf_counter()
    with pytest.raises(RidgelineError, match=says):
        count_onnx(path)
    assert perf_counter() - start_s < MOST_S


def test_text_that_nothing_needs_is_left_out(tmp_path: Path) -> None:
    # given a node with 50 MiB of text, as compiled models are kept in, beside a plain one
    made = one_node("Relu", [x(2, 3)])
    made.graph.node.append(
        helper.make_node("Engine", ["in0"], ["z"], domain="own", blob=b"a" * (50 * MIB))
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    assert len(load.read_skeleton(path)) < 1000
    result = count_onnx(path)
    assert (result.total.other_flops, list(result.unknown)) == (6, ["own::Engine"])


# ---------------------------------------------------------------- small files that multiply


RELU = helper.make_node("Relu", ["a"], ["b"])


def test_calls_that_double_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 21)]
    functions = [helper.make_function("own", "f30", ["a"], ["b"], [RELU], opsets)]
    for n in range(30):
        inner = [helper.make_node(f"f{n + 1}", ["a"], ["c"], domain="own"),
                 helper.make_node(f"f{n + 1}", ["c"], ["b"], domain="own")]  # fmt: skip
        functions.append(helper.make_function("own", f"f{n}", ["a"], ["b"], inner, opsets))
    node = helper.make_node("f0", ["a"], ["b"], domain="own")
    path = tmp_path / "model.onnx"
    made = model([node], {"a": x(1)}, ["b"], functions=functions)
    path.write_bytes(made.SerializeToString())
    monkeypatch.setattr(graph, "MOST_CALLS", 1000)  # so that the test is quick
    with pytest.raises(RidgelineError, match="functions and loops make more than 1,000 nodes"):
        count_onnx(path)

"""Files that would take gigabytes or hours: one clear error, soon, in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest
from onnx import helper
from tests.onnx.models import model, one_node, x
from tests.onnx.test_loading import MIB, field

from ridgeline.errors import RidgelineError
from ridgeline.onnx import count_onnx, scope, skeleton

MOST_S, MOST_MIB = 30, 1024  # a few seconds, but not beside other tests


def node(
    op: bytes = b"Relu", name: bytes = b"it", result: bytes = b"y", more: bytes = b""
) -> bytes:
    return field(1, field(1, b"a") + field(2, result) + field(3, name) + field(4, op) + more)


def graph(*parts: bytes) -> bytes:
    return field(7, b"".join(parts))


def stored(dims: bytes = b"\x08\x01", payload: bytes = b"") -> bytes:
    """An initializer `w` of int64."""
    return field(5, dims + b"\x10\x07" + field(8, b"w") + payload)


def attribute(number: int, body: bytes, kind: int) -> bytes:
    return field(5, field(1, b"axes") + b"\xa0\x01" + bytes([kind]) + field(number, body))


def open_input(name: bytes, rank: int) -> bytes:
    shape = field(2, field(1, b"") * rank)
    return field(11, field(1, name) + field(2, field(1, b"\x08\x01" + shape)))


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "the name of an operator": (
        lambda: graph(node(op=b"a" * (60 * MIB))), "a name in it is longer than 64 KiB"),
    "many long names": (
        lambda: graph(*(node(name=b"a" * 60_000) for _ in range(4000))),
        "its graph alone is larger than 256 MiB"),
    "dimensions of many tensors": (
        lambda: graph(node(), stored(dims=field(1, b"\x01" * 60_000)) * 4000),
        "it has more than 5,000,000 fields"),
    "numbers of an attribute": (
        lambda: graph(node(more=attribute(8, b"\x01" * (60 * MIB), 7))),
        "it has more than 5,000,000 fields"),
    "numbers of small tensors": (
        lambda: graph(node(), stored(payload=field(7, b"\x01" * 60_000)) * 4000),
        "its graph alone is larger than 256 MiB"),
    "types of inputs": (
        lambda: graph(node(), *(open_input(b"x%d" % n, 1900) for n in range(5000))),
        "its inputs and outputs take more than 16 MiB"),
    "an input of many dimensions": (
        lambda: graph(node(), open_input(b"x", 1900)), "too many or too large dimensions"),
    "an input of many million dimensions": (
        lambda: graph(node(), open_input(b"x", 9_000_000)), "it has more than 5,000,000 fields"),
    "inputs of many dimensions": (
        lambda: graph(node(), *(open_input(b"x%d" % n, 60) for n in range(20_000))),
        "too many or too large dimensions"),
    "nodes": (lambda: graph(field(1, field(4, b"Relu")) * 600_000), "more than 500,000 nodes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_the_file(name: str, tmp_path: Path) -> None:
    make, says = BOMBS[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(make())
    start_s = perf_counter()
    with pytest.raises(RidgelineError, match=says):
        count_onnx(path)
    assert perf_counter() - start_s < MOST_S


MEASURED = """
import json, re, sys
from pathlib import Path
from ridgeline.onnx import count_onnx
from ridgeline.errors import RidgelineError
said = []
for path in sys.argv[1:]:
    try:
        count_onnx(path)
        said.append("")
    except RidgelineError as error:
        said.append(str(error))
most_kib = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
print(json.dumps([said, int(most_kib)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the most memory")
def test_bombs_take_little_memory(tmp_path: Path) -> None:
    # given those that took most, and files just below what is refused
    paths = []
    for n, make in enumerate([*(BOMBS[name][0] for name in HEAVY), *LARGE]):
        paths.append(tmp_path / f"{n}.onnx")
        paths[-1].write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *paths], capture_output=True, text=True, check=True
    )
    said, most_kib = json.loads(done.stdout)
    assert [bool(text) for text in said] == [True] * len(HEAVY) + [False] * len(LARGE)
    assert most_kib / 1024 < MOST_MIB


HEAVY = ("dimensions of many tensors", "numbers of an attribute", "types of inputs",
         "an input of many dimensions")  # fmt: skip
LARGE: list[Callable[[], bytes]] = [
    lambda: graph(node(more=attribute(8, b"\xff\x01" * 4_900_000, 7)), open_input(b"a", 0)),
    lambda: graph(node(), open_input(b"a", 0), *(
        field(5, b"\x08\x80\x20\x10\x0b" + field(8, b"w%d" % n) + field(9, bytes(32_768)))
        for n in range(7500))),
    lambda: graph(open_input(b"a", 0), *(
        node(name=b"%d" % n + b"a" * 60_000, result=b"%d" % n) for n in range(2000))),
]  # fmt: skip


def test_text_that_nothing_needs_is_left_out(tmp_path: Path) -> None:
    # given a node with 50 MiB of text, as compiled models are kept in, beside a plain one
    made = one_node("Relu", [x(2, 3)])
    made.graph.node.append(
        helper.make_node("Engine", ["in0"], ["z"], domain="own", blob=b"a" * (50 * MIB))
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    assert len(skeleton.read_skeleton(path)) < 1000
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
    monkeypatch.setattr(scope, "MOST_CALLS", 1000)  # so that the test is quick
    with pytest.raises(RidgelineError, match="functions and loops make more than 1,000 nodes"):
        count_onnx(path)

"""Time and memory of counting ONNX graphs of up to 100,000 nodes, beside onnx-tool."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.fresh import call, peak_bytes, start_memory
from benchmarks.report import Report, Table
from ridgeline.units import format_bytes, format_time

NODES = (1_000, 10_000, 30_000, 100_000)
MOST_OF_OTHERS = 30_000  # a peer whose time grows with the square would take many minutes
BATCH, CHANNELS, SIZE, KERNEL = 2, 8, 8, 3
KINDS = {"plain": "convolutions and ReLU", "computed": "with computed shapes, as exporters write"}
MACS_EACH = BATCH * CHANNELS * SIZE * SIZE * CHANNELS * KERNEL * KERNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One graph through one counter."""

    nodes: int
    time_s: float = 0.0
    added_bytes: int = 0
    macs: int = 0
    error: str = ""


def run() -> Report:
    """Each graph and counter in a process of its own."""
    ours: dict[str, list[Counted]] = {}
    theirs: dict[str, list[Counted]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            ours[kind], theirs[kind] = [], []
            for nodes in NODES:
                path = Path(name) / f"{kind}-{nodes}.onnx"
                write_graph(path, kind, nodes)
                ours[kind].append(_counted("ridgeline", path, nodes))
                tried = nodes <= MOST_OF_OTHERS
                theirs[kind].append(
                    _counted("onnx_tool", path, nodes)
                    if tried
                    else Counted(nodes=nodes, error="not run")
                )
    return Report(
        title="How counting ONNX files grows",
        summary=[_verdict(kind, ours[kind]) for kind in KINDS],
        tables=[_table(kind, ours[kind], theirs[kind]) for kind in KINDS],
        notes=[
            f"Graphs are chains of {CHANNELS}-channel convolutions and ReLU; in the second kind"
            " each pair is followed by Shape, Gather, Unsqueeze, Concat and Reshape. Time is from"
            " the file to the count, libraries already imported; memory is what the process grew"
            f" by. onnx-tool {peers.version('onnx-tool')} was not run on more than"
            f" {MOST_OF_OTHERS:,} nodes."
            " The weights are shared and small: reading them is not what is measured. The MACs are"
            f" known: {MACS_EACH:,} for each convolution; onnx-tool's own figure also holds work"
            " that is no product.",
        ],
    )


def write_graph(path: Path, kind: str, nodes: int) -> None:
    """A chain of so many nodes."""
    from onnx import TensorProto, helper, numpy_helper

    made: list[Any] = []
    now = "x"
    while len(made) < nodes:
        n = len(made)
        made.append(helper.make_node("Conv", [now, "w"], [f"c{n}"], f"conv{n}", pads=[1, 1, 1, 1]))
        made.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"], f"relu{n}"))
        now = f"r{n}"
        if kind == "computed":
            made += [
                helper.make_node("Shape", [now], [f"s{n}"], f"shape{n}"),
                helper.make_node("Gather", [f"s{n}", "zero"], [f"g{n}"], f"gather{n}", axis=0),
                helper.make_node("Unsqueeze", [f"g{n}", "axis"], [f"u{n}"], f"unsqueeze{n}"),
                helper.make_node("Concat", [f"u{n}", "rest"], [f"t{n}"], f"concat{n}", axis=0),
                helper.make_node("Reshape", [now, f"t{n}"], [f"v{n}"], f"reshape{n}"),
            ]
            now = f"v{n}"
    shape = (BATCH, CHANNELS, SIZE, SIZE)
    stored = {
        "w": np.zeros((CHANNELS, CHANNELS, KERNEL, KERNEL), np.float32),
        "zero": np.asarray(0),
        "axis": np.asarray([0]),
        "rest": np.asarray(shape[1:]),
    }
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(now, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())


def _counted(counter: str, path: Path, nodes: int) -> Counted:
    found = call(f"benchmarks.onnx_scale:{counter}", path=str(path))
    print(f"{counter}, {path.name}: {found}", file=sys.stderr)
    return Counted(nodes=nodes, **found)


def ridgeline(path: str) -> dict[str, Any]:
    """Our own count."""
    from ridgeline.onnx import count_onnx

    before = start_memory()
    start_s = perf_counter()
    result = count_onnx(Path(path))
    took_s = perf_counter() - start_s
    assert result.coverage == 1.0
    return {"time_s": took_s, "added_bytes": peak_bytes() - before, "macs": result.total.macs}


def onnx_tool(path: str) -> dict[str, Any]:
    """onnx-tool's, by its own three steps."""
    if str(peers.SITE) not in sys.path:
        sys.path.append(str(peers.SITE))
    import onnx_tool as tool  # type: ignore[import-not-found, unused-ignore]

    before = start_memory()
    start_s = perf_counter()
    model = tool.Model(path)
    model.graph.shape_infer({})
    model.graph.profile()
    took_s = perf_counter() - start_s
    return {
        "time_s": took_s,
        "added_bytes": peak_bytes() - before,
        "macs": int(model.graph.macs[0]),
    }


def _verdict(kind: str, counted: list[Counted]) -> str:
    first, last = counted[1], counted[-1]
    times, more = last.time_s / first.time_s, last.nodes / first.nodes
    return (
        f"{last.nodes:,} nodes, {KINDS[kind]}: {format_time(last.time_s)} and"
        f" {format_bytes(last.added_bytes)}. From {first.nodes:,} on, {more:.0f} times the nodes"
        f" take {times:.1f} times as long."
    )


def _table(kind: str, ours: list[Counted], theirs: list[Counted]) -> Table:
    return Table(
        title=KINDS[kind][0].upper() + KINDS[kind][1:],
        columns=["nodes", "ridgeline", "per node", "memory", "GMACs", "onnx-tool", "its memory",
                 "its GMACs"],
        rows=[
            [
                f"{one.nodes:,}",
                format_time(one.time_s),
                format_time(one.time_s / one.nodes),
                format_bytes(one.added_bytes),
                f"{one.macs / 1e9:.4f}",
                *_cells(other),
            ]
            for one, other in zip(ours, theirs, strict=True)
        ],
    )  # fmt: skip


def _cells(other: Counted) -> list[str]:
    if other.error:
        return [other.error, "–", "–"]
    return [format_time(other.time_s), format_bytes(other.added_bytes), f"{other.macs / 1e9:.4f}"]

"""Exported networks through ridgeline and through onnx-tool: time, memory and MACs, in one run."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.fresh import call
from benchmarks.report import Report, Table, one_line
from ridgeline.units import format_bytes, format_time

NETWORKS = ("resnet50", "mobilenet_v2", "vgg16", "vit_b_16", "swin_t", "bert", "lstm", "yolo")
BATCH = 2
COUNTERS = ("ridgeline", "onnx_tool")  # functions of benchmarks.onnx_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One file through both."""

    network: str
    pytorch_macs: int
    found: dict[str, dict[str, Any]]  # by counter: time_s, added_bytes, macs; or error

    def macs(self, counter: str) -> int | None:
        macs = self.found[counter].get("macs")
        return None if macs is None else int(macs)


def run() -> Report:
    """Each file and counter in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        counted = [_counted(name, Path(folder)) for name in NETWORKS]
    exact = sum(one.macs("ridgeline") == one.pytorch_macs for one in counted)
    theirs = sum(one.macs("onnx_tool") is not None for one in counted)
    return Report(
        title="Exported networks, beside onnx-tool",
        summary=[
            f"ridgeline gives the MACs of the PyTorch network for {exact} of {len(counted)} files;"
            f" onnx-tool counts {theirs} of them."
        ],
        tables=[
            Table(
                columns=("network", "MACs, PyTorch", "ridgeline / that", "onnx-tool / that",
                         "ridgeline", "onnx-tool", "memory", "its memory"),
                rows=[_row(one) for one in counted],
            )
        ],
        notes=[
            f"Exported by `ridgeline export --static` at batch {BATCH}. Time is from the file to"
            " the count, libraries already imported; memory is what the process grew by, to which"
            " ridgeline's does not add weights, since it does not read them. onnx-tool"
            f" {peers.version('onnx-tool')}; its MACs also hold work that is no product.",
            *(
                f"{one.network}: onnx-tool failed: {one_line(one.found['onnx_tool']['error'])}."
                for one in counted
                if "error" in one.found["onnx_tool"]
            ),
        ],
    )  # fmt: skip


def _counted(network: str, folder: Path) -> Counted:
    import ridgeline

    path = folder / f"{network}.onnx"
    ridgeline.export(network, path, static=True, check=False, batch_size=BATCH)
    found = {c: call(f"benchmarks.onnx_scale:{c}", path=str(path)) for c in COUNTERS}
    print(f"{network}: {found}", file=sys.stderr)
    macs = ridgeline.count(network, batch_size=BATCH).total.macs
    return Counted(network=network, pytorch_macs=macs, found=found)


def _row(one: Counted) -> tuple[str, ...]:
    ratios = [
        "failed" if (macs := one.macs(counter)) is None else f"{macs / one.pytorch_macs:.4f}"
        for counter in COUNTERS
    ]
    times = [_told(one, counter, "time_s", format_time) for counter in COUNTERS]
    memory = [_told(one, counter, "added_bytes", format_bytes) for counter in COUNTERS]
    return (one.network, f"{one.pytorch_macs:,}", *ratios, *times, *memory)


def _told(one: Counted, counter: str, name: str, form: Callable[[float], str]) -> str:
    value = one.found[counter].get(name)
    return "–" if value is None else form(value)

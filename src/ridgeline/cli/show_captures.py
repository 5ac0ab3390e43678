"""Imported captures as a table in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.captures.capture import FLOPS, Capture, total
from ridgeline.cli.tables import Grid, print_grid, screen
from ridgeline.plain import plain_text
from ridgeline.units import format_bytes, format_flops, format_time

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_COLLECTED = "–"
SOURCES = {
    "ncu-raw": "Nsight Compute, raw page",
    "ncu-details": "Nsight Compute, details page",
    "ncu-ui": "Nsight Compute, exported by its UI",
    "ncu-text": "Nsight Compute, text",
    "ncu-rep": "Nsight Compute, report",
    "kineto": "PyTorch trace",
    "nsys": "Nsight Systems, kernel table",
}
MEMORIES = {"DRAM": "dram_bytes", "L2": "l2_bytes", "L1": "l1_bytes"}


def print_captures(captures: Sequence[Capture], label: str | None = None) -> None:
    """A row per capture, by its label; kinds of FLOPs that none of them has are left out."""
    is_one = len(captures) == 1
    kinds = [
        (name, column)
        for name, column in FLOPS.items()
        if any(total(capture.kernels, column) is not None for capture in captures)
    ]
    header = [
        "capture",
        "device",
        "kernels",
        "kernel time",
        *(flops_title(name) for name, _ in kinds),
    ]
    header += MEMORIES
    rows = [
        [
            _titled(capture, label, is_one=is_one),
            capture.device or NOT_COLLECTED,
            f"{capture.launches:,}",
            _shown(capture.kernel_time_s, format_time),
            *(_shown(total(capture.kernels, column), format_flops) for _, column in kinds),
            *(_shown(total(capture.kernels, column), format_bytes) for column in MEMORIES.values()),
        ]
        for capture in captures
    ]
    print_grid(screen(), Grid(header=header, rows=rows, text_columns=2, turns=True))


def tell_kinds(captures: Sequence[Capture]) -> None:
    """What each file was taken for."""
    for capture in captures:
        print(f"{plain_text(_name(capture))}: {SOURCES[capture.kind]}", file=sys.stderr)


def tell_warnings(captures: Sequence[Capture]) -> None:
    """What to know about their numbers."""
    for capture in captures:
        for remark in capture.warnings:
            print(f"note: {plain_text(_name(capture))}: {plain_text(remark)}", file=sys.stderr)


def _titled(capture: Capture, label: str | None, *, is_one: bool) -> str:
    """Captures that share a label are told apart by their files."""
    if not label:
        return _name(capture)
    return label if is_one else f"{label} ({_name(capture)})"


def _name(capture: Capture) -> str:
    from ridgeline.captures.capture import files_of

    return " + ".join(Path(file).name for file in files_of(capture))


def flops_title(name: str) -> str:
    """`tensor_fp16` as `tensor fp16`."""
    return name.replace("_", " ")


def _shown(value: float | None, shown: Callable[[float], str]) -> str:
    return NOT_COLLECTED if value is None else shown(value)

"""Captures as a table in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.captures.capture import FLOPS, Capture, total
from ridgeline.cli.tables import Grid, print_grid, screen
from ridgeline.pipeline.import_captures import name_files
from ridgeline.units import format_bytes, format_flops, format_time

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
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        **{flops_title(name): (column, format_flops) for name, column in FLOPS.items()
           if any(total(capture.kernels, column) is not None for capture in captures)},
        **{name: (column, format_bytes) for name, column in MEMORIES.items()},
    }  # fmt: skip
    rows = [
        [
            _title(capture, label, is_one=len(captures) == 1),
            capture.device or NOT_COLLECTED,
            f"{capture.launches:,}",
            _format_known(capture.kernel_time_s, format_time),
            *(_format_known(total(capture.kernels, c), form) for c, form in columns.values()),
        ]
        for capture in captures
    ]
    header = ["capture", "device", "kernels", "kernel time", *columns]
    print_grid(screen(), Grid(header=header, rows=rows, text_columns=2, turns=True))


def _title(capture: Capture, label: str | None, *, is_one: bool) -> str:
    """Its label; several captures with one label also have the names of their files."""
    if not label:
        return name_files(capture)
    return label if is_one else f"{label} ({name_files(capture)})"


def flops_title(name: str) -> str:
    """`tensor_fp16` as `tensor fp16`."""
    return name.replace("_", " ")


def _format_known(value: float | None, form: Callable[[float], str]) -> str:
    return NOT_COLLECTED if value is None else form(value)

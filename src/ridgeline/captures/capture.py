"""What a file of a profiler holds once it is read: kernels, and what is to be said about them.

A table of kernels has a row per launch, in the order of execution:

    kernel, launches                  its name; how many launches the row stands for
    time_s, counter_time_s            seconds of all of them; by the counters, where they tell
    time_source                       "counter", "profiler" (a trace), "" where there is no time
    layer, phase, op                  where it belongs; "" until someone finds out
    grid, block, stream               as the capture has them, "" where it does not
    id, process_id, nvtx              likewise; nvtx is the innermost way, "outer/inner"
    device                            its GPU, or "CC 9.0" where only that is told
    flops_P_vector, flops_P_matrix    executed FLOPs outside and on tensor cores
    dram_bytes, dram_read_bytes, dram_write_bytes, l2_bytes, l1_bytes

A column that was not collected is absent, or not a number: never 0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TEXTS = (
    "time_source", "layer", "phase", "op", "grid", "block", "stream", "id", "process_id", "nvtx",
    "device",
)  # fmt: skip
FLOPS = {  # the names of `ridgeline import --json` and their columns
    "fp64": "flops_fp64_vector",
    "fp32": "flops_fp32_vector",
    "fp16": "flops_fp16_vector",
    "tensor_fp16": "flops_fp16_matrix",
    "tensor_bf16": "flops_bf16_matrix",
    "tensor_tf32": "flops_tf32_matrix",
    "tensor_fp8": "flops_fp8_matrix",
    "tensor_int8": "flops_int8_matrix",
    "tensor_fp64": "flops_fp64_matrix",
}
BYTES = ("dram_bytes", "l2_bytes", "l1_bytes")
_WORDS = {
    "time_s": "time",
    "counter_time_s": "time",
    "dram_bytes": "DRAM bytes",
    "dram_read_bytes": "bytes read from DRAM",
    "dram_write_bytes": "bytes written to DRAM",
    "l2_bytes": "L2 bytes",
    "l1_bytes": "L1 bytes",
}
_FLOPS = re.compile(r"flops_(?P<kind>\w+)_(?P<path>vector|matrix)")
BETWEEN_FILES = " + "  # the names of files that were joined
PROGRAM = "ncu program"  # the kind of a program that was profiled here


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One capture: of one file, or of several that belong together."""

    file: str
    kind: str  # ncu-raw, ncu-details, ncu-ui, ncu-text, ncu-rep, kineto or nsys
    kernels: pd.DataFrame
    device: str | None  # its name, or "CC 9.0" where only that is told; None of several
    compute_capability: str | None  # likewise
    passes: int | None  # the most that one kernel was replayed for
    metrics: tuple[str, ...]  # those that were found and can be used
    warnings: tuple[str, ...]

    @property
    def launches(self) -> int:
        return int(self.kernels["launches"].sum())

    @property
    def kernel_time_s(self) -> float | None:
        return total(self.kernels, "time_s")


def total(kernels: pd.DataFrame, column: str) -> float | None:
    """The sum over all kernels; None where nothing is known, which is not 0, or it is no number."""
    import numpy as np

    if column not in kernels:
        return None
    with np.errstate(over="ignore"):
        found = float(kernels[column].sum(min_count=1))
    return found if math.isfinite(found) else None


def sums(kernels: pd.DataFrame) -> dict[str, int | float | None]:
    """Executed FLOPs by the names of FLOPS and bytes by those of BYTES; None where not known."""
    columns = {**FLOPS, **{name: name for name in BYTES}}
    return {name: _count(total(kernels, column)) for name, column in columns.items()}


def totals(capture: Capture) -> dict[str, Any]:
    """A capture in short, as `ridgeline import --json` prints it; what is absent is None."""
    found = sums(capture.kernels)
    return {
        "file": capture.file,
        "kernels": capture.launches,
        "flops": {name: found[name] for name in FLOPS},
        **{name: found[name] for name in BYTES},
        "kernel_time_s": capture.kernel_time_s,
        "device": capture.device,
        "warnings": list(capture.warnings),
    }


def in_words(column: str) -> str:
    """A column of a table of kernels as people call it: `tensor fp16 FLOPs`."""
    found = _FLOPS.fullmatch(column)
    if found is None:
        return _WORDS.get(column, column)
    return f"{'tensor ' * (found['path'] == 'matrix')}{found['kind']} FLOPs"


def _count(value: float | None) -> int | float | None:
    """A count is whole, unless a rate or a rounded file made it."""
    return int(value) if value is not None and value.is_integer() else value

"""Recorded and written captures, and short ways to what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ridgeline.captures import read_capture
from ridgeline.captures.capture import Capture, totals

DATA = Path(__file__).parents[1] / "data"
NCU, TRACES = DATA / "ncu", DATA / "traces"
STEP = NCU / "h200_resnet50_bs32_amp_train_step_raw.csv.gz"
PRODUCTS = NCU / "h200_gemm_dtypes_raw.csv"
NO_FLOPS: dict[str, Any] = dict.fromkeys(
    ["fp64", "fp32", "fp16", "tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_fp8",
     "tensor_int8", "tensor_fp64"]
)  # fmt: skip


def read(path: Path) -> Capture:
    return read_capture(path)


def read_totals(path: Path) -> dict[str, Any]:
    """The totals of a file, without its name."""
    found = totals(read_capture(path))
    del found["file"]
    return found


def write_file(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path

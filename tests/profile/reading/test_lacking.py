"""Kernels that lack a value which others have: `n/a`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.profile.captures import read, told, written

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = "sm__ops_path_tensor_src_fp16"
NO_FLOPS = "no FLOPs: no counter of them was collected"
NO_BYTES = "no bytes: no counter of them was collected"


def table(units: dict[str, str], *kernels: Sequence[str]) -> str:
    """A wide table of a chip with tensor cores, a row of values for each kernel."""
    lines = [
        ["ID", "Process ID", "Kernel Name", "CC", *units],
        ["", "", "", "", *units.values()],
        *([str(n), "7", f"k{n}", "8.0", *values] for n, values in enumerate(kernels)),
    ]
    return "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)


def test_a_total_in_place_of_reads_that_are_not_there(tmp_path: Path) -> None:
    units = {TIME: "us", READ: "Mbyte", WRITE: "Mbyte", "dram__bytes.sum": "Mbyte"}
    text = table(units, ["10", "1", "2", "3"], ["10", "n/a", "2", "5"])
    found = told(written(tmp_path, "a.csv", text))
    assert found["dram_bytes"] == 3_000_000 + 5_000_000
    assert found["warnings"] == [NO_FLOPS]


def test_tensor_work_of_a_kernel_that_lacks_a_part_is_not_known(tmp_path: Path) -> None:
    units = {TIME: "us", f"{TENSOR}_dst_fp16.sum": "", f"{TENSOR}_dst_fp32.sum": ""}
    text = table(units, ["10", "7", "100"], ["10", "7", "n/a"], ["10", "0", "50"])
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["flops_fp16_matrix"].fillna(-1).tolist() == [107, -1, 50]
    said = "tensor fp16 FLOPs are not known of 1 of 3 kernels"
    assert capture.warnings == (NO_BYTES, said)


def test_tensor_instructions_without_tensor_flops_are_told(tmp_path: Path) -> None:
    units = {TIME: "us", "sm__inst_executed_pipe_tensor_op_hmma.sum": "inst"}
    found = told(written(tmp_path, "a.csv", table(units, ["10", "4194304"])))
    assert found["warnings"] == [
        "tensor-core FLOPs are not told: tensor instructions were counted, which no factor turns"
        " into FLOPs; collect sm__ops_path_tensor_src_*",
        NO_FLOPS,
        NO_BYTES,
    ]

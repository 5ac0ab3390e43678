"""Wide tables whose numbers and chips change from row to row."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.profile.captures import read, told, written

TIME, TENSOR = "gpu__time_duration.sum", "sm__inst_executed_pipe_tensor.sum"
GUESS = (
    "tensor fp16 FLOPs are a guess: this chip has no counter for them, so each tensor instruction"
    " is taken as 512 FLOPs"
)
NOT_TOLD = (
    "tensor-core FLOPs are not told: tensor instructions were counted, which no factor turns into"
    " FLOPs; collect sm__ops_path_tensor_src_*"
)
NO_TIME = "no time: collect gpu__time_duration.sum"
NO_BYTES = "no bytes: no counter of them was collected"


def times(folder: Path, *values: str) -> list[float]:
    """The times of kernels behind 400 whole ones, which tell nothing about the decimal mark."""
    rows = [f'"{n}","7","k","{value}"' for n, value in enumerate([*["100"] * 400, *values])]
    text = "\n".join([f'"ID","Process ID","Kernel Name","{TIME}"', '"","","","s"', *rows, ""])
    found: list[float] = read(written(folder, "a.csv", text)).kernels["time_s"].tolist()
    assert found[:400] == [100.0] * 400
    return found[400:]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("65,77", 65.77),
        ("0,123", 0.123),
        ("1234,567", 1234.567),
        ("1.234,5", 1234.5),
        ("1,5E+3", 1500),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
    ],
)
def test_a_number_far_below_speaks_for_itself(tmp_path: Path, value: str, seconds: float) -> None:
    assert times(tmp_path, value, "1,024", "7") == [seconds, 1024, 7]


def test_exponents_of_a_spreadsheet_with_decimal_commas(tmp_path: Path) -> None:
    text = (
        "ID;Kernel Name;gpu__time_duration.sum;sm__ops_path_tensor_src_fp16.sum\n;;ns;\n"
        "0;gemm;344260;1,71799E+10\n"
    )
    found = told(written(tmp_path, "a.csv", text))
    assert (found["flops"]["tensor_fp16"], found["kernel_time_s"]) == (17_179_900_000, 344.26e-6)


def chips(*versions: str) -> str:
    """A kernel with 10 tensor instructions for each compute capability."""
    rows = [f'"{n}","7","k","{version}","10"' for n, version in enumerate(versions)]
    return "\n".join([f'"ID","Process ID","Kernel Name","CC","{TENSOR}"', *rows, ""])


@pytest.mark.parametrize(
    ("versions", "flops", "said"),
    [
        (("7.0", "8.0"), [5120, None], (GUESS, NOT_TOLD)),
        (("8.0", "7.0"), [None, 5120], (GUESS, NOT_TOLD)),
        (("7.0", "7.2"), [5120, 5120], (GUESS,)),
    ],
)
def test_tensor_work_is_guessed_for_old_chips_only(
    tmp_path: Path, versions: tuple[str, str], flops: list[float | None], said: tuple[str, ...]
) -> None:
    # given kernels of two chips in one file
    capture = read(written(tmp_path, "a.csv", chips(*versions)))
    # then each is treated by its own
    found = capture.kernels["flops_fp16_matrix"].astype(object)
    assert found.where(found.notna(), None).tolist() == flops
    assert capture.warnings[: len(said)] == said


@pytest.mark.parametrize("version", ["7.0", "7,0", "7"])
def test_a_compute_capability_may_be_written_in_other_ways(tmp_path: Path, version: str) -> None:
    capture = read(written(tmp_path, "a.csv", chips(version)))
    assert (capture.compute_capability, capture.device) == ("7.0", "CC 7.0")
    assert capture.kernels["flops_fp16_matrix"].tolist() == [5120]


def test_the_only_compute_capability_is_that_of_all(tmp_path: Path) -> None:
    # given a table without it, and another of the same kernel that has it
    text = f'"ID","Process ID","Kernel Name","{TENSOR}"\n"0","7","k","10"\n'
    other = (
        '"ID","Process ID","Kernel Name","CC","lts__t_bytes.sum [byte]"\n"0","7","k","7.0","3"\n'
    )
    capture = read(written(tmp_path, "a.csv", text + other))
    assert capture.kernels[["flops_fp16_matrix", "l2_bytes"]].values.tolist() == [[5120, 3]]


def test_the_parts_of_compute_capabilities_are_those_of_each_row(tmp_path: Path) -> None:
    parts = [f"device__attribute_compute_capability_{part}" for part in ("major", "minor")]
    header = ",".join(["ID", "Process ID", "Kernel Name", *parts, TENSOR])
    text = "\n".join([header, ",,,,,inst", "0,7,k,7,0,10", "1,7,k,8,0,10", ""])
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["flops_fp16_matrix"].isna().tolist() == [False, True]
    assert (
        "kernels of several devices are added up: compute capability 7.0, 8.0" in capture.warnings
    )


@pytest.mark.parametrize(("unit", "flops"), [("inst", 2), ("K", 2e3), ("M", 2e6), ("Kinst", 2e3)])
def test_prefixes_of_counts(tmp_path: Path, unit: str, flops: float) -> None:
    metric = "sm__ops_path_tensor_src_fp16.sum"
    text = f'"ID","Kernel Name","{metric}"\n"","","{unit}"\n"0","k","2"\n'
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["flops_fp16_matrix"].tolist() == [flops]
    assert capture.warnings == (NO_TIME, NO_BYTES)


def test_a_count_per_second_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    metric = "sm__ops_path_tensor_src_fp16.sum"
    text = f'"ID","Kernel Name","{metric}","{TIME}"\n"","","inst/second","s"\n"0","k","2","3"\n'
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["time_s"].tolist() == [3.0]
    assert "flops_fp16_matrix" not in capture.kernels
    assert f"not used, for their units: {metric} in inst/second" in capture.warnings

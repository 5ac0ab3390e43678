"""Several files of one capture."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.profile.captures import NCU, PRODUCTS, written

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import totals
from ridgeline.profile.reading import read_captures, read_ncu_csv


def part(folder: Path, name: str, metric: str, values: tuple[int, int], process: int = 7) -> Path:
    """A capture of the same two kernels with one metric."""
    rows = [
        f'"{n}","{process}","k{n}","(1, 1, 1)","(2, 1, 1)","9.0","{v}"'
        for n, v in enumerate(values)
    ]
    header = f'"ID","Process ID","Kernel Name","Grid Size","Block Size","CC","{metric}"'
    return written(folder, name, "\n".join([header, '"","","","","","",""', *rows]))


def test_metrics_of_the_same_kernels_are_one_capture(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "a.csv", "sm__ops_path_tensor_src_fp16.sum", (10, 20)),
        part(tmp_path, "b.csv", "dram__bytes.sum", (3, 4)),
        part(tmp_path, "c.csv", "gpu__time_duration.sum", (1000, 2000)),
    ]
    (capture,) = read_captures(paths)
    found = totals(capture)
    assert found["file"] == " + ".join(map(str, paths))
    assert found["flops"]["tensor_fp16"] == 30
    assert (found["dram_bytes"], found["kernel_time_s"]) == (7, 3e-6)
    assert capture.kernels["time_source"].tolist() == ["counter", "counter"]
    assert not any(remark.startswith("no time") for remark in capture.warnings)


def test_a_program_that_was_run_again_is_joined_by_order_and_said(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "a.csv", "gpu__time_duration.sum", (1000, 2000)),
        part(tmp_path, "b.csv", "dram__bytes.sum", (3, 4), process=8),
    ]
    (capture,) = read_captures(paths)
    assert f"{paths[1]} is of another run of the same kernels" in capture.warnings[-1]


def test_other_captures_stay_apart(tmp_path: Path) -> None:
    # given two captures of the same metric, and one of other kernels
    paths = [
        part(tmp_path, "a.csv", "dram__bytes.sum", (3, 4)),
        part(tmp_path, "b.csv", "dram__bytes.sum", (3, 4)),
        PRODUCTS,
    ]
    assert [capture.file for capture in read_captures(paths)] == list(map(str, paths))


def test_a_csv_by_itself() -> None:
    assert read_ncu_csv(PRODUCTS).launches == 12
    with pytest.raises(RidgelineError, match="no CSV of Nsight Compute"):
        read_ncu_csv(NCU / "sections.txt")


def test_joined_files_lack_nothing_that_one_of_them_has(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "a.csv", "gpu__time_duration.sum", (1000, 2000)),
        part(tmp_path, "b.csv", "dram__bytes.sum", (3, 4)),
    ]
    (capture,) = read_captures(paths)
    lacking = [remark for remark in capture.warnings if remark.startswith("no ")]
    assert lacking == ["no FLOPs: no counter of them was collected"]


@pytest.mark.parametrize("process", [7, 8])
def test_captures_of_time_alone_stay_apart(tmp_path: Path, process: int) -> None:
    paths = [
        part(tmp_path, "a.csv", "gpu__time_duration.sum", (1000, 2000)),
        part(tmp_path, "b.csv", "gpu__time_duration.sum", (5000, 6000), process=process),
    ]
    assert [capture.kernel_time_s for capture in read_captures(paths)] == [
        pytest.approx(3e-6),
        pytest.approx(11e-6),
    ]

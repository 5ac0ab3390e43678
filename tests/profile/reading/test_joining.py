"""Several files of one capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pytest
from tests.profile.captures import NCU, PRODUCTS, written

from ridgeline.errors import RidgelineError
from ridgeline.captures.capture import totals
from ridgeline.captures import read_captures, read_ncu_csv
from ridgeline.captures.read import read_part
from ridgeline.captures.join import join_captures

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
RATE = "dram__bytes.sum.per_second"
FADD, FMUL, FFMA = (
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")
)
TENSOR = "sm__ops_path_tensor_src_fp16"
NO_TIME = "no time: collect gpu__time_duration.sum"
NO_FLOPS = "no FLOPs: no counter of them was collected"
NO_BYTES = "no bytes: no counter of them was collected"
NO_TENSORS = (
    "tensor cores were not counted: FLOPs are a lower bound if kernels use them;"
    " collect sm__ops_path_tensor_src_*"
)


def part(folder: Path, name: str, metric: str, values: Sequence[object], process: int = 7) -> Path:
    """A capture of the same kernels with one metric, in base units."""
    return parts(folder, name, {metric: values}, process)


def unit(metric: str) -> str:
    if metric in (TIME, RATE):
        return {TIME: "ns", RATE: "byte/s"}[metric]
    return "byte" if "bytes" in metric else ""


def parts(
    folder: Path, name: str, metrics: Mapping[str, Sequence[object]], process: int = 7
) -> Path:
    """The same with several."""
    header = ["ID", "Process ID", "Kernel Name", "Grid Size", "Block Size", "CC", *metrics]
    rows = [
        [n, process, f"k{n}", "(1, 1, 1)", "(2, 1, 1)", "9.0", *values]
        for n, values in enumerate(zip(*metrics.values(), strict=True))
    ]
    units = [*[""] * 6, *map(unit, metrics)]
    lines = (",".join(f'"{cell}"' for cell in line) for line in (header, units, *rows))
    return written(folder, name, "\n".join([*lines, ""]))


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
    assert capture.warnings == (
        f"{paths[1]} is of another run of the same kernels: joined by their order, time from"
        f" {paths[0]}",
        "no FLOPs: no counter of them was collected",
    )


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


# ---------------------------------------------------------------- metrics of one quantity


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_reads_and_writes_of_two_files_are_added(tmp_path: Path, order: tuple[int, ...]) -> None:
    # given reads, writes and time in three files
    paths = [
        part(tmp_path, "read.csv", READ, (1000, 2000)),
        part(tmp_path, "write.csv", WRITE, (300, 400)),
        part(tmp_path, "time.csv", TIME, (50, 60)),
    ]
    # when they are named in any order
    (capture,) = read_captures([paths[n] for n in order])
    # then bytes are known, and nothing is said to lack
    assert capture.kernels[["dram_bytes", "time_s"]].to_dict("list") == {
        "dram_bytes": [1300, 2400],
        "time_s": [50e-9, 60e-9],
    }
    assert capture.warnings == (NO_FLOPS,)


def test_instructions_of_three_files_are_added(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "fadd.csv", FADD, (5, 6)),
        part(tmp_path, "fmul.csv", FMUL, (7, 8)),
        part(tmp_path, "ffma.csv", FFMA, (9, 10)),
    ]
    (capture,) = read_captures(paths)
    assert capture.kernels["flops_fp32_vector"].tolist() == [5 + 7 + 2 * 9, 6 + 8 + 2 * 10]
    assert capture.warnings == (NO_TIME, NO_BYTES, NO_TENSORS)


def test_a_rate_is_multiplied_by_the_time_of_another_file(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "rate.csv", RATE, (2e9, 3e9)),
        part(tmp_path, "time.csv", TIME, (50, 60)),
    ]
    (capture,) = read_captures(paths)
    assert capture.kernels["dram_bytes"].tolist() == [100, 180]
    assert capture.warnings == (f"from rates: {RATE}", NO_FLOPS)


def test_a_rate_is_of_the_time_of_its_own_run(tmp_path: Path) -> None:
    # given a rate with its time, and another run that took twice as long
    paths = [
        parts(tmp_path, "a.csv", {TIME: (100, 100), f"{TENSOR}.sum": (1, 2)}),
        parts(tmp_path, "b.csv", {TIME: (50, 50), RATE: (2e9, 4e9)}, process=8),
    ]
    (capture,) = read_captures(paths)
    # then bytes are those of the run in which they were counted
    assert capture.kernels[["time_s", "dram_bytes"]].to_dict("list") == {
        "time_s": [100e-9, 100e-9],
        "dram_bytes": [100, 200],
    }
    assert capture.warnings == (
        f"from rates: {RATE}",
        f"{paths[1]} is of another run of the same kernels: joined by their order, time from"
        f" {paths[0]}",
    )


def test_time_is_that_of_the_first_file_whatever_its_metric(tmp_path: Path) -> None:
    paths = [
        parts(tmp_path, "a.csv", {"gpu__time_duration.max": ("100", "100"), READ: (1, 2)}),
        parts(tmp_path, "b.csv", {TIME: (50, 50), WRITE: (3, 4)}, process=8),
    ]
    (capture,) = read_captures(paths)
    assert capture.kernels[["time_s", "dram_bytes"]].to_dict("list") == {
        "time_s": [100e-9, 100e-9],
        "dram_bytes": [4, 6],
    }


@pytest.mark.parametrize(
    "ends", [("_dst_fp16.sum", "_dst_fp32.sum"), ("_sparsity_off.sum", "_sparsity_on.sum")]
)
def test_parts_of_tensor_work_are_added(tmp_path: Path, ends: tuple[str, str]) -> None:
    paths = [part(tmp_path, f"{n}.csv", TENSOR + end, (90, 10)) for n, end in enumerate(ends)]
    (capture,) = read_captures(paths)
    assert capture.kernels["flops_fp16_matrix"].tolist() == [180, 20]
    assert capture.warnings == (NO_TIME, NO_BYTES)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"dram__bytes.sum": (1, 2)}, {READ: (1, 2), WRITE: (3, 4)}),
        ({f"{TENSOR}.sum": (1, 2)}, {f"{TENSOR}_dst_fp16.sum": (1, 2)}),
        ({FFMA: (1, 2)}, {FFMA.replace("smsp", "sm"): (1, 2)}),
        ({"lts__t_bytes.sum": (32, 64)}, {"lts__t_sectors.sum": (1, 2)}),
    ],
)
def test_the_same_quantity_in_other_metrics_is_of_another_capture(
    tmp_path: Path, first: Mapping[str, Sequence[int]], second: Mapping[str, Sequence[int]]
) -> None:
    paths = [parts(tmp_path, "a.csv", first), parts(tmp_path, "b.csv", second)]
    assert [capture.file for capture in read_captures(paths)] == list(map(str, paths))


def test_instructions_by_smsp_and_by_sm_are_of_one_sum(tmp_path: Path) -> None:
    of_sm = {FADD.replace("smsp", "sm"): (10, 20), FMUL.replace("smsp", "sm"): (100, 200)}
    paths = [parts(tmp_path, "a.csv", {FFMA: (1, 2)}), parts(tmp_path, "b.csv", of_sm)]
    (capture,) = read_captures(paths)
    assert capture.kernels["flops_fp32_vector"].tolist() == [112, 224]


def test_tensor_instructions_in_both_files_do_not_part_them(tmp_path: Path) -> None:
    instructions = {"sm__inst_executed_pipe_tensor_op_hmma.sum": (5, 0)}
    paths = [
        parts(tmp_path, "a.csv", {"dram__bytes.sum": (3, 4)} | instructions),
        parts(tmp_path, "b.csv", {TIME: (1000, 2000)} | instructions),
    ]
    (capture,) = read_captures(paths)
    assert capture.warnings == (
        "tensor-core FLOPs are not told: tensor instructions were counted, which no factor turns"
        " into FLOPs; collect sm__ops_path_tensor_src_*",
        NO_FLOPS,
    )


def test_a_file_that_adds_nothing_stays_apart(tmp_path: Path) -> None:
    # given bytes, their time, and the time of another run
    paths = [
        part(tmp_path, "bytes.csv", "dram__bytes.sum", (3, 4)),
        part(tmp_path, "time.csv", TIME, (50, 60)),
        part(tmp_path, "later.csv", TIME, (500, 600), process=8),
    ]
    # then that other one is not lost
    files = [capture.file for capture in read_captures(paths)]
    assert files == [f"{paths[0]} + {paths[1]}", str(paths[2])]


PERCENT = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize("metric", [FADD, PERCENT])
def test_a_file_of_no_use_beside_others_is_no_loss(tmp_path: Path, metric: str) -> None:
    # given a file that alone would be refused, and another of the same kernels
    paths = [part(tmp_path, "odd.csv", metric, (5, 6)), part(tmp_path, "time.csv", TIME, (50, 60))]
    for order in (paths, paths[::-1]):
        captures, refused = join_captures([read_part(path) for path in order])
        # then it is told that nothing of it is used
        assert refused == []
        assert [capture.file for capture in captures] == [f"{paths[1]} + {paths[0]}"]
        assert f"{paths[0]} adds nothing that is used" in captures[0].warnings
        assert captures[0].kernels["time_s"].tolist() == [50e-9, 60e-9]
    with pytest.raises(RidgelineError, match=r"odd\.csv has 2 kernels"):
        read_captures(paths[:1])


def test_time_is_that_of_a_clock_where_cycles_are_there_too(tmp_path: Path) -> None:
    # given a file per metric, as scripts of computing centres make them
    cycles, rate = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"
    paths = [
        part(tmp_path, "cycles.csv", cycles, (1000, 2000)),
        part(tmp_path, "rate.csv", rate, (1e9, 1e9)),
        part(tmp_path, "bytes.csv", "dram__bytes.sum", (3, 4)),
        part(tmp_path, "time.csv", TIME, (50, 60)),
    ]
    [capture] = read_captures(paths)
    assert capture.kernels["time_s"].tolist() == [50e-9, 60e-9]


def test_files_of_other_kernels_or_launches_are_not_joined(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "a.csv", TIME, (1, 2)),
        part(tmp_path, "b.csv", WRITE, (1, 2, 3)),
        part(tmp_path, "c.csv", TIME, ("nan", "50", "60")),
    ]
    files = [capture.file for capture in read_captures(paths)]
    assert files == [str(paths[0]), f"{paths[1]} + {paths[2]}"]

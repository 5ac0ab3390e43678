"""Several files of one capture, joined by process and launch number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pytest
from tests.captures.files import PRODUCTS, write_file

from ridgeline.captures import read_captures
from ridgeline.captures.read import join_captures, read_part

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
RATE, L2 = "dram__bytes.sum.per_second", "lts__t_bytes.sum"
FADD, FMUL, FFMA = (
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")
)
UNITS = {TIME: "ns", RATE: "byte/s", FADD: "inst", FMUL: "inst", FFMA: "inst"}
NO_FLOPS = "no FLOPs: no counter of them was collected"


def part(
    folder: Path,
    name: str,
    metrics: Mapping[str, Sequence[object]],
    *,
    process: object = 7,
    first: int = 0,
    grid: int = 1,
) -> Path:
    """A capture of kernels k0, k1, … with these metrics in base units."""
    header = ["ID", "Process ID", "Kernel Name", "Grid Size", "CC", *metrics]
    rows = [
        [first + n, process, f"k{first + n}", f"({grid}, 1, 1)", "9.0", *values]
        for n, values in enumerate(zip(*metrics.values(), strict=True))
    ]
    units = [*[""] * 5, *(UNITS.get(metric, "byte") for metric in metrics)]
    lines = (",".join(f'"{cell}"' for cell in line) for line in (header, units, *rows))
    return write_file(folder, name, "\n".join([*lines, ""]))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_metrics_of_the_same_launches_are_one_capture(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    # given reads, writes and time in three files
    files = [
        part(tmp_path, "read.csv", {READ: (1000, 2000)}),
        part(tmp_path, "write.csv", {WRITE: (300, 400)}),
        part(tmp_path, "time.csv", {TIME: (50, 60)}),
    ]
    paths = [files[n] for n in order]
    # when they are named in any order
    (capture,) = read_captures(paths)
    # then bytes are known, and nothing is said to be missing
    assert capture.file == " + ".join(map(str, paths))
    assert capture.kernels[["dram_bytes", "time_s"]].to_dict("list") == {
        "dram_bytes": [1300, 2400],
        "time_s": [50e-9, 60e-9],
    }
    assert capture.warnings == (NO_FLOPS,)


def test_a_metric_of_both_files_is_taken_from_the_first(tmp_path: Path) -> None:
    # given a time that the second page shows with fewer digits
    paths = [
        part(tmp_path, "a.csv", {TIME: (1004, 2000), READ: (1, 2)}),
        part(tmp_path, "b.csv", {TIME: (1000, 2000), L2: (3, 4)}),
    ]
    (capture,) = read_captures(paths)
    assert capture.kernels[["time_s", "l2_bytes"]].to_dict("list") == {
        "time_s": [1004e-9, 2000e-9],
        "l2_bytes": [3, 4],
    }


@pytest.mark.parametrize(
    ("metrics", "options"),
    [
        ({TIME: (50, 60)}, {}),
        ({TIME: (51.5, 60), L2: (1, 2)}, {}),
        ({L2: (1, 2)}, {"process": 8}),
        ({L2: (1, 2)}, {"grid": 2}),
        ({L2: (1, 2)}, {"first": 1}),
        ({TIME: (50, 60)}, {"first": 2}),
        ({L2: (1, 2, 3)}, {}),
    ],
    ids=["same metrics", "other values", "other process", "other grid", "other numbers",
         "other launches", "more launches"],
)  # fmt: skip
def test_other_files_are_captures_of_their_own(
    tmp_path: Path, metrics: Mapping[str, Sequence[object]], options: dict[str, int]
) -> None:
    first = part(tmp_path, "a.csv", {TIME: (50, 60)})
    second = part(tmp_path, "b.csv", metrics, **options)
    assert [capture.file for capture in read_captures([first, second])] == [str(first), str(second)]


def test_launches_without_a_process_are_not_joined(tmp_path: Path) -> None:
    paths = [
        part(tmp_path, "a.csv", {TIME: (50, 60)}, process=""),
        part(tmp_path, "b.csv", {L2: (1, 2)}, process=""),
    ]
    assert len(read_captures(paths)) == 2


def test_a_refused_file_does_not_stop_the_others(tmp_path: Path) -> None:
    # given a file that has reads only, and another capture
    paths = [part(tmp_path, "a.csv", {READ: (1, 2)}), PRODUCTS]
    captures, refusals = join_captures([read_part(path) for path in paths])
    assert [capture.file for capture in captures] == [str(PRODUCTS)]
    assert ["only reads were collected" in error.problem for error in refusals] == [True]

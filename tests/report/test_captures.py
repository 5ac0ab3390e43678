"""Captures in a report: their names, the files they are from, their marks and their machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.profiled import store_capture

from ridgeline.errors import RidgelineError
from ridgeline.records import ProfileSummary
from ridgeline.report.executed import Executed, describe_times
from ridgeline.report.figures import write_figure
from ridgeline.report.stored import names_of
from ridgeline.report.study import read_study
from ridgeline.roofline.roofs import BITS, user_roofs
from ridgeline.store import ResultsFolder, Run, to_run


def captured(run_id: str, label: str, *files: str) -> Run:
    asked = {"command": "import", "files": list(files), "label": label}
    content = {"schema_version": 1, "asked": asked, "found": {"status": "ok"}}
    return to_run(Path(run_id), {**content, "provenance": {}})


def test_captures_with_the_same_name_are_told_apart() -> None:
    # given captures with a label of their own, and some that share one with others
    captures = [
        captured("id-1", "mine", "a.csv"),
        captured("id-2", "two", "a.csv"),
        captured("id-3", "two", "x/flops.csv", "x/bytes.csv"),
        captured("id-4", "three", "x/a.csv"),
        captured("id-5", "three", "y/a.csv"),
        captured("id-8", "", "x/c.csv"),
        captured("id-9", "", "x/c.csv"),
    ]
    # then each has a name of its own, no longer than it must be
    assert names_of(captures) == {
        "id-1": "mine",
        "id-2": "two (a.csv)",
        "id-3": "two (flops.csv + bytes.csv)",
        "id-4": "three (4)",
        "id-5": "three (5)",
        "id-8": "c.csv (8)",
        "id-9": "c.csv (9)",
    }


@pytest.mark.parametrize(
    ("launches", "text"),
    [
        (1, "1 kernel launch takes 2.00 ms (the step around it was not timed)"),
        (3, "3 kernel launches take 2.00 ms together (the sum of their times; the step around them"
            " was not timed)"),
    ],
)  # fmt: skip
def test_kernels_without_a_step_have_their_own_time(launches: int, text: str) -> None:
    one = Executed(run_id="a", profile_id="a", result=ProfileSummary(status="ok"),
                   launches=launches, kernel_time_s=0.002, step_time_s=None, flops_by_roof={},
                   bytes_by_level={})  # fmt: skip
    assert describe_times(one) == text


def test_a_file_holds_the_figure_of_one_machine(tmp_path: Path) -> None:
    # given captures of two devices, under the same roofs
    results = ResultsFolder(tmp_path)
    store_capture(results, "one")
    store_capture(results, "other", device_name=None)
    given = user_roofs("given", "", compute=dict.fromkeys(BITS, 810e12), dram_bytes_per_s=3e12)
    path = tmp_path / "both.svg"
    with pytest.raises(RidgelineError) as refused:
        write_figure(read_study(results, everywhere=given), path)
    assert str(refused.value) == (
        f"there are 2 figures of kind 'classic', one for each machine, and {path} is one file\n"
        "  hint: choose one machine: `ridgeline roofline nvidia-h200 …` or"
        " `ridgeline roofline unnamed-device …`; or name a folder with --out DIR"
    )

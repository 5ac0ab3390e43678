"""Sweeps in reports and comparisons: which cases have which run, and what is kept apart."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.compared import TEN, times, write

from ridgeline.errors import RidgelineError
from ridgeline.pipeline.outputs import read_chosen
from ridgeline.report.compare import compare_values
from ridgeline.report.figures import write_figures
from ridgeline.report.figures.times import draw_sweep
from ridgeline.report.markdown import report_text
from ridgeline.report.study import Study, read_study
from ridgeline.report.sweeps import NOT_RUN, SweepResults, read_sweeps
from ridgeline.store import ResultsFolder

H200, L40S = "NVIDIA H200", "NVIDIA L40S"
Row = tuple[int, str, str, str]  # batch size, precision, device of its run or "", status
STUDY: list[Row] = [
    (16, "tf32", H200, "done"), (16, "amp", H200, "done"), (32, "tf32", H200, "done"),
    (32, "amp", "", "out of memory"), (64, "tf32", "", NOT_RUN), (64, "amp", "", NOT_RUN),
]  # fmt: skip


def make_sweep(folder: Path, rows: list[Row] = STUDY, name: str = "study") -> Study:
    """A stored sweep of vgg16: its plan, how its cases ended, and their runs."""
    results, path = ResultsFolder(folder), folder / "sweeps" / name
    for part in ("finished", "shards"):
        (path / part).mkdir(parents=True)
    plan = []
    for number, (batch_size, precision, device, status) in enumerate(rows):
        plan.append({"stage": "full", "case_id": f"c{number}", "model": "vgg16", "mode": "train",
                     "batch_size": batch_size, "precision": precision, "what": "run"})  # fmt: skip
        record: dict[str, Any] = {"status": status, "shard": "s1", "reason": ""}
        if device:
            scale = batch_size / 16 * (0.5 if precision == "amp" else 1.0)
            run = write(results, times(scale), batch_size=batch_size, precision=precision,
                        found={"device_name": device, "iters": 10,
                               "samples_processed": 10 * batch_size}, label="run")  # fmt: skip
            record["run_ids"] = [run.run_id]
        if status != NOT_RUN:
            (path / "finished" / f"c{number}.json").write_text(json.dumps(record))
    with (path / "cases.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(plan[0]))
        writer.writeheader()
        writer.writerows(plan)
    shard = {"host": "node7", "gpus": [H200], "has_drifted": True, "drift": "9 % slower"}
    (path / "shards" / "s1.json").write_text(json.dumps(shard))
    return read_study(results)


def only(study: Study) -> SweepResults:
    (sweep,) = read_sweeps(study)
    return sweep


def curves(sweep: SweepResults) -> dict[str, dict[str, list[tuple[float, str]]]]:
    """Chart → curve → places on the axis with what came of the case."""
    return {
        chart.title: {
            curve.name: [(x, case.status) for x, case in curve.cases] for curve in chart.curves
        }
        for chart in sweep.charts()
    }


def test_every_case_has_its_run_or_the_reason_why_it_has_none(tmp_path: Path) -> None:
    sweep = only(make_sweep(tmp_path))

    assert (sweep.varied, sweep.swept) == (["batch_size", "precision"], "batch_size")
    assert curves(sweep) == {"": {
        "tf32": [(16, "done"), (32, "done"), (64, NOT_RUN)],
        "amp": [(16, "done"), (32, "out of memory"), (64, NOT_RUN)],
    }}  # fmt: skip
    assert sweep.count_stages() == [
        {"stage": "full", "cases": 6, "done": 3, "failed": 1, "not_run": 2}
    ]
    assert sweep.notes == ("node7: 9 % slower",)
    done = next(case for case in sweep.cases if case.case_id == "c0")
    assert done.values["time_s"] == pytest.approx(0.1045)
    assert done.values["samples_per_s"] == pytest.approx(16 / 0.1045)


def test_a_stage_that_has_not_begun_is_counted_and_not_drawn(tmp_path: Path) -> None:
    sweep = only(make_sweep(tmp_path))
    later = [replace(case, stages=("later",)) if case.status == NOT_RUN else case
             for case in sweep.cases]  # fmt: skip

    sweep = replace(sweep, cases=tuple(later))

    assert curves(sweep) == {"": {
        "tf32": [(16, "done"), (32, "done")],
        "amp": [(16, "done"), (32, "out of memory")],
    }}  # fmt: skip
    assert sweep.count_stages()[1] == {
        "stage": "later", "cases": 2, "done": 0, "failed": 0, "not_run": 2,
    }  # fmt: skip


def test_devices_of_unlike_kinds_have_charts_of_their_own(tmp_path: Path) -> None:
    # given a sweep that was resumed on a node with another GPU
    rows: list[Row] = [(16, "tf32", H200, "done"), (32, "tf32", H200, "done"),
                       (64, "tf32", L40S, "done"), (128, "tf32", L40S, "done")]  # fmt: skip

    sweep = only(make_sweep(tmp_path, rows))

    assert curves(sweep) == {
        H200: {"": [(16, "done"), (32, "done")]}, L40S: {"": [(64, "done"), (128, "done")]},
    }  # fmt: skip
    assert [(one["device"], one["cases"]) for one in sweep.count_devices()] == [
        (H200, 2), (L40S, 2),
    ]  # fmt: skip


def test_two_values_of_a_sweep_are_compared_with_all_else_equal(tmp_path: Path) -> None:
    make_sweep(tmp_path)

    found = compare_values("study", "precision=tf32", "precision=amp", results=tmp_path)

    assert [(row.name, row.time.verdict, round(row.time.ratio, 3)) for row in found.rows] == [
        ("vgg16, batch 16, train, tf32 → amp", "faster", 0.5)
    ]
    assert found.only_before == ("vgg16, batch 32, train, tf32",)
    assert "precision=amp: 2 cases without a result (1 out of memory, 1 not run yet)" in found.notes


def test_a_comparison_never_merges_unlike_devices(tmp_path: Path) -> None:
    # given one value measured on one GPU and, after a resume, the other on another
    rows: list[Row] = [
        (16, "tf32", H200, "done"), (16, "amp", L40S, "done"), (32, "tf32", H200, "done"),
        (32, "amp", H200, "done"),
    ]  # fmt: skip
    make_sweep(tmp_path, rows)

    found = compare_values("study", "precision=tf32", "precision=amp", results=tmp_path)

    assert [row.name for row in found.rows] == ["vgg16, batch 32, train, tf32 → amp, NVIDIA H200"]
    assert len(found.only_before) == len(found.only_after) == 1
    assert L40S in found.only_after[0]


@pytest.mark.parametrize(
    ("sweep", "a", "b", "problem"),
    [
        ("study", "precision=tf32", "precision=bf16", "no case of the sweep study has precision="),
        ("study", "precision=tf32", "batch_size=16", "are values of two settings"),
        ("study", "amp", "precision=tf32", "'amp' is no value of the sweep study"),
        ("other", "precision=tf32", "precision=amp", "there is no sweep 'other'"),
    ],
)
def test_values_that_are_not_there(
    sweep: str, a: str, b: str, problem: str, tmp_path: Path
) -> None:
    make_sweep(tmp_path)

    with pytest.raises(RidgelineError, match=problem):
        compare_values(sweep, a, b, results=tmp_path)


def test_the_report_chooses_a_sweep_by_its_name(tmp_path: Path) -> None:
    study = make_sweep(tmp_path)
    write(ResultsFolder(tmp_path), TEN, batch_size=8, label="something else")

    chosen, _ = read_chosen(tmp_path, ["study"])

    assert sorted(chosen.runs["run_id"]) == sorted(study.runs["run_id"])


def test_report_md_says_how_cases_ended(tmp_path: Path) -> None:
    text = report_text(make_sweep(tmp_path), folder=tmp_path)

    section = text.partition("## Sweeps\n")[2].partition("\n## ")[0]
    assert "| full | 6 | 3 | 1 | 2 |" in section
    assert f"- 3 results of {H200}" in section
    assert "- vgg16, batch 32, amp: out of memory" in section
    assert "- node7: 9 % slower" in section


def test_a_figure_for_each_sweep(tmp_path: Path) -> None:
    study = make_sweep(tmp_path)

    (figure,) = write_figures(study, tmp_path / "figures", formats=["svg"], kinds=["sweep"])

    assert figure.path.name == "sweep_study.svg"
    assert figure.caption == "3 of 6 cases have a result."


@pytest.mark.parametrize(("batch_size", "scale"), [(1024, "linear"), (2048, "log")])
def test_a_curve_that_would_lie_on_the_axis_makes_it_logarithmic(
    batch_size: int, scale: str, tmp_path: Path
) -> None:
    # given a curve whose highest time is 16 or 32 times that of another one
    rows: list[Row] = [
        (16, "tf32", H200, "done"), (32, "tf32", H200, "done"),
        (16, "amp", H200, "done"), (batch_size, "amp", H200, "done"),
    ]  # fmt: skip

    drawing = draw_sweep(only(make_sweep(tmp_path, rows)))

    assert drawing is not None
    assert drawing.axes.get_yscale() == scale

"""Profiles and captures in a study: a recorded step of ResNet-50 beside its count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.report.profiled import (
    STEP_S,
    folder,
    kernels,
    profiled_folder,
    store_capture,
    store_profile,
)

from ridgeline.captures.quantities import BULK_COPIES
from ridgeline.records import CopyTotals
from ridgeline.report.executed import (
    describe_times,
    describe_trust,
    run_kernels,
    with_optimizer_kernels,
)
from ridgeline.report.figures import write_figures
from ridgeline.report.markdown import report_text
from ridgeline.report.study import Study, read_study
from ridgeline.report.tables import points_csv, summary_csv, tables, write_tables
from ridgeline.report.text import records
from ridgeline.roofline.roofs import user_roofs
from ridgeline.store import ResultsFolder


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return profiled_folder(tmp_path)


@pytest.fixture
def study(results: ResultsFolder) -> Study:
    return read_study(results)


def test_a_run_has_the_kernels_of_its_profile(results: ResultsFolder, study: Study) -> None:
    # given a run and its profile, when the folder is read
    assert study.problems == ()
    assert study.remarks == ("the profile of resnet50, batch 32, amp: the clock was <not> locked",)
    # then there is one measured run, whose step stands twice: by its count and by counters
    assert len(results.index().runs) == len(study.runs) == 1
    found = study.points[study.points["grain"].eq("step")]
    steps = {row["provenance"]: row for row in records(found)}
    assert [row["time_s"] for row in steps.values()] == [STEP_S, STEP_S]
    assert steps["counter"]["flops"] == pytest.approx(797.7e9 + 21.9e9, rel=0.01)
    assert steps["counter"]["dram_bytes"] == 10_510_359_552
    # and has one number of kernels: the run saw 640, copies among them perhaps
    assert [row["launches"] for row in steps.values()] == [637, 637]
    phases = study.points[
        study.points["grain"].eq("phase") & study.points["provenance"].eq("counter")
    ]
    assert set(phases["phase"]) == {"forward", "backward", "optimizer"}
    assert (study.points["grain"].eq("kernel")).sum() == len(kernels())


def test_the_newest_good_profile_counts(results: ResultsFolder) -> None:
    newer = kernels().assign(dram_bytes=1e6)
    store_profile(results, newer)
    store_profile(results, kernels(), status="failed", reason="ncu is gone", hint="install it")
    study = read_study(results)
    steps = study.points[
        study.points["grain"].eq("step") & study.points["provenance"].eq("counter")
    ]
    assert steps["dram_bytes"].item() == len(newer) * 1e6
    assert study.problems == (
        "resnet50, train, amp, batch 32: its profile failed: ncu is gone (install it)",
    )


def test_model_beside_executed(study: Study) -> None:
    table = {(row["grain"], row["name"]): row for row in records(study.reconciled)}
    # the first layer is padded from 147 to 256 products a pixel, as its kernels' names say
    stem = table["layer", "conv1"]
    assert stem["products_ratio"] == pytest.approx(1.74, rel=0.01)
    assert (stem["cause"], stem["launches"]) == ("tile padding", 6)
    step = table["step", "step"]
    assert step["products_ratio"] == pytest.approx(1.025, rel=0.01)
    assert (step["launches"], step["cause"]) == (637, "agrees")
    assert table["layer", "maxpool"]["cause"] == "not attributed"
    assert table["phase", "backward"]["flops_ratio"] == pytest.approx(1.02, abs=0.03)


def test_the_launch_gap_is_called_what_it_is(study: Study) -> None:
    (one,) = study.executed.values()
    told = (
        "kernels take 7.92 ms (637 launches) of a step of 22.5 ms; the other 14.6 ms (64.8 %) is"
        " launch overhead and waiting for the host, which no roof shows"
    )
    assert describe_times(one) == told
    gap = "is launch overhead and waiting for the host, which no roof shows"
    busy = replace(one.result, busy_time_s=0.0085, copies=CopyTotals(time_s=600e-6))
    assert describe_times(replace(one, result=busy, kernel_time_s=0.008, step_time_s=0.02)) == (
        "kernels take 8.00 ms (637 launches) and copies 600 µs, some at the same time: 8.50 ms on"
        f" the clock, of a step of 20.0 ms; the other 11.5 ms (57.5 %) {gap}"
    )
    longer = replace(one, kernel_time_s=0.03)
    assert describe_times(longer).endswith("kernels overlap, or the two runs differ")
    assert study.runs["kernel_time_s"].item() == 0.007924  # not the 9 ms of the run itself
    assert describe_trust(one) == (
        "self-test: a copy counted 1.00 and a product counted 1.00 of the truth; 98.5 % of the"
        " kernels' time is attributed to a phase, 90.0 % to a layer"
    )
    by_cupti = replace(one.result, tool="cupti", tool_version="13.0.1")
    assert describe_trust(replace(one, result=by_cupti)).startswith(
        "the counters were read by CUPTI 13.0.1; self-test: a copy"
    )
    assert one.flops_by_roof["fp16 matrix"] == 797_680_599_040
    assert "tensor_fp8" not in one.flops_by_roof


def test_findings_know_what_was_executed(study: Study) -> None:
    (finding,) = [row for row in records(study.findings) if row["layer"] == "conv1"]
    assert finding["meaning"].endswith("; it executes 1.75 times the model's FLOPs (tile padding)")


def test_times_alone_break_nothing(tmp_path: Path) -> None:
    # given a profile of the tier `time`
    results = folder(tmp_path)
    bare = kernels()[["kernel", "launches", "time_s", "layer", "phase", "op"]]
    store_profile(results, bare, tier="time", self_test=None, totals=None, cost=None)
    study = read_study(results)
    # then kernels have their times, and steps are placed by the count as before
    alone = study.points[study.points["grain"].eq("kernel")]
    assert alone["time_s"].notna().all()
    assert alone["flops"].isna().all()
    assert set(study.points[study.points["grain"].ne("kernel")]["provenance"]) == {"static"}
    assert study.cases[0].work == "static"
    assert set(study.reconciled["cause"]) <= {"not counted", "not attributed", "agrees"}
    (one,) = study.executed.values()
    assert (one.tier, one.bytes_by_level["dram"], dict(one.flops_by_roof)) == ("time", None, {})
    assert "times only: no counter was read" in describe_trust(one)
    written = write_tables(study, tmp_path / "tables")
    assert not any("nan" in path.read_text() for path in written if path.suffix in (".md", ".tex"))


def test_kernels_are_added_up_by_name() -> None:
    table = run_kernels(pd.DataFrame({
        "kernel": ["a", "b", "a"], "launches": [1, 2, 3], "time_s": [1.0, 5.0, 3.0],
        "flops_fp32_vector": [1.0, float("nan"), 2.0], "layer": ["x", "", "y"],
    }))  # fmt: skip
    assert table["kernel"].tolist() == ["b", "a"]
    assert table["launches"].tolist() == [2, 4]
    assert table["time_s"].tolist() == [5.0, 4.0]
    assert table["flops"].isna().tolist() == [True, False]
    assert table["flops"].iloc[1] == 3.0
    assert table["share"].tolist() == [5 / 9, 4 / 9]
    assert table["layers"].fillna(0).tolist() == [0, 2]


def test_a_capture_is_a_subject_of_its_own(tmp_path: Path) -> None:
    # given a capture alone
    results = folder(tmp_path)
    store_capture(results)
    study = read_study(results)
    # then it is no measured run, and has a point of its own under the roofs of its device
    assert len(study.runs) == 1
    (capture,) = study.captures.to_dict("records")
    assert (capture["label"], capture["env"], capture["launches"]) == (
        "RN50 amp",
        "nvidia-h200",
        637,
    )
    assert capture["time_s"] == pytest.approx(0.007924, rel=1e-3)
    assert capture["attained_flops_per_s"] == pytest.approx(819.6e9 / 0.007924, rel=0.01)
    assert capture["bound"] == "l2"
    assert capture["launch_s"] != capture["launch_s"]  # kernels only: no launch is timed
    whole = summary_csv(study)
    assert whole["label"].tolist()[-1] == "RN50 amp"
    assert whole["grain"].tolist() == ["step", "capture"]
    assert tables(study)["kernels"]["run"].unique().tolist() == ["RN50 amp"]


def test_notes_on_a_capture_go_where_its_points_go(tmp_path: Path) -> None:
    # given a capture of a Hopper chip, of which its reader had two things to say
    results = folder(tmp_path)
    notes = ["fp16 is a guess", BULK_COPIES]
    study = read_study(results, run_ids=[store_capture(results, warnings=notes).run_id])
    # then the terminal, the tables and the report say them, and so does the figure of levels
    told = "; ".join(notes)
    assert study.remarks == tuple(f"the capture RN50 amp: {note}" for note in notes)
    assert set(points_csv(study)["note"]) == {told}
    pictures = write_figures(study, tmp_path / "figures", kinds=("hierarchical",))
    assert f"On RN50 amp: {'. '.join(notes)}." in report_text(
        study, folder=tmp_path, figures=pictures
    )
    assert [picture.caption.endswith(f"{BULK_COPIES}.") for picture in pictures] == [True]
    # and what a capture does not have is empty; its time is that of its kernels
    whole = summary_csv(study).iloc[0]
    assert whole[["batch_size", "precision", "images_per_sec"]].isna().all()
    assert whole["elapsed_sec"] == whole["time_s"] == pytest.approx(0.007924, rel=1e-3)
    assert set(points_csv(study)["elapsed_sec"]) == {whole["time_s"]}


def test_a_capture_of_an_unknown_device_under_user_roofs(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    store_capture(results, "", device_name="CC 7.5")
    assert "no roofs are known for CC 7.5" in read_study(results).problems[0]
    given = user_roofs("given", "", compute={"fp16": 8.1e12, "fp32": 8.1e12}, dram_bytes_per_s=3e11)
    study = read_study(results, everywhere=given)
    assert study.problems == ()
    (capture,) = study.captures.to_dict("records")
    assert capture["label"] == "step.csv"
    assert capture["compute_s"] == pytest.approx(819.6e9 / 8.1e12, rel=0.01)
    assert capture["dram_s"] == pytest.approx(10_510_359_552 / 3e11)
    assert capture["roof_source"] == "given"


def test_the_optimizer_of_a_scaled_loss_takes_the_time_of_its_kernels() -> None:
    # given layers without gaps, but for the optimizer, in which the host was waited for
    layers = pd.DataFrame({"layer": ["conv1", "(optimizer)"], "time_s": [2.0, 1.8]})
    kernels = pd.DataFrame({"phase": ["forward", "optimizer", "optimizer"],
                            "time_s": [1.9, 0.1, 0.2]})  # fmt: skip
    # then its kernels say how long it takes
    told = with_optimizer_kernels(layers, kernels)
    assert told["time_s"].tolist() == pytest.approx([2.0, 0.3])
    assert with_optimizer_kernels(layers, kernels.drop(columns="phase")) is layers

"""`ridgeline roofline` and `ridgeline report` on stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.analyzed_here import Printed, command, store_passport
from tests.cli.small_runs import QUICK, folder, run_here
from tests.report.profiled import store_capture

from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

RESULTS = Path("results")
SEED_000 = ["label", "env", "arch", "backend", "batch_size", "precision", "elapsed_sec",
            "images_per_sec", "ai", "attained_gflops", "peak_gflops", "peak_gbps"]  # fmt: skip


@pytest.fixture
def stored(folder: Path, capsys: Printed) -> str:
    """Two runs with layers and a passport; its name."""
    name = store_passport(RESULTS)
    for batch in ("2", "4"):
        run_here("net.py:make", "--input-size", "4", "-b", batch, "--layers", "--label", "mine",
                 *QUICK)  # fmt: skip
    command("count", "net.py:make", "--input-size", "4", "-b", "2,4", "--mode", "train",
            "--results", "results", "-q")  # fmt: skip
    capsys.readouterr()
    return name


def test_files_of_a_results_folder_are_run_only_if_asked(folder: Path, capsys: Printed) -> None:
    # given a run of a network from a file that nobody counted
    store_passport(RESULTS)
    run_here("net.py:make", "--input-size", "4", "-b", "2", *QUICK)
    (folder / "net.py").write_text((folder / "net.py").read_text() + "open('was_run', 'w')\n")
    capsys.readouterr()
    # when it is reported, then its file is left alone
    assert command("roofline", "--no-figures") == 0
    assert "--count does, if you trust this folder" in capsys.readouterr().err
    assert not Path("was_run").exists()
    # and even if asked, a file that is not the one that was run says nothing about it
    assert command("roofline", "--no-figures", "--count") == 0
    assert "its file has changed since it was run" in capsys.readouterr().err
    assert not Path("was_run").exists()


def test_an_uncounted_file_is_counted_if_asked(folder: Path, capsys: Printed) -> None:
    store_passport(RESULTS)
    run_here("net.py:make", "--input-size", "4", "-b", "2", *QUICK)
    capsys.readouterr()
    assert command("roofline", "--no-figures", "--count", "--json") == 0
    assert json.loads(capsys.readouterr().out)["points"]


def test_runs_are_counted_joined_and_drawn(stored: str, capsys: Printed) -> None:
    assert command("roofline", "--layers") == 0
    streams = capsys.readouterr()
    assert stored in streams.out
    assert "headroom" in streams.out
    points = pd.read_csv(RESULTS / "roofline_points.csv")
    assert list(points.columns[: len(SEED_000)]) == SEED_000
    assert (points["grain"] == "step").sum() == 2
    for form in ("png", "svg"):
        assert (RESULTS / "figures" / f"roofline_{stored}.{form}").exists()
    assert "wrote results/roofline_points.csv" in streams.err


def test_a_file_of_peaks(stored: str, capsys: Printed) -> None:
    Path("peaks.json").write_text(
        json.dumps({stored: {"peak_gbps": 50, "peak_gflops": {"fp32": 500}}})
    )
    assert command("roofline", "--peaks", "peaks.json", "--no-figures", "--json") == 0
    machine = json.loads(capsys.readouterr().out)["machines"][0]
    assert machine["flops_per_s"]["fp32 vector"] == 5e11


def test_the_report_is_written_again(stored: str, capsys: Printed) -> None:
    assert command("report", "--title", "My study", "--notebook", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["report"] == "results/report.html"
    assert "My study" in Path(made["report"]).read_text(encoding="utf-8")
    assert "My study" in Path(made["markdown"]).read_text(encoding="utf-8")
    assert Path(made["notebook"]).exists()
    assert made["figures"]
    assert made["tables"]


def test_a_capture_under_user_roofs(tmp_path: Path, capsys: Printed) -> None:
    # given a capture that was imported with a label, beside another one
    results = ResultsFolder(tmp_path / "results")
    label = "RN18 FP32 BS128 (one NVTX step)"
    store_capture(results, label, device_name="CC 7.5")
    store_capture(results, "a second one", device_name="CC 7.5")
    picture, summary = tmp_path / "sample_roofline.png", tmp_path / "sample_summary.csv"
    # when it is put under roofs given by hand, as TFLOP/s and GB/s
    assert command("roofline", "--results", str(results.path), "--peak-compute", "810",
                   "--peak-bw", "3000", "--label", label, "--out", str(picture),
                   "--summary", str(summary)) == 0  # fmt: skip
    # then there is one point with its label, in a picture and in a summary
    said = capsys.readouterr()
    assert label in said.out and "a second one" not in said.out
    assert "sum of its kernels' times" in said.out
    assert "note:" not in said.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    (row,) = pd.read_csv(summary).to_dict("records")
    assert (row["label"], row["peak_gflops"], row["peak_gbps"]) == (label, 810_000, 3000)
    assert row["ai"] == pytest.approx(78.0, rel=1e-3)
    assert row["attained_gflops"] == pytest.approx(103_460, rel=1e-3)
    # and the points of the JSON are its own
    assert command("roofline", label, "--results", str(results.path), "--no-figures", "--json") == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert {point["label"] for point in points} == {label}
    assert {point["grain"] for point in points} == {"capture", "kernel"}

"""`ridgeline roofline` and `ridgeline report` on stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.analyzed_here import analyze_here, command, store_passport
from tests.cli.small_runs import QUICK, folder, run_here
from tests.report.profiled import profiled_folder, store_capture, the_run

from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

RESULTS = Path("results")
SEED_000 = ["label", "env", "arch", "backend", "batch_size", "precision", "elapsed_sec",
            "images_per_sec", "ai", "attained_gflops", "peak_gflops", "peak_gbps"]  # fmt: skip


@pytest.fixture
def stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Two runs with layers and a passport; its name."""
    name = store_passport(RESULTS)
    for batch in ("2", "4"):
        run_here("net.py:make", "--input-size", "4", "-b", batch, "--layers", "--label", "mine",
                 *QUICK)  # fmt: skip
    command("count", "net.py:make", "--input-size", "4", "-b", "2,4", "--mode", "train",
            "--results", "results", "-q")  # fmt: skip
    capsys.readouterr()
    return name


def test_files_of_a_results_folder_are_run_only_if_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_an_uncounted_file_is_counted_if_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_passport(RESULTS)
    run_here("net.py:make", "--input-size", "4", "-b", "2", *QUICK)
    capsys.readouterr()
    assert command("roofline", "--no-figures", "--count", "--json") == 0
    assert json.loads(capsys.readouterr().out)["points"]


def test_a_network_that_was_edited_is_counted_anew(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given an analyzed network, when its file is changed and it is analyzed again
    store_passport(RESULTS)
    flops = []
    for width in ("8", "800"):
        text = (folder / "net.py").read_text()
        (folder / "net.py").write_text(text.replace("width=8", f"width={width}"))
        assert analyze_here("net.py:make", "--input-size", "4", "-b", "2", "--mode", "infer") == 0
        points = pd.read_csv(RESULTS / "roofline_points.csv")
        flops.append(points[points["grain"].eq("step")]["flops"].item())
    # then the second has its own FLOPs
    assert flops[1] > 50 * flops[0]


def test_runs_are_counted_joined_and_drawn(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_user_roofs_replace_measured_ones(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    rates = ("--peak-compute", "8.1", "--peak-bw", "300", "--no-figures", "--json")
    assert command("roofline", *rates) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["machines"][0]["source"] == "given"
    assert answer["machines"][0]["flops_per_s"]["fp32 matrix"] == 8.1e12
    assert answer["machines"][0]["bytes_per_s"]["dram"] == 3e11
    steps = [point for point in answer["points"] if point["grain"] == "step"]
    assert steps[0]["compute_s"] == pytest.approx(steps[0]["flops"] / 8.1e12)


def test_a_file_of_peaks(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("peaks.json").write_text(
        json.dumps({stored: {"peak_gbps": 50, "peak_gflops": {"fp32": 500}}})
    )
    assert command("roofline", "--peaks", "peaks.json", "--no-figures", "--json") == 0
    machine = json.loads(capsys.readouterr().out)["machines"][0]
    assert machine["flops_per_s"]["fp32 vector"] == 5e11


def test_runs_are_chosen_by_label_model_or_id(
    stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, steps in (("mine", 2), ("net.py:make", 2)):
        assert command("roofline", name, "--no-figures", "--json") == 0
        points = json.loads(capsys.readouterr().out)["points"]
        assert sum(point["grain"] == "step" for point in points) == steps


def test_a_layer_stands_once_by_counters_where_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a run whose layers are timed, counted from the graph and by counters
    results = profiled_folder(tmp_path)
    run = the_run(results)
    layers = pd.DataFrame({
        "layer": ["conv1"], "kind": ["Conv2d"], "input_shape": ["32x3x224x224"],
        "time_s": [0.002], "forward_s": [0.001], "backward_s": [0.001],
    })  # fmt: skip
    layers.to_parquet(run.path / "layers.parquet")
    # when layers are shown
    assert command("roofline", "--results", str(tmp_path), "--layers", "--no-figures") == 0
    # then this one stands there once, with what its work is from
    out = capsys.readouterr().out
    [row] = [line for line in out.splitlines() if " conv1 " in line]
    assert " counter " in row


def test_what_was_passed_over_is_said_where_nothing_is_left(
    stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (RESULTS / "runs").glob("*/run.json"):
        content = json.loads(path.read_text())
        content["found"]["step_time_s"] = "quick"
        path.write_text(json.dumps(content))
    assert command("roofline") == 2
    errors = capsys.readouterr().err
    assert "there are no completed runs in results: " in errors
    assert "step_time_s" in errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody",), "no run is called 'nobody'"),
        (("--format", "gif"), "--format 'gif' is not known"),
        (("--out", "a.gif"), "no figure can be written as gif"),
        (("--peak-compute", "fp23=5"), "there is no roof called 'fp23'"),
        (("--peak-compute", "much"), "--peak-compute 'much' is not a rate"),
        (("--peak-bw", "0"), "is no roof"),
        (("--peaks", "nosuch.json"), "nosuch.json cannot be read"),
        (("--peaks", "net.py"), "net.py cannot be read"),
        (("--kind", "round"), "no kind of figure is called 'round'"),
        (("--results", "elsewhere"), "there are no completed runs in elsewhere"),
    ],
)
def test_bad_input(
    stored: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    assert command("roofline", *arguments) == 2
    errors = capsys.readouterr().err
    assert says in errors
    assert "hint:" in errors


def test_the_report_is_written_again(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", "--title", "My study", "--notebook", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["report"] == "results/report.html"
    assert "My study" in Path(made["report"]).read_text(encoding="utf-8")
    assert "My study" in Path(made["markdown"]).read_text(encoding="utf-8")
    assert Path(made["notebook"]).exists()
    assert made["figures"]
    assert made["tables"]


def test_own_words_survive(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", "--no-figures") == 0
    path = RESULTS / "report.md"
    begin = "<!-- yours: analysis -->"
    text = path.read_text(encoding="utf-8")
    assert begin in text
    path.write_text(text.replace(begin, f"{begin}\nI think it is the cache.", 1), encoding="utf-8")
    assert command("report", "--no-figures") == 0
    assert "I think it is the cache." in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [(), ("-q",)], ids=["", "quiet"])
def test_a_damaged_run_is_passed_over_and_named(
    stored: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    first = sorted((RESULTS / "runs").glob("*-mine-*"))
    (first[0] / "run.json").write_text("{")
    assert command("report", "--no-figures", *options) == 0
    streams = capsys.readouterr()
    assert first[0].name in streams.err
    assert streams.out == "results/report.html\n"


def test_a_capture_under_user_roofs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_one_file_for_several_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ResultsFolder(tmp_path)
    store_capture(results)
    assert command("roofline", "--results", str(tmp_path), "--out", str(tmp_path / "a.png"),
                   "--kind", "classic,kernels") == 2  # fmt: skip
    assert "is one file, and --kind names 2 figures" in capsys.readouterr().err
    assert command("roofline", "--results", str(tmp_path), "--label", "nobody") == 2
    assert "no run is called 'nobody'" in capsys.readouterr().err


def test_a_summary_needs_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given captures of two machines with one label, under roofs of their own
    results = ResultsFolder(tmp_path / "results")
    store_capture(results, "two", {"command": "import", "files": ["a.csv"]})
    store_capture(
        results,
        "two",
        {"command": "import", "files": ["b.csv"]},
        device_name="NVIDIA A100-SXM4-80GB",
    )
    picture, summary = tmp_path / "two.png", tmp_path / "two.csv"
    arguments = ("roofline", "--results", str(results.path), "--label", "two",
                 "--out", str(picture), "--summary", str(summary))  # fmt: skip
    # when one picture is asked for
    assert command(*arguments) == 2
    # then it cannot be drawn, and the summary is there all the same
    said = capsys.readouterr().err
    assert f"wrote {summary}\n" in said
    assert "`ridgeline roofline nvidia-h200 …`" in said
    assert pd.read_csv(summary)["label"].tolist() == ["two (a.csv)", "two (b.csv)"]
    assert not picture.exists()
    # and what the hint says works: a machine can be named
    assert command(*arguments, "nvidia-h200") == 0
    assert pd.read_csv(summary)["label"].tolist() == ["two (a.csv)"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    # and so can a capture by the name that it has in the tables
    assert command("roofline", "two (b.csv)", "--results", str(results.path), "--no-figures",
                   "--json") == 0  # fmt: skip
    points = json.loads(capsys.readouterr().out)["points"]
    assert {point["model"] for point in points} == {"two (b.csv)"}


def test_nothing_has_both_the_name_and_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ResultsFolder(tmp_path)
    store_capture(results, "mine")
    store_capture(results, "yours", device_name="NVIDIA A100-SXM4-80GB")
    assert command("roofline", "nvidia-h200", "--results", str(tmp_path), "--label", "yours") == 2
    assert "nothing called nvidia-h200 has the label 'yours'" in capsys.readouterr().err


def test_a_kind_of_figure_that_cannot_be_drawn_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ResultsFolder(tmp_path)
    store_capture(results)  # which has no step
    assert command("roofline", "--results", str(tmp_path), "--kind", "throughput") == 0
    assert "note: no figure of that kind can be drawn from these runs" in capsys.readouterr().err

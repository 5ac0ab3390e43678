"""`ridgeline import` on recorded captures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pytest import MonkeyPatch
from tests.captures.files import NCU, PRODUCTS, TRACES
from tests.cli.analyzed_here import Printed, command

import ridgeline
from ridgeline.records import CaptureRequest, ProfileSummary
from ridgeline.report.views import repeat_command
from ridgeline.store import ResultsFolder

REFUSED = NCU / "a100_rule_only_roofline.csv"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_stored(capsys: Printed) -> None:
    assert command("import", str(PRODUCTS), "--label", "products") == 0
    folder = ResultsFolder(Path("results"))
    (run,) = folder.read_runs()
    assert run.request == CaptureRequest(files=(str(PRODUCTS),), label="products")
    product = 2 * 2048**3
    totals = {
        "fp64": 4_194_304, "fp32": 17_394_746_752, "fp16": 2_229_248, "tensor_fp16": product,
        "tensor_bf16": product, "tensor_tf32": product, "tensor_fp8": product,
        "tensor_int8": product, "tensor_fp64": product, "dram_bytes": 402_888_704,
        "l2_bytes": 2_884_893_000, "l1_bytes": 2_753_599_000,
    }  # fmt: skip
    assert run.result.kernel_time_s == pytest.approx(987.232e-6)
    assert replace(run.result, kernel_time_s=None) == ProfileSummary(
        status="ok",
        provenance="imported",
        device_name="NVIDIA H200",
        compute_capability="9.0",
        backend="cuda",
        kind="ncu-raw",
        totals=totals,
        launches=12,
        warnings=("L1 bytes leave out the bulk tensor copies of this chip",),
    )
    assert len(folder.read_table(run.run_id, "kernels")) == 12
    said = capsys.readouterr().err
    assert said.startswith(f"reading and joining {PRODUCTS.name}: about 1 s\n")
    assert f"wrote {run.path}" in said


def test_the_label_is_the_name_in_the_table(capsys: Printed) -> None:
    assert command("import", str(PRODUCTS), "--label", "my step", "--no-store", "-q") == 0
    shown = capsys.readouterr().out
    assert "my step" in shown and PRODUCTS.stem not in shown
    # and captures of one label are told apart by their files
    files = [TRACES / "kineto.json", TRACES / "nsys_gpukernsum_2020.csv"]
    assert command("import", *map(str, files), "--label", "mine", "--no-store", "-q") == 0
    shown = capsys.readouterr().out
    assert "mine (kineto.json)" in shown
    assert shown.count("mine (") == 2


def test_the_others_are_kept_if_one_is_refused(capsys: Printed) -> None:
    files = [str(PRODUCTS), "nowhere.csv", str(REFUSED), str(TRACES / "kineto.json")]
    assert command("import", *files, "--json", "-q") == 2
    streams = capsys.readouterr()
    kept = [capture["file"] for capture in json.loads(streams.out)["captures"]]
    assert kept == [files[0], files[3]]
    assert len(ResultsFolder(Path("results")).read_runs()) == 2
    assert "nowhere.csv cannot be read: No such file" in streams.err
    assert "no metric" in streams.err


def test_a_name_with_control_characters_is_shown_harmless(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "a\x1b[2Jb.csv"
    path.write_bytes(PRODUCTS.read_bytes())
    assert command("import", str(path), "--no-store") == 0
    streams = capsys.readouterr()
    assert "\x1b" not in streams.out + streams.err
    assert not Path("results").exists()


def test_quiet(capsys: Printed) -> None:
    assert command("import", str(PRODUCTS), "-q") == 0
    # no progress and no advice; what is to be known about the numbers stays
    assert capsys.readouterr().err == (
        "note: h200_gemm_dtypes_raw.csv: L1 bytes leave out the bulk tensor copies of this chip\n"
    )


def test_from_python() -> None:
    (capture,) = ridgeline.import_capture(PRODUCTS, label="mine", results="results")
    assert capture.launches == 12
    (run,) = ResultsFolder(Path("results")).read_runs()
    assert run.request.label == "mine"
    assert ridgeline.import_capture(str(PRODUCTS))[0].kernel_time_s == capture.kernel_time_s


# ---------------------------------------------------------------- runs, and captures of runs

COLUMNS = (
    "timestamp,hostname,arch,backend,device_name,batch_size,warmup_iters,measured_iters,precision,"
    "lr,momentum,weight_decay,elapsed_sec,images_per_sec,images_processed,data_root,label,"
    "torch_version,channels_last,grad_accum_steps,deterministic,cudnn_benchmark"
)
ROW = (
    "2025-11-02T10:00:00,wsl,resnet50,cuda,NVIDIA GeForce RTX 4090,32,10,100,amp,0.1,0.9,0.0001,"
    "{},640.0,3200,data/imagenet-mini,gpu_amp,2.9.0,True,1,False,True"
)


def test_runs_of_another_tool(capsys: Printed) -> None:
    # given a metrics.csv with two repeats, and a row whose run failed
    rows = [ROW.format("5.0"), ROW.format("5.5"), ROW.format("")]
    Path("metrics.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert command("import", "metrics.csv") == 0
    printed = capsys.readouterr()
    assert "metrics.csv, line 4 is left out: it has no elapsed_sec" in printed.err
    # then each is a run that says where it is from
    runs = ResultsFolder(Path("results")).index().runs
    first = runs[0]
    assert [run.result.elapsed_s for run in runs] == [5.0, 5.5]
    assert first.result.provenance == "imported"
    assert (first.result.step_time_s.mean, first.result.samples_per_s) == (0.05, 640.0)
    assert (first.request.model, first.request.channels_last, first.request.lr) == (
        "resnet50", True, 0.1,
    )  # fmt: skip
    assert (first.made.time, first.made.host.name) == ("2025-11-02T10:00:00", "wsl")
    assert repeat_command(first) == "ridgeline import metrics.csv"
    # and the views have them, in the same columns
    table = pd.read_csv("results/metrics.csv")
    assert [name for name in table if name in COLUMNS.split(",")] == COLUMNS.split(",")
    assert table["warmup_iters"].tolist() == [10, 10]
    assert pd.read_csv("results/throughput_summary.csv")["n"].tolist() == [2]
    # and the same file adds nothing
    assert command("import", "metrics.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [], "known": 2}
    assert command("import", "metrics.csv", "--no-store") == 2


def test_a_capture_is_the_profile_of_a_run(capsys: Printed) -> None:
    Path("metrics.csv").write_text(f"{COLUMNS}\n{ROW.format('5.0')}\n")
    assert command("import", "metrics.csv", "-q") == 0
    # when a capture of two of its steps is attached
    assert command("import", str(PRODUCTS), "--run", "gpu_amp", "--steps", "2", "-q") == 0
    (profile,) = ResultsFolder(Path("results")).index().profiles
    (run,) = ResultsFolder(Path("results")).index().runs
    assert (profile.request.of_run, profile.result.iters) == (run.run_id, 2)
    assert profile.result.launches == 6  # of 12 kernels
    assert profile.result.totals["tensor_fp16"] == 2048**3  # half of a product
    assert profile.result.warnings[1] == (
        "it was captured on NVIDIA H200, the run is of NVIDIA GeForce RTX 4090"
    )
    # then the run has a point by counters
    points = ridgeline.roofline("results").points
    assert points[points["grain"].eq("step")]["provenance"].tolist() == ["counter"]
    assert command("import", str(PRODUCTS), "--run", "nobody") == 2

"""`ridgeline analyze` as a user meets it: from a model to a report."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.analyzed_here import Printed, analyze_here, store_passport
from tests.cli.small_runs import folder, start, wait_until

from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

SMALL = ("net.py:make", "--input-size", "4", "-b", "2,8")
RESULTS = Path("results")


def test_one_command_to_one_page(folder: Path, capsys: Printed) -> None:
    # given a machine that was measured before, when a model is analyzed
    name = store_passport(RESULTS)
    assert analyze_here(*SMALL) == 0
    streams = capsys.readouterr()
    # then the last line is the path of a page, and everything else is beside it
    page = Path(streams.out.rstrip().splitlines()[-1])
    assert page == RESULTS / "report.html"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    for made in ("report.md", "roofline_points.csv", "metrics.csv", "analysis.json",
                 f"figures/roofline_{name}.png", f"figures/throughput_{name}.png"):  # fmt: skip
        assert (RESULTS / made).stat().st_size > 0
    # and the terminal answers the three questions
    assert f"samples/s on {name}" in streams.out
    assert "What sets the floor is" in streams.out
    assert "What to try first:" in streams.out
    # and the first line says what will be done, and how long it takes
    assert streams.err.startswith("analyzing net.py:make on cpu: roofs of the machine as before,")
    assert "; about " in streams.err.splitlines()[0]
    # and what was skipped is told with its reason
    assert "machine: cached: kept from " in streams.err
    assert "profile: skipped: counters are those of NVIDIA GPUs" in streams.err


def test_points_are_joined_from_count_run_and_passport(folder: Path) -> None:
    store_passport(RESULTS)
    assert analyze_here("net.py:make", "--input-size", "4", "-b", "2", "--mode", "infer") == 0
    points = pd.read_csv(RESULTS / "roofline_points.csv")
    step = points[points["grain"].eq("step")].iloc[0]
    # 2 samples through 4→8→2: 2·2·(4·8 + 8·2) = 192 FLOP of products, 16 + 4 biases, 16 of ReLU
    assert step["flops"] == 192 + 20 + 16
    assert step["peak_gflops"] == pytest.approx(1000)
    assert step["peak_gbps"] == pytest.approx(100)
    run = ResultsFolder().read_runs()[-1]
    assert step["time_s"] == pytest.approx(run.result.step_time_s.median)


def test_batch_sizes_are_chosen(folder: Path, capsys: Printed) -> None:
    store_passport(RESULTS)
    assert analyze_here("net.py:make", "--input-size", "4", "--mode", "infer", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [run["batch_size"] for run in answer["runs"]] == [2, 8]
    # a quick look takes the larger one alone
    assert analyze_here("net.py:make", "--input-size", "4", "--quick", "--json") == 0
    assert [run["batch_size"] for run in json.loads(capsys.readouterr().out)["runs"]] == [8]


def test_a_model_that_crashes_is_told_and_the_others_go_on(folder: Path, capsys: Printed) -> None:
    # given a model that cannot run
    (folder / "broken.py").write_text(
        "from torch import nn\n"
        "class Broken(nn.Module):\n"
        "    def forward(self, x):\n"
        "        raise ValueError('no way')\n"
        "def make():\n"
        "    return Broken()\n"
    )
    store_passport(RESULTS)
    # when it is analyzed together with one that can
    code = analyze_here("broken.py:make", "net.py:make", "--input-size", "4", "-b", "2",
                        "--mode", "infer")  # fmt: skip
    streams = capsys.readouterr()
    # then the report is about the other, and the exit code tells
    assert code == 3
    assert "no way" in streams.err
    assert streams.out.rstrip().endswith("results/report.html")
    stages = json.loads((RESULTS / "analysis.json").read_text())["stages"]
    assert "no way" in next(s["reason"] for s in stages if s["stage"] == "run")


def test_interrupted_in_the_middle_it_keeps_what_is_done(folder: Path) -> None:
    # given an analysis of several configurations, when it is interrupted after the first run
    store_passport(RESULTS)
    process = start(folder, "analyze", "net.py:make", "--input-size", "4", "-b", "1,2,4,8,16,32,64",
                    "--backend", "cpu", "--iters", "200", "--repeats", "9")  # fmt: skip
    wait_until(lambda: bool(list(RESULTS.glob("runs/*-run-*/run.json"))), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    # then what was done is kept, and the code and the words say so
    assert process.returncode == 130
    assert "interrupted; runs kept: " in errors
    assert "Traceback" not in errors
    assert ResultsFolder().read_runs()

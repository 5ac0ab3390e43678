"""`ridgeline count` as a user meets it: what it prints, writes and refuses."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command

from ridgeline.store import ResultsFolder

NET = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
"""
SIZE = ("--input-size", "3,8,8")
OPS = [("aten::convolution", 7776), ("aten::relu", 0), ("aten::addmm", 2880)]  # MACs
ridgeline = partial(command, "count")


@pytest.fixture
def net(tmp_path: Path, monkeypatch: MonkeyPatch) -> str:
    """A small network in a file, and the folder of the test as the working directory."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "net.py:make"


def test_files_have_the_form_of_their_ending(net: str, tmp_path: Path) -> None:
    paths = {ending: tmp_path / "deep" / f"table.{ending}" for ending in ("csv", "json")}
    options = [option for path in paths.values() for option in ("-o", str(path))]
    assert ridgeline(net, *SIZE, "--table", "ops", *options, "-q") == 0
    table = pd.read_csv(paths["csv"])
    assert list(zip(table["op"], table["macs"], strict=True)) == OPS
    assert table["model"].tolist() == ["net.py:make"] * 3
    [model] = json.loads(paths["json"].read_text())["models"]
    assert (model["model"], model["macs"]) == ("net.py:make", 7776 + 2880)
    assert [(row["op"], row["macs"]) for row in model["ops"]] == OPS


def test_several_are_one_table_and_one_or_a_depth_are_broken_down(
    net: str, capsys: Printed
) -> None:
    assert ridgeline(net, *SIZE, "-b", "1,2", "--mode", "train", "-q") == 0
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines() if " net.py:make " in line] == [
        ["net.py:make", "1"], ["net.py:make", "2"],
    ]  # fmt: skip
    assert "train, fp32, sgd. --depth 1 adds the phases" in out
    assert " phase " not in out and " module " not in out
    for more in (("-b", "1"), ("-b", "1,2", "--depth", "1")):
        assert ridgeline(net, *SIZE, *more, "--mode", "train", "-q") == 0
        out = capsys.readouterr().out
        assert " phase " in out and " module " in out


def test_output_dir_holds_text_and_summary(net: str, tmp_path: Path) -> None:
    assert ridgeline(net, *SIZE, "-b", "1,2", "--output-dir", str(tmp_path / "out"), "-q") == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "net.py_make_bs1.txt",
        "net.py_make_bs2.txt",
        "summary.csv",
        "summary.json",
    ]
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert table[["batch_size", "mult_adds_per_batch_forward"]].to_numpy().tolist() == [
        [1, 10656], [2, 21312],
    ]  # fmt: skip
    # the convolution writes 8x6x6 numbers, the last layer 10; the others have no parameters
    assert table["layer_output_bytes"].tolist() == [4 * 298, 8 * 298]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    two = summary["net.py:make"]["2"]
    assert two["mult_adds_per_batch_forward"] == 21312
    assert two["mult_adds_per_sample_forward"] == 10656
    assert two["flops_per_sample_forward"] == two["flops_per_batch_forward"] / 2
    assert "Conv2d" in (tmp_path / "out" / "net.py_make_bs1.txt").read_text()


def test_results_keeps_a_run_with_provenance(net: str, tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "results")
    assert ridgeline(net, *SIZE, "--results", str(results.path), "-q") == 0
    (run,) = results.index().counts
    assert (run.request.model, run.request.batch_size) == ("net.py:make", 1)
    assert (run.result.macs, run.result.provenance) == (10656, "static")
    assert run.made.host.name
    assert results.read_table(run.run_id, "ops")["macs"].sum() == 10656


@pytest.mark.parametrize("counted", [True, False])
def test_errors_of_models_are_json_and_keep_what_was_counted(
    counted: bool, net: str, capsys: Printed
) -> None:
    models = [net, "resnet5"] if counted else ["resnet5"]
    assert ridgeline(*models, *SIZE, "--json") == 2
    streams = capsys.readouterr()
    content = json.loads(streams.out)
    (error,) = content["errors"]
    assert [m["model"] for m in content["models"]] == models[:-1]
    assert (error["model"], error["problem"]) == ("resnet5", "unknown model 'resnet5'")
    assert error["hint"].startswith("did you mean resnet50")
    assert streams.err == f"ridgeline: {error['problem']}\n  hint: {error['hint']}\n"


IMAGES = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1))
"""


def test_several_input_sizes_are_counted(net: str, tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "images.py").write_text(IMAGES)
    sizes = ("--input-size", "3x8x8,3x10x8")
    assert ridgeline("images.py:make", *sizes, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # then the convolution has 6x6 and 8x6 places, of 8·3·3·3 MACs each
    assert [model["macs"] for model in found["models"]] == [36 * 216, 48 * 216]
    # and each has a file of its own
    assert ridgeline("images.py:make", *sizes, "--output-dir", "out", "-q") == 0
    assert sorted(path.name for path in Path("out").glob("*.txt")) == [
        "images.py_make_bs1_1x3x10x8.txt",
        "images.py_make_bs1_1x3x8x8.txt",
    ]


def test_a_length_is_for_the_models_that_have_one(net: str, capsys: Printed) -> None:
    options = ("--seq-len", "5", "--json")
    assert ridgeline("lstm", net, *SIZE, *options) == 0
    printed = capsys.readouterr()
    assert [m["model"] for m in json.loads(printed.out)["models"]] == ["lstm", net]
    assert "net.py:make has no sequence length: it is left out there" in printed.err
    assert "lstm has no input size: it is left out there" in printed.err
    # and where no model has one, that is an error
    assert ridgeline(net, net, *SIZE, *options) == 2

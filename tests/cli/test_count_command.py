"""`ridgeline count` as a user meets it: what it prints, writes and refuses."""

import json
from functools import partial
from pathlib import Path
from typing import Any

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


def json_of(capsys: Printed, *arguments: str) -> dict[str, Any]:
    """The JSON of a count that goes well."""
    assert ridgeline(*arguments, "--json") == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_json_has_the_promised_keys(net: str, capsys: Printed) -> None:
    # when a network is counted as JSON
    content = json_of(capsys, net, *SIZE, "-b", "2,4")
    # then the interface that scripts rely on is there, by hand:
    # conv 2·8·6·6·3·3·3 = 15552 MACs and 576 bias adds, ReLU 576, linear 2·10·288 = 5760 and 20
    assert content["schema"] == 1
    first, second = content["models"]
    expected = {
        "model": "net.py:make", "batch_size": 2, "mode": "infer", "precision": "fp32",
        "params": 8 * 27 + 8 + 2880 + 10, "macs": 15552 + 5760,
        "flops": 2 * (15552 + 5760) + 576 + 576 + 20, "coverage": 1.0, "unknown_ops": [],
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert set(first["phases"]) == {"forward"}
    assert second["batch_size"] == 4
    assert second["macs"] == 2 * first["macs"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--formulas", "--format", "markdown"), [
            "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw + bias = 2·1·8·6·6·3·3·3 + 288 = 15840",
            "| 0 | Conv2d | 1x3x8x8 | 1x8x6x6 | 224 |",
            "| n = 288 |",  # ReLU: one term is its own product
        ]),
        (("--mode", "train", "--optimizer", "adam"), [
            "\n forward ", "\n input-grad ", "\n weight-grad ", "\n optimizer ",
        ]),
        (("--table", "ops", "--formulas"), ["module   op ", "aten::addmm"]),
        (("--table", "ops", "--format", "markdown"), [
            "| 0 | aten::convolution | forward | 1x3x8x8 8x3x3x3 8 | 1x8x6x6 | 7.78 k | 15.8 kFLOP"
        ]),
    ],
    ids=["formulas", "phases", "operators", "operators in Markdown"],
)  # fmt: skip
def test_printed_tables(
    net: str, options: tuple[str, ...], expected: list[str], capsys: Printed
) -> None:
    assert ridgeline(net, *SIZE, *options) == 0
    out = capsys.readouterr().out
    assert [text for text in expected if text not in out] == []


def test_files_have_the_form_of_their_ending(net: str, tmp_path: Path) -> None:
    paths = {ending: tmp_path / "deep" / f"table.{ending}" for ending in ("csv", "parquet", "json")}
    options = [option for path in paths.values() for option in ("-o", str(path))]
    assert ridgeline(net, *SIZE, "--table", "ops", *options, "-q") == 0
    for table in (pd.read_csv(paths["csv"]), pd.read_parquet(paths["parquet"])):
        assert list(zip(table["op"], table["macs"], strict=True)) == OPS
        assert table["model"].tolist() == ["net.py:make"] * 3
    [model] = json.loads(paths["json"].read_text())["models"]
    assert (model["model"], model["macs"]) == ("net.py:make", 7776 + 2880)
    assert [(row["op"], row["macs"]) for row in model["ops"]] == OPS


def test_output_dir_holds_text_and_summary(net: str, tmp_path: Path) -> None:
    assert ridgeline(net, *SIZE, "-b", "1,2", "--output-dir", str(tmp_path / "out"), "-q") == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "net.py_make_bs1.txt",
        "net.py_make_bs2.txt",
        "summary.json",
    ]
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


BAD_OPTIONS = [  # arguments, problem, beginning of the hint
    ("", "no model was named", "for example: ridgeline count resnet50; --list shows all names"),
    ("-b 0", "--batch-size '0' is not valid",
     "give whole numbers of 1 to 2147483648, separated by commas: 1,8,32"),
    ("-b two", "--batch-size 'two' is not valid", "give whole numbers"),
    ("--input-size -1", "--input-size '-1' is not valid",
     "give whole numbers of 1 to 2147483648, separated by commas: 224 or 224,320"),
    ("--precision fp8", "unknown precision 'fp8'", "choose fp32, tf32"),
    ("--mode trian", "unknown mode 'trian'", "choose infer, train"),
    ("--mode train --optimizer sdg", "unknown optimizer 'sdg'", "choose"),
    ("--causal both", "unknown causal 'both'", "choose full, half"),
    ("--find-max-batch lots", "'lots' is not an amount of memory", ""),
    ("-o table.xls", "unknown ending of --output '.xls'", "choose .csv"),
    ("--table rows", "unknown --table 'rows'", "choose layers, ops"),
    ("--config hidden", "--config 'hidden' is not valid", "write key=value"),
    ("--dim seq=3", "--dim is for .onnx files", "PyTorch models take --batch-size"),
    ("--compare-onnx net.py --mode train", "--compare-onnx cannot compare --mode train",
     "it compares a forward pass in fp32; leave --mode train out"),
    ("--compare-onnx net.py --mode train --precision amp",
     "--compare-onnx cannot compare --mode train and --precision amp",
     "it compares a forward pass in fp32; leave --mode train and --precision amp out"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "problem", "hint"), BAD_OPTIONS, ids=lambda text: text[:30])
def test_bad_options_are_refused_in_text_and_json(
    net: str, options: str, problem: str, hint: str, capsys: Printed
) -> None:
    assert ridgeline(*([net] if options else []), *options.split(), "--json") == 2
    streams = capsys.readouterr()
    content = json.loads(streams.out)
    (error,) = content["errors"]
    assert (content["schema"], content["models"], error["model"]) == (1, [], None)
    assert error["problem"].startswith(problem)
    assert error["hint"].startswith(hint)
    assert streams.err == f"ridgeline: {error['problem']}\n  hint: {error['hint']}\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--format", "xml"), "unknown --format 'xml'\n  hint: choose table, markdown"),
        (("--output-dir", ""), "the name of a folder is empty\n  hint: write . for this folder"),
        (("--results", ""), "the name of a folder is empty\n  hint: write . for this folder"),
        (("--input-size", "3,9,9"),
         "layer 3 (Linear) failed on input 1x392: a and b must have same reduction dim,"
         " but got [1, 392] X [288, 10].\n"
         "  hint: check --input-size, --seq-len or inputs=\n"),
    ],
    ids=["format", "output-dir", "results", "shape"],
)  # fmt: skip
def test_other_refusals(
    net: str, options: tuple[str, ...], complaint: str, capsys: Printed
) -> None:
    assert ridgeline(net, *SIZE, *options) == 2
    assert capsys.readouterr().err.startswith(f"ridgeline: {complaint}")


def test_list_takes_a_pattern(capsys: Printed) -> None:
    assert ridgeline("--list", "resnet*_cifar") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["resnet18_cifar", "resnet34_cifar"]
    assert ridgeline("--list", "no*such*net", "--json") == 2
    assert capsys.readouterr().out == "[]\n"


def test_growth_and_largest_batch(capsys: Printed) -> None:
    model = "resnet18_cifar"
    content = json_of(capsys, model, "--growth", "--find-max-batch", "100MB")
    macs = content["models"][0]["macs"]
    assert content["growth"][model]["by_batch"]["macs"]["coefficients"] == [0, macs]
    batch = content["max_batch"][model]
    models = json_of(capsys, model, "-b", f"{batch},{batch + 1}")["models"]
    assert models[0]["memory"]["peak_bytes"] <= 100e6 < models[1]["memory"]["peak_bytes"]


def test_growth_says_where_no_polynomial_fits(capsys: Printed) -> None:
    # vgg16 pools to 7x7 whatever comes in: from sizes that 7 does not divide, windows overlap
    assert ridgeline("vgg16", "--growth", "--depth", "0", "-q") == 0
    assert "\n  FLOPs: no polynomial fits these sizes\n" in capsys.readouterr().out
    growth = json_of(capsys, "vgg16", "--growth")["growth"]["vgg16"]
    assert growth["by_size"]["flops"] is None
    assert growth["by_size"]["macs"]["formula"].endswith("1.236e8")
    assert "flops by S: no polynomial fits these sizes" in growth["notes"]

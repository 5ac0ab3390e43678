"""`ridgeline count` as a user meets it: what it prints, writes and refuses."""

import json
from pathlib import Path

import pandas as pd
import pytest

from ridgeline.cli import main
from ridgeline.store import ResultsFolder

NET = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
"""
SIZE = ("--input-size", "3,8,8")


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small network in a file, and the folder of the test as the working directory."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "net.py:make"


def ridgeline(*arguments: str) -> int:
    """Run the command line in this process; answers the exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(["count", *arguments])
    return int(stopped.value.code or 0)


def test_json_has_the_promised_keys(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    # when a network is counted as JSON
    assert ridgeline(net, *SIZE, "-b", "2,4", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    # then the interface that scripts rely on is there, by hand:
    # conv 2·8·6·6·3·3·3 = 15552 MACs and 576 bias adds, ReLU 576, linear 2·10·288 = 5760 and 20
    assert answer["schema"] == 1
    first, second = answer["models"]
    expected = {
        "model": "net.py:make", "batch_size": 2, "mode": "infer", "precision": "fp32",
        "params": 8 * 27 + 8 + 2880 + 10, "macs": 15552 + 5760,
        "flops": 2 * (15552 + 5760) + 576 + 576 + 20, "coverage": 1.0, "unknown_ops": [],
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert set(first["phases"]) == {"forward"}
    assert second["batch_size"] == 4
    assert second["macs"] == 2 * first["macs"]


def test_table_shows_layers_and_formulas(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline(net, *SIZE, "--formulas", "--format", "markdown") == 0
    out = capsys.readouterr().out
    formula = "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw + bias = 2·1·8·6·6·3·3·3 + 288 = 15840"
    assert formula in out
    assert "| 0 | Conv2d | 1x3x8x8 | 1x8x6x6 | 224 |" in out
    assert "| n = 288 |" in out  # ReLU: one term is its own product


def test_training_phases_are_printed(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline(net, *SIZE, "--mode", "train", "--optimizer", "adam") == 0
    out = capsys.readouterr().out
    for phase in ("forward", "input-grad", "weight-grad", "optimizer"):
        assert f"\n {phase} " in out


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_operators_in_a_table(net: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deep" / f"table{suffix}"
    assert ridgeline(net, *SIZE, "--table", "ops", "-o", str(path), "-q") == 0
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet}[suffix]
    table = read(path)  # type: ignore[operator]
    assert table["op"].tolist() == ["aten::convolution", "aten::relu", "aten::addmm"]
    assert table["macs"].tolist() == [7776, 0, 2880]
    assert table["model"].tolist() == ["net.py:make"] * 3


def test_operators_in_a_json_file(net: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    assert ridgeline(net, *SIZE, "--table", "ops", "-o", str(path), "-q") == 0
    [found] = json.loads(path.read_text())["models"]
    assert (found["model"], found["macs"]) == ("net.py:make", 7776 + 2880)
    assert [(row["op"], row["macs"]) for row in found["ops"]] == [
        ("aten::convolution", 7776),
        ("aten::relu", 0),
        ("aten::addmm", 2880),
    ]


def test_operators_in_markdown_and_in_the_terminal(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.md"
    options = ("--table", "ops", "--formulas", "-q")
    assert ridgeline(net, *SIZE, *options, "-o", str(path)) == 0
    row = "| 0 | aten::convolution | forward | 1x3x8x8 8x3x3x3 8 | 1x8x6x6 | 7.78 k | 15.8 kFLOP |"
    assert row in path.read_text()
    assert "module   op " in (out := capsys.readouterr().out)
    assert "aten::addmm" in out


def test_several_outputs_are_all_written(net: str, tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.md", tmp_path / "c.json"]
    options = [option for path in paths for option in ("-o", str(path))]
    assert ridgeline(net, *SIZE, *options, "-q") == 0
    assert [path.exists() for path in paths] == [True] * 3


def test_csv_of_layers_on_stdout(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline(net, *SIZE, "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("model,batch_size,mode,precision,path,type,depth,calls,input_shapes")
    assert [line.split(",")[4] for line in lines[1:]] == ["(model)", "0", "1", "2", "3"]


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
    assert ridgeline(net, *SIZE, "--results", str(tmp_path / "results"), "-q") == 0
    (run,) = ResultsFolder(tmp_path / "results").read_runs()
    assert run.asked["model"] == "net.py:make"
    assert run.asked["batch_size"] == 1
    assert run.found["macs"] == 10656
    assert run.found["provenance"] == "static"
    assert "host" in run.provenance
    table = ResultsFolder(tmp_path / "results").read_table(run.run_id, "ops")
    assert table["macs"].sum() == 10656


def test_what_was_counted_survives_a_later_error(
    net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ridgeline(net, "resnet5", *SIZE, "--json") == 2
    streams = capsys.readouterr()
    answer = json.loads(streams.out)
    assert [m["model"] for m in answer["models"]] == ["net.py:make"]
    assert answer["errors"][0]["model"] == "resnet5"
    assert streams.err.startswith(
        "ridgeline: unknown model 'resnet5'\n  hint: did you mean resnet50"
    )


def test_a_single_model_that_is_bad_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("resnet5", "--json") == 2
    streams = capsys.readouterr()
    (error,) = json.loads(streams.out)["errors"]
    assert json.loads(streams.out) == {"schema": 1, "models": [], "errors": [error]}
    assert (error["model"], error["problem"]) == ("resnet5", "unknown model 'resnet5'")
    assert streams.err == f"ridgeline: {error['problem']}\n  hint: {error['hint']}\n"


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        ((), "no model was named",
         "for example: ridgeline count resnet50; --list shows all names"),
        (("resnet18", "-b", "0"), "--batch-size '0' is not valid",
         "give whole numbers of 1 or more, separated by commas: 1,8,32"),
        (("resnet18", "--mode", "trian"), "mode 'trian' is not known",
         "valid values: infer, train"),
        (("resnet18", "--compare-onnx", "net.py", "--mode", "train"),
         "--compare-onnx cannot compare --mode train",
         "it compares a forward pass in fp32; leave --mode train out"),
        (("resnet18", "--compare-onnx", "net.py", "--mode", "train", "--precision", "amp"),
         "--compare-onnx cannot compare --mode train and --precision amp",
         "it compares a forward pass in fp32; leave --mode train and --precision amp out"),
        (("bert", "--compare-onnx", "net.py", "--seq-len", "5", "--dim", "sequence=6"),
         "--seq-len 5 and --dim sequence=6 name the same dimension", "give one of them"),
    ],
    ids=["no model", "batch", "mode", "against", "against amp", "length"],
)  # fmt: skip
@pytest.mark.usefixtures("net")
def test_options_that_are_wrong_are_told_as_json(
    arguments: tuple[str, ...], problem: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ridgeline(*arguments, "--json") == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {
        "schema": 1,
        "models": [],
        "errors": [{"model": None, "problem": problem, "hint": hint}],
    }
    assert streams.err == f"ridgeline: {problem}\n  hint: {hint}\n"


def test_a_list_of_nothing_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("--list", "no*such*net", "--json") == 2
    assert capsys.readouterr().out == "[]\n"


def test_views_have_no_least_bytes(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    # given 3x8x8 → conv 8x6x6 → relu → flatten → linear 288 to 10, all of 4 bytes
    assert ridgeline(net, *SIZE, "--depth", "1", "--json") == 0
    [model] = json.loads(capsys.readouterr().out)["models"]
    params = (8 * 3 * 9 + 8, 288 * 10 + 10)
    assert [(row["path"], row["fused_bytes"]) for row in model["layers"]] == [
        ("(model)", 4 * (192 + sum(params) + 10)),
        ("0", 4 * (192 + params[0] + 288)),
        ("1", 4 * (288 + 288)),
        ("2", 0),
        ("3", 4 * (288 + params[1] + 10)),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--batch-size", "0"), "--batch-size '0' is not valid"),
        (
            ("--batch-size", "1,3000000000"),
            "--batch-size 3000000000 is too large\n  hint: 2147483648",
        ),
        (("--batch-size", "two"), "--batch-size 'two' is not valid"),
        (
            ("--input-size", "-1"),
            "--input-size '-1' is not valid\n  hint: give whole numbers of 1 or more,"
            " separated by commas: 224 or 224,320 or 3,64,64",
        ),
        (("--precision", "fp8"), "precision 'fp8' is not known\n  hint: valid values: fp32, tf32"),
        (("--mode", "trian"), "mode 'trian' is not known\n  hint: valid values: infer, train"),
        (("--mode", "train", "--optimizer", "sdg"), "optimizer 'sdg' is not known\n  hint: valid"),
        (("--causal", "both"), "causal 'both' is not known\n  hint: valid values: full, half"),
        (("--find-max-batch", "lots"), "'lots' is not an amount of memory"),
        (("--format", "xml"), "--format: 'xml' is not known\n  hint: choose table, markdown"),
        (("-o", "table.xls"), "the ending of --output: '.xls' is not known\n  hint: choose .csv"),
        (("--output-dir", ""), "the name of a folder is empty\n  hint: write . for this folder"),
        (("--results", ""), "the name of a folder is empty\n  hint: write . for this folder"),
        (("--config", "hidden"), "--config 'hidden' is not valid\n  hint: write key=value"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_bad_options_are_refused_with_the_valid_ones(
    net: str, arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = () if "--input-size" in arguments else SIZE
    assert ridgeline(net, *size, *arguments) == 2
    assert capsys.readouterr().err.startswith(f"ridgeline: {complaint}")


def test_a_wrong_shape_names_the_layer(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline(net, "--input-size", "3,9,9") == 2
    assert capsys.readouterr().err == (
        "ridgeline: layer 3 (Linear) failed on input 1x392: a and b must have same reduction dim,"
        " but got [1, 392] X [288, 10].\n"
        "  hint: it expects 288 input features; check --input-size, --seq-len or inputs=\n"
    )


def test_no_model_and_an_empty_file_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ridgeline() == 2
    assert "no model was named" in capsys.readouterr().err
    (tmp_path / "model.onnx").touch()
    assert ridgeline(str(tmp_path / "model.onnx")) == 2
    assert "is not a readable ONNX model: it is empty" in capsys.readouterr().err


def test_list_takes_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("--list", "resnet*_cifar") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["resnet18_cifar", "resnet34_cifar"]
    assert ridgeline("--list", "no-such-network") == 2


def test_growth_and_largest_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("resnet18_cifar", "--growth", "--find-max-batch", "100MB", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    macs = answer["models"][0]["macs"]
    by_batch = answer["growth"]["resnet18_cifar"]["by_batch"]
    assert by_batch["macs"]["coefficients"] == [0, macs]
    batch = answer["max_batch"]["resnet18_cifar"]
    peaks = [_peak_bytes(capsys, batch), _peak_bytes(capsys, batch + 1)]
    assert peaks[0] <= 100e6 < peaks[1]


def _peak_bytes(capsys: pytest.CaptureFixture[str], batch: int) -> int:
    ridgeline("resnet18_cifar", "-b", str(batch), "--json")
    answer = json.loads(capsys.readouterr().out)
    return int(answer["models"][0]["memory"]["peak_bytes"])


def test_growth_says_where_no_polynomial_fits(capsys: pytest.CaptureFixture[str]) -> None:
    # vgg16 pools to 7x7 whatever comes in: from sizes that 7 does not divide, windows overlap
    assert ridgeline("vgg16", "--growth", "--depth", "0", "-q") == 0
    assert "\n  FLOPs: no polynomial fits these sizes\n" in capsys.readouterr().out
    assert ridgeline("vgg16", "--growth", "--json") == 0
    growth = json.loads(capsys.readouterr().out)["growth"]["vgg16"]
    assert growth["by_size"]["flops"] is None
    assert growth["by_size"]["macs"]["formula"].endswith("1.236e8")
    assert "flops by S: no polynomial fits these sizes" in growth["notes"]


def test_large_intensities_are_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("resnet18_cifar", "-b", "100000", "--format", "markdown", "--depth", "0") == 0
    assert "e+" not in capsys.readouterr().out


def test_debug_shows_the_traceback(net: str) -> None:
    from ridgeline.errors import RidgelineError

    with pytest.raises(RidgelineError):
        main(["count", net, "--input-size", "3,9,9", "--debug"])


def test_every_option_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("--help") == 0
    out = capsys.readouterr().out
    assert "Examples" in out
    for option in ("--batch-size", "--mode", "--growth", "--json", "--output-dir", "--list"):
        assert option in out

"""Two programs for one network: every difference under a named cause, and the causes add up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.cli import main
from ridgeline.onnx.against import Difference, gathered, module_of
from ridgeline.onnx.causes import explain
from ridgeline.onnx.pieces import Piece, total
from ridgeline.records import Cost

CONV = Cost(macs=1000, read_bytes=400, written_bytes=80)
NORM = Cost(other_flops=40, transcendentals=4, read_bytes=96, written_bytes=80)
RELU = Cost(other_flops=20, read_bytes=80, written_bytes=80)
NONE = Cost()


def piece(op: str, kind: str, module: str, cost: Cost, *, is_float: bool = True) -> Piece:
    return Piece(op=op, kind=kind, module=module, cost=cost, is_float=is_float)


def causes(pytorch: list[Piece], onnx: list[Piece]) -> list[Difference]:
    """The differences, which always add up to the whole."""
    found = gathered(explain(pytorch, onnx))
    assert sum((one.change for one in found), NONE) == total(onnx) - total(pytorch)
    return list(found)


def test_the_same_has_no_difference() -> None:
    ours = [piece("relu", "pointwise", "act", RELU), piece("view", "view", "", NONE)]
    theirs = [piece("Relu", "pointwise", "act", RELU)]
    assert causes(ours, theirs) == []


def test_a_folded_batch_norm_by_hand() -> None:
    # given 20 outputs in 4 channels: a convolution and its batch norm
    ours = [
        piece("convolution", "conv", "conv", CONV),
        piece("native_batch_norm", "norm", "bn", NORM),
    ]
    # and a convolution with a bias of 4 · 4 bytes, 20 additions, which the exporter puts under bn
    biased = CONV + Cost(other_flops=20, read_bytes=16)
    theirs = [piece("Conv", "conv", "bn", biased)]
    # then both belong to the batch norm: 40 FLOPs less for it, 20 more for the bias
    folded, bias = causes(ours, theirs)
    assert (folded.cause, folded.what) == ("folded batch norm", "native_batch_norm gone")
    assert folded.change == NONE - NORM
    assert (bias.cause, bias.what) == ("folded batch norm", "convolution → Conv")
    assert bias.change == Cost(other_flops=20, read_bytes=16)


def test_a_linear_layer_as_two_nodes() -> None:
    # given products of 2·3 outputs with a bias: 6 additions; between the nodes 24 bytes are
    # written and read again
    linear = Cost(macs=30, other_flops=6, read_bytes=112, written_bytes=24)
    product = Cost(macs=30, read_bytes=100, written_bytes=24)
    addition = Cost(other_flops=6, read_bytes=36, written_bytes=24)
    (found,) = causes(
        [piece("addmm", "matmul", "head", linear)],
        [piece("MatMul", "matmul", "head", product), piece("Add", "pointwise", "head", addition)],
    )
    assert (found.cause, found.what) == ("decomposed operator", "addmm → MatMul + Add")
    assert found.change == Cost(read_bytes=24, written_bytes=24)


def test_a_bias_of_zeros_is_left_out() -> None:
    linear = Cost(macs=30, other_flops=6, read_bytes=112, written_bytes=24)
    gemm = piece("Gemm", "matmul", "head", Cost(macs=30, read_bytes=100, written_bytes=24))
    told = {}
    for bias in ("zeros", "values", "unseen"):
        ours = replace(piece("addmm", "matmul", "head", linear), bias=bias)
        (found,) = causes([ours], [gemm])
        assert found.change == Cost(other_flops=-6, read_bytes=-12)
        told[bias] = found.cause
    assert told == {
        "zeros": "a bias of zeros left out",
        "values": "not explained",
        "unseen": "a bias left out",
    }


def test_attention_in_parts_and_an_lstm_in_one() -> None:
    attention = Cost(macs=200, other_flops=30, transcendentals=10, read_bytes=60, written_bytes=20)
    softmax = Cost(other_flops=30, transcendentals=10, read_bytes=40, written_bytes=40)
    parts = [
        piece("MatMul", "matmul", "self", Cost(macs=100, read_bytes=40, written_bytes=40)),
        piece("Softmax", "softmax", "self", softmax),
        piece("MatMul", "matmul", "self", Cost(macs=100, read_bytes=60, written_bytes=20)),
    ]  # fmt: skip
    (found,) = causes([piece("sdpa", "attention", "self", attention)], parts)
    assert (found.cause, found.what) == ("decomposed operator", "sdpa → 2 MatMul + Softmax")
    assert found.change == Cost(read_bytes=80, written_bytes=80)

    steps = [piece("addmm", "matmul", "rnn", Cost(macs=50, read_bytes=200, written_bytes=8))] * 4
    whole = piece("LSTM", "recurrent", "rnn", Cost(macs=200, read_bytes=240, written_bytes=32))
    (found,) = causes([*steps], [whole])
    assert (found.cause, found.what) == ("fused operators", "4 addmm → LSTM")
    assert found.change == Cost(read_bytes=-560)


def test_shapes_constants_and_copies() -> None:
    small = Cost(read_bytes=16, written_bytes=16)
    ours = [
        piece("arange", "fill", "pos", Cost(written_bytes=64)),
        piece("clone", "move", "attn", Cost(read_bytes=80, written_bytes=80)),
    ]
    theirs = [
        piece("Concat", "move", "", small, is_float=False),
        piece("Expand", "move", "mask", Cost(read_bytes=4, written_bytes=96)),
        piece("Identity", "pointwise", "mask", Cost(read_bytes=96, written_bytes=96)),
        piece("Where", "pointwise", "mask", Cost(read_bytes=12, written_bytes=96)),
    ]
    assert {(one.cause, one.what) for one in causes(ours, theirs)} == {
        ("constant folding", "arange gone"),
        ("a copy in PyTorch alone", "clone gone"),
        ("shape arithmetic", "in the file"),
        ("a copy where PyTorch has a view", "Expand"),
        ("added by the exporter", "Identity"),
        ("not explained", "Where"),  # no arithmetic, but a mask that the model has not
    }


def test_a_product_that_is_missing_is_not_explained() -> None:
    found = causes([piece("mm", "matmul", "a", CONV)], [])
    assert [one.cause for one in found] == ["not explained"]


def test_where_no_node_names_its_module_like_goes_with_like() -> None:
    silu = Cost(other_flops=80, transcendentals=20, read_bytes=80, written_bytes=80)
    sigmoid = Cost(other_flops=60, transcendentals=20, read_bytes=80, written_bytes=80)
    product = Cost(other_flops=20, read_bytes=160, written_bytes=80)
    ours = replace(piece("silu_", "pointwise", "features.0.2", silu), function="silu")
    (found,) = causes(
        [ours],
        [
            replace(piece("Sigmoid", "pointwise", "", sigmoid), function="Sigmoid"),
            replace(piece("Mul", "pointwise", "", product), function="Mul"),
        ],
    )
    assert (found.cause, found.what) == ("decomposed operator", "silu → Mul + Sigmoid")


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("layer1.0.conv1.node_Conv_5", "layer1.0.conv1"),
        ("node_Shape_0", ""),
    ],
)
def test_the_module_of_a_node(path: str, module: str) -> None:
    assert module_of(path) == module


# ---------------------------------------------------------------- with real files


def against(model: str, file: Path, *more: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["count", model, "--against", str(file), *more])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("onnx") / "resnet18.onnx"
    ridgeline.export("resnet18", path, input_size=64, check=False)
    return path


def test_resnet18_and_its_file(resnet18: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # when ResNet-18 is compared with its file at another batch than it was made with
    assert against("resnet18", resnet18, "--input-size", "64", "-b", "5", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    (found,) = answer["against"]
    # then its products are the same to the last one, and the batch norms are the difference
    macs = ridgeline.count("resnet18", batch_size=5, input_size=64).total.macs
    assert found["pytorch"]["macs"] == found["onnx"]["macs"] == macs
    assert found["has_equal_macs"] is True
    assert [model["macs"] for model in answer["models"]] == [macs, macs]
    assert found["differences"][0]["cause"] == "folded batch norm"
    summed = {
        key: sum(one["change"][key] for one in found["differences"]) for key in found["change"]
    }
    assert summed == found["change"]
    assert found["change"]["other_flops"] == (
        found["onnx"]["other_flops"] - found["pytorch"]["other_flops"]
    )


def test_the_table_and_markdown(resnet18: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert against("resnet18", resnet18, "--input-size", "64") == 0
    out = capsys.readouterr().out
    assert "in both" in out
    assert "folded batch norm: the batch norm's scale is in the weights" in out
    assert against("resnet18", resnet18, "--input-size", "64", "--format", "markdown") == 0
    assert "| folded batch norm | native_batch_norm gone | 20 | 0 |" in capsys.readouterr().out


def test_another_size_is_another_network(
    resnet18: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against("resnet18", resnet18, "--input-size", "96") == 2
    out, err = capsys.readouterr()
    assert "not explained" in out
    assert "resnet18.onnx is not resnet18 at batch 1: MACs:" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet18", "--mode", "train"), "--against cannot compare --mode train"),
        (("resnet18", "--precision", "amp"), "--precision amp"),
        (("resnet18", "resnet34"), "--against compares one PyTorch model with its file"),
        (("a.onnx",), "--against compares one PyTorch model with its file"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_compared(
    resnet18: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, *more = arguments
    assert against(model, resnet18, *more) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert against("resnet18", tmp_path / "none.onnx") == 2
    assert "--against: there is no file" in capsys.readouterr().err


SMALL: dict[str, dict[str, Any]] = {
    "mobilenet_v2": {"input_size": 64},
    "lstm": {"config": {"vocab_size": 40, "embedding_size": 8, "hidden_size": 8}, "seq_len": 9},
    "bert": {
        "config": {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 2,
                   "num_attention_heads": 2, "intermediate_size": 32},
        "seq_len": 12,
    },
}  # fmt: skip


@pytest.mark.parametrize("model", SMALL)
def test_products_are_the_same_through_both(model: str, tmp_path: Path) -> None:
    from ridgeline.api import spec
    from ridgeline.onnx.beside import count_beside

    pytest.importorskip("onnxscript")
    path = tmp_path / "model.onnx"
    sizes = SMALL[model]
    ridgeline.export(model, path, check=False, **sizes)
    ours = ridgeline.count(model, batch_size=3, **sizes)
    asked = spec(model, 3, sizes.get("input_size"), sizes.get("seq_len"), sizes.get("config"))
    _, found = count_beside(ours, path, spec=asked)
    assert found.onnx.macs == found.pytorch.macs == ours.total.macs
    assert "not explained" not in {one.cause for one in found.differences}

"""The comparison of a model with its ONNX file: equal MACs, six causes, and the rest as other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import ridgeline
from ridgeline.cli import main
from ridgeline.onnx import count_onnx
from ridgeline.onnx.compare import OnnxComparison, compare_counts, compare_with_onnx
from ridgeline.records import Cost
from ridgeline.workloads.sources import workload_spec as spec

pytest.importorskip("onnxscript")

Export = Callable[[nn.Module, Tensor], Path]
BATCH = 2
NORM = Cost(
    other_flops=2 * 288, transcendentals=4, read_bytes=(288 + 4 * 4) * 4, written_bytes=288 * 4
)  # of 288 results in 4 channels


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Writes the file of a module, once for each class."""
    folder = tmp_path_factory.mktemp("files")

    def write(model: nn.Module, x: Tensor) -> Path:
        path = folder / f"{type(model).__name__}.onnx"
        if not path.exists():
            ridgeline.export(model, path, x, check=False)
        return path

    return write


def compare(model: nn.Module, path: Path, x: Tensor) -> OnnxComparison:
    """The comparison, whose causes always add up to the whole difference."""
    file = count_onnx(path, batch_size=len(x))
    found = compare_counts(ridgeline.count(model.eval(), x), file)
    assert sum((row.change for row in found.differences), Cost()) == found.change
    return found


def causes(found: OnnxComparison) -> list[tuple[str, str]]:
    return [(row.cause, row.what) for row in found.differences]


# ---------------------------------------------------------------- each cause


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
        nn.init.normal_(self[1].bias)  # type: ignore[arg-type]  # a batch norm has a bias


def test_a_folded_batch_norm_and_the_bias_that_holds_its_shift(export: Export) -> None:
    # given 4 channels of 6x6 of 2 samples: 288 results
    x = torch.rand(BATCH, 3, 8, 8)
    found = compare(Normed(), export(Normed(), x), x)
    norm, bias = found.differences
    # then the norm's 2 FLOPs a result, 4 roots and 4 vectors are gone
    assert (norm.cause, norm.what) == ("folded batch norm", "native_batch_norm gone")
    assert norm.change == Cost() - NORM
    # and the convolution, which the exporter puts under the norm, adds a bias of 4 numbers
    assert (bias.cause, bias.what) == ("bias", "convolution → Conv")
    assert bias.change == Cost(other_flops=288, read_bytes=16)
    assert [row.module for row in found.modules] == ["0", "1"]
    assert found.has_equal_macs


class Unbiased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 5)
        nn.init.zeros_(self.line.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x)  # type: ignore[no-any-return]  # as torch has it


def test_a_bias_of_zeros_is_dropped(export: Export) -> None:
    # given 2x5 additions of 5 zeros
    x = torch.rand(BATCH, 8)
    (bias,) = compare(Unbiased(), export(Unbiased(), x), x).differences
    assert (bias.cause, bias.what) == ("bias", "addmm → Gemm")
    assert bias.change == Cost() - Cost(other_flops=10, read_bytes=20)


class LowRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.rand(8, 2)), nn.Parameter(torch.rand(2, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.a @ self.b)


def test_a_product_of_weights_is_folded(export: Export) -> None:
    # given 8x2x8 MACs without the input, and 2x8x8 with it
    x = torch.rand(BATCH, 8)
    found = compare(LowRank(), export(LowRank(), x), x)
    assert causes(found) == [("constant folded", "mm gone")]
    assert found.change == Cost() - Cost(macs=128, read_bytes=2 * 16 * 4, written_bytes=64 * 4)
    # then no MAC lacks a cause, though the module's differ
    assert (found.unexplained_macs, found.unequal_modules) == (0, ("",))


class Numbered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.arange(x.shape[0], device=x.device)[:, None]


def test_sizes_are_computed_in_a_file_with_an_open_batch(export: Export) -> None:
    x = torch.rand(BATCH, 8)
    found = compare(Numbered(), export(Numbered(), x), x)
    # then a Cast of 2 whole numbers of 8 bytes each to 4 bytes is a node of its own
    cast, product = found.differences
    assert (cast.cause, cast.what) == ("shape operators", "Cast")
    assert cast.change == Cost(read_bytes=16, written_bytes=8)
    assert (product.cause, product.change.read_bytes) == ("decomposed operator", -8)


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(len(x), -1)


def test_a_copy_of_one_side_alone(export: Export) -> None:
    # given 2x4x6 numbers, which PyTorch copies to reshape them
    x = torch.rand(BATCH, 4, 6)
    found = compare(Turned(), export(Turned(), x), x)
    assert causes(found) == [("layout copy", "clone gone")]
    assert found.change == Cost() - Cost(read_bytes=192, written_bytes=192)


class Swish(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8, bias=False), nn.SiLU())


def test_one_operator_as_two_nodes(export: Export) -> None:
    # given 16 results, of which the sigmoids are written and, with the operand, read again
    x = torch.rand(BATCH, 8)
    found = compare(Swish(), export(Swish(), x), x)
    assert causes(found) == [("decomposed operator", "silu → Sigmoid + Mul")]
    assert found.change == Cost(read_bytes=2 * 64, written_bytes=64)


# ---------------------------------------------------------------- other, and other files


class Plain(nn.Sequential):
    pass


def test_work_without_a_counterpart_is_other(export: Export) -> None:
    # given a file without the activation: 4 FLOPs and 8 bytes of each of the 16 results
    x = torch.rand(BATCH, 8)
    found = compare(Swish(), export(Plain(nn.Linear(8, 8, bias=False), nn.Identity()), x), x)
    assert causes(found) == [("other", "silu gone")]
    assert found.has_equal_macs
    assert found.other_share == pytest.approx(128 / found.pytorch.moved_bytes)


def test_a_file_without_module_names_is_compared_by_totals(export: Export, tmp_path: Path) -> None:
    x = torch.rand(BATCH, 8)
    model = onnx.load(export(Swish(), x))
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
        del node.metadata_props[:]
    onnx.save(model, tmp_path / "nameless.onnx")
    found = compare_counts(
        ridgeline.count(Swish(), x), count_onnx(tmp_path / "nameless.onnx", batch_size=BATCH)
    )
    assert found.totals_only == (
        "the file does not name the model's modules: only totals are compared"
    )
    assert (found.modules, found.differences) == ((), ())
    assert found.has_equal_macs
    assert found.change == Cost(read_bytes=2 * 64, written_bytes=64)


# ---------------------------------------------------------------- nine exports

SMALL: dict[str, Any] = {"vocab_size": 40, "embedding_size": 8, "hidden_size": 8}
NETWORKS = [  # the goldens have more
    pytest.param("mobilenet_v2", {"input_size": 64}, id="mobilenet_v2"),
    pytest.param("lstm", {"seq_len": 9, "config": SMALL}, id="lstm"),
]


@pytest.mark.parametrize(("model", "sizes"), NETWORKS)
def test_macs_are_equal_in_every_module(model: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    # given a file with an open batch; that of a detector has one image
    is_static = model.startswith("ssd")
    path, batch_size = tmp_path / "model.onnx", 1 if is_static else 3
    ridgeline.export(model, path, check=False, static=is_static, **sizes)
    ours = ridgeline.count(model, batch_size=batch_size, **sizes)
    asked = (sizes.get(name) for name in ("input_size", "seq_len", "config"))
    _, found = compare_with_onnx(ours, path, spec=spec(model, batch_size, *asked))
    assert (found.totals_only, found.unequal_modules) == ("", ())
    assert found.onnx.macs == found.pytorch.macs == ours.total.macs
    assert found.other_share < 0.001 or is_static  # one NonMaxSuppression of all classes


# ---------------------------------------------------------------- the command

NET = """
from torch import nn

def make(width=5):
    return nn.Sequential(nn.Linear(8, int(width)), nn.SiLU())
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in a file, and its ONNX file net.onnx beside it."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    ridgeline.export("net.py:make", tmp_path / "net.onnx", input_size=(8,), check=False)
    return "net.py:make"


def run_count(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["count", *arguments, "--input-size", "8"])
    return int(stopped.value.code or 0)


def test_the_command_prints_causes_and_modules(
    net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_count(net, "-b", "3", "--compare-onnx", "net.onnx") == 0
    out = capsys.readouterr().out
    assert "net.onnx compared with net.py:make, batch 3: ONNX less PyTorch" in out
    assert "MACs: 120 in both, and in every module" in out
    row = next(line for line in out.splitlines() if "silu → Sigmoid + Mul" in line)
    assert row.split()[-4:] == ["+120", "B", "+60", "B"]
    # and Markdown has the same
    assert run_count(net, "--against", "net.onnx", "--format", "markdown") == 0
    assert "| decomposed operator | silu → Sigmoid + Mul | 1 | 0 |" in capsys.readouterr().out


def test_a_file_of_another_model_fails(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    # given a layer of 8 to 6 where the file has one of 8 to 5
    assert run_count(net, "--config", "width=6", "--compare-onnx", "net.onnx") == 2
    assert (
        "net.onnx is not net.py:make at batch 1:"
        " MACs: 48 in PyTorch, 40 in the file: -8; different in 0"
    ) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("net.py:make", "--mode", "train"), "--compare-onnx cannot compare --mode train"),
        (("net.py:make", "resnet34"), "--compare-onnx compares one PyTorch model with its file"),
        (("net.onnx",), "--compare-onnx compares one PyTorch model with its file"),
        (("net.py:make", "--compare-onnx", "none.onnx"), "there is no file none.onnx"),
    ],
    ids=["train", "two models", "a file", "no file"],
)
def test_what_cannot_be_compared_is_refused(
    net: str, arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net == "net.py:make"
    file = () if "none.onnx" in arguments else ("--compare-onnx", "net.onnx")
    assert run_count(*arguments, *file) == 2
    assert problem in capsys.readouterr().err

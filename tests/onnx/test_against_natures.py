"""What a function is, not what it costs: a file of another activation, norm or sum is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import ridgeline
from ridgeline.api import spec
from ridgeline.cli import main
from ridgeline.onnx.against import Against
from ridgeline.onnx.beside import count_beside

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

PARTS = {
    "relu": nn.ReLU, "leaky": nn.LeakyReLU, "relu6": nn.ReLU6, "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid, "prelu": nn.PReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh,
    "gelu": nn.GELU, "silu": nn.SiLU, "elu": nn.ELU, "softplus": nn.Softplus,
    "softmax": lambda: nn.Softmax(1), "log_softmax": lambda: nn.LogSoftmax(1),
    "batch": lambda: nn.Sequential(nn.ReLU(), nn.BatchNorm2d(8)),
    "instance": lambda: nn.Sequential(nn.ReLU(), nn.InstanceNorm2d(8, affine=True)),
    "group": lambda: nn.Sequential(nn.ReLU(), nn.GroupNorm(2, 8)),
    "two": lambda: nn.MaxPool2d(2), "three": lambda: nn.MaxPool2d(3, 2, 1),
}

def part(kind="relu"):
    return nn.Sequential(nn.Conv2d(3, 8, 3), PARTS[kind]())

def part_inputs(batch_size):
    return torch.rand(batch_size, 3, 10, 10)

class Step(nn.Module):
    # two layers, and one function of what they make
    def __init__(self, how="add"):
        super().__init__()
        self.one, self.two, self.how = nn.Linear(16, 16), nn.Linear(16, 16), how

    def forward(self, x):
        a, b = self.one(x), self.two(x)
        return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
                "max": lambda: torch.maximum(a, b)}[self.how]()

class Attention(nn.Module):
    def __init__(self, heads=2, place=1, pool="mean", scale="number", mask=0):
        super().__init__()
        self.qkv, self.pos = nn.Linear(16, 48), nn.Parameter(torch.randn(5, 16))
        self.heads, self.place, self.pool, self.scale = heads, place, pool, scale
        self.mask = mask

    def forward(self, x):
        x = x + self.pos if self.place else x
        parts = [y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                 for y in self.qkv(x).chunk(3, -1)]
        q, k, v = parts
        scores = q @ k.transpose(-1, -2) * (0.125 if self.scale == "number" else q.shape[-1] ** -.5)
        if self.mask:
            hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return {"mean": lambda: y.mean(1), "sum": lambda: y.sum(1), "first": lambda: y[:, 0]
                }[self.pool]()

class Joined(nn.Module):
    def __init__(self, beta=1.0, alpha=1.0):
        super().__init__()
        self.added, self.scales = nn.Parameter(torch.rand(1, 5, 5)), {"beta": beta, "alpha": alpha}
        self.first = nn.Linear(16, 16)

    def forward(self, x):
        x = self.first(x)
        return torch.baddbmm(self.added, x, x.transpose(1, 2), **self.scales)

class Waves(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()

def step_inputs(batch_size):
    return torch.rand(batch_size, 5, 16)

attention_inputs = joined_inputs = waves_inputs = step_inputs
step, attention, joined, waves = Step, Attention, Joined, Waves
"""
SIMPLE = ["relu", "leaky", "relu6", "hardswish", "hardsigmoid", "prelu"]
SMOOTH = ["sigmoid", "tanh", "gelu", "silu", "elu", "softplus"]
OTHERS = [["softmax", "log_softmax"], ["batch", "instance", "group"], ["two", "three"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    made = tmp_path_factory.mktemp("natures")
    (made / "models.py").write_text(MODELS)
    return made


def exported(folder: Path, name: str, *, opset: int | None = None, **config: object) -> Path:
    """The file of one of the models; a low opset is that of torch's older exporter."""
    parts = [name, *(f"{key}-{value}" for key, value in config.items())]
    path = folder / f"{'-'.join(parts)}-{opset}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(model, path, config=config, batch_size=3, opset=opset, check=False)
    return path


def against(folder: Path, name: str, path: Path, **config: object) -> Against:
    model = f"{folder / 'models.py'}:{name}"
    count = ridgeline.count(model, batch_size=3, config=config)
    return count_beside(count, path, spec=spec(model, 3, None, None, dict(config)))[1]


def unexplained(found: Against) -> list[str]:
    return [row.what for row in found.differences if row.cause == "not explained"]


@pytest.mark.parametrize("opset", [None, 17])
@pytest.mark.parametrize("family", [SIMPLE, SMOOTH, *OTHERS], ids=" ".join)
def test_one_of_a_family_is_no_other(folder: Path, family: list[str], opset: int | None) -> None:
    # given a file of each, and each as a model
    passed = {
        (model, file)
        for file in family
        for model in family
        if not against(
            folder, "part", exported(folder, "part", opset=opset, kind=file), kind=model
        ).is_unexplained
    }
    # then each is its own file's model alone
    assert passed == {(kind, kind) for kind in family}


def test_the_row_and_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(folder, "part", kind="relu")
    found = against(folder, "part", path, kind="hardswish")
    assert unexplained(found) == ["hardswish → Relu"]
    # and the command fails with it
    model = f"{folder / 'models.py'}:part"
    with pytest.raises(SystemExit) as stopped:
        main(["count", model, "-b", "3", "--against", str(path), "--config", "kind=hardswish"])
    assert stopped.value.code == 2
    assert "not explained: hardswish → Relu" in capsys.readouterr().err


@pytest.mark.parametrize("opset", [None, 17])
def test_sums_products_and_maxima_of_the_same_cost(folder: Path, opset: int | None) -> None:
    kinds = ["add", "sub", "mul", "max"]
    passed = [
        (model, file)
        for file in kinds
        for model in kinds
        if not against(
            folder, "step", exported(folder, "step", opset=opset, how=file), how=model
        ).is_unexplained
    ]
    assert passed == [(kind, kind) for kind in kinds]


@pytest.mark.parametrize("opset", [None, 17])
@pytest.mark.parametrize(
    "config", [{"place": 0}, {"pool": "first"}, {"pool": "sum"}, {"heads": 4}, {"mask": 1}]
)
def test_a_factor_hides_nothing_else(
    folder: Path, config: dict[str, object], opset: int | None
) -> None:
    # given scores times a number, which a node reads and PyTorch does not
    plain = exported(folder, "attention", opset=opset)
    other = exported(folder, "attention", opset=opset, **config)
    # then that of something more, or less, is another network
    assert against(folder, "attention", plain, **config).is_unexplained
    # and its own is not
    assert unexplained(against(folder, "attention", plain)) == []
    assert unexplained(against(folder, "attention", other, **config)) == []


@pytest.mark.parametrize(
    ("name", "opset", "config"),
    [
        ("attention", 17, {"scale": "size"}),  # a Pow of a size
        ("part", None, {"kind": "softplus"}),  # Softplus, Greater and Where
        ("joined", None, {"beta": 0.5, "alpha": 0.25}),
        ("joined", None, {}),
        ("joined", 17, {"beta": 0.5, "alpha": 0.25}),
        ("joined", 17, {}),  # a Mul by one
        ("waves", None, {}),  # DFT and ReduceL2
    ],
)
def test_right_files_of_more_nodes(
    folder: Path, name: str, opset: int | None, config: dict[str, object]
) -> None:
    path = exported(folder, name, opset=opset, **config)
    assert unexplained(against(folder, name, path, **config)) == []

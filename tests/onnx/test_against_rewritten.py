"""Files that were worked on after export: those of the model are explained, no others are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import version_converter
from onnxruntime.quantization import quantize_dynamic

import ridgeline
from ridgeline.api import spec
from ridgeline.count.result import CountResult
from ridgeline.onnx.against import Against
from ridgeline.onnx.beside import count_beside

pytest.importorskip("onnxscript")

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "sigmoid": nn.Sigmoid,
               "hardswish": nn.Hardswish, "none": nn.Identity}
NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "none": nn.Identity}

def tokens(act="gelu", norm="layer", layers=2, width=24):
    # layers on tokens: products of more than two dimensions
    parts = []
    for _ in range(layers):
        parts += [NORMS[norm](16), nn.Linear(16, width), ACTIVATIONS[act](), nn.Linear(width, 16)]
    return nn.Sequential(*parts)

def tokens_inputs(batch_size):
    return torch.rand(batch_size, 6, 16)

class Attention(nn.Module):
    def __init__(self, softmax=1, norm=1, residual=1):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.norm = nn.LayerNorm(16) if norm else nn.Identity()
        self.softmax, self.residual = softmax, residual

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (2, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / 8 ** 0.5
        scores = scores.softmax(-1) if self.softmax else scores
        y = self.o((scores @ v).transpose(1, 2).flatten(2))
        return self.norm(x + y if self.residual else y)

attention, attention_inputs = Attention, tokens_inputs

class Two(nn.Module):
    # the first attention has as many MACs as one of the two products of the second
    def forward(self, x):
        x = x.unflatten(-1, (2, 8)).transpose(1, 2)
        few = F.scaled_dot_product_attention(x[:, :, :4], x[:, :, :4], x[:, :, :4])
        return F.scaled_dot_product_attention(x, few, few).transpose(1, 2).flatten(2)

def two_inputs(batch_size):
    return torch.rand(batch_size, 8, 16)

two = Two

class Squares(nn.Module):
    # a norm of squares by hand, as in many language models, and a gate
    def __init__(self, norm=1, act="silu"):
        super().__init__()
        self.weight, self.norm, self.act = nn.Parameter(torch.rand(16)), norm, act
        self.up, self.gate = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)

    def forward(self, x):
        if self.norm:
            x = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return getattr(F, self.act)(self.gate(x)) * self.up(x)

squares, squares_inputs = Squares, tokens_inputs

def convolutions(act="relu", pool="max", width=8):
    # the first has a bias of its own, the second one of a batch norm
    pools = {"max": nn.MaxPool2d(2), "mean": nn.AvgPool2d(2)}
    return nn.Sequential(nn.Conv2d(3, width, 3), ACTIVATIONS[act](),
                         nn.Conv2d(width, width, 3, bias=False), nn.BatchNorm2d(width),
                         ACTIVATIONS[act](), pools[pool])

def convolutions_inputs(batch_size):
    return torch.rand(batch_size, 3, 12, 12)
"""
BATCH = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rewritten")
    (made / "models.py").write_text(MODELS)
    return made


# ---------------------------------------------------------------- what may be done to a file


def optimised(level: str) -> Callable[[Path, Path], None]:
    def optimise(path: Path, made: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(made)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    return optimise


def stripped(path: Path, made: Path) -> None:
    """Without the names of nodes, and what the exporter noted of them."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = ""
        del node.metadata_props[:]
    onnx.save(model, made)


def converted(path: Path, made: Path) -> None:
    onnx.save(version_converter.convert_version(onnx.load(path), 21), made)


def quantised(path: Path, made: Path) -> None:
    model = onnx.load(path)
    del model.graph.value_info[:]  # its names for open dimensions are not those of the quantizer
    plain = made.with_suffix(".plain.onnx")
    onnx.save(model, plain)
    quantize_dynamic(plain, made)


TREATMENTS = {
    "basic": optimised("ORT_ENABLE_BASIC"),
    "extended": optimised("ORT_ENABLE_EXTENDED"),
    "all": optimised("ORT_ENABLE_ALL"),
    "stripped": stripped,
    "converted": converted,
    "quantised": quantised,
}


def treated(folder: Path, treatment: str, name: str, config: dict[str, Any]) -> Path:
    parts = [name, *(f"{key}-{value}" for key, value in config.items())]
    path = folder / f"{'-'.join(parts)}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(model, path, config=config, batch_size=BATCH, check=False)
    made = path.with_suffix(f".{treatment}.onnx")
    if not made.exists():
        TREATMENTS[treatment](path, made)
    return made


@cache
def counted(model: str, config: tuple[tuple[str, Any], ...]) -> CountResult:
    return ridgeline.count(model, batch_size=BATCH, config=dict(config))


def against(folder: Path, name: str, path: Path, config: dict[str, Any]) -> Against:
    model = f"{folder / 'models.py'}:{name}"
    count = counted(model, tuple(config.items()))
    return count_beside(count, path, spec=spec(model, BATCH, None, None, config))[1]


# ---------------------------------------------------------------- of the model, and of another


@pytest.mark.parametrize("treatment", TREATMENTS)
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("tokens", {}),
        ("tokens", {"act": "silu", "norm": "rms"}),
        ("attention", {}),
        ("two", {}),
        ("squares", {}),
        ("convolutions", {}),
        ("convolutions", {"act": "hardswish", "pool": "mean"}),
    ],
    ids=[
        "tokens",
        "tokens-rms",
        "attention",
        "two",
        "squares",
        "convolutions",
        "convolutions-mean",
    ],
)
def test_the_file_of_the_model(
    folder: Path, name: str, config: dict[str, Any], treatment: str
) -> None:
    found = against(folder, name, treated(folder, treatment, name, config), config)
    assert [row.what for row in found.differences if row.cause == "not explained"] == []
    assert found.has_equal_macs
    assert sum((row.change for row in found.differences), found.pytorch) == found.onnx


@pytest.mark.parametrize("treatment", TREATMENTS)
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("tokens", {"act": "relu"}),
        ("tokens", {"act": "none"}),
        ("tokens", {"norm": "none"}),
        ("tokens", {"layers": 3}),
        ("tokens", {"width": 32}),
        ("attention", {"softmax": 0}),
        ("attention", {"norm": 0}),
        ("attention", {"residual": 0}),
        ("squares", {"norm": 0}),
        ("squares", {"act": "gelu"}),
        ("convolutions", {"act": "none"}),
        ("convolutions", {"act": "gelu"}),
        ("convolutions", {"pool": "mean"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_the_file_of_another(
    folder: Path, name: str, other: dict[str, Any], treatment: str
) -> None:
    # given the file of the one and the model of the other, then neither is the other
    assert against(folder, name, treated(folder, treatment, name, other), {}).is_unexplained
    assert against(folder, name, treated(folder, treatment, name, {}), other).is_unexplained


def test_nodes_of_which_some_have_lost_their_module(folder: Path) -> None:
    # given a file that names the module of each node but two, the activations
    path = treated(folder, "stripped", "tokens", {})
    named = onnx.load(folder / "tokens.onnx")
    for node in named.graph.node:
        if node.op_type == "Gelu":
            node.name = ""
            del node.metadata_props[:]
    onnx.save(named, path.with_stem("some"))
    # then it is that of the model, and of no other
    assert not against(folder, "tokens", path.with_stem("some"), {}).is_unexplained
    assert against(folder, "tokens", path.with_stem("some"), {"act": "silu"}).is_unexplained

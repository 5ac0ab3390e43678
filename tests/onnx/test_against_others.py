"""A file of another network is never explained away; a file that was optimised is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

import ridgeline
from ridgeline.api import spec
from ridgeline.cli import main
from ridgeline.onnx.against import Against, Difference, gathered, resolved
from ridgeline.onnx.beside import count_beside
from ridgeline.onnx.causes import explain
from ridgeline.onnx.operands import is_nothing
from ridgeline.onnx.pieces import Piece, Place, is_plausible
from ridgeline.records import Cost

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

class Frames(nn.Module):
    # one convolution of two frames, or of the first alone
    def __init__(self, both=1):
        super().__init__()
        self.conv, self.both = nn.Conv2d(3, 8, 3), both

    def forward(self, x):
        return self.conv(x[:, 0]) - (self.conv(x[:, 1]) if self.both else x.mean())

def frames_inputs(batch_size):
    return torch.rand(batch_size, 2, 3, 10, 10)

class Table(nn.Module):
    # a product of a table that the input was written into in place; or without that product
    def __init__(self, how="none"):
        super().__init__()
        self.line, self.how = nn.Linear(16, 16, bias=False), how
        self.weight = nn.Parameter(torch.randn(16, 12))

    def forward(self, x):
        y = self.line(x)
        if self.how == "none":
            return y
        b = torch.zeros(5, 16)
        if self.how == "row":
            b[2] = x.mean(0)
        if self.how == "all":
            b[:] = x.mean(0)
        if self.how == "view":
            row = b[1]
            row.copy_(x.mean(0))
        if self.how == "size":
            b = torch.arange(x.shape[0] * 16).reshape(-1, 16).float()
        return y + (b @ self.weight).mean()

def table_inputs(batch_size):
    return torch.rand(batch_size, 16)

class Middle(nn.Module):
    # something between two linear layers
    def __init__(self, act="none", norm=1):
        super().__init__()
        self.first, self.last, self.act = nn.Linear(16, 16), nn.Linear(16, 16), act
        self.norm = nn.LayerNorm(16) if norm else nn.Identity()

    def forward(self, x):
        y = self.first(x)
        if self.act == "square":
            y = y * y + 1
        elif self.act == "softmax":
            y = y.softmax(-1)
        elif self.act != "none":
            y = getattr(F, self.act)(y)
        return self.last(self.norm(y))

def middle_inputs(batch_size):
    return torch.rand(batch_size, 16)

class Steps(nn.Module):
    def __init__(self, kind="RNN"):
        super().__init__()
        self.rnn = getattr(nn, kind)(8, 16, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]

def steps_inputs(batch_size):
    return torch.rand(batch_size, 7, 8)
"""
FACTORIES = """
class Odd(nn.Module):
    # what exporters leave out: a result that nobody reads, a sum that begins with 0, a factor of 1
    def __init__(self):
        super().__init__()
        self.dead, self.norm = nn.Linear(16, 24), nn.LayerNorm(16)
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        torch.tanh(self.dead(x)), self.norm(x)
        return sum([self.one(x), self.two(x)]) * 1.0

def odd_inputs(batch_size):
    return torch.rand(batch_size, 16)

class Between(nn.Module):
    # silu between two layers, and a norm or many functions after it, in no module of their own
    def __init__(self, norm=0, rounds=0):
        super().__init__()
        self.first, self.last, self.rounds = nn.Linear(16, 32), nn.Linear(32, 16), rounds
        self.norm = nn.LayerNorm(32) if norm else None

    def forward(self, x):
        y = F.silu(self.first(x))
        for _ in range(self.rounds):
            y = torch.sin(y) * torch.exp(y) + y
        return self.last(self.norm(y) if self.norm is not None else y)

def between_inputs(batch_size):
    return torch.rand(batch_size, 16)

def linears(widths="16x16x16x16x16x16x16"):
    sizes = [int(one) for one in widths.split("x")]
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))

def linears_inputs(batch_size):
    return torch.rand(batch_size, 16)

def norms(kind="GroupNorm"):
    norm = {"GroupNorm": nn.GroupNorm(2, 8), "InstanceNorm": nn.InstanceNorm2d(8),
            "Affine": nn.InstanceNorm2d(8, affine=True)}[kind]
    return nn.Sequential(nn.Conv2d(4, 8, 3), norm)

def norms_inputs(batch_size):
    return torch.rand(batch_size, 4, 8, 8)

frames, table, middle, steps = Frames, Table, Middle, Steps
odd, between = Odd, Between
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("others")
    (made / "models.py").write_text(MODELS + FACTORIES)
    return made


def exported(
    folder: Path, name: str, *, static: bool = False, opset: int | None = None, **config: object
) -> Path:
    """The file of one of the models; a low opset is that of torch's older exporter."""
    parts = [name, *(f"{key}-{value}" for key, value in config.items()), *["static"] * static]
    path = folder / f"{'-'.join(parts)}-{opset}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(
            model, path, config=config, batch_size=3, static=static, opset=opset, check=False
        )
    return path


def against(folder: Path, name: str, path: Path, **config: object) -> Against:
    """One of the models, a batch of 3, and a file."""
    model = f"{folder / 'models.py'}:{name}"
    count = ridgeline.count(model, batch_size=3, config=config)
    return count_beside(count, path, spec=spec(model, 3, None, None, dict(config)))[1]


def unexplained(found: Against) -> list[tuple[str, int]]:
    """What is not explained, and its FLOPs."""
    return [(d.what, d.change.flops) for d in found.differences if d.cause == "not explained"]


# ---------------------------------------------------------------- another network


def test_the_same_layer_of_another_part_of_the_input_is_another_product(folder: Path) -> None:
    # given a file with the convolution of one of two frames: 3·8·8·8 results, 3·3·3 MACs each
    found = against(folder, "frames", exported(folder, "frames", both=0), both=1)
    # then the other frame's is not explained
    assert found.unexplained_macs == -(3 * 8 * 8 * 8) * 27
    # and the model's own file is the model
    own = against(folder, "frames", exported(folder, "frames", both=1), both=1)
    assert (own.has_equal_macs, own.is_unexplained) == (True, False)


@pytest.mark.parametrize(("how", "rows"), [("row", 5), ("all", 5), ("view", 5), ("size", 3)])
def test_what_the_input_was_written_into_is_no_weight(folder: Path, how: str, rows: int) -> None:
    found = against(folder, "table", exported(folder, "table"), how=how)
    assert found.unexplained_macs == -rows * 16 * 12


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"act": "sigmoid"}, [("sigmoid gone", -3 * 48)]),
        ({"act": "softmax"}, [("_softmax gone", -4 * 48)]),
        ({"act": "gelu"}, [("gelu gone", -4 * 48)]),
        ({"act": "square"}, [("mul gone", -48), ("add gone", -48)]),
        ({}, []),
    ],
)
def test_an_activation_that_the_file_has_not(
    folder: Path, config: dict[str, str], what: list[tuple[str, int]]
) -> None:
    found = against(folder, "middle", exported(folder, "middle"), **config)
    assert unexplained(found) == what
    assert found.has_equal_macs


def test_a_norm_that_the_file_has_not(folder: Path) -> None:
    found = against(folder, "middle", exported(folder, "middle", norm=0))
    assert unexplained(found) == [("native_layer_norm gone", -8 * 48)]


def test_an_activation_that_the_file_has_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(folder, "middle", act="sigmoid")
    assert unexplained(against(folder, "middle", path)) == [("Sigmoid", 3 * 48)]
    # and the command says that this is another network
    with pytest.raises(SystemExit) as stopped:
        main(["count", f"{folder / 'models.py'}:middle", "-b", "3", "--against", str(path),
              "--json"])  # fmt: skip
    told = capsys.readouterr()
    assert stopped.value.code == 2
    assert "not explained: Sigmoid (+144 FLOPs)\n  hint: export the model again" in told.err
    [found] = json.loads(told.out)["against"]
    assert [row["what"] for row in found["differences"] if row["cause"] == "not explained"] == [
        "Sigmoid"
    ]


@pytest.mark.parametrize("opset", [None, 13])
def test_a_norm_or_functions_beside_another_activation(folder: Path, opset: int | None) -> None:
    plain = exported(folder, "between", opset=opset)
    assert unexplained(against(folder, "between", plain, norm=1)) == [
        ("native_layer_norm gone", -8 * 96)
    ]
    found = against(folder, "between", exported(folder, "between", opset=opset, rounds=20))
    assert found.is_unexplained
    assert sum(flops for _, flops in unexplained(found)) == 20 * 2 * 96  # Sin and Exp: apart
    assert unexplained(against(folder, "between", plain)) == []


@pytest.mark.parametrize("opset", [None, 13])
def test_other_layers_of_the_same_cost_in_all(folder: Path, opset: int | None) -> None:
    # given six layers of 16·16, and a file of two, 16·32 and 32·32
    path = exported(folder, "linears", opset=opset, widths="16x32x32")
    found = against(folder, "linears", path)
    assert found.has_equal_macs
    assert found.is_unexplained


# ---------------------------------------------------------------- the same network


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("kind", ["GroupNorm", "InstanceNorm", "Affine"])
def test_norms_of_groups_and_instances(folder: Path, kind: str, opset: int | None) -> None:
    path = exported(folder, "norms", opset=opset, kind=kind)
    assert unexplained(against(folder, "norms", path, kind=kind)) == []


@pytest.mark.parametrize("opset", [None, 13])
def test_what_exporters_leave_out(folder: Path, opset: int | None) -> None:
    found = against(folder, "odd", exported(folder, "odd", opset=opset))
    assert not found.is_unexplained
    gone = {d.what: d.change.flops for d in found.differences if d.cause == "unused result"}
    assert gone == {"addmm gone": -(2 * 16 + 1) * 3 * 24, "tanh gone": 0,
                    "native_layer_norm gone": -8 * 48}  # fmt: skip


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("LSTM", 4), ("GRU", 3)])
def test_a_first_state_of_zeros_in_a_static_file(folder: Path, kind: str, gates: int) -> None:
    # given a file for a batch of 3, in which the product of zeros may have been worked out
    found = against(folder, "steps", exported(folder, "steps", static=True, kind=kind), kind=kind)
    assert found.change.macs in (0, -3 * 16 * 16 * gates)
    assert not found.is_unexplained


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize(
    ("name", "config"), [("middle", {"act": "gelu"}), ("steps", {"kind": "LSTM"})]
)
def test_a_file_that_onnxruntime_optimised(
    folder: Path, name: str, config: dict[str, Any], level: str
) -> None:
    path = exported(folder, name, **config)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    better = folder / f"{path.stem}-{level}.onnx"
    options.optimized_model_filepath = str(better)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    found = against(folder, name, better, **config)

    assert found.has_equal_macs
    assert not found.is_unexplained


# ---------------------------------------------------------------- by hand


def piece(op: str, kind: str, module: str, cost: Cost, *, is_contributed: bool = False) -> Piece:
    return Piece(op=op, kind=kind, module=module, cost=cost, is_contributed=is_contributed)


def rows(pytorch: list[Piece], onnx: list[Piece]) -> list[tuple[str, str]]:
    found: tuple[Difference, ...] = gathered(explain(pytorch, onnx))
    return [(one.cause, one.what) for one in found]


RELU = Cost(other_flops=20, read_bytes=80, written_bytes=80)
POOL = Cost(other_flops=50, read_bytes=80, written_bytes=80)
PRODUCT = Cost(macs=1000, read_bytes=400, written_bytes=80)


def test_a_module_that_is_called_again_has_another_name() -> None:
    # given three poolings by one module, which the exporter names pool, pool_1 and pool_2
    indices = POOL + Cost(written_bytes=160)
    ours = [piece("max_pool2d_with_indices", "pool", "pool", indices) for _ in range(3)]
    theirs = [piece("MaxPool", "pool", f"pool{end}", POOL) for end in ("", "_1", "_2")]
    assert rows(ours, theirs) == [
        ("another operator for the same", "max_pool2d_with_indices → MaxPool")
    ]


def test_a_relu_in_a_node_of_onnxruntimes_own_that_nobody_knows() -> None:
    relu = replace(piece("relu", "pointwise", "act", RELU), function="relu")
    product, plain = piece("mm", "matmul", "a", PRODUCT), piece("MatMul", "matmul", "a", PRODUCT)
    new = piece("NewGate", "pointwise", "b", Cost(read_bytes=80), is_contributed=True)
    own = piece("MatMul", "matmul", "a", PRODUCT, is_contributed=True)
    assert ("fused activation", "relu gone") in rows([product, relu], [plain, new])
    assert rows([product, relu], [own]) == [("not explained", "relu gone")]


def test_to_8_bits_and_back() -> None:
    # given a quantised file, whose bounds make the relu needless
    relu = replace(piece("relu", "pointwise", "act", RELU), function="relu")
    ours = [piece("mm", "matmul", "a", PRODUCT), relu]
    theirs = [
        piece("MatMul", "matmul", "a", PRODUCT),
        piece("QuantizeLinear", "pointwise", "", RELU + Cost(other_flops=60)),
        piece("DequantizeLinear", "pointwise", "", RELU + Cost(other_flops=20)),
    ]
    assert sorted(rows(ours, theirs)) == [
        ("quantised", "DequantizeLinear"),
        ("quantised", "QuantizeLinear"),
        ("quantised", "relu gone"),
    ]


@pytest.mark.parametrize(
    ("module", "meant"),
    [
        ("head.norm", "head.norm"),
        ("norm", "head.norm"),  # the end of its path
        ("stem.conv_1", "stem.conv"),  # called again
        ("conv", "conv"),  # of two that end so, neither
        ("new", "new"),
        ("", ""),
    ],
)
def test_modules_by_other_names(module: str, meant: str) -> None:
    assert resolved(module, {"", "head.norm", "stem.conv", "last.conv"}) == meant


def test_what_cannot_stand_for_the_other() -> None:
    norm = piece("native_layer_norm", "norm", "a", RELU)
    softmax = piece("Softmax", "softmax", "a", RELU)
    relu, mean = piece("Relu", "pointwise", "a", RELU), piece("ReduceMean", "reduce", "a", RELU)
    many = piece("Exp", "pointwise", "a", RELU + Cost(other_flops=200))
    function = piece("Tanh", "pointwise", "a", RELU + Cost(transcendentals=20))
    assert is_plausible(Place([norm], [mean, relu]))
    assert is_plausible(Place([relu], [relu, relu]))
    assert not is_plausible(Place([norm], [relu]))
    assert not is_plausible(Place([relu], [softmax]))
    assert not is_plausible(Place([relu], [many]))
    assert not is_plausible(Place([relu], [function]))


def test_a_resize_to_the_same_size_changes_nothing() -> None:
    def resized(size: int) -> bool:
        module = nn.Upsample(size=size, mode="bilinear")
        [op] = ridgeline.count(module, torch.empty(1, 3, 8, 8)).op_costs
        return is_nothing(op)

    assert (resized(8), resized(9)) == (True, False)


def test_boxes_of_all_classes_at_once() -> None:
    # given boxes that PyTorch compares class by class, and a file that shifts them apart first
    ours = [piece("nms", "boxes", "", RELU) for _ in range(3)]
    theirs = [
        piece("NonMaxSuppression", "boxes", "", POOL),
        piece("ReduceMax", "reduce", "", Cost(other_flops=40, written_bytes=400)),
        piece("Add", "pointwise", "", Cost(other_flops=40, written_bytes=400)),
    ]
    assert sorted(rows(ours, theirs)) == [
        ("decomposed operator", "Add"),
        ("decomposed operator", "ReduceMax"),
        ("fused operators", "3 nms → NonMaxSuppression"),
    ]


def test_a_scale_in_the_weights() -> None:
    scale = Piece(op="mul", kind="pointwise", module="a", cost=RELU, is_with_weights=True)
    assert rows([scale], []) == [("folded scale", "mul gone")]

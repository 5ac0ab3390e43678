"""Right files that do other work than PyTorch are explained; one kind of work is no other kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, NodeProto

import ridgeline
from ridgeline.api import spec
from ridgeline.cli import main
from ridgeline.onnx.against import Against, gathered
from ridgeline.onnx.beside import count_beside
from ridgeline.onnx.biases import Vectors, biases, vectors_of
from ridgeline.onnx.causes import explain
from ridgeline.onnx.operands import foldable
from ridgeline.onnx.pieces import Piece
from ridgeline.records import Cost

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Bilinear(4, 5, 6)

    def forward(self, x, y):
        return self.both(x, y)

def bilinear_inputs(batch_size):
    return torch.rand(batch_size, 4), torch.rand(batch_size, 5)

class Distances(nn.Module):
    def __init__(self, p=2.0):
        super().__init__()
        self.p = p
        self.register_buffer("points", torch.rand(9, 16))

    def forward(self, x):
        return torch.cdist(x, self.points, p=self.p)

def distances_inputs(batch_size):
    return torch.rand(batch_size, 16)

def bag(mode="mean"):
    return nn.Sequential(nn.EmbeddingBag(20, 8, mode=mode), nn.Linear(8, 4))

def bag_inputs(batch_size):
    return torch.randint(0, 20, (batch_size, 5))

class Unpool(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        return self.unpool(*self.pool(x))

def unpool_inputs(batch_size):
    return torch.rand(batch_size, 4, 8, 8)

def pool(kind="MaxPool2d"):
    return nn.Sequential(nn.Conv2d(4, 4, 1), getattr(nn, kind)(2))

pool_inputs = whole_inputs = odd_inputs = biased_inputs = unpool_inputs

def odd():
    return nn.AdaptiveAvgPool2d(3)

class Whole(nn.Module):
    # one function of an input, in no module of its own
    def __init__(self, how="sum"):
        super().__init__()
        self.conv, self.how = nn.Conv2d(4, 4, 1), how

    def forward(self, x):
        y = self.conv(x)
        return {"sum": lambda: y.sum(1), "mean": lambda: y.mean(1), "max": lambda: y.amax(1),
                "both": lambda: y.max(1), "cubic": lambda: y.norm(p=3, dim=1),
                "small": lambda: F.max_pool2d(y, 2), "one": lambda: F.adaptive_max_pool2d(y, 1),
                }[self.how]()

class Taken(nn.Module):
    # a layer whose bias was worked out
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 4))
        self.part = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return F.linear(x, self.weight, torch.cat([self.part, self.part]))

def taken_inputs(batch_size):
    return torch.rand(batch_size, 4)

def linear(bias=1, start=1.0):
    layer = nn.Linear(4, 6, bias=bool(bias))
    if bias:
        nn.init.constant_(layer.bias, start)
    return nn.Sequential(layer, nn.ReLU())

linear_inputs = taken_inputs

def biased(bias=1):
    return nn.Conv2d(4, 4, 1, bias=bool(bias))

def norm(order="crb"):
    parts = {"c": nn.Conv2d(4, 4, 1), "r": nn.ReLU(), "b": nn.BatchNorm2d(4), "p": nn.AvgPool2d(2),
             "d": nn.Dropout()}
    return nn.Sequential(*(parts[one] for one in order))

norm_inputs = unpool_inputs

class Fork(nn.Module):
    # what the batch norm reads is read again
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y) + y

class Heads(nn.Module):
    # two heads that begin alike, or with other scales
    def __init__(self, other=1.0):
        super().__init__()
        self.one, self.two = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.last, self.least = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        nn.init.constant_(self.two.weight, other)

    def forward(self, x):
        x = x.relu()
        return self.last(self.one(x)) + self.least(self.two(x))

fork_inputs = heads_inputs = unpool_inputs
heads = Heads
bilinear, distances, unpool, whole, taken, fork = Bilinear, Distances, Unpool, Whole, Taken, Fork
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    made = tmp_path_factory.mktemp("kinds")
    (made / "models.py").write_text(MODELS)
    return made


def exported(folder: Path, name: str, **config: object) -> Path:
    parts = [name, *(f"{key}-{value}" for key, value in config.items())]
    path = folder / f"{'-'.join(parts)}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(model, path, config=config, batch_size=3, check=False)
    return path


def against(
    folder: Path, name: str, path: Path, *, batch_size: int = 3, **config: object
) -> Against:
    model = f"{folder / 'models.py'}:{name}"
    count = ridgeline.count(model, batch_size=batch_size, config=config)
    asked = spec(model, batch_size, None, None, dict(config))
    return count_beside(count, path, spec=asked)[1]


def rows(found: Against) -> list[tuple[str, str]]:
    """Causes but for sizes and copies, in the order of the names."""
    small = ("shape arithmetic", "a copy where PyTorch has a view")
    return sorted((row.cause, row.what) for row in found.differences if row.cause not in small)


def doctored(path: Path, name: str, change: Callable[[ModelProto], None]) -> Path:
    """The file with something changed."""
    model = onnx.load(path)
    change(model)
    other = path.with_name(f"{path.stem}-{name}.onnx")
    onnx.save(model, other)
    return other


def node_of(model: ModelProto, op_type: str) -> NodeProto:
    found: NodeProto = next(node for node in model.graph.node if node.op_type == op_type)
    return found


def exit_code(folder: Path, name: str, path: Path, *more: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["count", f"{folder / 'models.py'}:{name}", "-b", "3", "--against", str(path), *more])
    return int(stopped.value.code or 0)


# ---------------------------------------------------------------- the same by other work


def test_a_bilinear_layer_is_two_products(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(folder, "bilinear")
    found = against(folder, "bilinear", path)
    # 3 samples, 6 results, 5 features of y: 4 products with x each, and one with y
    assert (found.pytorch.macs, found.onnx.macs) == (450, 450)
    assert rows(found) == [("decomposed operator", "_trilinear → 2 MatMul")]
    assert exit_code(folder, "bilinear", path) == 0
    assert "MACs: 450 in both" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("batch_size", "macs", "row"),
    [
        # few points: differences, squares and sums in PyTorch; 3·9·(16+2) MACs in the file
        (3, (0, 486), ("another way to the same", "_cdist_forward → ")),
        # many points: a product of 40·9·(16+2) in both
        (40, (6480, 6480), ("decomposed operator", "_euclidean_dist → ")),
    ],
)
def test_distances_from_an_open_number_of_points(
    folder: Path, batch_size: int, macs: tuple[int, int], row: tuple[str, str]
) -> None:
    path = exported(folder, "distances", p=2.0)
    found = against(folder, "distances", path, batch_size=batch_size, p=2.0)
    assert (found.pytorch.macs, found.onnx.macs) == macs
    [(cause, what)] = rows(found)
    assert (cause, what.partition("→ ")[0] + "→ ") == row
    assert found.unexplained_macs == 0


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_distances_of_another_power(folder: Path, p: float) -> None:
    found = against(folder, "distances", exported(folder, "distances", p=p), p=p)
    assert not found.is_unexplained
    assert found.has_equal_macs


MEAN = "_embedding_bag → Gather + Mul + 2 ReduceMean + ReduceSum + …"
SUM = "_embedding_bag → Gather + Mul + 3 ReduceSum + ConcatFromSequence"
MAX = "_embedding_bag → Gather + Mul + 3 ReduceMax + ConcatFromSequence"


def same_words(what: str) -> list[str]:
    return sorted(what.replace("→", "+").split(" + "))


@pytest.mark.parametrize(("mode", "what"), [("mean", MEAN), ("sum", SUM), ("max", MAX)])
def test_a_bag_of_embeddings(folder: Path, mode: str, what: str) -> None:
    found = against(folder, "bag", exported(folder, "bag", mode=mode), mode=mode)
    [(cause, told)] = rows(found)
    assert (cause, same_words(told)) == ("another way to the same", same_words(what))


@pytest.mark.parametrize(
    ("mode", "other"),
    [("mean", "sum"), ("mean", "max"), ("sum", "mean"), ("sum", "max"), ("max", "sum")],
)
def test_a_bag_of_another_kind(folder: Path, mode: str, other: str) -> None:
    assert against(folder, "bag", exported(folder, "bag", mode=other), mode=mode).is_unexplained


def test_pooling_and_back(folder: Path) -> None:
    path = exported(folder, "unpool")
    # a pooling of one number each gives places their numbers: 3·4·8·8 comparisons
    found = against(folder, "unpool", path)
    assert rows(found) == [
        ("another way to the same", "MaxPool"),
        ("decomposed operator", "max_unpool2d → ScatterND + ConstantOfShape"),
    ]
    assert found.change.other_flops == 3 * 4 * 8 * 8
    assert exit_code(folder, "unpool", path) == 0


def test_windows_of_other_sizes(folder: Path) -> None:
    # given a mean of 8 places over 3: windows of 3 or 4, added up one after another
    [(cause, what)] = rows(against(folder, "odd", exported(folder, "odd")))
    assert cause == "another way to the same"
    assert what.startswith("_adaptive_avg_pool2d → ")


@pytest.mark.parametrize(
    ("how", "row"),
    [
        ("both", ("another way to the same", "max → ReduceMax + ArgMax")),
        ("cubic", ("another way to the same", "linalg_vector_norm → 2 Pow + Abs + ReduceSum")),
        ("mean", ("another operator for the same", "mean → ReduceMean")),
    ],
)
def test_reductions_with_more_than_one_node(folder: Path, how: str, row: tuple[str, str]) -> None:
    [(cause, what)] = rows(against(folder, "whole", exported(folder, "whole", how=how), how=how))
    assert (cause, same_words(what)) == (row[0], same_words(row[1]))


# ---------------------------------------------------------------- one kind is no other


def test_another_pooling(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def average(model: ModelProto) -> None:
        pool = node_of(model, "MaxPool")
        pool.op_type = "AveragePool"
        kept = [a for a in pool.attribute if a.name in ("kernel_shape", "strides")]
        del pool.attribute[:]
        pool.attribute.extend(kept)

    path = exported(folder, "pool", kind="MaxPool2d")
    other = doctored(path, "average", average)
    assert exit_code(folder, "pool", path) == 0
    assert exit_code(folder, "pool", other) == 2
    assert "not explained: max_pool2d_with_indices → AveragePool" in capsys.readouterr().err
    # and a maximum where PyTorch has a mean
    found = against(folder, "pool", path, kind="AvgPool2d")
    assert rows(found) == [("not explained", "avg_pool2d → MaxPool")]


@pytest.mark.parametrize(
    ("how", "node", "other"),
    [
        ("sum", "ReduceSum", "ReduceMax"),
        ("sum", "ReduceSum", "ReduceMean"),
        ("mean", "ReduceMean", "ReduceSum"),
        ("mean", "ReduceMean", "ReduceMin"),
        ("max", "ReduceMax", "ReduceMin"),
        ("max", "ReduceMax", "ReduceProd"),
    ],
)
def test_another_reduction(folder: Path, how: str, node: str, other: str) -> None:
    path = exported(folder, "whole", how=how)

    def changed(model: ModelProto) -> None:
        node_of(model, node).op_type = other

    assert not against(folder, "whole", path, how=how).is_unexplained
    found = against(folder, "whole", doctored(path, other, changed), how=how)
    name = "amax" if how == "max" else how
    assert rows(found) == [("not explained", f"{name} → {other}")]


@pytest.mark.parametrize(("how", "other"), [("small", "one"), ("one", "small")])
def test_a_pooling_of_other_windows(folder: Path, how: str, other: str) -> None:
    # as many comparisons, to 4·4 numbers or to one
    assert against(folder, "whole", exported(folder, "whole", how=other), how=how).is_unexplained
    assert not against(folder, "whole", exported(folder, "whole", how=how), how=how).is_unexplained


# ---------------------------------------------------------------- biases


def without_bias(model: ModelProto) -> None:
    del node_of(model, "Gemm").input[2:]


def test_a_bias_of_values_is_not_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(folder, "linear")
    assert exit_code(folder, "linear", path) == 0
    assert exit_code(folder, "linear", doctored(path, "bare", without_bias)) == 2
    assert "not explained: addmm → Gemm" in capsys.readouterr().err


def test_a_bias_of_zeros_is_left_out(folder: Path) -> None:
    found = against(folder, "linear", exported(folder, "linear", start=0.0), start=0.0)
    assert rows(found) == [("a bias of zeros left out", "addmm → Gemm")]


def test_a_bias_that_was_worked_out_cannot_be_seen(folder: Path) -> None:
    found = against(folder, "taken", exported(folder, "taken"))
    assert ("a bias left out", "addmm → Gemm") in rows(found)
    assert not found.is_unexplained


@pytest.mark.parametrize(
    ("name", "what"), [("linear", "mm → Gemm"), ("biased", "convolution → Conv")]
)
def test_a_bias_that_the_model_has_not(folder: Path, name: str, what: str) -> None:
    assert rows(against(folder, name, exported(folder, name), bias=0)) == [("not explained", what)]


def test_what_the_biases_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a layer of 6 results that starts with ones
    model = f"{folder / 'models.py'}:linear"
    asked, count = spec(model, 3, None, None, None), ridgeline.count(model, batch_size=3)
    assert vectors_of(asked, count) == Vectors(are_zeros={"0.bias:6": False})
    [(number, told)] = biases(count, vectors_of(asked, count)).items()
    assert (count.op_costs[number].op, told) == ("aten::addmm", "values")
    # then zeros anywhere else in the model do not count, unless the module has no vector
    for are_zeros, told in (
        ({"0.bias:6": False, "1.bias:6": True}, "values"),
        ({"1.bias:6": True}, "zeros"),
        ({"0.bias:7": True}, "unseen"),
    ):
        assert biases(count, Vectors(are_zeros=are_zeros)) == {number: told}
    # and a model that is too large is not built
    monkeypatch.setattr("ridgeline.onnx.biases.MOST_BYTES", 4 * (4 * 6 + 6) - 1)
    assert vectors_of(asked, count) == Vectors()


# ---------------------------------------------------------------- batch norms


def without_norm(model: ModelProto) -> None:
    norm = node_of(model, "BatchNormalization")
    before, after = norm.input[0], norm.output[0]
    model.graph.node.remove(norm)
    for node in model.graph.node:
        node.input[:] = [before if name == after else name for name in node.input]
    for node in model.graph.node:  # the result keeps its name
        node.output[:] = [after if name == before else name for name in node.output]


def test_a_batch_norm_behind_an_activation_is_not_folded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(folder, "norm")
    assert exit_code(folder, "norm", path) == 0
    assert exit_code(folder, "norm", doctored(path, "bare", without_norm)) == 2
    assert "not explained: native_batch_norm gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("order", "is_folded"),
    [("cbr", True), ("cdb", True), ("cbb", True), ("crb", False), ("cpb", False), ("bcr", False)],
)
def test_where_a_batch_norm_can_be_folded(folder: Path, order: str, is_folded: bool) -> None:
    count = ridgeline.count(f"{folder / 'models.py'}:norm", batch_size=3, config={"order": order})
    norms = {n for n, op in enumerate(count.op_costs) if op.op == "aten::native_batch_norm"}
    assert norms
    assert (norms <= foldable(count)) is is_folded


def test_two_batch_norms_that_start_alike_are_merged(folder: Path) -> None:
    # given two heads, each with a batch norm of the same numbers: 3·4·8·8, two FLOPs for each
    found = against(folder, "heads", exported(folder, "heads"))
    assert ("merged duplicate", "native_batch_norm gone") in rows(found)
    assert not found.is_unexplained
    # and batch norms of other weights are two
    assert against(folder, "heads", exported(folder, "heads"), other=2.0).is_unexplained
    own = against(folder, "heads", exported(folder, "heads", other=2.0), other=2.0)
    assert not own.is_unexplained


def test_a_batch_norm_of_what_is_read_again_is_not_folded(folder: Path) -> None:
    count = ridgeline.count(f"{folder / 'models.py'}:fork", batch_size=3)
    assert [count.op_costs[n].op for n in foldable(count)] == []


# ---------------------------------------------------------------- by hand

NORM = Cost(other_flops=40, transcendentals=4, read_bytes=96, written_bytes=80)


def test_a_norm_that_onnxruntime_could_not_fuse() -> None:
    product, added = Cost(macs=1000, read_bytes=400, written_bytes=80), Cost(other_flops=20)
    ours = [
        Piece(op="convolution", kind="conv", module="a", cost=product),
        Piece(op="native_batch_norm", kind="norm", module="b", cost=NORM),
    ]
    theirs = [Piece(op="FusedConv", kind="conv", module="a", cost=product + added)]
    late = [ours[0], replace(ours[1], is_foldable=False)]

    def told(pieces: list[Piece]) -> set[tuple[str, str]]:
        return {(row.cause, row.what) for row in gathered(explain(pieces, theirs))}

    assert ("folded batch norm", "native_batch_norm gone") in told(ours)
    assert ("not explained", "native_batch_norm gone") in told(late)

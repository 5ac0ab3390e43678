"""An operator is the nodes of its recipe and no others: what is left over is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.api import spec
from ridgeline.onnx.against import Against
from ridgeline.onnx.beside import count_beside
from ridgeline.onnx.pieces import Piece, Place
from ridgeline.onnx.recipes import Form, forms_of
from ridgeline.onnx.written import written
from ridgeline.records import Cost

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

def labels(x):
    return x.argmax(-1).flatten()

FUNCTIONS = {
    "rsqrt": lambda h, x: torch.rsqrt(h * h + 1),
    "unit": lambda h, x: h * torch.rsqrt((h * h).sum(-1, keepdim=True)),
    "demodulated": lambda h, x: x * torch.rsqrt(
        torch.einsum("btd,btd->bt", h, h) + 1e-8).unsqueeze(-1),
    "cross_entropy": lambda h, x: F.cross_entropy(h.flatten(0, 1), labels(x)),
    "floor_divide": lambda h, x: torch.floor_divide(h, 0.3),
    "floor": lambda h, x: torch.div(h, 0.3, rounding_mode="floor"),
    "trunc_divide": lambda h, x: torch.div(h, 0.3, rounding_mode="trunc"),
    "trunc": lambda h, x: torch.trunc(h),
    "frac": lambda h, x: torch.frac(h),
    "decimals": lambda h, x: torch.round(h, decimals=2),
    "atan2": lambda h, x: torch.atan2(h, x),
    "norm_of_cubes": lambda h, x: torch.linalg.vector_norm(h.pow(3), dim=-1),
    "trace": lambda h, x: torch.einsum("bii->b", h @ x.transpose(1, 2)),
    "many": lambda h, x: torch.where(h > 0.5, h, h * 2).pow(3).std(-1)
        + torch.linalg.vector_norm(h, dim=-1),
    "nanmean": lambda h, x: torch.nanmean(h, -1),
    "shared_mean": lambda h, x: (h - h.mean(-1, keepdim=True)) / h.var(-1, keepdim=True),
    "addcmul": lambda h, x: torch.addcmul(h, x, x),
    "glu": lambda h, x: F.glu(h, -1),
    "log_sigmoid": lambda h, x: F.logsigmoid(h),
    "where": lambda h, x: torch.where(h > 0.5, h, x),
    "rms_norm": lambda h, x: F.rms_norm(h, (16,)),
    "log1p": lambda h, x: torch.log1p(h.exp()),
    "gate": lambda h, x: h * torch.sigmoid(x),
    "mean": lambda h, x: h * h.mean(1, keepdim=True),
    "norm": lambda h, x: torch.linalg.vector_norm(h, dim=-1),
    "gelu": lambda h, x: F.gelu(h),
    "gelu_tanh": lambda h, x: F.gelu(h, approximate="tanh"),
    "buckets": lambda h, x: torch.bucketize(h, torch.linspace(-1, 1, 5)).float() * h,
}

class Layer(nn.Module):
    def __init__(self, how="rsqrt"):
        super().__init__()
        self.line, self.how = nn.Linear(16, 16), how

    def forward(self, x):
        return FUNCTIONS[self.how](self.line(x), x)

layer = Layer

def inputs(batch_size):
    return torch.rand(batch_size, 5, 16)

def root(how="log1p"):
    # all of it in no module
    class Root(nn.Module):
        def forward(self, x):
            return FUNCTIONS[how](x * 2, x)
    return Root()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    made = tmp_path_factory.mktemp("recipes")
    (made / "models.py").write_text(MODELS)
    return made


def exported(folder: Path, how: str, *, opset: int | None = None, name: str = "layer") -> Path:
    """The file of one function; a low opset is that of torch's older exporter."""
    path = folder / f"{name}-{how}-{opset}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(model, path, config={"how": how}, batch_size=3, opset=opset, check=False)
    return path


def against(folder: Path, how: str, path: Path, *, name: str = "layer") -> Against:
    model = f"{folder / 'models.py'}:{name}"
    count = ridgeline.count(model, batch_size=3, config={"how": how})
    return count_beside(count, path, spec=spec(model, 3, None, None, {"how": how}))[1]


def rows(found: Against) -> list[tuple[str, str]]:
    return [(row.cause, row.what) for row in found.differences]


def unexplained(found: Against) -> list[str]:
    return [row.what for row in found.differences if row.cause == "not explained"]


NEW_ONLY = ["trunc_divide", "trunc", "frac", "nanmean"]  # torch's older exporter has them not
BOTH = ["rsqrt", "unit", "demodulated", "cross_entropy", "floor_divide", "floor", "decimals",
        "atan2", "norm_of_cubes", "trace", "many", "shared_mean"]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "opset"),
    [*((how, None) for how in (*NEW_ONLY, *BOTH)), *((how, 17) for how in BOTH)],
)
def test_right_files(folder: Path, how: str, opset: int | None) -> None:
    assert unexplained(against(folder, how, exported(folder, how, opset=opset))) == []


def test_each_operator_has_its_own_nodes(folder: Path) -> None:
    found = against(folder, "many", exported(folder, "many"))
    assert [row for row in rows(found) if "std" in row[1] or "norm" in row[1]] == [
        ("decomposed operator", "std → 2 ReduceMean + 2 Mul + Sub + Div + …"),
        ("another operator for the same", "linalg_vector_norm → ReduceL2"),
    ]


# ---------------------------------------------------------------- files of other work


def changed(path: Path, change: Any) -> Path:
    """The file with another graph: `change` gets it."""
    import onnx

    model = onnx.load(path)
    change(model.graph)
    made = path.with_name(f"changed-{path.name}")
    onnx.save(model, made)
    return made


def with_node(kind: str) -> Any:
    """A node more behind the last one, in the same module."""
    import onnx

    def change(graph: Any) -> None:
        name = graph.output[0].name
        (last,) = (node for node in graph.node if name in node.output)
        last.output[0] = "before"
        more = onnx.helper.make_node(kind, ["before"], [name], name=f"{last.name}_more")
        more.metadata_props.extend(last.metadata_props)
        graph.node.append(more)

    return change


def with_other(kind: str, other: str) -> Any:
    """The last node of a kind is one of another."""

    def change(graph: Any) -> None:
        [*_, node] = (node for node in graph.node if node.op_type == kind)
        node.op_type = other

    return change


@pytest.mark.parametrize(
    ("how", "change", "left"),
    [
        ("addcmul", with_node("Relu"), ["Relu"]),
        ("glu", with_node("Sigmoid"), ["Sigmoid"]),
        ("log_sigmoid", with_node("Tanh"), ["Tanh"]),
        ("where", with_node("Neg"), ["Neg"]),
        ("rms_norm", with_node("Softmax"), ["Softmax"]),
        ("log1p", with_other("Log", "Sqrt"), ["Add", "log1p gone", "Sqrt"]),
        ("gate", with_other("Mul", "Div"), ["mul → Div"]),
        ("mean", with_other("ReduceMean", "ReduceSum"), ["mean → ReduceSum"]),
        ("norm", with_other("ReduceL2", "ReduceL1"), ["linalg_vector_norm → ReduceL1"]),
    ],
)
def test_other_work_is_told(folder: Path, how: str, change: Any, left: list[str]) -> None:
    path = exported(folder, how)
    # given a file of the model, and one of which a node is another
    assert unexplained(against(folder, how, path)) == []
    # then that node is left over
    assert unexplained(against(folder, how, changed(path, change))) == left


@pytest.mark.parametrize("name", ["layer", "root"])
def test_other_work_is_told_where_there_are_no_modules(folder: Path, name: str) -> None:
    path = exported(folder, "log1p", name=name)
    assert unexplained(against(folder, "log1p", path, name=name)) == []
    other = changed(path, with_node("Neg"))
    assert unexplained(against(folder, "log1p", other, name=name)) == ["Neg"]


def test_two_kinds_of_gelu_in_one_node(folder: Path) -> None:
    found = against(folder, "gelu", exported(folder, "gelu_tanh"))
    assert unexplained(found) == ["gelu → Gelu"]


def test_what_is_not_in_the_table_is_said(folder: Path) -> None:
    found = against(folder, "buckets", exported(folder, "buckets"))
    assert not found.is_unexplained
    assert [row for row in rows(found) if "bucketize" in row[1]] == [
        ("not in the table", "bucketize → 3 GreaterOrEqual"),
    ]


def test_a_file_in_another_dtype(folder: Path, tmp_path: Path) -> None:
    # given the file of a gate as onnxruntime's converter makes it of half precision
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    import onnx

    whole = onnx.load(exported(folder, "gate"))
    half = float16.convert_float_to_float16(whole, keep_io_types=True)
    onnx.save(half, tmp_path / "half.onnx")
    # when both are compared
    found = against(folder, "gate", tmp_path / "half.onnx")
    plain = against(folder, "gate", exported(folder, "gate"))
    # then the dtype is a cause of its own, beside those that there are anyway
    changes = {(row.cause, row.what): row.change for row in found.differences}
    # 240 numbers through MatMul, Add, Sigmoid and Mul: of these and the weights two bytes less
    assert changes.pop(("other dtype", "fp16 for fp32")) == Cost(
        read_bytes=-2 * (240 + 256 + 240 + 16 + 240 + 2 * 240), written_bytes=-2 * 4 * 240
    )
    assert changes.pop(("other dtype", "Cast")) == Cost(
        read_bytes=240 * 4 + 240 * 2, written_bytes=240 * 2 + 240 * 4
    )
    assert changes == {(row.cause, row.what): row.change for row in plain.differences}


# ---------------------------------------------------------------- the recipes themselves


def test_the_text_of_a_recipe() -> None:
    assert forms_of("Sigmoid Mul*2 Add? | Swish") == (
        Form(("Sigmoid", "Mul", "Mul"), ("Add",)),
        Form(("Swish",), ()),
    )


def piece(op: str, results: int = 8) -> Piece:
    cost = Cost(other_flops=results)
    return Piece(op=op, kind="pointwise", module="", cost=cost, function=op, results=results)


def nodes(*places: Place) -> list[tuple[str, list[str]]]:
    return [(place.pytorch[0].op, [node.op for node in place.onnx]) for place in places]


def test_an_operator_takes_no_more_than_its_recipe() -> None:
    place = Place([piece("glu")], [piece("Sigmoid"), piece("Sigmoid"), piece("Mul")])
    found = written(place, Counter())
    assert nodes(*found) == [("glu", ["Sigmoid", "Mul"])]
    assert [node.op for node in place.less(found).onnx] == ["Sigmoid"]


def test_nodes_of_its_own_size_come_first() -> None:
    place = Place(
        [piece("glu", 4), piece("mul", 8)], [piece("Sigmoid", 4), piece("Mul", 8), piece("Mul", 4)]
    )
    assert [[node.results for node in part.onnx] for part in written(place, Counter())] == [
        [4, 4],
        [8],
    ]


def test_a_node_that_two_operators_share() -> None:
    # given x - mean(x) and var(x): the mean is there once, and is that of another operator
    place = Place([piece("var")], [piece("ReduceMean"), piece("Mul")])
    there = Counter({"ReduceMean": 2, "Sub": 1, "Mul": 1})
    assert nodes(*written(place, there)) == [("var", ["ReduceMean", "Mul"])]
    # without it there is no variance
    assert written(place, Counter({"ReduceMean": 2, "Mul": 1})) == []

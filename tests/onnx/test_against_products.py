"""Products that an exporter folds, merges or writes as sums: each has its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

import ridgeline
from ridgeline.api import spec
from ridgeline.cli import main
from ridgeline.cli.show_against import against_grid, difference_rows, verdict
from ridgeline.cli.tables import fit, total_width
from ridgeline.onnx.against import Against, Difference, gathered
from ridgeline.onnx.beside import count_beside
from ridgeline.onnx.causes import explain
from ridgeline.onnx.operands import Origins, origins, values
from ridgeline.onnx.pieces import Piece, total
from ridgeline.records import Cost

NONE = Cost()
PRODUCT = Cost(macs=1000, read_bytes=400, written_bytes=80)
NORM = Cost(other_flops=40, transcendentals=4, read_bytes=96, written_bytes=80)
KEPT_NORM = Cost(other_flops=40, transcendentals=4, read_bytes=92, written_bytes=80)


def table(pytorch: list[Piece], onnx: list[Piece]) -> list[tuple[str, str, int, Cost]]:
    """The rows, which always add up to the whole."""
    found = gathered(explain(pytorch, onnx))
    assert sum((one.change for one in found), NONE) == total(onnx) - total(pytorch)
    return [(one.cause, one.what, one.places, one.change) for one in found]


def mm(
    module: str = "a", *, cost: Cost = PRODUCT, is_of_weights: bool = False, value: int = 0
) -> Piece:
    return Piece(
        op="mm", kind="matmul", module=module, cost=cost, is_of_weights=is_of_weights, value=value
    )  # fmt: skip


def conv(op: str, module: str, cost: Cost = PRODUCT) -> Piece:
    return Piece(op=op, kind="conv", module=module, cost=cost)


def norm(op: str, module: str, cost: Cost = NORM) -> Piece:
    return Piece(op=op, kind="norm", module=module, cost=cost)


# ---------------------------------------------------------------- by hand


def test_a_product_of_weights_that_the_file_has_not() -> None:
    # given two products in a module, one of them of weights only, and a file with one
    node = Piece(op="MatMul", kind="matmul", module="a", cost=PRODUCT)
    # then the one of weights is gone, though the other comes after it
    assert table([mm(is_of_weights=True), mm()], [node]) == [
        ("folded product of weights", "mm gone", 1, NONE - PRODUCT)
    ]
    # and a product of the input is not explained
    assert table([mm(), mm()], [node]) == [("not explained", "mm gone", 1, NONE - PRODUCT)]


def test_what_is_done_again_is_in_the_file_once() -> None:
    # given three products of the same operands, and a file with one, with another cost
    other = PRODUCT + Cost(read_bytes=8)
    node = Piece(op="MatMul", kind="matmul", module="a", cost=other)
    assert table([mm(value=7), mm(value=7), mm(value=7)], [node]) == [
        ("merged duplicate", "mm gone", 2, NONE - PRODUCT - PRODUCT),
        ("another operator for the same", "mm → MatMul", 1, Cost(read_bytes=8)),
    ]
    # when the file has none, then one of the three is missing without a reason
    assert table([mm(value=7), mm(value=7), mm(value=7)], []) == [
        ("merged duplicate", "mm gone", 2, NONE - PRODUCT - PRODUCT),
        ("not explained", "mm gone", 1, NONE - PRODUCT),
    ]


def test_an_activation_that_is_done_again() -> None:
    relu = Cost(other_flops=20, read_bytes=80, written_bytes=80)
    twice = [Piece(op="relu", kind="pointwise", module="a", cost=relu, value=3) for _ in range(2)]
    node = Piece(op="Relu", kind="pointwise", module="a", cost=relu)
    assert table(twice, [node]) == [("merged duplicate", "relu gone", 1, NONE - relu)]


@pytest.mark.parametrize(
    ("additions", "cause"),
    [(30, "product written as sums"), (20, "product written as sums"), (10, "not explained")],
)
def test_a_product_as_a_mul_and_a_sum(additions: int, cause: str) -> None:
    # given 30 MACs, and in the file 30 multiplications and a sum of 30 numbers or fewer
    grid = Piece(op="grid", kind="matmul", module="", cost=Cost(macs=30, written_bytes=40))
    factors = Piece(op="Mul", kind="pointwise", module="", cost=Cost(other_flops=30))
    sums = Piece(op="ReduceSum", kind="reduce", module="", cost=Cost(other_flops=additions))
    causes = [(row[0], row[3].macs) for row in table([grid], [factors, sums]) if row[3].macs]
    assert causes == [(cause, -30)]


def test_a_convolution_goes_with_a_convolution_though_it_stands_at_the_batch_norm() -> None:
    # given two convolutions with batch norms, of which the file has one folded, as a Conv under
    # the norm that reads less: PyTorch pads first
    ours = [
        conv("convolution", "a.conv"),
        norm("native_batch_norm", "a.bn"),
        norm("native_batch_norm", "b.bn"),
    ]
    theirs = [
        conv("Conv", "a.bn", PRODUCT - Cost(read_bytes=100)),
        norm("BatchNormalization", "b.bn", KEPT_NORM),
    ]
    # then the norm that is gone is folded, and the one that is there is not
    assert table(ours, theirs) == [
        ("folded batch norm", "convolution → Conv", 1, Cost(read_bytes=-100)),
        ("folded batch norm", "native_batch_norm gone", 1, NONE - NORM),
        ("another operator for the same", "native_batch_norm → BatchNormalization", 1,
         Cost(read_bytes=-4)),
    ]  # fmt: skip


def test_products_are_decomposed_into_as_many_macs() -> None:
    # given attention and a product of weights in a module, and two products in the file
    attention = Piece(op="sdpa", kind="attention", module="a", cost=Cost(macs=200, read_bytes=60))
    bias = mm(cost=Cost(macs=30, read_bytes=10), is_of_weights=True)
    half = Piece(op="MatMul", kind="matmul", module="a", cost=Cost(macs=100, read_bytes=40))
    also = Piece(op="MatMul", kind="matmul", module="a", cost=Cost(macs=100, read_bytes=50))
    # then what is missing is not hidden in the attention
    assert table([attention, bias], [half, also]) == [
        ("folded product of weights", "mm gone", 1, Cost(macs=-30, read_bytes=-10)),
        ("decomposed operator", "sdpa → 2 MatMul", 1, Cost(read_bytes=30)),
    ]
    # and at other sizes it is not called decomposed
    assert {row[0] for row in table([attention], [half])} == {"not explained"}


# ---------------------------------------------------------------- with real files

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(16, 4))
        self.b = nn.Parameter(torch.ones(4, 16))
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return F.linear(x, self.linear.weight + self.a @ self.b, self.linear.bias)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return self.linear(x) * torch.sigmoid(self.linear(x))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return self.linear(self.linear(x))


class Warp(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 6)

    def forward(self, x):
        corners = self.linear(x).view(-1, 2, 3)
        return F.affine_grid(corners, (x.shape[0], 1, 5, 4), align_corners=False)


def low_rank():
    return LowRank()


def spectral():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)))


def twice():
    return Twice()


def shared():
    return Shared()


def warp():
    return Warp()


def inputs(n):
    return torch.ones(n, 16)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("products")
    (folder / "models.py").write_text(MODELS)
    return folder


def exported(folder: Path, name: str) -> tuple[str, Path]:
    model, path = f"{folder / 'models.py'}:{name}", folder / f"{name}.onnx"
    if not path.exists():
        ridgeline.export(model, path, check=False)
    return model, path


def compared(folder: Path, name: str, batch_size: int) -> Against:
    model, path = exported(folder, name)
    ours = ridgeline.count(model, batch_size=batch_size)
    return count_beside(ours, path, spec=spec(model, batch_size, None, None, None))[1]


# A @ B: 16·4·16 MACs of 128 numbers; at batch 4 B has the shape of the input
LOW_RANK = [
    ["folded product of weights", "mm gone", "1", "−1.02 k", "0", "0", "−512 B", "−1.02 kB"],
    ["constant folding", "add gone", "1", "0", "−256", "0", "−2.05 kB", "−1.02 kB"],
    ["sum", "", "", "−1.02 k", "−256", "0", "−2.56 kB", "−2.05 kB"],
    ["share", "", "", "−50.0 %", "−80.0 %", "–", "−65.6 %", "−88.9 %"],
]
# W v: 16·16 MACs; u · (W v): 16; W over that: 256 divisions
SPECTRAL = [
    ["folded product of weights", "mv gone", "1", "−256", "0", "0", "−1.09 kB", "−64 B"],
    ["constant folding", "div gone", "1", "0", "−256", "0", "−1.03 kB", "−1.02 kB"],
    ["folded product of weights", "vdot gone", "1", "−16", "0", "0", "−128 B", "−4 B"],
    ["constant folding", "clone gone", "2", "0", "0", "0", "−128 B", "−128 B"],
    ["sum", "", "", "−272", "−256", "0", "−2.37 kB", "−1.22 kB"],
    ["share", "", "", "−21.0 %", "−80.0 %", "–", "−63.8 %", "−82.7 %"],
]
# x Wᵀ + b a second time: 4·16·16 MACs, 4·16 additions
TWICE = [
    ["merged duplicate", "addmm gone", "1", "−1.02 k", "−64", "0", "−1.34 kB", "−256 B"],
    ["sum", "", "", "−1.02 k", "−64", "0", "−1.34 kB", "−256 B"],
    ["share", "", "", "−50.0 %", "−16.7 %", "0.0 %", "−38.9 %", "−25.0 %"],
]


@pytest.mark.parametrize(
    ("name", "rows", "macs", "why"),
    [
        ("low_rank", LOW_RANK, "2,048", "-1,024, folded product of weights"),
        ("spectral", SPECTRAL, "1,296", "-272, folded product of weights"),
        ("twice", TWICE, "2,048", "-1,024, merged duplicate"),
    ],
    ids=("low_rank", "spectral", "twice"),
)  # fmt: skip
def test_the_table_of_a_fresh_export(
    folder: Path, name: str, rows: list[list[str]], macs: str, why: str
) -> None:
    found = compared(folder, name, 4)
    assert difference_rows(found) == rows
    assert verdict(found) == f"MACs: {macs} in PyTorch, 1,024 in the file: {why}"
    assert found.unexplained_macs == 0


def test_a_grid_of_a_warp_is_written_as_sums(folder: Path) -> None:
    # given 3·5·4 points, two coordinates each, three products for each: 360 MACs
    found = compared(folder, "warp", 3)
    rows = [(row.cause, row.what, row.change.macs) for row in found.differences if row.change.macs]
    # then the file has 360 multiplications, and sums
    assert rows == [
        ("product written as sums", "affine_grid_generator → ReduceSum + Mul", -360)
    ]  # fmt: skip
    assert found.unexplained_macs == 0


def test_the_exit_code_says_whether_all_is_explained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a model's own file, and the file of a model with other products
    model, path = exported(folder, "twice")
    other, _ = exported(folder, "shared")
    # when both are compared with it
    codes = []
    for one in (model, other):
        with pytest.raises(SystemExit) as stopped:
            main(["count", one, "--against", str(path)])
        codes.append(stopped.value.code or 0)
    # then only a linear layer of other operands is another network
    assert codes == [0, 2]
    assert "512 in PyTorch, 256 in the file: -256, not explained" in capsys.readouterr().err


# ---------------------------------------------------------------- where operands come from


def test_operators_without_the_input(folder: Path) -> None:
    model, _ = exported(folder, "low_rank")
    counts = [ridgeline.count(model, batch_size=n) for n in (4, 5)]
    found = origins(counts[0], counts[1], is_open=True).of_weights
    ops = [op.op for op in counts[0].op_costs]
    assert {ops[number] for number in found} >= {"aten::mm", "aten::add"}
    assert "aten::addmm" not in {ops[number] for number in found}
    # and nothing is said where the operators are others
    other = ridgeline.count(f"{folder / 'models.py'}:twice", batch_size=5)
    assert origins(counts[0], other, is_open=True) == Origins()


@pytest.mark.parametrize(("name", "distinct"), [("twice", 1), ("shared", 2)])
def test_operators_of_the_same_operands(folder: Path, name: str, distinct: int) -> None:
    count = ridgeline.count(f"{folder / 'models.py'}:{name}", batch_size=2)
    numbers = values(count.op_costs)
    products = [n for op, n in zip(count.op_costs, numbers, strict=True) if op.cost.macs]
    assert len(products) == 2
    assert len(set(products)) == distinct


def test_what_is_written_into_is_another_operand() -> None:
    import torch

    def function(x: torch.Tensor) -> torch.Tensor:
        before = x.sin() + x.sin()
        x.add_(1)
        return before + x.sin()

    count = ridgeline.count(function, torch.empty(2, 16))
    numbers = values(count.op_costs)
    sines = [n for op, n in zip(count.op_costs, numbers, strict=True) if op.op == "aten::sin"]
    assert sines[0] == sines[1] != sines[2]


# ---------------------------------------------------------------- on a narrow screen


def against_of(*rows: tuple[str, str, Cost]) -> Against:
    differences = tuple(
        Difference(cause=cause, what=what, places=1, pytorch=NONE, onnx=change)
        for cause, what, change in rows
    )
    whole = Cost(
        macs=4000, other_flops=4000, transcendentals=40, read_bytes=4000, written_bytes=4000
    )
    onnx = whole + sum((one.change for one in differences), NONE)
    return Against(
        model="m", file="m.onnx", batch_size=1, pytorch=whole, onnx=onnx, differences=differences
    )  # fmt: skip


def test_what_is_kept_at_80_columns() -> None:
    # given two rows of one cause that only `what` tells apart, and no change in MACs
    against = against_of(
        ("another operator for the same", "native_layer_norm → LayerNormalization",
         Cost(other_flops=1000, read_bytes=2000, written_bytes=1000)),
        ("another operator for the same", "mean → ReduceMean",
         Cost(other_flops=1000, read_bytes=2000, written_bytes=1000)),
    )  # fmt: skip
    # when it is shown in 80 columns
    (grid,) = fit(against_grid(against, 80), 80)
    # then columns of zeros are gone, and words are in several lines
    assert total_width(grid) <= 80
    assert grid.header == ["cause", "what", "other FLOPs", "read", "written"]
    assert grid.left_out == ("MACs", "transcend.", "places")
    assert grid.rows == [
        ["another operator\nfor the same", "native_layer_norm →\nLayerNormalization",
         "+1.00 k", "+2.00 kB", "+1.00 kB"],
        ["another operator\nfor the same", "mean → ReduceMean", "+1.00 k", "+2.00 kB", "+1.00 kB"],
        ["sum", "", "+2.00 k", "+4.00 kB", "+2.00 kB"],
        ["share", "", "+50.0 %", "+100.0 %", "+50.0 %"],
    ]  # fmt: skip


def test_a_wide_screen_has_all() -> None:
    against = against_of(("added by the exporter", "Add", Cost(other_flops=1000)))
    (grid,) = fit(against_grid(against, 200), 200)
    assert grid.left_out == ()
    assert len(grid.header) == 8


def test_several_causes_of_other_macs() -> None:
    against = against_of(
        ("folded product of weights", "mm gone", Cost(macs=-1000)),
        ("merged duplicate", "addmm gone", Cost(macs=-500)),
    )
    assert verdict(against) == (
        "MACs: 4,000 in PyTorch, 2,500 in the file: -1,500 = -1,000 folded product of weights,"
        " -500 merged duplicate"
    )

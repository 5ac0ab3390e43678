"""Small cases with products worked out by hand: who is right, wrong, or silently zero."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.peers import ALL, FLOP_COUNTER, OTHERS, OURS, Answer, ask
from benchmarks.report import Report, Table, one_line

VERDICTS = ("right", "wrong", "silent zero", "raised")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One small computation, and its multiply-adds as a sum of products."""

    name: str
    make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    products: str  # "2·8·10 + 4·4": the arithmetic, and so the expected number

    @property
    def macs(self) -> int:
        return sum(prod(int(n) for n in term.split("·")) for term in self.products.split(" + "))


class Function(nn.Module):
    """A function as a module, since most counters take nothing else.

    It has a parameter that it does not use: some counters ask the first one for its device.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def run() -> Report:
    """Every case to every counter on the CPU; to ridgeline and FlopCounterMode on meta too."""
    columns: dict[str, list[Answer]] = {name: [] for name in names()}
    for case in CASES:
        for name, answer in answers(case):
            columns[name].append(answer)
    return Report(
        title="Small cases worked out by hand",
        summary=[summary(columns)],
        tables=[tallies(columns), details(columns), raised(columns)],
        notes=[
            "Multiply-adds of matrix products and convolutions. The arithmetic is in the second "
            "column: batch, outputs, then what each output sums over. Causal attention is counted "
            "whole. Layers have no bias except where the name says so and in the "
            "attention modules: some "
            "counters add one multiply-add for each bias, and that should not decide. "
            "The last cases "
            "have no product at all, and some counters count their normalisation or lookup as "
            "multiply-adds. Modules are in eval mode under no_grad.",
            "“Silent zero” is an answer of 0 where there are products, without an error.",
        ],
        uses_peers=True,
    )


def names() -> list[str]:
    both = [f"{c.name}, {where}" for c in (OURS, FLOP_COUNTER) for where in ("meta", "CPU")]
    return [*both, *(counter.name for counter in OTHERS)]


def answers(case: Case) -> list[tuple[str, Answer]]:
    """One case to all; every counter gets a module of its own."""
    found = []
    for counter in ALL:
        for device in ("meta", "cpu") if counter in (OURS, FLOP_COUNTER) else ("cpu",):
            torch.manual_seed(0)
            module, args = case.make()
            module.eval()
            if device == "meta":
                module, args = module.to("meta"), tuple(on_meta(arg) for arg in args)
            found.append(ask(counter, module, args))
    return list(zip(names(), found, strict=True))


def on_meta(value: Any) -> Any:
    """Floats without data; an index keeps its value, as a user would pass it."""
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    return value.to("meta") if is_float else value


def verdict(case: Case, answer: Answer) -> str:
    if answer.macs is None:
        return "raised"
    if answer.macs == case.macs:
        return "right"
    return "silent zero" if answer.macs == 0 else "wrong"


def summary(columns: dict[str, list[Answer]]) -> str:
    def right(name: str) -> int:
        return sum(verdict(c, a) == "right" for c, a in zip(CASES, columns[name], strict=True))

    best = max((name for name in columns if not name.startswith(OURS.name)), key=right)
    ours = [f"{right(name)} on {name.split(', ')[1]}" for name in list(columns)[:2]]
    return (
        f"**Of {len(CASES)} cases ridgeline has {' and '.join(ours)} right; the best "
        "other counter, "
        f"{best}, {right(best)}.**"
    )


def tallies(columns: dict[str, list[Answer]]) -> Table:
    rows = []
    for name, given in columns.items():
        tally = Tally(verdict(case, answer) for case, answer in zip(CASES, given, strict=True))
        rows.append((name, *(tally[v] for v in VERDICTS)))
    return Table(columns=("counter", *VERDICTS), rows=rows)


def details(columns: dict[str, list[Answer]]) -> Table:
    rows = [
        (case.name, case.products, case.macs, *(cell(case, given[i]) for given in columns.values()))
        for i, case in enumerate(CASES)
    ]
    return Table(
        title="Every case",
        columns=("case", "multiply-adds by hand", "=", *columns),
        rows=rows,
        text_columns=2,
    )


def cell(case: Case, answer: Answer) -> str:
    found = verdict(case, answer)
    if found == "right":
        return "✓"
    return f"**{answer.macs}**" if answer.macs is not None else "raised"


def raised(columns: dict[str, list[Answer]]) -> Table:
    rows = [
        (case.name, name, one_line(given[i].error, 140))
        for i, case in enumerate(CASES)
        for name, given in columns.items()
        if given[i].macs is None
    ]
    return Table(
        title="What was raised",
        columns=("case", "counter", "error"),
        rows=rows or [("none", "", "")],
        text_columns=3,
    )


# ---------------------------------------------------------------- the cases


def t(*shape: int) -> Tensor:
    return torch.randn(*shape)


def layer(make: Callable[[], nn.Module], *shapes: Sequence[int]) -> Any:
    """A module and floating-point arguments of these shapes."""
    return lambda: (make(), tuple(t(*shape) for shape in shapes))


def function(call: Callable[..., Any], *shapes: Sequence[int]) -> Any:
    return layer(lambda: Function(call), *shapes)


def called(owner: Any, name: str) -> Callable[..., Any]:
    """A function that is looked up when it is called: some counters replace it until then."""
    return lambda *args: getattr(owner, name)(*args)


def case(name: str, products: str, make: Any) -> Case:
    return Case(name=name, products=products, make=make)


def sdpa(**options: Any) -> Callable[..., Tensor]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


class Self(nn.Module):
    """Self-attention with `nn.MultiheadAttention`."""

    def __init__(self, *, need_weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, need_weights=self.need_weights)


class Repeated(nn.Module):
    """One layer as often as an integer input says."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        for _ in range(int(times.item())):
            x = self.inner(x)
        return x


class Experts(nn.Module):
    """Each row goes through the expert that its index names."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 6, bias=False) for _ in range(3))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        out = x.new_zeros(len(x), 6)
        for number, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == number).flatten()
            out[rows] = expert(x[rows])
        return out


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 6, bias=False)

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


class Shared(nn.Module):
    """An embedding whose weights are the output layer's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)

    def forward(self, index: Tensor) -> Tensor:
        return F.linear(self.embedding(index), self.embedding.weight)


def index(*values: int) -> Tensor:
    return torch.tensor(values)


def unfolded(x: Tensor, weight: Tensor) -> Tensor:
    return weight @ F.unfold(x, 3)


def int_product(a: Tensor, b: Tensor) -> Tensor:
    return torch._int_mm(a.to(torch.int8), b.to(torch.int8))


def deformable() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.ops import DeformConv2d

    return DeformConv2d(4, 6, 3, padding=1, bias=False), (t(1, 4, 8, 8), t(1, 18, 8, 8))


def weight_normed() -> nn.Module:
    module: nn.Module = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4, bias=False))
    return module


CONVOLUTIONS = [
    case("conv2d with a bias", "1·8·8·8·3·3·3",
         layer(lambda: nn.Conv2d(3, 8, 3), (1, 3, 10, 10))),
    case("conv1d", "2·6·16·4·5", layer(lambda: nn.Conv1d(4, 6, 5, bias=False), (2, 4, 20))),
    case("conv1d, stride 2", "1·6·11·4·3",
         layer(lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, bias=False), (1, 4, 21))),
    case("conv2d", "2·8·10·10·3·3·3",
         layer(lambda: nn.Conv2d(3, 8, 3, padding=1, bias=False), (2, 3, 10, 10))),
    case("conv2d, stride 2", "1·16·16·16·3·7·7",
         layer(lambda: nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), (1, 3, 32, 32))),
    case("conv2d, dilated", "1·4·8·8·4·3·3",
         layer(lambda: nn.Conv2d(4, 4, 3, dilation=2, bias=False), (1, 4, 12, 12))),
    case("conv2d, 4 groups", "1·12·6·6·2·3·3",
         layer(lambda: nn.Conv2d(8, 12, 3, groups=4, padding=1, bias=False), (1, 8, 6, 6))),
    case("conv2d, depthwise", "1·8·6·6·1·3·3",
         layer(lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), (1, 8, 6, 6))),
    case("conv2d, depthwise, 2 outputs each", "1·8·4·4·1·3·3",
         layer(lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), (1, 4, 6, 6))),
    case("conv2d without a batch", "8·8·8·3·3·3",
         layer(lambda: nn.Conv2d(3, 8, 3, bias=False), (3, 10, 10))),
    case("conv2d, 1×5 kernel", "1·4·7·9·2·1·5",
         layer(lambda: nn.Conv2d(2, 4, (1, 5), padding=(0, 2), bias=False), (1, 2, 7, 9))),
    case("conv2d, same padding, even kernel", "1·5·9·9·3·4·4",
         layer(lambda: nn.Conv2d(3, 5, 4, padding="same", bias=False), (1, 3, 9, 9))),
    case("conv2d, circular padding", "1·5·8·8·3·3·3",
         layer(lambda: nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular", bias=False),
               (1, 3, 8, 8))),
    case("F.conv2d", "1·5·6·6·3·3·3", function(called(F, "conv2d"), (1, 3, 8, 8), (5, 3, 3, 3))),
    case("conv3d", "1·4·4·4·4·2·3·3·3",
         layer(lambda: nn.Conv3d(2, 4, 3, bias=False), (1, 2, 6, 6, 6))),
    case("conv3d, 2 groups", "1·4·5·6·6·2·1·3·3",
         layer(lambda: nn.Conv3d(4, 4, (1, 3, 3), groups=2, padding=(0, 1, 1), bias=False),
               (1, 4, 5, 6, 6))),
    case("transposed conv2d", "1·5·5·4·6·3·3",
         layer(lambda: nn.ConvTranspose2d(4, 6, 3, bias=False), (1, 4, 5, 5))),
    case("transposed conv2d, stride 2", "1·5·5·4·6·4·4",
         layer(lambda: nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, bias=False), (1, 4, 5, 5))),
    case("transposed conv2d, 2 groups", "1·5·5·4·3·2·2",
         layer(lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2, bias=False), (1, 4, 5, 5))),
    case("transposed conv1d", "2·7·3·5·4",
         layer(lambda: nn.ConvTranspose1d(3, 5, 4, stride=2, bias=False), (2, 3, 7))),
    case("transposed conv3d", "1·3·3·3·2·3·2·2·2",
         layer(lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False), (1, 2, 3, 3, 3))),
    case("deformable conv2d", "1·6·8·8·4·3·3", deformable),
    case("unfold and matmul", "1·5·36·27", function(unfolded, (1, 3, 8, 8), (5, 27))),
]  # fmt: skip

PRODUCTS = [
    case("linear with a bias", "4·32·16", layer(lambda: nn.Linear(16, 32), (4, 16))),
    case("linear", "4·32·16", layer(lambda: nn.Linear(16, 32, bias=False), (4, 16))),
    case("linear on 3 dimensions", "2·5·8·16",
         layer(lambda: nn.Linear(16, 8, bias=False), (2, 5, 16))),
    case("linear on a vector", "8·16", layer(lambda: nn.Linear(16, 8, bias=False), (16,))),
    case("linear with weight norm", "2·4·8", layer(weight_normed, (2, 8))),
    case("matrix @ matrix", "4·6·8", function(called(torch, "matmul"), (4, 8), (8, 6))),
    case("matrix @ vector", "4·8", function(called(torch, "matmul"), (4, 8), (8,))),
    case("vector @ matrix", "6·8", function(called(torch, "matmul"), (8,), (8, 6))),
    case("dot", "9", function(called(torch, "dot"), (9,), (9,))),
    case("bmm", "3·4·6·8", function(called(torch, "bmm"), (3, 4, 8), (3, 8, 6))),
    case("4-D @ matrix", "2·3·4·6·8", function(called(torch, "matmul"), (2, 3, 4, 8), (8, 6))),
    case("both sides broadcast", "2·3·4·6·8",
         function(called(torch, "matmul"), (2, 1, 4, 8), (3, 8, 6))),
    case("4-D @ vector", "2·3·4·8", function(called(torch, "matmul"), (2, 3, 4, 8), (8,))),
    case("addmm", "4·6·8", function(called(torch, "addmm"), (4, 6), (4, 8), (8, 6))),
    case("addmv", "4·8", function(called(torch, "addmv"), (4,), (4, 8), (8,))),
    case("baddbmm", "3·4·6·8", function(called(torch, "baddbmm"), (3, 4, 6), (3, 4, 8), (3, 8, 6))),
    case("addbmm", "3·4·6·8", function(called(torch, "addbmm"), (4, 6), (3, 4, 8), (3, 8, 6))),
    case("einsum bij,bjk→bik", "3·4·6·8",
         function(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 4, 8), (3, 8, 6))),
    case("einsum bhqd,bhkd→bhqk", "2·3·4·5·8",
         function(lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), (2, 3, 4, 8), (2, 3, 5, 8))),
    case("einsum i,i→", "9", function(lambda a, b: torch.einsum("i,i->", a, b), (9,), (9,))),
    case("einsum of three", "4·6·8 + 4·5·6",
         function(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), (4, 8), (8, 6), (6, 5))),
    case("tensordot", "4·3·5·6",
         function(lambda a, b: torch.tensordot(a, b, ([1, 2], [1, 0])), (4, 5, 6), (6, 5, 3))),
    case("multi_dot", "2·3·30 + 10·3·2",
         function(lambda *m: torch.linalg.multi_dot(m), (10, 2), (2, 30), (30, 3))),
    case("matrix_power 3", "4·4·4 + 4·4·4",
         function(lambda a: torch.linalg.matrix_power(a, 3), (4, 4))),
    case("int8 product", "32·16·64", function(int_product, (32, 64), (64, 16))),
    case("output layer that shares the embedding", "2·50·8",
         lambda: (Shared(), (index(3, 4),))),
]  # fmt: skip

ATTENTION = [
    case("SDPA", "2·4·6·10·8 + 2·4·6·10·8",
         function(sdpa(), (2, 4, 6, 8), (2, 4, 10, 8), (2, 4, 10, 8))),
    case("SDPA, wider values", "2·4·6·10·8 + 2·4·6·10·12",
         function(sdpa(), (2, 4, 6, 8), (2, 4, 10, 8), (2, 4, 10, 12))),
    case("SDPA, 8 heads on 2", "1·8·6·6·16 + 1·8·6·6·16",
         function(sdpa(enable_gqa=True), (1, 8, 6, 16), (1, 2, 6, 16), (1, 2, 6, 16))),
    case("SDPA, causal", "1·2·8·8·4 + 1·2·8·8·4",
         function(sdpa(is_causal=True), (1, 2, 8, 4), (1, 2, 8, 4), (1, 2, 8, 4))),
    case("SDPA, 3 dimensions", "2·6·6·8 + 2·6·6·8",
         function(sdpa(), (2, 6, 8), (2, 6, 8), (2, 6, 8))),
    case("MultiheadAttention", "2·5·48·16 + 2·4·5·5·4 + 2·4·5·5·4 + 2·5·16·16",
         layer(lambda: Self(need_weights=False), (2, 5, 16))),
    case("MultiheadAttention, weights returned",
         "2·5·48·16 + 2·4·5·5·4 + 2·4·5·5·4 + 2·5·16·16",
         layer(lambda: Self(need_weights=True), (2, 5, 16))),
    case("MultiheadAttention, other keys",
         "2·3·16·16 + 2·7·16·10 + 2·7·16·12 + 2·4·3·7·4 + 2·4·3·7·4 + 2·3·16·16",
         layer(lambda: nn.MultiheadAttention(16, 4, kdim=10, vdim=12, batch_first=True),
               (2, 3, 16), (2, 7, 10), (2, 7, 12))),
    case("TransformerEncoderLayer",
         "2·5·48·16 + 2·4·5·5·4 + 2·4·5·5·4 + 2·5·16·16 + 2·5·32·16 + 2·5·16·32",
         layer(lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 5, 16))),
    case("TransformerDecoderLayer",
         "2·5·48·16 + 2·4·5·5·4 + 2·4·5·5·4 + 2·5·16·16 + 2·5·16·16 + 2·7·32·16 + 2·4·5·7·4"
         " + 2·4·5·7·4 + 2·5·16·16 + 2·5·32·16 + 2·5·16·32",
         layer(lambda: nn.TransformerDecoderLayer(16, 4, 32, batch_first=True),
               (2, 5, 16), (2, 7, 16))),
]  # fmt: skip

RECURRENT = [
    case("RNN", "5·2·8·6 + 5·2·8·8", layer(lambda: nn.RNN(6, 8, bias=False), (5, 2, 6))),
    case("LSTM", "5·2·32·6 + 5·2·32·8", layer(lambda: nn.LSTM(6, 8, bias=False), (5, 2, 6))),
    case("LSTM, 2 layers, both directions",
         "2·5·2·32·6 + 2·5·2·32·8 + 2·5·2·32·16 + 2·5·2·32·8",
         layer(lambda: nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True, bias=False),
               (2, 5, 6))),
    case("LSTM with a projection", "5·2·32·6 + 5·2·32·3 + 5·2·3·8",
         layer(lambda: nn.LSTM(6, 8, proj_size=3, bias=False), (5, 2, 6))),
    case("GRU", "5·2·24·6 + 5·2·24·8", layer(lambda: nn.GRU(6, 8, bias=False), (5, 2, 6))),
    case("GRU, 2 layers", "5·2·24·6 + 5·2·24·8 + 5·2·24·8 + 5·2·24·8",
         layer(lambda: nn.GRU(6, 8, 2, batch_first=True, bias=False), (2, 5, 6))),
    case("LSTM without a batch", "5·32·6 + 5·32·8",
         layer(lambda: nn.LSTM(6, 8, bias=False), (5, 6))),
    case("LSTMCell", "2·32·6 + 2·32·8", layer(lambda: nn.LSTMCell(6, 8, bias=False), (2, 6))),
    case("GRUCell", "2·24·6 + 2·24·8", layer(lambda: nn.GRUCell(6, 8, bias=False), (2, 6))),
    case("RNNCell", "2·8·6 + 2·8·8", layer(lambda: nn.RNNCell(6, 8, bias=False), (2, 6))),
]  # fmt: skip

CONTROL = [
    case("3 times, as an input says", "2·8·8 + 2·8·8 + 2·8·8",
         lambda: (Repeated(), (t(2, 8), torch.tensor(3)))),
    case("3 experts, 5 rows by index", "2·6·8 + 1·6·8 + 2·6·8",
         lambda: (Experts(), (t(5, 8), index(0, 2, 1, 2, 0)))),
    case("checkpoint, forward alone", "3·6·8", layer(Checkpointed, (3, 8))),
    case("vmap of matrix @ vector", "5·4·8",
         function(lambda m, v: torch.func.vmap(torch.mv, in_dims=(None, 0))(m, v), (4, 8), (5, 8))),
]  # fmt: skip

WITHOUT_PRODUCTS = [
    case("embedding", "0", lambda: (nn.Embedding(50, 8), (index(1, 2, 3),))),
    case("batch norm", "0", layer(lambda: nn.BatchNorm2d(3), (2, 3, 4, 4))),
    case("layer norm", "0", layer(lambda: nn.LayerNorm(8), (2, 8))),
    case("softmax", "0", layer(lambda: nn.Softmax(-1), (2, 8))),
]  # fmt: skip

CASES = [*CONVOLUTIONS, *PRODUCTS, *ATTENTION, *RECURRENT, *CONTROL, *WITHOUT_PRODUCTS]

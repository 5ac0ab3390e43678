"""What exporters write in another way than PyTorch works is explained; what differs is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.api import spec
from ridgeline.onnx.against import Against
from ridgeline.onnx.beside import count_beside

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

class Masked(nn.Module):
    # adds a mask where it is exported alone, as networks of transformers do
    def __init__(self, masks="nothing", stored=0):
        super().__init__()
        self.query, self.masks = nn.Linear(8, 8), masks
        self.register_buffer("kept", torch.ones(1, stored, stored) if stored else None)

    def forward(self, x):
        scores = self.query(x) @ x.transpose(1, 2)
        if torch.onnx.is_in_onnx_export() or torch.compiler.is_exporting():
            kept = torch.ones(x.shape[0], x.shape[1], x.shape[1], dtype=torch.bool)
            if self.kept is not None:  # read from a picture, as networks for detection do
                kept = kept & F.interpolate(self.kept[None], size=x.shape[1:2] * 2)[0].bool()
            places = torch.arange(x.shape[1])
            kept = kept & (places <= places[:, None]) if self.masks == "half" else kept
            scores = scores + torch.where(kept, 0.0, -1e9)
        return scores.softmax(-1) @ x

def masked_inputs(batch_size):
    return torch.rand(batch_size, 6, 8)

class Barred(nn.Module):
    # a mask of truths, which torch makes one of numbers in each step, and an exporter once
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("mask", torch.ones(6, 6).triu(1).bool())

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]

barred, barred_inputs = Barred, masked_inputs

class Cells(nn.Module):
    # the product with the first state, which is zeros, is folded; those with the input become one
    def __init__(self):
        super().__init__()
        self.cells = nn.RNN(8, 4, nonlinearity="relu", bias=False, batch_first=True)
        self.line = nn.Linear(4, 5)

    def forward(self, x):
        return self.line(self.cells(x)[0])

cells, cells_inputs = Cells, masked_inputs

def long_inputs(batch_size):
    return torch.rand(batch_size, 50, 8)

class Encoding(nn.Module):
    # sines and cosines of x, 2 x, 4 x; exporters work each multiple out once, and x * 1 never
    def __init__(self, waves=3):
        super().__init__()
        self.waves, self.line = waves, nn.Linear(6 * waves, 8)

    def forward(self, x):
        both = [wave(x * 2.0**k) for k in range(self.waves) for wave in (torch.sin, torch.cos)]
        return self.line(torch.cat(both, -1))

def encoding_inputs(batch_size):
    return torch.rand(batch_size, 5, 3)

class Bags(nn.Module):
    # one bag of embeddings, twice
    def __init__(self, mode="sum", times=2):
        super().__init__()
        self.bag, self.times = nn.EmbeddingBag(20, 8, mode=mode), times

    def forward(self, x):
        y = self.bag(x)
        for _ in range(self.times - 1):
            y = y + self.bag(x.flip(1))
        return y

def bags_inputs(batch_size):
    return torch.randint(0, 20, (batch_size, 5))

class Power(nn.Module):
    # the mean of powers, of which the exponent and its inverse are weights
    def __init__(self, back=1):
        super().__init__()
        self.conv, self.back = nn.Conv2d(3, 4, 1), back
        self.power = nn.Parameter(torch.tensor([3.0]))

    def forward(self, x):
        y = F.avg_pool2d(self.conv(x).clamp(min=1e-6).pow(self.power), 8)
        return y.pow(1.0 / self.power) if self.back else y

def power_inputs(batch_size):
    return torch.rand(batch_size, 3, 8, 8)

def own_statistics(affine=1, norm=1):
    kept = nn.BatchNorm2d(4, affine=bool(affine), track_running_stats=False)
    return nn.Sequential(nn.Conv2d(3, 4, 3), kept if norm else nn.Identity(), nn.ReLU())

class Standardised(nn.Conv2d):
    # weights that are made standard in every step
    def forward(self, x):
        weight = F.batch_norm(self.weight.flatten(1)[None], None, None, training=True)
        return F.conv2d(x, weight.view_as(self.weight), self.bias)

def standardised():
    return Standardised(3, 40, 3)

def groups():
    # a group norm is no reason to miss a batch norm of as many numbers
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(1, 4))

own_statistics_inputs = standardised_inputs = groups_inputs = power_inputs

class Spectrum(nn.Module):
    def __init__(self, window=1):
        super().__init__()
        self.window = window
        self.register_buffer("shape", torch.hann_window(16))

    def forward(self, x):
        window = self.shape if self.window else torch.ones(16)
        found = torch.stft(x * 2, 16, 4, window=window, return_complex=True)
        return torch.view_as_real(found).pow(2).sum(-1) * 3

def spectrum_inputs(batch_size):
    return torch.rand(batch_size, 64)

def few_rows(norm=1):
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16) if norm else nn.Identity())

def few_rows_inputs(batch_size):
    return torch.rand(batch_size, 8)

class Single(nn.Module):
    # a function of one number
    def __init__(self, act="none"):
        super().__init__()
        self.line, self.act = nn.Linear(8, 8), act

    def forward(self, x):
        y = self.line(x).mean()
        return y if self.act == "none" else getattr(torch, self.act)(y)

class Gate(nn.Module):
    def __init__(self, act="silu"):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(8, 16), nn.Linear(8, 16), act

    def forward(self, x):
        return getattr(F, self.act)(self.a(x)) * self.b(x)

class Resized(nn.Module):
    def __init__(self, mode="none"):
        super().__init__()
        self.conv, self.mode = nn.Conv2d(3, 4, 1), mode

    def forward(self, x):
        y = self.conv(x)
        return y if self.mode == "none" else F.interpolate(y, size=(13, 12), mode=self.mode)

def averaged(window=2):
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(window, 2, (window - 1) // 2))

resized_inputs = averaged_inputs = power_inputs

def curved(act="ELU", alpha=1.0):
    made = nn.SELU() if act == "SELU" else getattr(nn, act)(alpha)
    return nn.Sequential(nn.Linear(8, 8), made)

class Chosen(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.line, self.k = nn.Linear(8, 8), k

    def forward(self, x):
        return self.line(x).topk(self.k)[0].sum(-1)

class Shares(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.line, self.dim = nn.Linear(8, 8), dim

    def forward(self, x):
        return self.line(x).softmax(self.dim)

shares_inputs = masked_inputs

def line_inputs(batch_size):
    return torch.rand(batch_size, 3, 8)

class Line(nn.Module):
    def __init__(self, mode="linear"):
        super().__init__()
        self.conv, self.mode = nn.Conv1d(3, 4, 1), mode

    def forward(self, x):
        return F.interpolate(self.conv(x), size=12, mode=self.mode)

class Steps(nn.Module):
    def __init__(self, kind="LSTM", bias="values", act="tanh"):
        super().__init__()
        more = {"nonlinearity": act} if kind == "RNN" else {}
        self.rnn = getattr(nn, kind)(8, 6, bias=bias != "none", batch_first=True, **more)
        if bias == "zeros":
            nn.init.zeros_(self.rnn.bias_ih_l0)
            nn.init.zeros_(self.rnn.bias_hh_l0)

    def forward(self, x):
        return self.rnn(x)[0]

steps_inputs = masked_inputs
gate, resized, chosen, shares, steps, line = Gate, Resized, Chosen, Shares, Steps, Line
single_inputs = gate_inputs = curved_inputs = chosen_inputs = few_rows_inputs
masked = long = Masked
encoding, bags, power, spectrum, single = Encoding, Bags, Power, Spectrum, Single
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported")
    (made / "models.py").write_text(MODELS)
    return made


def exported(folder: Path, name: str, opset: int | None = None, **config: object) -> Path:
    """The file of one of the models; a low opset is that of torch's older exporter."""
    parts = [name, *(f"{key}-{value}" for key, value in config.items()), str(opset)]
    path = folder / f"{'-'.join(parts)}.onnx"
    if not path.exists():
        model = f"{folder / 'models.py'}:{name}"
        ridgeline.export(model, path, config=config, batch_size=3, opset=opset, check=False)
    return path


def against(folder: Path, name: str, path: Path, **config: object) -> Against:
    """One of the models, a batch of 3, and a file."""
    model = f"{folder / 'models.py'}:{name}"
    count = ridgeline.count(model, batch_size=3, config=config)
    return count_beside(count, path, spec=spec(model, 3, None, None, dict(config)))[1]


def own(folder: Path, name: str, opset: int | None = None, **config: object) -> Against:
    """One of the models and its own file."""
    return against(folder, name, exported(folder, name, opset, **config), **config)


def rows(found: Against, cause: str) -> list[tuple[str, int]]:
    """What a cause accounts for, and its FLOPs."""
    return [(d.what, d.change.flops) for d in found.differences if d.cause == cause]


def unexplained(found: Against) -> list[tuple[str, int]]:
    return rows(found, "not explained")


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize(("name", "size"), [("masked", 6), ("long", 50)])
def test_a_mask_of_zeros_changes_nothing(
    folder: Path, name: str, size: int, opset: int | None
) -> None:
    # given masks of 3·6·6 numbers, and of 7500, which are too many to be followed one by one
    found = own(folder, name, opset)
    assert unexplained(found) == []
    assert rows(found, "changes nothing") == [("Add", 3 * size * size)]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_mask_of_truths_is_folded_at_every_batch(folder: Path, batch_size: int) -> None:
    # given a batch of one, for which torch takes other operators than for two
    model = f"{folder / 'models.py'}:barred"
    count = ridgeline.count(model, batch_size=batch_size)
    made = exported(folder, "barred")
    found = count_beside(count, made, spec=spec(model, batch_size, None, None, {}))[1]
    assert unexplained(found) == []
    assert [what for what, _ in rows(found, "constant folding")] == ["masked_fill gone"]


def test_parts_of_the_input_are_of_it(folder: Path) -> None:
    # given steps that read a row each of the input, at a batch of one
    model, path = f"{folder / 'models.py'}:cells", folder / "cells.onnx"
    ridgeline.export(model, path, batch_size=1, static=True, check=False)
    count = ridgeline.count(model, batch_size=1)
    found = count_beside(count, path, spec=spec(model, 1, None, None, {}))[1]
    # then the product of 4·4 with zeros is folded, and no other
    assert unexplained(found) == []
    assert rows(found, "folded product of weights") == [("mm gone", -2 * 4 * 4)]


@pytest.mark.parametrize("opset", [None, 13])
def test_a_mask_of_stored_ones_that_is_resized(folder: Path, opset: int | None) -> None:
    found = own(folder, "masked", opset, stored=80)
    assert unexplained(found) == []
    assert rows(found, "changes nothing") == [("Add", 3 * 6 * 6)]


@pytest.mark.parametrize("opset", [None, 13])
def test_a_mask_that_masks_is_more_than_the_model_has(folder: Path, opset: int | None) -> None:
    found = own(folder, "masked", opset, masks="half")
    assert ("Add", 3 * 6 * 6) in unexplained(found)


@pytest.mark.parametrize("opset", [None, 13])
def test_a_norm_of_few_rows_has_means_and_no_sizes(folder: Path, opset: int | None) -> None:
    # given a layer norm whose means are 3 numbers
    assert unexplained(own(folder, "few_rows", opset)) == []
    # then it is missed where the file has it not
    without = exported(folder, "few_rows", opset, norm=0)
    assert unexplained(against(folder, "few_rows", without)) == [("native_layer_norm gone", -384)]


def test_a_function_of_one_number_is_work(folder: Path) -> None:
    plain, exp = exported(folder, "single"), exported(folder, "single", act="exp")
    assert unexplained(against(folder, "single", plain, act="exp")) == [("exp gone", 0)]
    assert unexplained(against(folder, "single", exp)) == [("Exp", 0)]
    assert unexplained(against(folder, "single", exp, act="exp")) == []


@pytest.mark.parametrize("opset", [None, 13])
def test_what_is_done_again_and_what_is_nothing(folder: Path, opset: int | None) -> None:
    # given six products with numbers: two with 1, two with 2, two with 4; the file has two
    assert unexplained(own(folder, "encoding", opset)) == []
    # then a file of another wave is another
    path = exported(folder, "encoding", opset, waves=2)
    assert against(folder, "encoding", path).is_unexplained


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_one_bag_of_embeddings_twice(folder: Path, mode: str, opset: int | None) -> None:
    assert unexplained(own(folder, "bags", opset, mode=mode)) == []
    once = exported(folder, "bags", opset, mode=mode, times=1)
    assert against(folder, "bags", once, mode=mode).is_unexplained


@pytest.mark.parametrize("opset", [None, 13])
def test_what_is_worked_out_of_weights_takes_no_node_of_others(
    folder: Path, opset: int | None
) -> None:
    assert unexplained(own(folder, "power", opset)) == []
    path = exported(folder, "power", opset, back=0)
    assert unexplained(against(folder, "power", path)) == [("pow gone", 0)]


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("affine", [0, 1])
def test_a_batch_norm_of_its_own_statistics(folder: Path, affine: int, opset: int | None) -> None:
    found = own(folder, "own_statistics", opset, affine=affine)
    assert unexplained(found) == rows(found, "folded batch norm") == []
    # then it cannot be in the convolution before it
    path = exported(folder, "own_statistics", opset, norm=0)
    missing = against(folder, "own_statistics", path, affine=affine)
    assert [what for what, _ in unexplained(missing)] == ["native_batch_norm gone"]


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("name", ["standardised", "groups"])
def test_norms_beside_other_norms(folder: Path, name: str, opset: int | None) -> None:
    assert unexplained(own(folder, name, opset)) == []


@pytest.mark.parametrize("window", [0, 1])
def test_a_spectrum_is_one_node(folder: Path, window: int) -> None:
    assert unexplained(own(folder, "spectrum", window=window)) == []


# ---------------------------------------------------------------- of another network


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("gate", {"act": "silu"}, {"act": "sigmoid"}),
        ("resized", {"mode": "none"}, {"mode": "nearest"}),
        ("resized", {"mode": "bilinear"}, {"mode": "bicubic"}),
        ("averaged", {"window": 2}, {"window": 4}),
        ("curved", {"act": "ELU"}, {"act": "SELU"}),
        ("curved", {"act": "ELU"}, {"act": "CELU", "alpha": 2.0}),
        ("chosen", {"k": 3}, {"k": 5}),
        ("shares", {"dim": 1}, {"dim": 2}),
        ("steps", {"kind": "LSTM"}, {"kind": "LSTM", "bias": "none"}),
        ("steps", {"kind": "GRU"}, {"kind": "GRU", "bias": "none"}),
        ("steps", {"kind": "RNN", "act": "relu"}, {"kind": "RNN"}),
    ],
    ids=str,
)
def test_one_is_not_the_other(
    folder: Path, name: str, one: dict[str, Any], other: dict[str, Any], opset: int | None
) -> None:
    files = [exported(folder, name, opset, **config) for config in (one, other)]
    told = [
        against(folder, name, file, **config).is_unexplained
        for config in (one, other)
        for file in files
    ]
    assert told == [False, True, True, False]


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_cells_with_biases_of_zeros(folder: Path, kind: str, opset: int | None) -> None:
    # given a first state and biases of zeros, so that nothing of the input is in the first product
    assert unexplained(own(folder, "steps", opset, kind=kind, bias="zeros")) == []
    none = exported(folder, "steps", opset, kind=kind, bias="none")
    assert unexplained(against(folder, "steps", none, kind=kind, bias="zeros")) == []


@pytest.mark.parametrize(
    ("name", "mode"), [("line", "linear"), ("line", "nearest"), ("resized", "nearest-exact")]
)
def test_a_resize_that_is_written_out(folder: Path, name: str, mode: str) -> None:
    assert unexplained(own(folder, name, mode=mode)) == []


def test_an_elu_of_alpha_one_is_a_celu(folder: Path) -> None:
    path = exported(folder, "curved", act="CELU")
    assert unexplained(against(folder, "curved", path, act="ELU")) == []

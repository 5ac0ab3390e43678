"""What exporters write in another way than PyTorch works is explained; what differs is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import ridgeline
from ridgeline.api import spec
from ridgeline.count.onnx.against import Against
from ridgeline.count.onnx.beside import count_beside

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F

class Masked(nn.Module):
    # adds a mask where it is exported alone, as networks of transformers do
    def __init__(self, masks="nothing"):
        super().__init__()
        self.query, self.masks = nn.Linear(8, 8), masks

    def forward(self, x):
        scores = self.query(x) @ x.transpose(1, 2)
        if torch.onnx.is_in_onnx_export() or torch.compiler.is_exporting():
            kept = torch.ones(x.shape[0], x.shape[1], x.shape[1], dtype=torch.bool)
            places = torch.arange(x.shape[1])
            kept = kept & (places <= places[:, None]) if self.masks == "half" else kept
            scores = scores + torch.where(kept, 0.0, -1e9)
        return scores.softmax(-1) @ x

def masked_inputs(batch_size):
    return torch.rand(batch_size, 6, 8)

def long_inputs(batch_size):
    return torch.rand(batch_size, 50, 8)

masked = long = Masked
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


@pytest.mark.parametrize("opset", [None, 13])
def test_a_mask_that_masks_is_more_than_the_model_has(folder: Path, opset: int | None) -> None:
    found = own(folder, "masked", opset, masks="half")
    assert ("Add", 3 * 6 * 6) in unexplained(found)

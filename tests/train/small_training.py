"""A training that takes a moment: a small network with everything that keeps state."""

from pathlib import Path
from typing import Any

import torch

from ridgeline.measure.backends import choose_backend, choose_precision
from ridgeline.train.records import TrainSettings
from ridgeline.train.trainer import Trainer
from ridgeline.workloads.cifar10 import synthetic_images

NET = """
import random
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(16 * 8 * 8, 10)

    def forward(self, x):
        features = self.dropout(self.features(x))
        if self.training:  # chance of Python's own, too
            features = features * random.uniform(0.9, 1.1)
        return self.head(features)

def make():
    return Net()
"""


def net_file(folder: Path) -> str:
    (folder / "net.py").write_text(NET)
    return f"{folder / 'net.py'}:make"


def settings(model: str, **changes: Any) -> TrainSettings:
    values: dict[str, Any] = {
        "model": model, "data": "synthetic", "train_images": 70, "test_images": 30, "epochs": 3,
        "batch_size": 16, "lr": 0.05, "label_smoothing": 0.1, "seed": 7,
    }  # fmt: skip
    return TrainSettings(**(values | changes))


def trainer(wanted: TrainSettings, workers: int = 0) -> Trainer:
    backend = choose_backend("cpu")
    images = synthetic_images(wanted.train_images, wanted.test_images)
    precision = choose_precision(wanted.precision, backend)
    return Trainer(wanted, images, backend, precision, workers=workers)


def what_differs(one: Any, two: Any, path: str = "") -> list[str]:
    """Where two states differ in any bit; the times of epochs are not looked at."""
    if path.endswith("time_s"):
        return []
    if isinstance(one, torch.Tensor):
        return [] if one.dtype == two.dtype and torch.equal(one, two) else [path]
    if isinstance(one, dict):
        if list(one) != list(two):
            return [path]
        return [found for key in one for found in what_differs(one[key], two[key], f"{path}/{key}")]
    if isinstance(one, (list, tuple)):
        if len(one) != len(two):
            return [path]
        pairs = enumerate(zip(one, two, strict=True))
        return [found for n, pair in pairs for found in what_differs(*pair, f"{path}/{n}")]
    return [] if one == two else [path]

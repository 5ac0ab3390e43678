"""The networks of our own, in plain PyTorch: names, sizes, inputs and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import losses
from ridgeline.workloads.inputs import BOXES, CHANNELS, classification_batch, height_width, labels
from ridgeline.workloads.sources import check_name
from ridgeline.workloads.workload import (
    Inputs,
    Workload,
    check_image_options,
    override_defaults,
    refuse_input_size,
    size_text,
)
from ridgeline.workloads.yolo import STRIDES, Objects, Yolo, yolo_loss

SEQ_LEN = 35  # of the published form of the LSTM
CIFAR_SIZE, CIFAR_CLASSES = (32, 32), 10
YOLO_SIZE, YOLO_CLASSES = (640, 640), 80


def workload(name: str, spec: WorkloadSpec) -> Workload:
    check_name("ridgeline", name)
    if name == "bert":
        from ridgeline.workloads import from_transformers

        return from_transformers.workload(name, spec)
    return NETWORKS[name](name, spec)


def cifar(name: str, spec: WorkloadSpec, *, make: Callable[[], nn.Module]) -> Workload:
    """A classifier of CIFAR-10's small images."""
    check_image_options(spec, "ridgeline")
    size = height_width(spec.input_size, name) if spec.input_size else CIFAR_SIZE
    return Workload(
        name=name,
        source="ridgeline",
        mode=spec.mode,
        make=make,
        make_inputs=lambda n: classification_batch(n, (CHANNELS, *size), CIFAR_CLASSES, spec.mode),
        loss=losses.classify,
        describe={"task": "classification", "input_size": size},
    )


def lstm(name: str, spec: WorkloadSpec) -> Workload:
    refuse_input_size(spec)
    config = LstmConfig(**override_defaults(asdict(LstmConfig()), spec.config, name))
    seq_len = spec.seq_len or SEQ_LEN
    return Workload(
        name=name,
        source="ridgeline",
        mode=spec.mode,
        make=lambda: LstmLanguageModel(config),
        make_inputs=lambda n: token_inputs(n, seq_len, config.vocab_size, spec.mode),
        loss=losses.tokens,
        describe={"task": "language model", "seq_len": seq_len, **asdict(config)},
    )


def token_inputs(batch_size: int, seq_len: int, vocab_size: int, mode: str) -> Inputs:
    """Token ids, and the next token of each when training."""
    ids = labels(batch_size, vocab_size, seq_len)
    return Inputs(args=(ids,), targets=ids.roll(-1, 1) if mode == "train" else None)


def yolo(name: str, spec: WorkloadSpec) -> Workload:
    check_image_options(spec, "ridgeline")
    size = height_width(spec.input_size, name) if spec.input_size else YOLO_SIZE
    if any(side % STRIDES[-1] for side in size):
        raise RidgelineError(
            f"input size {size_text(size)} does not fit {name}",
            hint=f"height and width are multiples of {STRIDES[-1]}: 640, or 480x640",
        )
    return Workload(
        name=name,
        source="ridgeline",
        mode=spec.mode,
        make=lambda: Yolo(YOLO_CLASSES),
        make_inputs=lambda n: yolo_inputs(n, size, spec.mode),
        loss=yolo_loss,
        describe={"task": "detection", "input_size": size},
    )


def yolo_inputs(batch_size: int, size: tuple[int, int], mode: str) -> Inputs:
    """Images, and when training the same few objects in each of them."""
    images = torch.rand(batch_size, CHANNELS, *size)
    if mode != "train":
        return Inputs(args=(images,))
    height, width = size
    one = [[x0 * width, y0 * height, x1 * width, y1 * height] for x0, y0, x1, y1 in BOXES]
    boxes = torch.tensor([one] * batch_size)
    return Inputs(
        args=(images,), targets=Objects(boxes, labels(batch_size, YOLO_CLASSES, len(BOXES)))
    )


# ---------------------------------------------------------------- an LSTM
# Tokens → vectors → two LSTM layers → scores of the next token: the plain form of arXiv:1409.2329
# in its medium size: 10,000 words, vectors and states of 650.


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The sizes that `--config` can change."""

    vocab_size: int = 10_000
    embedding_size: int = 650
    hidden_size: int = 650
    num_layers: int = 2
    dropout: float = 0.5


class LstmLanguageModel(nn.Module):
    """Token ids (N, length) to scores (N, length, vocabulary)."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        between = config.dropout if config.num_layers > 1 else 0.0
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size,
            config.num_layers,
            batch_first=True,
            dropout=between,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(ids)))
        scores: Tensor = self.projection(self.dropout(states))
        return scores


# ---------------------------------------------------------------- ResNet for CIFAR-10
# A 3x3 stem and no pooling, for images of 32x32: the ImageNet form would shrink such an image to
# one pixel. Blocks as in arXiv:1512.03385, with a 1x1 convolution on the way around where the
# shape changes. 11,173,962 parameters with 18 layers, 21,282,122 with 34.

STAGE_CHANNELS = (64, 128, 256, 512)
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # by depth: each block is two layers


class Block(nn.Module):
    """Two 3x3 convolutions and the way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(before, after, stride)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = conv3x3(after, after, 1)
        self.norm2 = nn.BatchNorm2d(after)
        self.around = (
            nn.Identity()
            if before == after
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y = y + self.around(x)
        return torch.relu(y)


class ResNetCifar(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, classes)."""

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        first = STAGE_CHANNELS[0]
        self.stem = nn.Sequential(
            conv3x3(3, first, 1), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        stages, before = [], first
        for after, count in zip(STAGE_CHANNELS, BLOCKS[depth], strict=True):
            rest = [Block(after, after, 1) for _ in range(count - 1)]
            changing = Block(before, after, stride=1 if after == first else 2)
            stages.append(nn.Sequential(changing, *rest))
            before = after
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(STAGE_CHANNELS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.stages(self.stem(x)))
        scores: Tensor = self.head(features.flatten(1))
        return scores


def conv3x3(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)


# ---------------------------------------------------------------- VGG-11 for CIFAR-10
# The eight convolutions of arXiv:1409.1556, batch norm, one linear layer. Five poolings bring
# 32x32 down to one pixel, so only its 512 channels are left for the head. 9,231,114 parameters.

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # a pooling after each


class Vgg11Cifar(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, classes)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for stage in STAGES:
            for after in stage:
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]
                layers += [nn.ReLU(inplace=True)]
                before = after
            layers += [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(STAGES[-1][-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores


# ---------------------------------------------------------------- all of them

NETWORKS: dict[str, Callable[[str, WorkloadSpec], Workload]] = {
    "resnet18_cifar": partial(cifar, make=partial(ResNetCifar, 18)),
    "resnet34_cifar": partial(cifar, make=partial(ResNetCifar, 34)),
    "vgg11_cifar": partial(cifar, make=Vgg11Cifar),
    "lstm": lstm,
    "yolo": yolo,
}

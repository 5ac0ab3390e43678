"""Names for the networks of our own, with their sizes, inputs and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import losses
from ridgeline.workloads.checks import (
    LIST_HINT,
    no_config,
    no_seq_len,
    size_text,
    unknown_name,
)
from ridgeline.workloads.config_values import overridden
from ridgeline.workloads.detection import BOXES
from ridgeline.workloads.images import CHANNELS, classified, height_width, labels
from ridgeline.workloads.networks.lstm import LstmConfig, LstmLanguageModel
from ridgeline.workloads.networks.resnet_cifar import ResNetCifar
from ridgeline.workloads.networks.vgg_cifar import Vgg11Cifar
from ridgeline.workloads.networks.yolo import STRIDES, Yolo
from ridgeline.workloads.networks.yolo_loss import Objects, yolo_loss
from ridgeline.workloads.workload import Inputs, Workload

SEQ_LEN = 35  # of the published form of the LSTM
CIFAR_SIZE, CIFAR_CLASSES = (32, 32), 10
YOLO_SIZE, YOLO_CLASSES = (640, 640), 80
ELSEWHERE = {"bert": "transformers"}  # plain names for what another source builds


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One of our own: what it is, and how a spec becomes a workload."""

    about: str
    workload: Callable[[str, WorkloadSpec], Workload]


def names() -> list[str]:
    here = [name for name, source in ELSEWHERE.items() if find_spec(source) is not None]
    return [*NETWORKS, *here]


def about(name: str) -> str:
    return NETWORKS[name].about if name in NETWORKS else f"the same as {ELSEWHERE[name]}:{name}"


def workload(name: str, spec: WorkloadSpec) -> Workload:
    if name in NETWORKS:
        return NETWORKS[name].workload(name, spec)
    if name in names():
        from ridgeline.workloads import from_transformers

        return from_transformers.workload(name, spec)
    raise unknown_name("network of ridgeline", name, names(), hint=LIST_HINT)


def cifar(make: Callable[[], nn.Module], name: str, spec: WorkloadSpec) -> Workload:
    """A classifier of CIFAR-10's small images."""
    no_config(spec, "ridgeline")
    no_seq_len(spec)
    size = height_width(spec.input_size, name) if spec.input_size else CIFAR_SIZE
    return Workload(
        name=name,
        source="ridgeline",
        mode=spec.mode,
        make=make,
        make_inputs=lambda n: classified(n, (CHANNELS, *size), CIFAR_CLASSES, spec.mode),
        loss=losses.classify,
        describe={"task": "classification", "input_size": size},
    )


def lstm(name: str, spec: WorkloadSpec) -> Workload:
    if spec.input_size is not None:
        raise RidgelineError(
            f"{name} takes no --input-size",
            hint="it takes tokens: choose how many with --seq-len",
        )
    config = LstmConfig(**overridden(asdict(LstmConfig()), spec.config, name))
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
    no_config(spec, "ridgeline")
    no_seq_len(spec)
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


def _cifar(make: Callable[..., nn.Module], *args: Any) -> Callable[[str, WorkloadSpec], Workload]:
    return partial(cifar, partial(make, *args))


NETWORKS = {
    "resnet18_cifar": Network(
        about="classification, ResNet-18 for CIFAR-10, 3x32x32", workload=_cifar(ResNetCifar, 18)
    ),
    "resnet34_cifar": Network(
        about="classification, ResNet-34 for CIFAR-10, 3x32x32", workload=_cifar(ResNetCifar, 34)
    ),
    "vgg11_cifar": Network(
        about="classification, VGG-11 for CIFAR-10, 3x32x32", workload=_cifar(Vgg11Cifar)
    ),
    "lstm": Network(about=f"language model, two LSTM layers, {SEQ_LEN} tokens", workload=lstm),
    "yolo": Network(about="detection, YOLO-style, our own, 3x640x640", workload=yolo),
}

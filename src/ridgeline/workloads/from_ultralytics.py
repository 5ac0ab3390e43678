"""ultralytics' detectors, for a user who has installed it. Its licence is AGPL-3.0.

Nothing of it is in ridgeline: a model is built from the description that ultralytics carries
(`yolov8n` is its yolov8n.yaml), without weights. Its own loss needs its trainer, so a training
step here ends in the mean of the outputs: the network's forward and backward are all there.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import nn

from ridgeline.records import WorkloadSpec
from ridgeline.workloads.inputs import CHANNELS, height_width
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.sources import check_name
from ridgeline.workloads.workload import Inputs, Workload, check_image_options

SIZE = (640, 640)


def workload(name: str, spec: WorkloadSpec) -> Workload:
    check_name("ultralytics", name)
    check_image_options(spec, "ultralytics")
    size = height_width(spec.input_size, name) if spec.input_size else SIZE
    return Workload(
        name=name,
        source="ultralytics",
        mode=spec.mode,
        make=lambda: make(name),
        make_inputs=lambda n: Inputs(args=(torch.rand(n, CHANNELS, *size),)),
        loss=mean_of_outputs,
        describe={"input_size": size, "loss": "mean of the outputs"},
    )


def make(name: str) -> nn.Module:
    """Built with real tensors first: it runs itself once to find its strides."""
    device = torch.empty(0).device
    with torch.device("cpu"):
        module: nn.Module = import_module("ultralytics").YOLO(f"{name}.yaml").model
    return module.requires_grad_().to(device)

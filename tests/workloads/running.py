"""Helpers of these tests: build, feed and run a workload on the meta device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import Inputs, Workload, resolve


def workload(model: str, **asked: Any) -> Workload:
    return resolve(WorkloadSpec(model=model, **asked))


def params(model: str, **asked: Any) -> int:
    with torch.device("meta"):
        module = workload(model, **asked).build()
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, Tensor) else value


def run_on_meta(made: Workload, batch_size: int = 2) -> tuple[Any, Inputs]:
    """The output for one batch, without any arithmetic."""
    with torch.device("meta"):
        module = made.build()
        inputs = made.inputs(batch_size)
        output = module(*tree_map(on_meta, inputs.args), **tree_map(on_meta, inputs.kwargs))
    return output, inputs


def train_on_meta(made: Workload, batch_size: int = 2) -> Tensor:
    """The loss of one batch, after its backward pass."""
    output, inputs = run_on_meta(made, batch_size)
    assert made.loss is not None
    loss = made.loss(output, inputs)
    loss.backward()
    return loss


def error_text(model: str, *, build: bool = False, **asked: Any) -> str:
    """What a user would read."""
    try:
        made = workload(model, **asked)
        if build:
            made.build()
    except RidgelineError as error:
        return str(error)
    raise AssertionError(f"{model} was accepted")

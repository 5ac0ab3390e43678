"""The public functions. Each imports what it needs when it is called: torch is heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult


def count(
    model: Any,
    inputs: Any = None,
    *,
    mode: str = "infer",
    precision: str = "fp32",
    optimizer: str = "sgd",
    optimizer_options: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    input_size: int | Sequence[int] | None = None,
    seq_len: int | None = None,
    config: Mapping[str, Any] | None = None,
    loss: Callable[[Any], Any] | None = None,
    causal: str = "full",
) -> CountResult:
    """Count what one step of a model must do, without running any arithmetic.

    `model` is a name (`"resnet50"`, `"timm:…"`, `"net.py:make"`), a module, or any function of
    tensors. A module or function needs `inputs`: a tensor, a tuple of arguments, a dictionary
    of keyword arguments, or a shape. A name takes `batch_size`, `input_size`, `seq_len` and
    `config` instead. `loss` turns a module's output into a scalar in train mode; without one,
    backward starts at the outputs. `causal="half"` counts only unmasked pairs of causal
    attention.
    """
    from ridgeline.count.counting import Settings, count_module, count_workload

    settings = Settings(
        mode=mode,
        precision=precision,
        optimizer=optimizer,
        optimizer_options=optimizer_options or {},
        causal=causal,
    )
    if not isinstance(model, str | Path):
        return count_module(model, inputs, settings, loss=loss)
    return count_workload(
        _spec(str(model), batch_size, input_size, seq_len, config), settings
    )


def _spec(
    model: str,
    batch_size: int,
    input_size: int | Sequence[int] | None,
    seq_len: int | None,
    config: Mapping[str, Any] | None,
) -> WorkloadSpec:
    if model.endswith(".onnx"):
        raise RidgelineError(
            f"{model}: ONNX files cannot be counted yet",
            hint="count the PyTorch model it was exported from",
        )
    size = (input_size,) if isinstance(input_size, int) else input_size
    return WorkloadSpec(
        model=model,
        batch_size=batch_size,
        input_size=tuple(size) if size is not None else None,
        seq_len=seq_len,
        config=dict(config or {}),
    )

"""What went wrong in a model, in words: which layer, what it got, what it expected."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ridgeline.count.step import Step
from ridgeline.errors import RidgelineError
from ridgeline.units import format_bytes

COPIES_TO_TRAIN = 4  # weights, gradients, and two of optimizer state
_NOTE = "ridgeline-module: "
_EXPECTS = {
    "in_channels": "{} input channels",
    "in_features": "{} input features",
    "num_features": "{} features",
    "normalized_shape": "a last dimension of {}",
    "num_embeddings": "indices below {}",
    "input_size": "{} input features",
    "embed_dim": "an embedding of {}",
}
_VALUE_WORDS = ("meta", "data-dependent", "fake", "no data", "item()", "not implemented for")


def needs_values(error: BaseException) -> bool:
    """Whether another way of tracing may work: the model looked at data, or used it by hand."""
    if isinstance(error, NotImplementedError | TypeError | ValueError | AttributeError):
        return True
    text = str(error).lower()
    return any(word in text for word in _VALUE_WORDS) or "is on" in text


def check_fits(step: Step) -> None:
    """Refuse to run a model for real that this machine's memory cannot hold."""
    import psutil

    module = step.module
    weights = sum(p.nbytes for p in module.parameters()) if module is not None else 0
    needed = weights * (COPIES_TO_TRAIN if step.mode == "train" else 1)
    free = psutil.virtual_memory().available
    if needed > free / 2:
        raise RidgelineError(
            f"this model looks at values that shapes cannot give, and its weights need "
            f"{format_bytes(needed)} to run for real; {format_bytes(free)} of memory are free",
            hint="count a smaller configuration (fewer layers) and scale, or use a larger machine",
        )


def broken_model(error: BaseException, step: Step | None) -> RidgelineError:
    """The model's own error in one line, with the layer it arose in."""
    path = _failed_module(error)
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    module = _module(step, path)
    if module is None:
        return RidgelineError(
            f"the model failed while running: {first_line}{_place(error)}",
            hint="check --input-size, --seq-len or inputs=; --debug shows the traceback",
        )
    return RidgelineError(
        f"layer {path or '(model)'} ({type(module).__name__}) failed: {first_line}",
        hint=_expectation(module) + "check --input-size, --seq-len or inputs=",
    )


def _failed_module(error: BaseException) -> str | None:
    notes = [n for n in getattr(error, "__notes__", []) if n.startswith(_NOTE)]
    name = notes[-1].removeprefix(_NOTE) if notes else "None"
    return None if name == "None" else name


def _module(step: Step | None, path: str | None) -> Any:
    if step is None or step.module is None or path is None:
        return None
    return step.module.get_submodule(path)


def _expectation(module: nn.Module) -> str:
    for attribute, text in _EXPECTS.items():
        value = getattr(module, attribute, None)
        if isinstance(value, int | tuple | list | torch.Size):
            plain = value if isinstance(value, int) else "x".join(map(str, value))
            return f"it expects {text.format(plain)}; "
    return ""


def _place(error: BaseException) -> str:
    """Where in the user's own code it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and "ridgeline" not in f.filename]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""

"""What went wrong in a model, in words: which layer, what it got, what it expected."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
from torch import nn

from ridgeline.count.modules import shapes_text
from ridgeline.count.step import Step, StepFailedError
from ridgeline.errors import RidgelineError
from ridgeline.units import format_bytes

COPIES_TO_TRAIN = 4  # weights, gradients, and two of optimizer state
_EXPECTS = {
    "in_channels": "{} input channels",
    "in_features": "{} input features",
    "num_features": "{} features",
    "normalized_shape": "a last dimension of {}",
    "num_embeddings": "indices below {}",
    "input_size": "{} input features",
    "embed_dim": "an embedding of {}",
}
_OURS = str(Path(__file__).parents[1])
_VALUE_WORDS = ("meta", "data-dependent", "fake", "no data", "item()", "not implemented for")


def needs_values(error: BaseException) -> bool:
    """Whether another way of tracing may work: the model looked at data, or used it by hand."""
    error = error.__cause__ or error
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


def broken_model(error: BaseException) -> RidgelineError:
    """The model's own error in one line, with the layer it arose in and what that got."""
    step, failed = (
        (error.step, error.failed) if isinstance(error, StepFailedError) else (None, None)
    )
    own = (error.__cause__ or error) if isinstance(error, StepFailedError) else error
    first_line = (str(own).strip() or type(own).__name__).splitlines()[0]
    if step is None or step.module is None or failed is None:
        return RidgelineError(
            f"the model failed while running: {first_line}{_place(own)}",
            hint="check --input-size, --seq-len or inputs=; --debug shows the traceback",
        )
    module = step.module.get_submodule(failed.path)
    got = f" on input {shapes_text(failed.input_shapes)}" if failed.input_shapes else ""
    return RidgelineError(
        f"layer {failed.path or '(model)'} ({type(module).__name__}) failed{got}: {first_line}",
        hint=_expectation(module) + "check --input-size, --seq-len or inputs=",
    )


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
    own = [f for f in frames if "site-packages" not in f.filename and _OURS not in f.filename]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""

"""What went wrong in a model, in words: which layer, what it got, what it expected."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from ridgeline.count.cost_records import shapes_text
from ridgeline.count.step import Step, StepFailedError
from ridgeline.errors import RidgelineError
from ridgeline.tracing import MODEL
from ridgeline.units import format_bytes

COPIES_TO_TRAIN = 4  # weights, gradients, and two of optimizer state
_OURS = str(Path(__file__).parents[1])
_VALUE_WORDS = ("meta", "data-dependent", "fake", "no data", "item()", "not implemented for")
_FINAL_WORDS = (
    "more than 1 value per channel",
    "HigherOrderOperator",
    "shapes cannot be multiplied",
)
_OWN_MISTAKES = (NameError, TypeError, KeyError, ImportError)
_SHAPE_ERRORS = (RuntimeError, ValueError, IndexError, AssertionError)
_SPECIAL_HINTS = {
    "more than 1 value per channel": "batch norm needs several values per channel in training: "
    "use --batch-size 2 or more",
    "HigherOrderOperator": "operators that take functions (flex_attention, cond, while_loop) "
    "cannot be counted yet",
}


def first_line(error: BaseException) -> str:
    """The first line of what the model itself complained about."""
    own = error.__cause__ if isinstance(error, StepFailedError) and error.__cause__ else error
    text = (str(own).strip() or type(own).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:199] + "…"


def needs_values(error: BaseException) -> bool:
    """Whether another way of tracing may work: the model looked at data, or used it by hand."""
    error = error.__cause__ or error
    text = str(error)
    if any(words in text for words in _FINAL_WORDS):
        return False
    if isinstance(error, NotImplementedError | TypeError | ValueError | AttributeError):
        return True
    return any(word in text.lower() for word in _VALUE_WORDS) or "is on" in text


def check_layouts(tensors: Iterable[Tensor]) -> None:
    """Refuse tensors whose storage is not a plain block of elements."""
    for tensor in tensors:
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else "sparse"
            raise RidgelineError(
                f"{kind} tensors as inputs cannot be counted yet", hint="pass a dense tensor"
            )


def check_fits(step: Step) -> None:
    """Refuse to run a model for real that this machine's memory cannot hold."""
    import psutil

    module = step.module
    weights = sum(p.nbytes for p in module.parameters()) if module is not None else 0
    needed = weights * (COPIES_TO_TRAIN if step.mode == "train" else 1)
    free = psutil.virtual_memory().available
    if needed > free / 2:
        raise RidgelineError(
            f"this model looks at values that shapes cannot give, and to run it for real needs "
            f"{format_bytes(needed)}, more than half of the {format_bytes(free)} that are free",
            hint="count a smaller configuration (fewer layers) and scale, or use a larger machine",
        )


def broken_model(error: BaseException, *, on_meta: bool) -> RidgelineError:
    """The model's own error in one line, with the layer it arose in and what that got."""
    own = (error.__cause__ or error) if isinstance(error, StepFailedError) else error
    if on_meta and needs_values(error) and not isinstance(own, _OWN_MISTAKES):
        return RidgelineError(
            f"the model looks at values that shapes cannot give: {first_line(error)}",
            hint="it has no data (device meta): build it with data, smaller if need be",
        )
    return RidgelineError(f"{_layer(error)}: {first_line(error)}{_user_line(own)}", hint=_hint(own))


def _layer(error: BaseException) -> str:
    """Which layer failed, and on what."""
    if not isinstance(error, StepFailedError) or error.failed is None or error.step.module is None:
        return "the model failed while running"
    path, shapes = error.failed.path, shapes_text(error.failed.input_shapes)
    kind = type(error.step.module.get_submodule(path)).__name__
    return f"layer {path or MODEL} ({kind}) failed{f' on input {shapes}' if shapes else ''}"


def _hint(own: BaseException) -> str:
    """What to do: known cases first, then shapes, then the model's own code."""
    for words, hint in _SPECIAL_HINTS.items():
        if words in str(own):
            return hint
    if not isinstance(own, _SHAPE_ERRORS):
        return "the error is in the model's own code; --debug shows the traceback"
    return "check --input-size, --seq-len or inputs="


def _user_line(error: BaseException) -> str:
    """Where in the user's own code it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and _OURS not in f.filename]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""

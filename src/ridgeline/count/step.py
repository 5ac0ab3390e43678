"""Run one step of a model under the tracer, and say in words what went wrong in it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from ridgeline.count.dispatch import Autocast
from ridgeline.count.memory import distinct_bytes
from ridgeline.count.meta import META
from ridgeline.count.records import Memory, Settings, shapes_text
from ridgeline.count.trace import Tracer, shapes_of
from ridgeline.errors import RidgelineError
from ridgeline.tracing.tracker import name_modules, tensors_in
from ridgeline.units import format_bytes
from ridgeline.workloads import Inputs
from ridgeline.workloads.losses import make_optimizer

AMP_DTYPE = torch.float16
STEPS_BEFORE = 1000  # optimizer steps taken before the one that is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be run."""

    model: Callable[..., Any]  # a module, or any function of tensors
    inputs: Inputs
    settings: Settings
    loss: Callable[[Any], Tensor] | None = None  # scalar from the model's output

    @property
    def module(self) -> nn.Module | None:
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def trains(self) -> bool:
        return self.settings.mode == "train"


class TracedStep:
    """One step that ran under the tracer, with every operator that it called."""

    memory: Memory
    input_storages: frozenset[int]
    output_storages: frozenset[int]

    def __init__(self, step: Step, traced_on: str, because: str = "") -> None:
        self.step, self.traced_on = step, traced_on
        self.because = because  # why another way of tracing did not work
        self.tracer = Tracer(step.module, keep_values=traced_on == META)
        self.phases: dict[int, str] = {}  # of the rows of backward
        amp = step.settings.precision == "amp"
        self._autocast = Autocast(AMP_DTYPE) if amp else None
        module = step.module
        self._weights = list(module.parameters()) if module is not None else []
        self._buffers = list(module.buffers()) if module is not None else []
        self._inputs = list(tensors_in((step.inputs.args, step.inputs.kwargs)))
        self._run()

    def _run(self) -> None:
        memory, trains = self.tracer.memory, self.step.trains
        memory.add([*self._weights, *self._buffers, *self._inputs])
        self.input_storages = frozenset(map(self.tracer.storage_of, self._inputs))
        base_bytes = memory.live_bytes
        mixed = self._autocast.installed() if self._autocast else nullcontext()
        with self.tracer.watching(gradients=trains), mixed, _watched_backward(self.tracer):
            output = self._forward()
            activation_bytes = memory.live_bytes - base_bytes
            self.output_storages = frozenset(map(self.tracer.storage_of, tensors_in(output)))
            if trains:
                self._backward(output)
                del output
        peak_bytes, where = memory.peak_bytes, self._name_of(memory.peak_row)
        state_bytes, last_peak = self._optimize() if trains else (0, 0)
        peak_bytes += state_bytes
        self.memory = Memory(
            parameter_bytes=distinct_bytes(self._weights),
            buffer_bytes=distinct_bytes(self._buffers),
            input_bytes=distinct_bytes(self._inputs),
            gradient_bytes=distinct_bytes(p.grad for p in self._weights if p.grad is not None),
            optimizer_bytes=state_bytes,
            activation_bytes=activation_bytes,
            peak_bytes=max(peak_bytes, last_peak),
            peak_at=where if peak_bytes >= last_peak else "optimizer",
        )

    def _forward(self) -> Any:
        step = self.step
        with self._autocast.autocast_region(True) if self._autocast else nullcontext():
            output = step.model(*step.inputs.args, **step.inputs.kwargs)
            return step.loss(output) if step.trains and step.loss is not None else output

    def _backward(self, output: Any) -> None:
        """Backward from the loss, or from all outputs with gradients of their own shape."""
        roots = [t for t in tensors_in(output) if t.requires_grad]
        if not roots:
            raise RidgelineError(
                "nothing in the model's output can be differentiated",
                hint="train mode needs parameters with requires_grad=True; "
                "mode='infer' counts the forward pass alone",
            )
        self.tracer.stage = "backward"
        gradients = [torch.empty_like(t) if t.dim() else None for t in roots]
        torch.autograd.backward(roots, gradients)
        self.phases = self.tracer.attribution.finish()

    def _optimize(self) -> tuple[int, int]:
        """One optimizer step as in the middle of training: its state exists already."""
        weights = [p for p in self._weights if p.grad is not None]
        if not weights:
            return 0, 0
        # one operator per tensor, so that each has a row of its own
        options = {**self.step.settings.optimizer_options, "foreach": False}
        options.pop("fused", None)
        optimizer = make_optimizer(self.step.settings.optimizer, weights, options)
        optimizer.step()
        _advance(optimizer)
        state = list(tensors_in(list(optimizer.state.values())))
        memory, tracer = self.tracer.memory, self.tracer
        memory.add(state)
        memory.reset_peak()
        for weight in weights:  # rows on these belong to its module
            tracer.claim(weight, tensors_in((weight.grad, optimizer.state[weight])))
        tracer.stage = "optimizer"
        with torch.no_grad(), tracer:
            optimizer.step()
        return distinct_bytes(state), memory.peak_bytes

    def _name_of(self, number: int | None) -> str:
        if number is None or number >= len(self.tracer.rows):
            return "before the first operator"
        row = self.tracer.rows[number]
        return f"{row.path or 'the model'} ({row.call.name}, {row.stage})"


def _advance(optimizer: torch.optim.Optimizer) -> None:
    """Let many steps have passed: the first few of some optimizers (RAdam) are different."""
    for state in optimizer.state.values():
        step = state.get("step")
        if isinstance(step, Tensor) and not step.is_meta:
            step.fill_(STEPS_BEFORE)


@contextmanager
def _watched_backward(tracer: Tracer) -> Iterator[None]:
    """Sort the autograd graph before each backward: a checkpoint or a model may start its own."""

    def watched(original: Any) -> Any:
        @wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
            with tracer.attribution.walking([roots] if isinstance(roots, Tensor) else roots or ()):
                return original(*args, **kwargs)

        return backward

    functions = {name: watched(getattr(torch.autograd, name)) for name in ("backward", "grad")}
    with patch.multiple(torch.autograd, **functions):
        yield


# ---------------------------------------------------------------- what went wrong, in words

COPIES_TO_TRAIN = 4  # weights, gradients, and two of optimizer state
_OURS = str(Path(__file__).parents[1])
_VALUE_WORDS = ("meta", "data-dependent", "fake", "no data", "item()", "not implemented for")
_OWN_MISTAKES = (NameError, TypeError, KeyError, ImportError)
_SHAPE_ERRORS = (RuntimeError, ValueError, IndexError, AssertionError)
_SHAPE_HINT = "check --input-size, --seq-len or inputs="
_FINAL_HINTS = {  # of errors that another way of tracing would meet again
    "shapes cannot be multiplied": _SHAPE_HINT,
    "more than 1 value per channel": "batch norm needs several values per channel in training: "
    "use --batch-size 2 or more",
    "uninitialized parameter": "run a lazy module once before it is counted",
    "HigherOrderOperator": "operators that take functions (flex_attention, cond, while_loop) "
    "cannot be counted yet",
}


def first_line(error: BaseException) -> str:
    """The first line of what the model itself complained about."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:199] + "…"


def needs_values(error: BaseException) -> bool:
    """Whether another way of tracing may work: the model looked at data, or used it by hand."""
    text = str(error)
    if any(words in text for words in _FINAL_HINTS):
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
    needed = weights * (COPIES_TO_TRAIN if step.trains else 1)
    free = psutil.virtual_memory().available
    if needed > free / 2:
        raise RidgelineError(
            f"this model looks at values that shapes cannot give, and to run it for real needs "
            f"{format_bytes(needed)}, more than half of the {format_bytes(free)} that are free",
            hint="count a smaller configuration (fewer layers) and scale, or use a larger machine",
        )


def broken_model(error: Exception, step: Step | None, *, on_meta: bool) -> RidgelineError:
    """The model's own error in one line, with the layer it arose in and what that got."""
    if on_meta and needs_values(error) and not isinstance(error, _OWN_MISTAKES):
        return RidgelineError(
            f"the model looks at values that shapes cannot give: {first_line(error)}",
            hint="it has no data (device meta): build it with data, smaller if need be",
        )
    where = _layer(error, step.module if step is not None else None)
    return RidgelineError(f"{where}: {first_line(error)}{_user_line(error)}", hint=_hint(error))


def _layer(error: Exception, model: nn.Module | None) -> str:
    """Which layer failed, and on what: the innermost module that was called."""
    names = name_modules(model)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    for local in reversed(frames):
        module = local.get("self")
        if id(module) in names and "args" in local:  # of torch.nn.Module.__call__
            shapes = shapes_text(shapes_of(local["args"]))
            layer = f"layer {names[id(module)]} ({type(module).__name__}) failed"
            return f"{layer} on input {shapes}" if shapes else layer
    return "the model failed while running"


def _hint(own: BaseException) -> str:
    """What to do: known cases first, then shapes, then the model's own code."""
    for words, hint in _FINAL_HINTS.items():
        if words in str(own):
            return hint
    if isinstance(own, _SHAPE_ERRORS):
        return _SHAPE_HINT
    return "the error is in the model's own code; --debug shows the traceback"


def _user_line(error: BaseException) -> str:
    """Where in the user's own code it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and _OURS not in f.filename]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""

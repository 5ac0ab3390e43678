"""Run one step of a model under the tracer: forward, and when training backward and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from ridgeline.count.autocast import Autocast
from ridgeline.count.cost_records import Memory
from ridgeline.count.memory import distinct_bytes
from ridgeline.count.trace import Failed, Row, Tracer
from ridgeline.errors import RidgelineError
from ridgeline.tracing.modules import tensors_in
from ridgeline.workloads.losses import make_optimizer

AMP_DTYPE = torch.float16
STEPS_BEFORE = 1000  # optimizer steps taken before the one that is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be run."""

    model: Callable[..., Any]  # a module, or any function of tensors
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "infer"
    precision: str = "fp32"
    optimizer: str | None = None
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Tensor] | None = None  # scalar from the model's output

    @property
    def module(self) -> nn.Module | None:
        return self.model if isinstance(self.model, nn.Module) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What was seen while it ran."""

    rows: list[Row]
    phases: dict[int, str]  # of the rows of backward
    tracer: Tracer
    memory: Memory
    storage_bytes: dict[int, int]
    storage_changes: tuple[tuple[int, int], ...]
    input_storages: frozenset[int]
    output_storages: frozenset[int]


def run_step(step: Step, *, keep_values: bool) -> Traced:
    """Run the step once and return every operator it called."""
    tracer = Tracer(step.module, keep_values=keep_values)
    runner = _Runner(step, tracer)
    try:
        return runner.run()
    except RidgelineError:
        raise
    except Exception as error:
        raise StepFailedError(step, tracer.modules.failed) from error


class StepFailedError(Exception):
    """The model raised while it ran; its own error is the cause."""

    def __init__(self, step: Step, failed: Failed | None) -> None:
        super().__init__(str(failed))
        self.step, self.failed = step, failed


class _Runner:
    """The state of one traced step."""

    def __init__(self, step: Step, tracer: Tracer) -> None:
        self.step, self.tracer = step, tracer
        self.phases: dict[int, str] = {}
        self.autocast = Autocast(AMP_DTYPE) if step.precision == "amp" else None
        module = step.module
        self.weights = list(module.parameters()) if module is not None else []
        self.buffers = list(module.buffers()) if module is not None else []
        self.inputs = [*tensors_in(step.args), *tensors_in(dict(step.kwargs))]

    def run(self) -> Traced:
        training = self.step.mode == "train"
        memory = self.tracer.memory
        memory.add([*self.weights, *self.buffers, *self.inputs])
        input_storages = frozenset(map(self.tracer.storage_of, self.inputs))
        base_bytes = memory.live_bytes
        mixed = self.autocast.installed() if self.autocast else nullcontext()
        with self.tracer.watching(gradients=training), mixed, _watched_backward(self.tracer):
            output = self._forward()
            activation_bytes = memory.live_bytes - base_bytes
            returned = frozenset(map(self.tracer.storage_of, tensors_in(output)))
            if training:
                self._backward(output)
                del output
        busy_peak, peak_row = memory.peak_bytes, memory.peak_row
        state_bytes, last_peak = self._optimize() if training and self.weights else (0, 0)
        return Traced(
            rows=self.tracer.rows,
            phases=self.phases,
            tracer=self.tracer,
            storage_bytes=memory.sizes,
            storage_changes=tuple(self.tracer.memory.changes),
            input_storages=input_storages,
            output_storages=returned,
            memory=Memory(
                parameter_bytes=distinct_bytes(self.weights),
                buffer_bytes=distinct_bytes(self.buffers),
                input_bytes=distinct_bytes(self.inputs),
                gradient_bytes=distinct_bytes(p.grad for p in self.weights if p.grad is not None),
                optimizer_bytes=state_bytes,
                activation_bytes=activation_bytes,
                peak_bytes=max(busy_peak + state_bytes, last_peak),
                peak_at=self._name_of(peak_row)
                if busy_peak + state_bytes >= last_peak
                else "optimizer",
            ),
        )

    def _forward(self) -> Any:
        with self.autocast.autocast_region(True) if self.autocast else nullcontext():
            output = self.step.model(*self.step.args, **self.step.kwargs)
            if self.step.mode == "train" and self.step.loss is not None:
                return self.step.loss(output)
        return output

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
        module, name = self.step.module, self.step.optimizer
        weights = [p for p in self.weights if p.grad is not None]
        if module is None or name is None or not weights:
            return 0, 0
        # one operator per tensor, so that each has a row of its own
        options = {**self.step.optimizer_options, "foreach": False}
        options.pop("fused", None)
        optimizer = make_optimizer(name, weights, options)
        optimizer.step()
        _advance(optimizer)
        state = list(tensors_in(list(optimizer.state.values())))
        memory, tracer = self.tracer.memory, self.tracer
        memory.add(state)
        memory.reset_peak()
        tracer.claim_gradients(module)
        for weight, own_state in optimizer.state.items():
            tracer.claim(weight, tensors_in(own_state))
        tracer.stage = "optimizer"
        with torch.no_grad(), tracer:
            optimizer.step()
        return distinct_bytes(state), memory.peak_bytes

    def _name_of(self, row: int | None) -> str:
        if row is None or row >= len(self.tracer.rows):
            return "before the first operator"
        seen = self.tracer.rows[row]
        return f"{seen.path or 'the model'} ({seen.operator.signature.name}, {seen.stage})"


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

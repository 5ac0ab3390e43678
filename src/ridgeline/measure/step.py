"""One step of a workload on a device: what is timed, and nothing else.

A training step takes one or several batches, then lets the optimizer act once; an inference
step is one forward pass. The step ends each of its phases with a mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ridgeline.measure.backends import Backend
from ridgeline.measure.marks import Marks
from ridgeline.measure.precision import Precision
from ridgeline.measure.randomness import random_state, restore_random_state
from ridgeline.measure.tensors import Placement
from ridgeline.settings import Settings
from ridgeline.workloads import Inputs, Workload
from ridgeline.workloads.losses import mean_of_outputs
from ridgeline.workloads.optimizers import make_optimizer

Range = Callable[[str], AbstractContextManager[Any]]
"""Names a stretch of work for a profiler."""


@dataclass(slots=True, kw_only=True)
class Stepper:
    """A model on its device with everything that a step needs."""

    module: nn.Module  # as it was built
    model: Callable[..., Any]  # the module, or what torch.compile made of it
    loss: Callable[[Any, Inputs], Tensor]
    batches: Iterator[Inputs]
    placement: Placement | None  # None: batches are in place already
    backend: Backend
    precision: Precision
    optimizer: torch.optim.Optimizer | None  # None: inference
    scaler: torch.amp.GradScaler | None
    parts: int  # batches per step
    named: Range
    last_loss: Tensor | None = None

    def step(self, marks: Marks) -> None:
        """Take one step."""
        with self.named("step"):
            if self.optimizer is None:
                self._infer(marks)
            else:
                self._train(self.optimizer, marks)

    def _train(self, optimizer: torch.optim.Optimizer, marks: Marks) -> None:
        for _ in range(self.parts):
            inputs = self._next(marks)
            with self.named("forward"):
                loss = self.forward(inputs)
            marks.end("forward")
            with self.named("backward"):
                (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
            marks.end("backward")
        with self.named("optimizer"):
            if self.scaler is not None:
                self.scaler.step(optimizer)
                self.scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.last_loss = loss.detach()
        del loss  # and its graph: freeing it belongs to this step
        marks.end("optimizer")

    def _infer(self, marks: Marks) -> None:
        inputs = self._next(marks)
        with self.named("forward"), torch.inference_mode(), self.precision.autocast(self.backend):
            self.model(*inputs.args, **inputs.kwargs)
        marks.end("forward")

    def forward(self, inputs: Inputs) -> Tensor:
        """The loss of one batch, as a share of the step's."""
        with self.precision.autocast(self.backend):
            loss = self.loss(self.model(*inputs.args, **inputs.kwargs), inputs)
        return loss / self.parts if self.parts > 1 else loss

    def _next(self, marks: Marks) -> Inputs:
        with self.named("data"):
            batch = next(self.batches)
        marks.end("data")
        if self.placement is not None:
            with self.named("copy"):
                batch = self.placement.inputs(batch)
        marks.end("copy")
        return batch


def make_stepper(
    workload: Workload,
    settings: Settings,
    backend: Backend,
    precision: Precision,
    make_batches: Callable[[Placement], tuple[Iterator[Inputs], bool]],
) -> Stepper:
    """Build the model on its device. `make_batches` answers batches, and whether they are there."""
    placement = Placement(
        device=backend.device,
        dtype=precision.dtype,
        memory_format=torch.channels_last if settings.channels_last else None,
        non_blocking=settings.pin_memory,
    )
    with torch.device(backend.device):
        module = workload.build()
    module = module.to(backend.device, dtype=precision.dtype)
    if settings.channels_last:
        module = module.to(memory_format=torch.channels_last)
    batches, is_resident = make_batches(placement)
    return Stepper(
        module=module,
        model=module if settings.compile is None else torch.compile(module, mode=settings.compile),
        loss=workload.loss or mean_of_outputs,
        batches=batches,
        placement=None if is_resident else placement,
        backend=backend,
        precision=precision,
        optimizer=_optimizer(module, settings) if workload.mode == "train" else None,
        scaler=precision.scaler(backend) if workload.mode == "train" else None,
        parts=settings.batches_in_step(workload.mode),
        named=_nvtx_range if settings.nvtx and backend.kind == "cuda" else _unnamed,
    )


def _optimizer(module: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    return make_optimizer(settings.optimizer, weights, settings.optimizer_options)


def _unnamed(name: str) -> AbstractContextManager[Any]:
    return _NOTHING


_NOTHING = nullcontext()


@contextmanager
def _nvtx_range(name: str) -> Iterator[None]:
    """A range of the whole process: one of the thread would miss autograd's threads."""
    handle = torch.cuda.nvtx.range_start(f"ridgeline:{name}")
    try:
        yield
    finally:
        torch.cuda.nvtx.range_end(handle)


@contextmanager
def torch_settings(settings: Settings, precision: Precision) -> Iterator[None]:
    """What torch keeps for the whole process, set for a measurement and put back after it."""
    with ExitStack() as stack:
        stack.callback(_restore, _state())
        precision.apply()
        torch.backends.cudnn.benchmark = settings.cudnn_benchmark
        torch.backends.cudnn.deterministic = settings.deterministic
        if settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as cuBLAS demands
        # an operator that has no such form is named in a warning, which is kept with the run
        torch.use_deterministic_algorithms(settings.deterministic, warn_only=True)
        torch.manual_seed(settings.seed)
        yield


def _state() -> dict[str, Any]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        "tf32": (cuda.matmul.allow_tf32, cudnn.allow_tf32),
        "cudnn": (cudnn.benchmark, cudnn.deterministic),
        "random": random_state(),
        "strict": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
    }


def _restore(state: dict[str, Any]) -> None:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    cuda.matmul.allow_tf32, cudnn.allow_tf32 = state["tf32"]
    cudnn.benchmark, cudnn.deterministic = state["cudnn"]
    is_strict, warns_only = state["strict"]
    torch.use_deterministic_algorithms(is_strict, warn_only=warns_only)
    restore_random_state(state["random"])

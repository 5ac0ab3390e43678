"""One step of a workload on a device: what is timed, and nothing else.

A training step takes one or several batches, then lets the optimizer act once; an inference
step is one forward pass. The step ends each of its phases with a mark. Batches go to the device in
the form that was requested: precision and memory layout.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ridgeline.conv.network import use_algorithm
from ridgeline.measure.backends import Backend, Precision, nvtx_range
from ridgeline.measure.timing import Marks
from ridgeline.settings import SYNTHETIC, Settings, option
from ridgeline.workloads import Inputs, Workload
from ridgeline.workloads.losses import make_optimizer, mean_of_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where tensors go and what becomes of them there."""

    device: torch.device
    dtype: torch.dtype | None = None  # of floats; None: as they are
    memory_format: torch.memory_format | None = None  # of images; None: as they are
    is_pinned: bool = False  # host memory is page-locked: the copy runs beside the host

    def inputs(self, batch: Inputs) -> Inputs:
        """The batch on the device."""
        return _change_batch(batch, self.to_device)

    def host_inputs(self, batch: Inputs) -> Inputs:
        """The batch in host memory, from where a device copies by itself if it is pinned."""
        return _change_batch(batch, Tensor.pin_memory) if self.is_pinned else batch

    def to_device(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else None
        moved = tensor.to(self.device, dtype=dtype or tensor.dtype, non_blocking=self.is_pinned)
        if self.memory_format and moved.dim() == 4 and moved.is_floating_point():
            moved = moved.contiguous(memory_format=self.memory_format)
        return moved


def _change_batch(batch: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    parts = (batch.args, batch.kwargs, batch.targets)
    args, kwargs, targets = tree_map_only(Tensor, change, parts)
    return Inputs(args=args, kwargs=kwargs, targets=targets)


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
    named: Callable[[str], AbstractContextManager[Any]]  # names a stretch of work for a profiler
    notes: tuple[str, ...] = ()  # on what runs otherwise than was requested
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
        is_pinned=settings.pin_memory and backend.kind == "cuda",
    )
    with torch.device(backend.device):
        module = workload.build()
    module = module.to(backend.device, dtype=precision.dtype)
    if settings.channels_last:
        module = module.to(memory_format=torch.channels_last)
    used = precision.dtype or torch.float32
    notes = use_algorithm(module, settings.algorithm, used, backend.kind)
    batches, is_resident = make_batches(placement)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    return Stepper(
        module=module,
        model=module if settings.compile is None else torch.compile(module, mode=settings.compile),
        loss=workload.loss or mean_of_outputs,
        batches=batches,
        placement=None if is_resident else placement,
        backend=backend,
        precision=precision,
        optimizer=make_optimizer(settings.optimizer, weights, settings.optimizer_options)
        if workload.mode == "train"
        else None,
        scaler=precision.scaler(backend) if workload.mode == "train" else None,
        parts=settings.batches_in_step(workload.mode),
        notes=tuple(notes),
        named=nvtx_range if settings.nvtx and backend.kind == "cuda" else lambda _: nullcontext(),
    )


def loader_options(settings: Settings) -> dict[str, Any]:
    """How torch's DataLoader fetches batches."""
    return {
        "num_workers": settings.workers,
        "pin_memory": settings.pin_memory,
        "prefetch_factor": settings.prefetch_factor,
        "persistent_workers": settings.workers > 0,
    }


@contextmanager
def torch_settings(settings: Settings, precision: Precision) -> Iterator[None]:
    """What torch keeps for the whole process, set for a measurement and put back after it."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    tf32, random = (matmul.allow_tf32, cudnn.allow_tf32), random_state()
    try:
        with repeatable(settings.deterministic, has_search=settings.cudnn_benchmark):
            precision.apply()
            torch.manual_seed(settings.seed)
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = tf32
        restore_random_state(random)


# ---------------------------------------------------------------- settings without an effect

NEEDS = {  # what there must be for a setting to change a step
    "nvtx": ("cuda",),
    "cudnn_benchmark": ("cuda",),
    "workers": ("files",),
    "prefetch_factor": ("files",),
    "augment": ("files",),
    "pin_memory": ("cuda", "batches on the host"),
    "grad_accum_steps": ("train",),
    "optimizer": ("train",),
    "lr": ("train",),
    "momentum": ("train",),
    "weight_decay": ("train",),
    "channels_last": ("images",),
}


def idle_options(settings: Settings, kind: str, mode: str, *, has_images: bool) -> list[str]:
    """The options that were given and change nothing on this kind of device, in this mode."""
    facts = {
        kind: True,
        mode: True,
        "files": not settings.is_synthetic,
        "batches on the host": settings.data != SYNTHETIC,
        "images": has_images,
    }
    changed = [name for name in NEEDS if getattr(settings, name) != getattr(Settings(), name)]
    idle = [name for name in changed if not all(facts.get(need) for need in NEEDS[name])]
    return [option(name if getattr(settings, name) is not False else f"no_{name}") for name in idle]


# ---------------------------------------------------------------- chance under control

WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may sum in another order


def seed_all(seed: int) -> None:
    """Seed what models draw from: torch on every device, and Python."""
    torch.manual_seed(seed)
    random.seed(seed)


def random_state() -> dict[str, Any]:
    """Where those generators are, in plain values and tensors."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put them back; those of devices that are not here are passed over."""
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        for index, one in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(one, index)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


@contextmanager
def repeatable(is_deterministic: bool, *, has_search: bool | None = None) -> Iterator[None]:
    """Run the block with algorithms that give the same bits each time, or with the fastest.

    An operation that has no such algorithm runs all the same, with a warning of torch's.
    `has_search` says whether cuDNN tries its algorithms first; else it does if it may.
    """
    cudnn = torch.backends.cudnn
    is_strict, warns_only, *search = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.benchmark,
        cudnn.deterministic,
    )
    if is_deterministic:
        os.environ.setdefault(*WORKSPACE)
    torch.use_deterministic_algorithms(is_deterministic, warn_only=True)
    cudnn.benchmark = not is_deterministic if has_search is None else has_search
    cudnn.deterministic = is_deterministic
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(is_strict, warn_only=warns_only)
        cudnn.benchmark, cudnn.deterministic = search

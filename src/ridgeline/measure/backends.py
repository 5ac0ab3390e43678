"""Where a step runs: CPU, CUDA or Apple's MPS behind one small interface; in which precision.

A backend knows how to wait for its device, how to mark a moment on the device's own time line, and
how much memory it held at most. Nothing else in this package asks which device it is on.

MPS was written without such a machine at hand; its tests replace the device's calls.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import torch

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import has_arithmetic
from ridgeline.provenance import cpu_name, read_text, run_command
from ridgeline.records import PRECISIONS
from ridgeline.records import DeviceMemory as DeviceMemory
from ridgeline.settings import BACKENDS

FASTEST_CLOCK_HZ = 2.5e9  # no GPU counts cycles faster


class Timeline(Protocol):
    """Marks moments, without waiting for any of them."""

    def mark(self) -> Any: ...
    def seconds(self, start: Any, end: Any) -> float:
        """Between two marks; the device has to be idle by then."""
        ...


class HostTimeline:
    """The monotonic clock of the host: on a CPU a call returns when its work is done."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.mark = clock

    def seconds(self, start: float, end: float) -> float:
        return end - start


class EventTimeline:
    """Events in the device's own queue: they are stamped when the device gets there."""

    def __init__(self, make_event: Callable[[], Any]) -> None:
        self._make_event = make_event
        self._spare: list[Any] = []

    def prepare(self, count: int) -> None:
        """Make events before they are needed: creating one costs more than recording it."""
        for _ in range(count - len(self._spare)):
            event = self._make_event()
            event.record()
            self._spare.append(event)

    def mark(self) -> Any:
        event = self._spare.pop() if self._spare else self._make_event()
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A CPU, and what the other devices have in common with it."""

    kind: str
    device: torch.device
    name: str  # as its maker calls it
    uuid: str | None = None

    @property
    def has_events(self) -> bool:
        """Whether the device runs behind the host and has a time line of its own."""
        return False

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""

    def timeline(self) -> Timeline:
        return HostTimeline()

    def hold_back(self, time_s: float) -> None:
        """Keep the device waiting about so long, so that what follows queues up behind."""

    def reset_peak_memory(self) -> None:
        """Forget the peak so far."""

    def peak_memory(self) -> DeviceMemory:
        return DeviceMemory()

    def total_memory_bytes(self) -> int | None:
        """What the device has in all; None for a CPU, whose memory is everybody's."""
        return None


class CudaBackend(Backend):
    """An NVIDIA (or, by the same calls, AMD) GPU."""

    @property
    def has_events(self) -> bool:
        return True

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def timeline(self) -> EventTimeline:
        return EventTimeline(lambda: torch.cuda.Event(enable_timing=True))

    def hold_back(self, time_s: float) -> None:
        torch.cuda._sleep(int(time_s * FASTEST_CLOCK_HZ))

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> DeviceMemory:
        return DeviceMemory(
            allocated_bytes=torch.cuda.max_memory_allocated(self.device),
            reserved_bytes=torch.cuda.max_memory_reserved(self.device),
        )

    def total_memory_bytes(self) -> int | None:
        return int(torch.cuda.get_device_properties(self.device).total_memory)


class MpsBackend(Backend):
    """The GPU of an Apple chip, through Metal."""

    @property
    def has_events(self) -> bool:
        return True

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def timeline(self) -> EventTimeline:
        return EventTimeline(lambda: torch.mps.event.Event(enable_timing=True))

    def peak_memory(self) -> DeviceMemory:
        """What is held now: torch keeps no peak for Metal, and its allocator seldom gives back."""
        return DeviceMemory(
            allocated_bytes=torch.mps.current_allocated_memory(),
            reserved_bytes=torch.mps.driver_allocated_memory(),
        )

    def total_memory_bytes(self) -> int | None:
        return int(torch.mps.recommended_max_memory())


def choose_backend(requested: str = "auto", index: int = 0) -> Backend:
    """The backend of this name; `auto` is the fastest that is here."""
    if requested not in BACKENDS:
        raise RidgelineError(
            f"unknown backend {requested!r}", hint=f"the backends are {', '.join(BACKENDS)}"
        )
    available = {  # the fastest first
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    fastest = next(kind for kind, is_here in available.items() if is_here)
    kind = fastest if requested == "auto" else requested
    if index and kind != "cuda":
        raise RidgelineError(
            f"there is no {kind} device {index}", hint="only CUDA has several devices: --device 0"
        )
    if not available[kind]:
        raise RidgelineError(
            f"torch finds no use for {'an NVIDIA' if kind == 'cuda' else 'an Apple'} GPU here",
            hint="`ridgeline doctor` says what is missing; --backend cpu runs on the CPU",
        )
    if kind == "cuda":
        return _cuda(index)
    name = cpu_name(run=run_command, read=read_text, system=platform.system())
    return (MpsBackend if kind == "mps" else Backend)(
        kind=kind, device=torch.device(kind), name=name
    )


def _cuda(index: int) -> Backend:
    count = torch.cuda.device_count()
    if index >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f"; CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else ""
        raise RidgelineError(
            f"there is no CUDA device {index}", hint=f"devices 0 to {count - 1} are visible{why}"
        )
    torch.cuda.set_device(index)  # events and held back work go to the current device's queue
    properties = torch.cuda.get_device_properties(index)
    return CudaBackend(
        kind="cuda",
        device=torch.device("cuda", index),
        name=properties.name,
        uuid=str(getattr(properties, "uuid", "")) or None,
    )


# ---------------------------------------------------------------- a mark for a profiler outside
# Two marks at once: cudaProfilerStart and Stop, for `ncu --profile-from-start off` and
# `nsys -c cudaProfilerApi`, and an NVTX range, for `ncu --nvtx --nvtx-include ridgeline_step`. The
# range is one of the process, from a start to an end. The other kind, push and pop, belongs to one
# thread, and the backward pass runs on threads of autograd: under it all of backward is lost.

MARKED_RANGE = "ridgeline_step"


@contextmanager
def marked(backend: Backend) -> Iterator[bool]:
    """Mark the block, all threads of it, between two idle moments; False: nobody to mark it for."""
    if backend.kind != "cuda":
        yield False
        return
    backend.synchronize()
    torch.cuda.profiler.start()
    handle = torch.cuda.nvtx.range_start(MARKED_RANGE)
    try:
        yield True
    finally:
        backend.synchronize()
        torch.cuda.nvtx.range_end(handle)
        torch.cuda.profiler.stop()


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """A range of the whole process: one of the thread would miss autograd's threads."""
    handle = torch.cuda.nvtx.range_start(f"ridgeline:{name}")
    try:
        yield
    finally:
        torch.cuda.nvtx.range_end(handle)


# ---------------------------------------------------------------- precision

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AMP_DTYPE = torch.float16
FIRST_WITH_TF32 = (8, 0)  # compute capability of Ampere; bf16 in hardware came with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What was requested for and what is used."""

    requested: str
    used: str
    warnings: tuple[str, ...] = ()

    @property
    def dtype(self) -> torch.dtype | None:
        """What the weights and inputs are turned into; None: they stay in fp32."""
        return DTYPES.get(self.used)

    def autocast(self, backend: Backend) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        if self.used != "amp":
            return nullcontext()
        return torch.autocast(backend.device.type, dtype=AMP_DTYPE)

    def scaler(self, backend: Backend) -> torch.amp.GradScaler | None:
        """Loss scaling, where gradients are computed in fp16 beside fp32 weights."""
        if self.used != "amp" or backend.kind != "cuda":
            return None
        return torch.amp.GradScaler(backend.device.type)

    def apply(self) -> None:
        """Set what torch keeps for the whole process."""
        torch.backends.cuda.matmul.allow_tf32 = self.used == "tf32"
        torch.backends.cudnn.allow_tf32 = self.used == "tf32"


def choose_precision(requested: str, backend: Backend) -> Precision:
    """The precision of this name, or fp32 with a warning where the device lacks it."""
    if requested not in PRECISIONS:
        raise RidgelineError(
            f"unknown precision {requested!r}", hint=f"the precisions are {', '.join(PRECISIONS)}"
        )
    lacking = _why_not(requested, backend)
    if lacking is None:
        return Precision(requested=requested, used=requested)
    warning = f"{requested} is not used: {lacking}; this run is in fp32"
    return Precision(requested=requested, used="fp32", warnings=(warning,))


def _why_not(requested: str, backend: Backend) -> str | None:
    """Why a device cannot run in a precision; None if it can."""
    if requested == "fp32":
        return None
    if backend.kind == "cuda":
        capability = torch.cuda.get_device_capability(backend.device)
        is_new_format = torch.version.hip is None and requested in ("tf32", "bf16")
        if is_new_format and capability < FIRST_WITH_TF32:
            number = ".".join(map(str, capability))
            return f"{backend.name} (compute capability {number}) has no {requested}"
        return None
    if requested == "tf32":
        return f"TF32 is a format of NVIDIA's tensor cores, and this is {backend.name}"
    if backend.kind == "mps":
        return None
    if requested == "amp":
        return "autocast to fp16 needs a GPU"
    if has_arithmetic(requested, read_text("/proc/cpuinfo") or ""):
        return None
    return f"this CPU has no {requested} arithmetic, and would emulate it over 100 times slower"

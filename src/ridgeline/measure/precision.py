"""The number formats a step can run in, and what is done where a device lacks one.

fp32 is strict: convolutions too keep all bits, which is not torch's default on NVIDIA GPUs. tf32
lets products round to 19 bits. amp keeps weights in fp32 and lets autocast choose fp16, with loss
scaling in training. bf16 and fp16 turn the whole model into that format.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import has_arithmetic
from ridgeline.measure.backends import Backend
from ridgeline.provenance import read_text
from ridgeline.records import PRECISIONS

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
        return _why_not_cuda(requested, backend)
    if requested == "tf32":
        return f"TF32 is a format of NVIDIA's tensor cores, and this is {backend.name}"
    if backend.kind == "mps":
        return None
    if requested == "amp":
        return "autocast to fp16 needs a GPU"
    if has_arithmetic(requested, read_text("/proc/cpuinfo") or ""):
        return None
    return f"this CPU has no {requested} arithmetic, and would emulate it over 100 times slower"


def _why_not_cuda(requested: str, backend: Backend) -> str | None:
    capability = torch.cuda.get_device_capability(backend.device)
    is_new_format = requested in ("tf32", "bf16")
    if torch.version.hip is None and is_new_format and capability < FIRST_WITH_TF32:
        number = f"{capability[0]}.{capability[1]}"
        return f"{backend.name} (compute capability {number}) has no {requested}"
    return None

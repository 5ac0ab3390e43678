"""What cannot be profiled, or cannot be right, is an error that says why, not a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import has_cupti
from ridgeline.measure.isolation import run_isolated
from ridgeline.profile.capture_ncu import find_ncu
from ridgeline.profile.metrics import CUPTI, NCU

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.profile.join_counters import Joined

LEAST_KNOWN = 0.98  # of the kernel time, with counters


def need_cuda(kind: str) -> None:
    """Counters are those of NVIDIA's GPUs."""
    if kind != "cuda":
        raise RidgelineError(
            f"there is nothing to profile on {kind}: counters and kernels are those of an NVIDIA "
            "GPU",
            hint="`ridgeline run --layers` gives the time of each layer on any device; captures "
            "from elsewhere are read by `ridgeline import`",
        )


def need_counters(tool: str) -> None:
    """What reads them must be there: PyTorch's CUPTI, or Nsight Compute."""
    if tool != CUPTI:
        try:
            find_ncu()
        except RidgelineError:
            if tool == NCU or not run_isolated(cupti_here, None).value():
                raise
    elif not run_isolated(cupti_here, None).value():
        raise RidgelineError(
            "this PyTorch has no CUPTI that can count",
            hint="install a PyTorch for CUDA 12.8 or later, or count by --tool ncu",
        )


def cupti_here(_: object, send: object) -> bool:
    """Whether the PyTorch of this process has a CUPTI that can count."""
    import torch  # noqa: F401  which loads it

    return has_cupti()


def check_traced(trace: pd.DataFrame) -> None:
    """A step without a kernel was not a step."""
    if not len(trace):
        raise RidgelineError(
            "the profiler saw no kernel in the step",
            hint="does the model run on the GPU? another profiler in this process or a container "
            "without CUPTI would also hide them",
        )


def check_step(kernels: pd.DataFrame, mode: str, *, is_marked: bool) -> None:
    """A training step has a forward pass, a backward pass and an optimizer, each with kernels."""
    if mode != "train" or not is_marked:
        return
    seen = set(kernels["phase"])
    absent = [phase for phase in ("forward", "backward", "optimizer") if phase not in seen]
    if absent:
        raise RidgelineError(
            f"the captured step has no kernel in {' and '.join(absent)}",
            hint="it was not captured as a whole; without trainable weights use --mode infer",
        )


def check_counted(result: Joined) -> list[str]:
    """What to say when kernels of the step could not be counted; nothing known is an error."""
    kernels = result.kernels
    total_s = float(kernels["time_s"].sum())
    counters = [n for n in kernels if str(n).startswith("flops_") or n == "dram_bytes"]
    known = kernels[counters].notna().all(axis=1) if counters else kernels["time_s"].isna()
    share = float(kernels.loc[known, "time_s"].sum()) / total_s if total_s else 0.0
    if share == 0.0:
        raise RidgelineError(
            "none of the counted kernels is one of the step",
            hint="the step launches other kernels each time: is there an autotuner in it?",
        )
    if share < LEAST_KNOWN:
        return [
            f"kernels with {1 - share:.1%} of the kernel time have no counters: the step launched "
            "other kernels when it was counted; sums are too low by about that share"
        ]
    if result.extra:
        extra = "1 kernel was" if result.extra == 1 else f"{result.extra} kernels were"
        return [f"{extra} counted that the timed step did not launch"]
    return []

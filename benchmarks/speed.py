"""Time to count against FlopCounterMode and a plain forward, on meta tensors."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.report import Report, Table

if TYPE_CHECKING:
    from torch import Tensor, nn

MODELS = ("resnet50", "vit_b_16", "swin_t", "densenet121")
ROUNDS = 15
HELP_ROUNDS = 10


def run() -> Report:
    """Each model: the three ways by turns, the best of each."""
    times = {name: best_times(name) for name in MODELS}
    ratios = [t["ridgeline"] / t["FlopCounterMode"] for t in times.values()]
    forwards = [t["forward"] / t["FlopCounterMode"] for t in times.values()]
    rows = [
        (name, *(f"{1e3 * t[way]:.1f}" for way in WAYS), f"{ratio:.2f}", f"{forward:.2f}")
        for (name, t), ratio, forward in zip(times.items(), ratios, forwards, strict=True)
    ]
    rows.append(
        ("geometric mean", *[""] * len(WAYS), f"{mean(ratios):.2f}", f"{mean(forwards):.2f}")
    )
    help_s = help_time()
    return Report(
        title="Time to count",
        summary=[
            f"**ridgeline takes {mean(ratios):.2f} × the time of FlopCounterMode** "
            "(the aim is 1.0, at "
            "most 1.5), and counts bytes, memory and every operator in it. `ridgeline "
            "--help` takes "
            f"{help_s:.2f} s."
        ],
        tables=[
            Table(
                columns=("network", *(f"{way}, ms" for way in WAYS),
                         "ridgeline / FlopCounterMode", "forward / FlopCounterMode"),
                rows=rows,
            )
        ],
        notes=[
            f"Batch 1, 224×224, meta tensors, eval mode; best of {ROUNDS} by turns, so "
            "that whatever "
            "else ran on the machine met all three alike. `--help` is the best of "
            f"{HELP_ROUNDS} new "
            "processes."
        ],
    )  # fmt: skip


def ridgeline_way(module: nn.Module, image: Tensor) -> object:
    import ridgeline

    return ridgeline.count(module, image).total


def flop_counter_way(module: nn.Module, image: Tensor) -> object:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(image)
    return counter.get_total_flops()


def forward_way(module: nn.Module, image: Tensor) -> object:
    import torch

    with torch.no_grad():
        return module(image)


WAYS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "ridgeline": ridgeline_way,
    "FlopCounterMode": flop_counter_way,
    "forward": forward_way,
}


def best_times(name: str) -> dict[str, float]:
    """Seconds of each way, the best of several rounds."""
    import torch
    from torchvision import models

    with torch.device("meta"):
        module = models.get_model(name, weights=None).eval()
        image = torch.zeros(1, 3, 224, 224)
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, call in WAYS.items():
            start_s = time.perf_counter()
            call(module, image)
            samples[way].append(time.perf_counter() - start_s)
    return {way: min(taken) for way, taken in samples.items()}


def help_time() -> float:
    """Seconds of `ridgeline --help`, from nothing."""
    taken = []
    for _ in range(HELP_ROUNDS):
        start_s = time.perf_counter()
        command = [sys.executable, "-m", "ridgeline", "--help"]
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - start_s)
    return min(taken)


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))

"""Chance under control: seeds, the states of generators, and algorithms that repeat themselves."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

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

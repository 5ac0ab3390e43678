"""Networks for sweeps, one for every way in which a case can end."""

from __future__ import annotations

import time

import torch


def good() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))


other = third = fourth = good


class Raising(torch.nn.Module):
    """Fails when it is run, not when it is built."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error


def broken() -> torch.nn.Module:
    return Raising(ValueError("this network cannot be run"))


def too_large() -> torch.nn.Module:
    return Raising(MemoryError("simulated"))


def endless() -> torch.nn.Module:
    time.sleep(600)
    return good()


def inputs(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, 3, 2, 2)

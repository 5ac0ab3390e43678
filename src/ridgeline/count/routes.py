"""Operators that PyTorch takes apart differently on each device, sent one way for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ridgeline.count.sdpa import attention


def _dropout(input: Tensor, p: float, train: bool) -> Any:
    """One fused operator, as on a GPU; elsewhere it would be three."""
    if not train or p == 0:
        return input
    return torch.ops.aten.native_dropout(input, p, train)[0]


ROUTES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention,
    "dropout": _dropout,
}


@contextmanager
def same_on_every_device() -> Iterator[None]:
    """Inside the block these operators are seen as the same few, whatever the device."""
    library = torch.library.Library("aten", "IMPL")
    for name, route in ROUTES.items():
        for key in ("AutogradMeta", "AutogradCPU"):
            library.impl(name, route, key)
    try:
        yield
    finally:
        library._destroy()

"""The optimizers that users name, and the classes of torch.optim that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.settings import OPTIMIZERS, check_momentum

if TYPE_CHECKING:
    import torch

DEFAULT_LR = 1e-3


def make_optimizer(
    name: str, weights: list[Any], options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """One of OPTIMIZERS; `options` are arguments of its class and go before its usual ones."""
    import torch

    check_momentum(name, options)
    class_name, settings = OPTIMIZERS[name]
    chosen = {"lr": DEFAULT_LR, **settings, **options}
    if chosen.get("fused"):
        chosen.pop("foreach", None)
    try:
        optimizer: torch.optim.Optimizer = getattr(torch.optim, class_name)(weights, **chosen)
    except (TypeError, ValueError) as error:
        raise RidgelineError(
            f"the optimizer {name} refuses its options: {error}",
            hint=f"they are arguments of torch.optim.{class_name}",
        ) from None
    return optimizer

"""The optimizers that users name, and the classes of torch.optim that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    import torch

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "adafactor": ("Adafactor", {}),
}
WITH_MOMENTUM = tuple(n for n, (kind, _) in OPTIMIZERS.items() if kind in ("SGD", "RMSprop"))
DEFAULT_LR = 1e-3


def check_momentum(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a momentum that is none, or that the optimizer does not have."""
    momentum = options.get("momentum")
    if momentum is None:
        return
    if not 0 <= momentum < 1:  # also for nan
        raise RidgelineError(
            f"--momentum {momentum} is not possible", hint="it is 0 or more, and less than 1"
        )
    if name not in WITH_MOMENTUM:
        raise RidgelineError(
            f"the optimizer {name} has no momentum",
            hint=f"leave --momentum out, or choose {', '.join(WITH_MOMENTUM)}",
        )


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

"""The losses and optimizers that networks are trained with.

A loss takes the output of the model and the inputs it came from, and returns one number.
Auxiliary heads are weighted as torchvision's own training recipes weight them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional

from ridgeline.errors import RidgelineError
from ridgeline.settings import OPTIMIZERS, check_momentum
from ridgeline.tracing.tracker import tensors_in
from ridgeline.workloads.workload import Inputs

if TYPE_CHECKING:
    import torch

GOOGLENET_AUX = 0.3  # for each of two heads
INCEPTION_AUX = 0.4
SEGMENTATION_AUX = 0.5


def classify(output: Any, inputs: Inputs) -> Tensor:
    """Cross entropy; also of the auxiliary heads where the output has them."""
    return sum_heads(output, lambda scores: entropy(scores, inputs))


def sum_heads(output: Any, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The loss of the scores, and a part of that of each auxiliary head."""
    heads = (
        [output] if isinstance(output, Tensor) else [head for head in output if head is not None]
    )
    main, *auxiliary = map(loss, heads)
    weight = GOOGLENET_AUX if len(auxiliary) > 1 else INCEPTION_AUX
    return sum((weight * one for one in auxiliary), start=main)


def segment(output: dict[str, Tensor], inputs: Inputs) -> Tensor:
    """Cross entropy per pixel of `out`, and half of that of `aux`."""
    main = entropy(output["out"], inputs)
    return main + SEGMENTATION_AUX * entropy(output["aux"], inputs) if "aux" in output else main


def sum_of_losses(output: dict[str, Tensor], inputs: Inputs) -> Tensor:
    """Of a detector that computes its losses itself, the sum of them."""
    first, *rest = output.values()
    return sum(rest, start=first)


def tokens(output: Tensor, inputs: Inputs) -> Tensor:
    """Cross entropy of the next token: (batch, length, vocabulary) against (batch, length)."""
    return functional.cross_entropy(output.flatten(0, 1), target_of(output, inputs).flatten())


def entropy(scores: Tensor, inputs: Inputs) -> Tensor:
    return functional.cross_entropy(scores, target_of(scores, inputs))


def target_of(output: Tensor, inputs: Inputs) -> Tensor:
    """The targets, where the output is: a no-op for a batch that was moved with its model."""
    assert isinstance(inputs.targets, Tensor)
    return inputs.targets.to(output.device)


def mean_of_outputs(output: Any, inputs: Inputs) -> Tensor:
    """A loss for a model that has none: its own if it returns one, else the mean of the floats."""
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own
    means = [tensor.mean() for tensor in tensors_in(output) if tensor.is_floating_point()]
    if not means:
        raise RidgelineError(
            "the model returns no tensor that could be trained",
            hint="use --mode infer; a file can define loss(output) for its model",
        )
    return sum(means[1:], means[0])


# ---------------------------------------------------------------- optimizers

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

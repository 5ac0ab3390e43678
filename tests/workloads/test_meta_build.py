"""Networks that look at values while they are built are built on meta all the same."""

import torch
from torch import nn

from ridgeline.workloads.meta_build import build_anywhere


class Counted(nn.Module):
    """Computes its width with a tensor, and shares one weight between two layers."""

    def __init__(self) -> None:
        super().__init__()
        width = int(torch.tensor([2, 3]).sum().item())
        self.first = nn.Linear(4, width)
        self.second = nn.Linear(4, width)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad = False
        self.register_buffer("seen", torch.zeros(width))


def test_parameters_are_on_meta_and_shared() -> None:
    with torch.device("meta"):
        module = build_anywhere(Counted)
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {
        "first.weight": (5, 4),
        "first.bias": (5,),
        "second.bias": (5,),
    }
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}


def test_on_the_cpu_nothing_is_special() -> None:
    module = build_anywhere(Counted)
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"cpu"}
    assert nn.Linear(1, 1).weight.device.type == "cpu"

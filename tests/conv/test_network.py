"""The convolutions of a network: found with their shapes, and run under an algorithm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ridgeline.conv.network import find_layers, use_algorithm
from ridgeline.errors import RidgelineError
from ridgeline.records import ConvLayer, ConvShape, WorkloadSpec
from ridgeline.workloads import resolve

NETS = """
import torch
from torch import nn

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding="same")
        self.again = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.uneven = nn.Conv2d(4, 4, 2, padding="same")
        self.row = nn.Conv1d(4, 4, 3)
    def forward(self, x):
        x = self.again(self.again(self.first(x)))
        return self.row(self.uneven(x).mean(3))

def make():
    return Twice()

def flat():
    return nn.Flatten()
"""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, stride=2, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect", groups=2),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["direct", "gemm", "winograd", "winograd 4x4", "fft", "find"])
def test_a_network_computes_and_learns_the_same_under_every_algorithm(name: str) -> None:
    usual, changed = network(), network()
    use_algorithm(changed, name, torch.float32, "cpu")
    x = torch.randn(2, 3, 12, 12)

    usual(x).square().sum().backward()
    changed(x).square().sum().backward()

    torch.testing.assert_close(changed(x), usual(x), rtol=1e-4, atol=1e-5)
    for one, other in zip(changed.parameters(), usual.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4)


def test_autocast_is_followed() -> None:
    changed = network()
    use_algorithm(changed, "gemm", torch.float32, "cpu")

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = changed(torch.randn(2, 3, 12, 12))

    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert all(one.grad is not None for one in changed.parameters())


def test_what_stays_with_pytorch_is_said() -> None:
    assert use_algorithm(network(), "gemm", torch.float32, "cpu") == []
    assert use_algorithm(network(), "winograd", torch.float32, "cpu") == [
        "1 of 3 convolutions ran under PyTorch's default, not winograd: its tiles overlap by stride"
        " 1, and this one is 2 (2)"
    ]


@pytest.mark.parametrize(
    ("module", "name", "problem"),
    [
        (nn.Linear(2, 2), "gemm", "this model has no 2-D convolution"),
        (nn.Conv2d(1, 1, 5), "winograd", "no convolution of this model can run under winograd: its"
         " transforms are of 3x3 kernels, and this one is 5x5"),
        (nn.Conv2d(1, 1, 5), "benchmark", "there is no algorithm 'benchmark' on cpu"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_is_refused(module: nn.Module, name: str, problem: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        use_algorithm(module, name, torch.float32, "cpu")

    assert caught.value.problem == problem


def test_layers_are_found_with_their_shapes_and_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETS)
    spec = WorkloadSpec(model="nets.py:make", batch_size=2, input_size=(3, 8, 8))
    image = {"n": 2, "h": 8, "w": 8, "r": 3, "s": 3, "padding": (1, 1)}

    assert find_layers(resolve(spec), 2) == (
        ConvLayer(layer="first", shape=ConvShape(c=3, k=4, **image)),  # type: ignore[arg-type]
        ConvLayer(layer="again", shape=ConvShape(c=4, k=4, groups=2, **image), uses=2),  # type: ignore[arg-type]
        ConvLayer(layer="uneven", reason="its padding differs from one side to the other"),
        ConvLayer(layer="row", reason="Conv1d is not measured"),
    )
    with pytest.raises(RidgelineError, match="flat has no 2-D convolution"):
        find_layers(resolve(WorkloadSpec(model="nets.py:flat", input_size=(3, 8, 8))), 1)

"""Every operator of a step has a number, a layer and a phase: on the CPU, with tiny networks."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ridgeline.profile.op_ranges import OpCall, OpRanges

VIEWS = ("t", "detach", "view", "expand", "_record_function_enter_new", "_record_function_exit")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.act(self.first(x)))
        return out


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(self.one(x))
        return out


def calls_of(net: nn.Module, *, steps: int = 1) -> list[OpCall]:
    """Of a training step with plain gradient descent."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    marks = OpRanges(lambda name: nullcontext())
    inputs = torch.ones(3, 4, requires_grad=True)
    with marks.watching():
        for _ in range(steps):
            net(inputs).sum().backward()
        optimizer.step()
    return marks.calls


def told(calls: list[OpCall], *phases: str) -> list[tuple[str, str, str]]:
    """Those that do work."""
    short = [(call.phase, call.layer, call.op.partition("::")[2]) for call in calls]
    return [one for one in short if one[0] in phases and one[2] not in VIEWS]


def test_forward_backward_and_optimizer_of_every_layer() -> None:
    # when two layers with an activation in place are trained
    calls = calls_of(Net())
    # then each operator is in its place
    assert told(calls, "forward", "backward", "optimizer") == [
        ("forward", "first", "addmm"),
        ("forward", "act", "relu_"),
        ("forward", "last", "addmm"),
        ("forward", "(loss)", "sum"),
        ("forward", "(loss)", "ones_like"),
        ("backward", "last", "mm"),
        ("backward", "last", "mm"),
        ("backward", "last", "sum"),
        ("backward", "act", "threshold_backward"),
        ("backward", "first", "mm"),
        ("backward", "first", "mm"),
        ("backward", "first", "sum"),
        ("optimizer", "(optimizer)", "add_"),
        ("optimizer", "(optimizer)", "add_"),
        ("optimizer", "(optimizer)", "add_"),
        ("optimizer", "(optimizer)", "add_"),
    ]
    assert [call.index for call in calls] == list(range(len(calls)))


def test_a_module_that_is_used_twice_has_both_uses() -> None:
    calls = told(calls_of(Shared()), "forward", "backward")
    assert [one for one in calls if one[2] in ("mm", "add")] == [
        ("forward", "one", "mm"),
        ("forward", "one", "mm"),
        ("backward", "one", "mm"),
        ("backward", "one", "mm"),
        ("backward", "one", "mm"),
        ("backward", "one", "mm"),
        ("backward", "one", "add"),  # both gradients of one weight
    ]


class Nested(nn.Module):
    """Checkpoints in checkpoints, more than one thread's backward may hold; `tanh` is no module."""

    LAYERS = 70

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(self.LAYERS)))

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        out = torch.tanh(self.parts.get_submodule(str(first))(x))
        if first + 1 < self.LAYERS:
            out = checkpoint(Nested.forward, self, out, first + 1, use_reentrant=True)
        return out


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # those inside
def test_layers_are_told_on_every_thread_of_a_backward_pass() -> None:
    threads = set()
    net = Nested()
    last = list(net.parameters())[-1]
    last.register_hook(lambda grad: threads.add(threading.get_ident()))
    calls = Counter(told(calls_of(net), "backward"))
    assert threads != {threading.get_ident()}  # or the test shows nothing
    # each layer is done again by every checkpoint around it, and has two gradients
    products = {call[1]: number for call, number in calls.items() if call[2] == "mm"}
    assert products == {f"parts.{n}": n + 2 for n in range(Nested.LAYERS)}
    assert calls["backward", "(model)", "tanh_backward"] == Nested.LAYERS


def test_an_error_in_the_model_leaves_no_hook_behind() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("broken")

    marks = OpRanges(lambda name: nullcontext())
    with pytest.raises(ValueError, match="broken"), marks.watching():
        Broken()(torch.ones(1))
    before = len(marks.calls)
    Net()(torch.ones(3, 4))
    assert len(marks.calls) == before


def test_tensors_that_live_on_carry_no_marks() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    marks = OpRanges(lambda name: nullcontext())
    with marks.watching():
        net(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    kept = [tensor for weight in net.parameters() for tensor in (weight, weight.grad)]
    assert [vars(tensor) for tensor in kept] == [{}] * 8

"""Time of each module, on clocks that only the modules move, one that counts marks; as a table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pandas as pd
import pytest
import torch
from tests.measure.fakes import CPU, Clock, Gpu, line_batch, stepper, workload
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ridgeline.measure import layers
from ridgeline.measure.backends import Backend, Timeline
from ridgeline.measure.layers import LayerMarks, LayerTimes, Seen, layer_table, time_layers
from ridgeline.measure.step import Stepper
from ridgeline.measure.timing import NoMarks
from ridgeline.settings import Settings
from ridgeline.workloads import Inputs


class Spend(torch.autograd.Function):
    """Takes time forward and backward, and changes nothing."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, spend: Callable[[float], None], forward_s: float, backward_s: float
    ) -> Tensor:
        ctx.spend, ctx.backward_s = spend, backward_s
        spend(forward_s)
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.spend(ctx.backward_s)
        return gradients[0], None, None, None


class Work(nn.Module):
    """A layer of known times, with a weight so that there is something to train."""

    def __init__(self, spend: Callable[[float], None], forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.times = (spend, forward_s, backward_s)
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, given: Tensor) -> Tensor:
        output = Spend.apply(given * self.weight, *self.times)
        assert isinstance(output, Tensor)
        return output


class Block(nn.Module):
    """A residual block: work of its own before, between and after its children.

    `shared` is called twice; the activation works in place, as most do.
    """

    def __init__(self, spend: Callable[[float], None]) -> None:
        super().__init__()
        self.own = (spend, 0.5, 0.25)
        self.shared = Work(spend, 1.0, 2.0)
        self.relu = nn.ReLU(inplace=True)
        self.last = Work(spend, 4.0, 8.0)

    def forward(self, given: Tensor) -> Tensor:
        before = Spend.apply(given, *self.own)
        once = self.relu(self.shared(before))
        between = Spend.apply(once, *self.own)
        twice = self.last(self.shared(between))
        output = Spend.apply(twice + given, *self.own)
        assert isinstance(output, Tensor)
        return output


class Net(nn.Module):
    def __init__(self, spend: Callable[[float], None]) -> None:
        super().__init__()
        self.stem = Work(spend, 16.0, 32.0)
        self.block = Block(spend)
        self.empty = nn.Sequential()
        self.never = nn.Linear(1, 1)

    def forward(self, given: Tensor) -> Tensor:
        output: Tensor = self.empty(self.block(self.stem(given)))
        return output


NET_S = {
    ("stem", "forward"): 16.0,
    ("stem", "backward"): 32.0,
    ("block", "forward"): 1.5,  # three times 0.5, around its children
    ("block", "backward"): 0.75,
    ("block.shared", "forward"): 2.0,  # called twice
    ("block.shared", "backward"): 4.0,
    ("block.last", "forward"): 4.0,
    ("block.last", "backward"): 8.0,
}


class Watched(Backend):
    """A CPU whose clock is given."""

    clock: Callable[[], float]

    def timeline(self) -> Timeline:
        return Timeline(clock=type(self).clock)


def backend_with(clock: Callable[[], float]) -> Backend:
    kind = type("OnClock", (Watched,), {"clock": staticmethod(clock)})
    made: Backend = kind(kind="cpu", device=CPU.device, name="a processor")
    return made


def batch(size: int = 2) -> Inputs:
    return Inputs(args=(torch.ones(size, 3),), targets=torch.zeros(size, 3))


def endless(step: Stepper, made: Inputs) -> Stepper:
    step.batches = iter(lambda: made, None)
    return step


def net_on(
    clock: Clock, mode: str = "train", settings: Settings | None = None
) -> tuple[Stepper, Backend]:
    backend = backend_with(clock)
    work = workload(mode, make=lambda: Net(clock.spend), make_inputs=batch)
    return endless(stepper(work, settings=settings, backend=backend), batch()), backend


def once(times: LayerTimes) -> dict[tuple[str, str], float]:
    """The samples, if all passes are alike, without what took no time."""
    assert all(len(set(taken)) == 1 for taken in times.samples_s.values())
    return {owner: taken[0] for owner, taken in times.samples_s.items() if taken[0]}


def test_times_belong_to_the_module_at_work_forward_and_backward() -> None:
    taken, backend = net_on(Clock())

    times = time_layers(taken, backend, step_time_s=2.0)

    assert once(times) == NET_S
    assert times.steps_s == (68.25,) * 3
    assert times.sum_s == 68.25
    assert (times.is_held_back, times.mark_cost_s) == (False, 0.0)


class Kept(nn.Module):
    """Does the work of `body` again in the backward pass."""

    def __init__(self, spend: Callable[[float], None], use_reentrant: bool) -> None:
        super().__init__()
        self.stem = Work(spend, 16.0, 32.0)
        self.body = nn.Sequential(Work(spend, 1.0, 2.0), Work(spend, 4.0, 8.0))
        self.use_reentrant = use_reentrant

    def forward(self, given: Tensor) -> Tensor:
        output: Tensor = checkpoint(self.body, self.stem(given), use_reentrant=self.use_reentrant)
        return output


@pytest.mark.parametrize(
    ("use_reentrant", "last_s"),
    [(True, 4.0 + 8.0), (False, 8.0)],  # the newer way ends before the last work is done again
)
def test_what_a_checkpoint_does_again_is_backward_time(use_reentrant: bool, last_s: float) -> None:
    clock = Clock()
    backend = backend_with(clock)
    work = workload("train", make=lambda: Kept(clock.spend, use_reentrant), make_inputs=batch)
    taken = endless(stepper(work, backend=backend), batch())

    times = time_layers(taken, backend, step_time_s=2.0)

    assert once(times) == {
        ("stem", "forward"): 16.0,
        ("body.0", "forward"): 1.0,
        ("body.1", "forward"): 4.0,
        ("body.0", "backward"): 1.0 + 2.0,
        ("body.1", "backward"): last_s,
        ("stem", "backward"): 32.0,
    }


def test_what_a_hook_saw() -> None:
    taken, backend = net_on(Clock())

    seen = time_layers(taken, backend, step_time_s=2.0).seen

    shape = (2, 3)
    once_called = Seen(calls=1, input_shape=shape, output_shape=shape)
    assert seen == {
        "(model)": once_called,
        "stem": once_called,
        "block": once_called,
        "block.shared": Seen(calls=2, input_shape=shape, output_shape=shape),
        "block.relu": once_called,
        "block.last": once_called,
        "empty": once_called,
    }


@pytest.mark.parametrize(("step_time_s", "passes"), [(0.001, 20), (0.5, 10), (2.0, 3), (100.0, 3)])
def test_passes_last_about_five_seconds(step_time_s: float, passes: int) -> None:
    taken, backend = net_on(Clock())
    told: list[tuple[int, int]] = []

    times = time_layers(
        taken, backend, step_time_s=step_time_s,
        on_progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip

    assert len(times.steps_s) == passes
    assert told == [(number, passes) for number in range(1, passes + 1)]


def test_inference_has_no_backward_and_no_loss() -> None:
    taken, backend = net_on(Clock(), "infer")

    times = time_layers(taken, backend, step_time_s=2.0)

    assert once(times) == {
        owner: time_s for owner, time_s in NET_S.items() if owner[1] == "forward"
    }
    assert {stage for _, stage in times.samples_s} == {"data", "copy", "forward"}


class SlowBatches:
    """Each is waited for a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __iter__(self) -> SlowBatches:
        return self

    def __next__(self) -> Inputs:
        self.clock.spend(1.0)
        return batch()


def test_every_batch_of_a_step_is_waited_for_as_data() -> None:
    clock = Clock()
    taken, backend = net_on(clock, settings=Settings(grad_accum_steps=2))
    taken.batches = SlowBatches(clock)

    found = once(time_layers(taken, backend, step_time_s=2.0))

    assert found["(data)", "data"] == 2.0
    assert found["stem", "backward"] == 64.0
    assert ("(optimizer)", "optimizer") not in found


def test_a_linears_backward_is_its_own_and_the_rest_is_named() -> None:
    ticks = count()
    backend = backend_with(lambda: float(next(ticks)))  # every mark is a second later
    made = endless(stepper(workload(), backend=backend), line_batch(2))

    times = time_layers(made, backend, step_time_s=2.0)

    assert once(times) == {
        ("(data)", "data"): 1.0,
        ("(copy)", "copy"): 1.0,
        ("(forward)", "forward"): 2.0,  # before the model, and the loss after it
        ("(model)", "forward"): 1.0,
        ("(loss)", "backward"): 1.0,
        ("(model)", "backward"): 4.0,  # product, transposition, and adding to weight and bias
        ("(optimizer)", "optimizer"): 1.0,
    }
    # 14 marks are 13 stretches, and two of them are the hooks' at the two ends of the module
    assert times.steps_s == (11.0,) * 3
    assert times.sum_s == 11.0


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_what_hooks_take_on_the_hosts_time_line_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    clock = Clock()
    taken, backend = net_on(clock, mode)
    expected = time_layers(taken, backend, step_time_s=2.0)
    claim, spent = LayerMarks._claim, []

    def slow_claim(self: LayerMarks, path: str, output: Any) -> None:
        spent.append(path)
        clock.spend(1000.0)
        claim(self, path, output)

    monkeypatch.setattr(LayerMarks, "_claim", slow_claim)

    times = time_layers(taken, backend, step_time_s=2.0)

    assert len(spent) == 5 * 2 * 8  # five steps, and both ends of eight calls
    assert times == expected
    assert times.sum_s == (68.25 if mode == "train" else 23.5)
    assert "(watching)" not in {owner for owner, _ in times.samples_s}


def test_nothing_marks_a_step_after_the_last_watched_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that gather gradients would go on marking if anybody held them, hooks and all."""
    # given a net whose layers were timed in training
    taken, backend = net_on(Clock())
    time_layers(taken, backend, step_time_s=2.0)
    # when it takes another step
    noted: list[object] = []
    monkeypatch.setattr(LayerMarks, "_note", lambda self, owner: noted.append(owner))
    taken.step(NoMarks())
    # then nobody takes note of it
    assert noted == []


def test_training_is_the_same_with_hooks() -> None:
    weights = []
    for is_watched in (False, True):
        torch.manual_seed(0)
        made = endless(stepper(workload(), settings=Settings(lr=0.1)), line_batch(4))
        if is_watched:
            time_layers(made, CPU, step_time_s=2.0)  # three passes after two that are not kept
        else:
            for _ in range(5):
                made.step(NoMarks())
        weights.append(made.module.weight)

    assert torch.equal(*weights)  # type: ignore[arg-type]


class FakeCuda(Backend):
    """A CUDA device in all but its work."""

    gpu: Gpu
    held_s: list[float]

    def timeline(self) -> Timeline:
        return self.gpu.timeline()

    def synchronize(self) -> None:
        self.gpu.synchronize()

    def hold_back(self, time_s: float) -> None:
        self.held_s.append(time_s)
        self.gpu.launch(time_s)


def cuda_net(mark_cost_s: float) -> tuple[Stepper, FakeCuda]:
    """The net on a GPU, whose time is spent by what it is given."""
    clock = Clock()
    gpu = Gpu(clock, mark_cost_s)
    kind = type("OnGpu", (FakeCuda,), {"gpu": gpu, "held_s": []})
    backend: FakeCuda = kind(kind="cuda", device=CPU.device, name="a GPU")
    work = workload(make=lambda: Net(gpu.launch), make_inputs=batch)
    return endless(stepper(work, backend=backend), batch()), backend


@pytest.mark.parametrize("hold_every", [3, 5, 200])
def test_a_gpus_own_time_without_what_holding_and_marking_take(
    monkeypatch: pytest.MonkeyPatch, hold_every: int
) -> None:
    monkeypatch.setattr(layers, "HOLD_EVERY", hold_every)
    taken, backend = cuda_net(mark_cost_s=0.125)

    times = time_layers(taken, backend, step_time_s=2.0)

    assert times.is_held_back
    assert times.mark_cost_s == pytest.approx(0.125)
    nothing = pytest.approx(0.0, abs=1e-9)
    found = {
        owner: pytest.approx(sample, abs=1e-6)
        for owner, taken_s in times.samples_s.items()
        for sample in taken_s
        if sample != nothing
    }
    assert found == NET_S
    assert list(times.steps_s) == pytest.approx([68.25] * 3)
    assert not any(owner.startswith("(held") for owner, _ in times.samples_s)


def test_a_gpu_is_waited_for_between_steps_never_in_one() -> None:
    taken, backend = cuda_net(mark_cost_s=0.0)
    waits = backend.gpu.calls

    class Waits(Net):
        def forward(self, given: Tensor) -> Tensor:
            waits.append("forward")
            return super().forward(given)

    taken.module.__class__ = Waits
    time_layers(taken, backend, step_time_s=2.0)

    steps = "".join({"synchronize": "s", "record": "", "forward": "f"}[call] for call in waits)
    assert steps == "sfsfs" + "ss" + "fs" * 3  # two to find out, the cost of marks, three passes


# ---------------------------------------------------------------- layer table

NET = nn.Sequential()
NET.add_module("features", nn.Sequential(nn.Conv2d(3, 8, (3, 5), 2, 1, groups=1), nn.ReLU()))
NET.add_module("features2", nn.MaxPool2d(3, 2))
NET.add_module("shortcut", nn.Sequential(nn.Sequential()))
NET.add_module("head", nn.Linear(8, 10))
NET.add_module("unused", nn.Linear(1, 1))

TIMES = LayerTimes(
    samples_s={
        ("(data)", "data"): (1.0, 1.0, 1.0),
        ("(model)", "forward"): (0.5, 0.5, 0.5),
        ("features", "forward"): (0.25, 0.25, 0.25),
        ("features.0", "forward"): (2.0, 2.0, 5.0),
        ("features.0", "backward"): (4.0, 6.0, 5.0),
        ("features.1", "forward"): (1.0, 1.0, 1.0),
        ("features2", "forward"): (3.0, 3.0, 3.0),
        ("head", "backward"): (1.0, 1.0, 1.0),
        ("(optimizer)", "optimizer"): (2.0, 2.0, 2.0),
    },
    seen={
        "(model)": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 10)),
        "features": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 8, 4, 3)),
        "features.0": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 8, 4, 3)),
        "features.1": Seen(calls=2, input_shape=(2, 8, 4, 3), output_shape=(2, 8, 4, 3)),
        "features2": Seen(calls=1, input_shape=(2, 8, 4, 3), output_shape=(2, 8, 1, 1)),
        "shortcut": Seen(calls=1),
        "head": Seen(calls=1, input_shape=(2, 8), output_shape=(2, 10)),
    },
    steps_s=(14.75, 16.75, 18.75),
    is_held_back=False,
)


@pytest.fixture
def table() -> pd.DataFrame:
    return layer_table(NET, TIMES).set_index("layer")


def test_a_row_per_module_that_was_called_then_what_belongs_to_none(table: pd.DataFrame) -> None:
    assert list(table.index) == [
        "(model)", "features", "features.0", "features.1", "features2", "shortcut", "head",
        "(data)", "(optimizer)",
    ]  # fmt: skip
    assert list(table.columns) == [
        "kind", "depth", "is_leaf", "calls", "input_shape", "output_shape", "in_channels",
        "out_channels", "groups", "kernel_size", "stride", "padding", "parameters", "forward_s",
        "backward_s", "time_s", "mean_s", "std_s", "forward_samples_s", "backward_samples_s",
        "percentage", "total_time_s",
    ]  # fmt: skip


def test_one_row_in_full(table: pd.DataFrame) -> None:
    assert table.loc["features.0"].to_dict() == {
        "kind": "Conv2d",
        "depth": 2,
        "is_leaf": True,
        "calls": 1,
        "input_shape": "2x3x8x8",
        "output_shape": "2x8x4x3",
        "in_channels": 3,
        "out_channels": 8,
        "groups": 1,
        "kernel_size": "3x5",
        "stride": "2x2",
        "padding": "1x1",
        "parameters": 3 * 8 * 15 + 8,
        "forward_s": 2.0,
        "backward_s": 5.0,
        "time_s": 7.0,  # the medians of forward and backward
        "mean_s": 8.0,  # of 6, 8 and 10
        "std_s": 2.0,
        "forward_samples_s": [2.0, 2.0, 5.0],
        "backward_samples_s": [4.0, 6.0, 5.0],
        "percentage": 100 * 7.0 / 15.75,  # of all medians together
        "total_time_s": 7.0,
    }


def test_own_times_add_up_to_the_whole_and_containers_have_a_total(table: pd.DataFrame) -> None:
    assert table["time_s"].sum() == TIMES.sum_s == 15.75
    assert table["mean_s"].sum() == 16.75  # and so do means, to the mean step of the pass
    assert table.loc["(data)", "percentage"] == 100 * 1.0 / 15.75
    assert table["percentage"].sum() == pytest.approx(100.0)
    assert table["total_time_s"].to_dict() == {
        "(model)": 12.75,  # all but data and optimizer
        "features": 8.25,  # 0.25 of its own, 7 and 1; features2 is another module
        "features.0": 7.0,
        "features.1": 1.0,
        "features2": 3.0,
        "shortcut": 0.0,
        "head": 1.0,
        "(data)": 1.0,
        "(optimizer)": 2.0,
    }

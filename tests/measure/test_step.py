"""One step: what it does, in which order, and what it leaves alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tests.measure.fakes import CPU, FP32, Said, line_batch, stepper, workload
from torch import Tensor, nn

from ridgeline.measure.backends import Backend, Precision
from ridgeline.measure.step import Placement, make_stepper, torch_settings
from ridgeline.measure.timing import NoMarks
from ridgeline.settings import Settings
from ridgeline.workloads import Inputs

BATCH_PHASES = ["data", "copy", "forward", "backward"]


@pytest.mark.parametrize(
    ("mode", "batches", "phases"),
    [
        ("train", 1, [*BATCH_PHASES, "optimizer"]),
        ("train", 3, [*BATCH_PHASES * 3, "optimizer"]),
        ("infer", 3, ["data", "copy", "forward"]),  # whatever was asked of training
    ],
)
def test_the_phases_of_a_step(mode: str, batches: int, phases: list[str]) -> None:
    said, asked = Said(), Settings(grad_accum_steps=batches)
    taken = stepper(workload(mode), *[line_batch(2)] * batches, settings=asked)

    taken.step(said)

    assert said.phases == phases
    assert (taken.optimizer is None) == (mode == "infer")


def trained_weights(parts: int) -> dict[str, Tensor]:
    """Of a linear model after one step of plain SGD over the same eight samples."""
    torch.manual_seed(0)
    whole = line_batch(8)
    assert isinstance(whole.targets, Tensor)
    batches = [
        Inputs(args=(given,), targets=wanted)
        for given, wanted in zip(
            whole.args[0].chunk(parts), whole.targets.chunk(parts), strict=True
        )
    ]
    asked = Settings(optimizer="sgd", lr=1.0, grad_accum_steps=parts)
    taken = stepper(workload(), *batches, settings=asked)
    taken.step(NoMarks())
    return dict(taken.module.state_dict())


def test_batches_of_a_step_have_the_gradient_of_one_big_batch() -> None:
    whole, parts = trained_weights(1), trained_weights(4)

    torch.manual_seed(0)
    before = nn.Linear(3, 1).state_dict()
    for name, weight in whole.items():
        assert not torch.allclose(weight, before[name], atol=1e-2)  # there is a gradient
        assert torch.allclose(parts[name], weight, rtol=0, atol=1e-6)


class Watched(nn.Linear):
    """Tells what its forward pass made."""

    seen: list[tuple[bool, bool, bool]]

    def forward(self, given: Tensor) -> Tensor:
        output = super().forward(given)
        self.seen = [(self.training, output.requires_grad, torch.is_inference_mode_enabled())]
        return output


@pytest.mark.parametrize(
    ("mode", "seen"), [("train", (True, True, False)), ("infer", (False, False, True))]
)
def test_inference_makes_no_graph(mode: str, seen: tuple[bool, bool, bool]) -> None:
    taken = stepper(workload(mode, make=lambda: Watched(3, 1)), line_batch(2))
    before = [weight.clone() for weight in taken.module.parameters()]

    taken.step(NoMarks())

    assert taken.module.seen == [seen]
    changed = [
        not torch.equal(*pair) for pair in zip(before, taken.module.parameters(), strict=True)
    ]
    assert changed == [mode == "train"] * 2


def test_what_the_batches_are_to_become() -> None:
    asked = Settings(channels_last=True, pin_memory=True)
    given: list[Placement] = []

    def batches(placement: Placement) -> tuple[Any, bool]:
        given.append(placement)
        return iter(()), True

    taken = make_stepper(
        workload(make=lambda: nn.Conv2d(3, 8, 3)), asked, CUDA,
        Precision(requested="bf16", used="bf16"), batches,
    )  # fmt: skip

    assert given == [
        Placement(
            device=CPU.device,
            dtype=torch.bfloat16,
            memory_format=torch.channels_last,
            is_pinned=True,
        )
    ]
    assert taken.placement is None
    weight = taken.module.weight
    assert isinstance(weight, Tensor)
    assert weight.dtype is torch.bfloat16
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_random_numbers_go_on_as_if_nothing_had_been_measured() -> None:
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state()
    expected = (torch.rand(3).tolist(), random.random())
    torch.set_rng_state(before)
    random.seed(1)

    with torch_settings(Settings(seed=2), FP32):
        drawn = (torch.rand(3).tolist(), random.random())

    assert drawn != expected
    assert (torch.rand(3).tolist(), random.random()) == expected


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVTX is told: `+` where a range starts, `-` where it ends."""
    said: list[str] = []

    def start(name: str) -> str:
        said.append(f"+{name}")
        return name

    monkeypatch.setattr(torch.cuda.nvtx, "range_start", start)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda name: said.append(f"-{name}"))
    return said


CUDA = Backend(kind="cuda", device=torch.device("cpu"), name="a GPU")


def test_ranges_for_nsight(ranges: list[str]) -> None:
    taken = make_stepper(
        workload(), Settings(nvtx=True), CUDA, FP32, lambda _: (iter([line_batch(2)]), False)
    )

    taken.step(NoMarks())

    assert [text.replace("ridgeline:", "") for text in ranges] == [
        "+step", "+data", "-data", "+copy", "-copy", "+forward", "-forward",
        "+backward", "-backward", "+optimizer", "-optimizer", "-step",
    ]  # fmt: skip
    assert ranges[0] == "+ridgeline:step"


def test_a_model_without_a_loss_is_trained_on_the_mean_of_its_outputs() -> None:
    torch.manual_seed(0)
    taken = stepper(workload(loss=None), line_batch(2))
    expected = taken.module(*line_batch(2).args).mean()

    taken.step(NoMarks())

    assert taken.last_loss is not None
    assert torch.equal(taken.last_loss, expected.detach())


# ---------------------------------------------------------------- batches to a device


@pytest.mark.parametrize(
    ("given", "becomes"),
    [(torch.float64, torch.bfloat16), (torch.int64, torch.int64), (torch.bool, torch.bool)],
)
def test_only_floats_take_the_precision(given: torch.dtype, becomes: torch.dtype) -> None:
    placement = Placement(device=torch.device("cpu"), dtype=torch.bfloat16)

    assert placement.to_device(torch.zeros(2, dtype=given)).dtype is becomes


@pytest.mark.parametrize(
    ("tensor", "is_channels_last"),
    [
        (torch.zeros(2, 3, 4, 4), True),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), False),  # labels of pixels
        (torch.zeros(2, 3, 4, 4, 4), False),
    ],
)
def test_only_images_become_channels_last(tensor: Tensor, is_channels_last: bool) -> None:
    moved = Placement(device=torch.device("cpu"), memory_format=torch.channels_last).to_device(
        tensor
    )

    assert (moved.stride() != tensor.stride()) is is_channels_last
    if is_channels_last:
        assert moved.is_contiguous(memory_format=torch.channels_last)

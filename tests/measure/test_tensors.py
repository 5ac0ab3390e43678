"""Batches to a device, whatever they are nested in."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from ridgeline.measure.tensors import Placement, pinned, with_tensors
from ridgeline.tracing.modules import tensors_in
from ridgeline.workloads import Inputs

META = torch.device("meta")  # another device that every machine has


class Pair(NamedTuple):
    boxes: Tensor
    classes: Tensor


def devices(value: Any) -> list[str]:
    return [tensor.device.type for tensor in tensors_in(value)]


def test_every_tensor_moves_and_the_nest_stays() -> None:
    here = torch.zeros(1)
    batch = Inputs(
        args=(here, [here, (here, "word")]),
        kwargs={"mask": {"inner": here}, "return_loss": True},
        targets=Pair(here, here),
    )

    moved = Placement(device=META).inputs(batch)

    assert devices((moved.args, moved.kwargs, moved.targets)) == ["meta"] * 6
    assert isinstance(moved.targets, Pair)
    assert isinstance(moved.args[1], list) and isinstance(moved.args[1][1], tuple)
    assert (moved.args[1][1][1], moved.kwargs["return_loss"]) == ("word", True)
    assert devices((batch.args, batch.kwargs, batch.targets)) == ["cpu"] * 6


def test_targets_may_be_none() -> None:
    assert Placement(device=META).inputs(Inputs(args=(torch.zeros(1),))).targets is None


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.bfloat16),
        (torch.int64, torch.int64),
        (torch.bool, torch.bool),
        (torch.uint8, torch.uint8),
        (torch.complex64, torch.complex64),
    ],
)
def test_only_floats_take_the_precision(given: torch.dtype, becomes: torch.dtype) -> None:
    placement = Placement(device=torch.device("cpu"), dtype=torch.bfloat16)

    assert placement.moved(torch.zeros(2, dtype=given)).dtype is becomes


def test_without_a_precision_floats_stay_as_they_are() -> None:
    moved = Placement(device=torch.device("cpu")).moved(torch.zeros(2, dtype=torch.float64))

    assert moved.dtype is torch.float64


@pytest.mark.parametrize(
    ("tensor", "is_channels_last"),
    [
        (torch.zeros(2, 3, 4, 4), True),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), False),  # labels of pixels
        (torch.zeros(3, 4, 4), False),
        (torch.zeros(2, 3, 4, 4, 4), False),
    ],
)
def test_only_images_become_channels_last(tensor: Tensor, is_channels_last: bool) -> None:
    moved = Placement(device=torch.device("cpu"), memory_format=torch.channels_last).moved(tensor)

    assert (moved.stride() != tensor.stride()) is is_channels_last
    if is_channels_last:
        assert moved.is_contiguous(memory_format=torch.channels_last)


def test_a_copy_that_need_not_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    real = Tensor.to

    def to(self: Tensor, *args: Any, non_blocking: bool = False, **named: Any) -> Tensor:
        asked.append(non_blocking)
        return real(self, *args, **named)

    monkeypatch.setattr(Tensor, "to", to)
    for non_blocking in (True, False):
        Placement(device=META, non_blocking=non_blocking).moved(torch.zeros(1))

    assert asked == [True, False]


def test_a_whole_batch_is_pinned_tuples_with_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.to(META))
    here = torch.zeros(1)
    batch = Inputs(args=(here, [here]), kwargs={"x": here}, targets=Pair(here, here))

    held = pinned(batch)

    assert devices((held.args, held.kwargs, held.targets)) == ["meta"] * 5
    assert isinstance(held.targets, Pair)


def test_a_nest_is_walked_in_its_order() -> None:
    one, two, three = torch.tensor(1), torch.tensor(2), torch.tensor(3)

    assert list(tensors_in({"a": [one, "word"], "b": Pair(two, three), "c": None})) == [
        one, two, three,
    ]  # fmt: skip
    assert with_tensors([one, {"b": (two,)}, 7], lambda tensor: tensor + 1) == [2, {"b": (3,)}, 7]

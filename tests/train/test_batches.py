"""Batches: crops and mirroring by hand, and the same batch from whoever makes it."""

import pytest
import torch

from ridgeline.train.records import steps_per_epoch
from ridgeline.train.trainer import (
    Feed,
    TrainBatches,
    augmented,
    normalized,
    plan_epoch,
)

CPU = torch.device("cpu")


def batches(count: int = 10, *, augment: bool = True, seed: int = 0) -> TrainBatches:
    images = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8)
    return TrainBatches(images, torch.arange(count), batch_size=4, seed=seed, augment=augment)


def test_a_crop_in_the_middle_changes_nothing() -> None:
    images = torch.arange(2 * 3 * 5 * 5, dtype=torch.uint8).reshape(2, 3, 5, 5)
    found = augmented(images, torch.tensor([[4, 4], [4, 4]]), torch.tensor([False, True]))
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[1], images[1].flip(2))


def test_a_crop_at_a_corner_by_hand() -> None:
    # given the image 1 2 / 3 4 in a frame of four black pixels
    image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    # when the crop begins 3 pixels down and 5 to the right
    found = augmented(image, torch.tensor([[3, 5]]), torch.tensor([False]))
    # then it has the frame's last row above, and the right column of the image
    assert found.tolist() == [[[[0, 0], [2, 0]]]]


def test_bytes_become_numbers_by_hand() -> None:
    found = normalized(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), torch.float32)
    expected = [(1 - 0.4914) / 0.2470, (1 - 0.4822) / 0.2435, (1 - 0.4465) / 0.2616]
    assert found.flatten().tolist() == pytest.approx(expected)


def test_chance_depends_on_seed_and_epoch_only() -> None:
    first, again = (plan_epoch(50, seed=1, epoch=2, augment=True) for _ in range(2))
    assert torch.equal(first.order, again.order)
    assert first.moves is not None
    assert again.moves is not None
    assert torch.equal(first.moves, again.moves)
    assert sorted(first.order.tolist()) == list(range(50))
    assert (int(first.moves.min()), int(first.moves.max())) == (0, 8)
    other_epoch = plan_epoch(50, seed=1, epoch=3, augment=True)
    other_seed = plan_epoch(50, seed=2, epoch=2, augment=True)
    assert not torch.equal(first.order, other_epoch.order)
    assert not torch.equal(first.order, other_seed.order)


@pytest.mark.parametrize(
    ("count", "batch_size", "steps"), [(8, 4, 2), (10, 4, 3), (9, 4, 2), (1, 4, 1), (3, 1, 3)]
)
def test_a_lone_last_image_is_left_out(count: int, batch_size: int, steps: int) -> None:
    assert steps_per_epoch(count, batch_size) == steps


def test_an_epoch_has_each_image_once() -> None:
    labels = torch.cat([labels for _, labels in Feed(batches(), CPU).epoch(0)])
    assert sorted(labels.tolist()) == list(range(10))


def test_workers_make_the_same_batches_and_take_no_random_numbers() -> None:
    # given the same images
    torch.manual_seed(0)
    here = Feed(batches(), CPU)
    torch.manual_seed(0)
    by_workers = Feed(batches(), CPU, workers=2)
    before = torch.get_rng_state()
    for epoch in (0, 1, 0):
        # when two workers make an epoch
        pairs = list(zip(here.epoch(epoch), by_workers.epoch(epoch), strict=True))
        # then it is the same
        assert all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))
    assert torch.equal(torch.get_rng_state(), before)

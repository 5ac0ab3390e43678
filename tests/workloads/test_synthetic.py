"""The images that are made here: always the same, and neither noise nor trivial."""

import hashlib

import torch

from ridgeline.workloads.cifar10 import Images
from ridgeline.workloads.synthetic import synthetic_images


def nearest_mean_accuracy(images: Images) -> float:
    """How many test images are nearest to the mean image of their class."""
    train, test = images.train_images.flatten(1).float(), images.test_images.flatten(1).float()
    means = torch.stack([train[images.train_labels == label].mean(0) for label in range(10)])
    nearest = torch.cdist(test, means).argmin(1)
    return (nearest == images.test_labels).float().mean().item()


def test_shapes_and_labels() -> None:
    images = synthetic_images(25, 12)
    assert (images.name, images.train_images.dtype) == ("synthetic", torch.uint8)
    assert images.train_images.shape == (25, 3, 32, 32)
    assert images.test_images.shape == (12, 3, 32, 32)
    assert images.train_labels.tolist() == [*range(10), *range(10), 0, 1, 2, 3, 4]
    assert images.test_labels.tolist() == [*range(10), 0, 1]


def test_they_are_the_same_each_time() -> None:
    first, again = (synthetic_images(30, 10) for _ in range(2))
    digests = [hashlib.md5(i.train_images.numpy().tobytes()).digest() for i in (first, again)]
    assert digests[0] == digests[1]
    assert torch.equal(first.test_images, again.test_images)


def test_there_is_something_to_learn_and_it_is_not_all_in_the_mean() -> None:
    assert 0.6 < nearest_mean_accuracy(synthetic_images()) < 0.9

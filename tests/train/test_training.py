"""Real training: it learns, it says when it cannot, and it goes on as if it had never stopped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.measure.fakes import marked_gpu
from tests.train.small_training import net_file, settings, trainer, what_differs

from ridgeline.errors import RidgelineError
from ridgeline.measure.step import repeatable
from ridgeline.train import checkpoints
from ridgeline.train.checkpoints import CheckpointFolder
from ridgeline.train.records import (
    EpochResult,
    TrainResult,
    TrainSettings,
    steps_per_epoch,
)
from ridgeline.train.trainer import (
    Feed,
    TrainBatches,
    Trainer,
    augmented,
    correct,
    explained,
    normalized,
    plan_epoch,
    profile_one_step,
    smoothed_loss,
    train,
)

HALF = 0.5**0.5  # the cosine of an eighth of a turn


@pytest.fixture
def net(tmp_path: Path) -> str:
    return net_file(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(folder=tmp_path, name="net")


def epoch(number: int, *, accuracy: float, time_s: float) -> EpochResult:
    return EpochResult(
        epoch=number, train_loss=1.0, train_accuracy=0.5, test_accuracy=accuracy, lr=0.1,
        time_s=time_s, test_time_s=1.0, images=100,
    )  # fmt: skip


# ---------------------------------------------------------------- records


def test_a_result_by_hand() -> None:
    history = (
        epoch(1, accuracy=0.4, time_s=10.0),
        epoch(2, accuracy=0.6, time_s=4.0),
        epoch(3, accuracy=0.6, time_s=5.0),
    )
    result = TrainResult(settings=settings("resnet18"), history=history)
    assert result.best.epoch == 2
    assert result.images_per_s == 20.0  # of 10, 25 and 20
    assert result.time_s == 22.0
    gone_on = replace(result, epochs_before=2)
    assert (gone_on.images_per_s, gone_on.time_s) == (20.0, 22.0)  # of the third; of all


def test_the_steps_of_settings_by_hand() -> None:
    wanted = settings("resnet18", train_images=65, batch_size=16, epochs=5)
    # 65 = 4 · 16 + 1, and a lone image is left out; a tenth of 20 steps is the warm-up
    assert (wanted.steps, wanted.total_steps, wanted.warmup_steps) == (4, 20, 2)
    assert settings("resnet18", warmup=0).warmup_steps == 0
    assert wanted.lr_at(2) == 0.05


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"epochs": 0}, "epochs 0 is not possible"),
        ({"lr": float("nan")}, "lr nan is not possible"),
        ({"label_smoothing": 1.5}, "label smoothing 1.5 is not possible"),
        ({"momentum": 5.0}, "--momentum 5.0 is not possible"),
        ({"momentum": 1.0}, "--momentum 1.0 is not possible"),
        ({"seed": -1}, "seed -1 is not possible"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        settings("resnet18", **change)
    assert caught.value.problem == problem


def test_the_loss_of_auxiliary_heads_by_hand() -> None:
    # given scores that say nothing, the loss of a head is log(10) with any smoothing
    scores, labels = torch.zeros(4, 10), torch.zeros(4, dtype=torch.int64)
    log10 = torch.tensor(10.0).log().item()
    assert smoothed_loss(scores, labels, 0.1).item() == pytest.approx(log10)
    assert smoothed_loss((scores, scores), labels, 0.0).item() == pytest.approx(1.4 * log10)
    assert smoothed_loss((scores,) * 3, labels, 0.0).item() == pytest.approx(1.6 * log10)
    assert correct(torch.eye(10), torch.tensor([0, 1, 2, 0, 0, 0, 0, 0, 0, 0])).item() == 3


@pytest.mark.parametrize(
    ("warmup_steps", "total_steps", "rates"),
    [
        # quarters of 0.8 to the peak, four steps down: 0.6828, 0.4, 0.1172; after the last step 0
        (3, 7, [0.2, 0.4, 0.6, 0.8, 0.4 * (1 + HALF), 0.4, 0.4 * (1 - HALF), 0.0]),
        (0, 2, [0.8, 0.4]),  # no warm-up
        (3, 2, [0.2, 0.4]),  # a training that ends before its warm-up does
        (1, 1, [0.4]),
        (0, 1, [0.8]),
    ],
)
def test_a_straight_rise_and_half_a_cosine(
    warmup_steps: int, total_steps: int, rates: list[float]
) -> None:
    wanted = settings(
        "resnet18", lr=0.8, warmup=warmup_steps, epochs=1, train_images=total_steps, batch_size=1
    )
    found = [wanted.lr_at(step) for step in range(len(rates))]
    assert found == pytest.approx(rates, abs=1e-12)


# ---------------------------------------------------------------- learning


@pytest.mark.slow
def test_resnet18_learns(tmp_path: Path) -> None:
    # given 128 small images of ten classes
    wanted = TrainSettings(
        model="resnet18_cifar", data="synthetic", train_images=128, test_images=50, epochs=4,
        batch_size=8, lr=0.01, augment=False, channels_last=True,
    )  # fmt: skip
    # when the real network is trained for 64 steps
    result = train(trainer(wanted), CheckpointFolder(folder=tmp_path, name="resnet18"))
    # then it knows most of the images that it has not seen; 10 % would be chance
    assert result.history[-1].test_accuracy > 0.5
    assert result.history[-1].train_loss < 1 < 2 < result.history[0].train_loss


def test_a_loss_that_is_no_number_stops_and_leaves_the_best(
    net: str, files: CheckpointFolder
) -> None:
    # given a training with one epoch saved
    training = trainer(settings(net, lr=1e9, warmup=1))
    checkpoints.save(files.best, {"kept": 1})
    # when it diverges
    with pytest.raises(RidgelineError) as caught:
        train(training, files)
    # then it says so and the file is as it was
    assert caught.value.problem.startswith("the loss is no finite number any more, in epoch 1")
    assert "a lower --lr (it is 1e+09)" in caught.value.hint
    assert torch.load(files.best, weights_only=True) == {"kept": 1}
    assert not files.last.exists()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError()]
)
def test_too_little_memory_is_advice(error: Exception) -> None:
    with pytest.raises(RidgelineError) as caught, explained(settings("resnet18")):
        raise error
    assert str(caught.value) == (
        "resnet18 with batches of 16 does not fit into memory\n"
        "  hint: try a smaller --batch-size, or --amp on a GPU"
    )


# ---------------------------------------------------------------- checkpoints and going on


def test_which_files_there_are(net: str, files: CheckpointFolder) -> None:
    result = train(trainer(settings(net, epochs=4)), files, save_every=2)
    assert sorted(path.name for path in files.folder.glob("*.pt")) == [
        "net_best.pt", "net_epoch2.pt", "net_epoch4.pt", "net_final_weights.pt", "net_last.pt",
    ]  # fmt: skip
    best, last = checkpoints.load(files.best), checkpoints.load(files.last)
    assert best["epoch"] == result.best.epoch
    assert (last["epoch"], last["scheduler"]["step"]) == (4, 20)
    assert best["best_accuracy"] == last["best_accuracy"] == result.best.test_accuracy
    weights = torch.load(files.final_weights, weights_only=True)
    assert what_differs(dict(last["model"]), weights) == []


def resumed(wanted: TrainSettings, files: CheckpointFolder, *, stop_after: int) -> Trainer:
    """Train some epochs, forget everything but the file, and train the rest from that."""
    first = trainer(wanted)
    for _ in range(stop_after):
        first.run_epoch()
    checkpoints.save(files.last, checkpoints.checkpoint(first.state()))
    torch.manual_seed(99)  # another process would have other random numbers
    second = trainer(wanted)
    second.load_state(checkpoints.load(files.last))
    train(second, files)
    return second


@pytest.mark.parametrize(
    "change",
    [
        {}, {"augment": False}, {"channels_last": True}, {"momentum": 0.0},
        {"model": "resnet18_cifar", "epochs": 2, "train_images": 32, "test_images": 10},
    ],
    ids=str,
)  # fmt: skip
def test_resumed_is_as_never_stopped(
    net: str, files: CheckpointFolder, change: dict[str, Any]
) -> None:
    wanted = settings(**{"model": net, **change})
    with repeatable(True):
        whole = trainer(wanted)
        for _ in range(wanted.epochs):
            whole.run_epoch()
        again = resumed(wanted, files, stop_after=1)
    assert what_differs(whole.state(), again.state()) == []


def test_a_checkpoint_of_another_network(net: str, files: CheckpointFolder) -> None:
    state = trainer(settings(net)).state()
    state["model"]["head.weight"] = torch.zeros(3, 3)
    with pytest.raises(RidgelineError, match=r"does not fit .*size mismatch for head.weight"):
        trainer(settings(net)).load_state(state)


# ---------------------------------------------------------------- one step


def test_all_of_one_step_is_inside_the_mark(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a training that writes down what it does
    log: list[str] = []
    training = trainer(settings(net))
    training.backend = marked_gpu(monkeypatch, log)
    training.model.register_forward_hook(lambda *_: log.append("forward"))
    first = training.model.features[0].weight
    first.register_post_accumulate_grad_hook(lambda *_: log.append("backward"))
    training.optimizer.register_step_post_hook(lambda *_: log.append("optimizer"))
    step = ["forward", "backward", "optimizer"]
    # when the second step after six others is to be marked; an epoch has five
    found = profile_one_step(training, warmup_iters=6, profile_iter=2)
    # then seven steps are outside, and one whole step is inside, each phase in its range
    end = "end range 7"
    assert log == [
        *step * 7,
        "synchronize", "start profiler", "start range ridgeline_step",
        "start range ridgeline:forward", "forward", end,
        "start range ridgeline:loss", end,
        "start range ridgeline:backward", "backward", end,
        "start range ridgeline:optimizer", "optimizer", end,
        "synchronize", end, "stop profiler",
    ]  # fmt: skip
    assert (found.step, found.is_marked, training.step) == (8, True, 8)


# ---------------------------------------------------------------- batches

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

"""Real training: epochs of steps, a test after each, and a state that is saved in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from ridgeline.errors import RidgelineError
from ridgeline.measure.backends import Backend, Precision, marked, nvtx_range
from ridgeline.measure.isolation import is_out_of_memory
from ridgeline.measure.step import random_state, restore_random_state, seed_all
from ridgeline.train.checkpoints import CheckpointFolder, checkpoint, save
from ridgeline.train.records import (
    EpochResult,
    StepProgress,
    TrainResult,
    TrainSettings,
    steps_per_epoch,
)
from ridgeline.workloads.cifar10 import MEAN, STD, Images, build_classifier
from ridgeline.workloads.losses import sum_heads
from ridgeline.workloads.workload import one_line

LOOK_EVERY = 20  # steps between two looks at the loss of a device that runs behind the host

OnStep = Callable[[StepProgress], object]
Named = Callable[[str], AbstractContextManager[None]]


class Trainer:
    """A training: its model, optimizer and how far it is."""

    def __init__(
        self,
        settings: TrainSettings,
        images: Images,
        backend: Backend,
        precision: Precision,
        *,
        workers: int = 0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.settings, self.backend, self.precision = settings, backend, precision
        self.step, self.history = 0, list[EpochResult]()
        self._clock = clock
        precision.apply()
        seed_all(settings.seed)
        layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.model = build_classifier(settings.model, settings.image_size).to(
            device=backend.device, dtype=precision.dtype, memory_format=layout
        )  # type: ignore[call-overload]
        self.optimizer = SGD(
            self.model.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.scaler = precision.scaler(backend)
        batches = TrainBatches(
            images.train_images,
            images.train_labels,
            batch_size=settings.batch_size,
            seed=settings.seed,
            augment=settings.augment,
        )
        self.feed = Feed(batches, backend.device, workers)
        self._test = (images.test_images.to(backend.device), images.test_labels.to(backend.device))

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return len(self.history)

    @property
    def best_accuracy(self) -> float:
        return max((result.test_accuracy for result in self.history), default=0.0)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch is the first to have the highest accuracy."""
        accuracies = [result.test_accuracy for result in self.history]
        return bool(accuracies) and accuracies.index(max(accuracies)) == len(accuracies) - 1

    # ------------------------------------------------------------ a step

    def prepared(self, batch: Batch) -> Batch:
        """Bytes to what the model takes: numbers, in its size, precision and layout."""
        images = normalized(batch[0], torch.float32)
        size = self.settings.image_size
        if images.shape[-1] != size:
            images = functional.interpolate(images, size=(size, size), mode="bilinear")
        if self.settings.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images.to(self.precision.dtype or torch.float32), batch[1]

    def train_step(
        self, images: Tensor, labels: Tensor, named: Named = lambda phase: nullcontext()
    ) -> tuple[Tensor, Tensor]:
        """Forward, backward, optimizer; answers the loss and how many were right, on the device.

        `named` names the phases for a profiler.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.lr_at(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        with named("forward"), self.precision.autocast(self.backend):
            output = self.model(images)
        with named("loss"):
            loss = smoothed_loss(output, labels, self.settings.label_smoothing)
        scaler = self.scaler
        with named("backward"):
            (loss if scaler is None else scaler.scale(loss)).backward()
        with named("optimizer"):
            if scaler is None:
                self.optimizer.step()
            else:
                scaler.step(self.optimizer)
                scaler.update()
        self.step += 1
        return loss.detach(), correct(output, labels)

    # ------------------------------------------------------------ an epoch

    def run_epoch(self, on_step: OnStep = lambda progress: None) -> EpochResult:
        """Train on every image once, test, and remember what came of it."""
        with explained(self.settings):
            loss, right, images, time_s = self._train_epoch(on_step)
            start_s = self._clock()
            test_accuracy = self.test()
            test_time_s = self._clock() - start_s
        result = EpochResult(
            epoch=self.epoch + 1,
            train_loss=loss,
            train_accuracy=right / images,
            test_accuracy=test_accuracy,
            lr=self.settings.lr_at(self.step - 1),
            time_s=time_s,
            test_time_s=test_time_s,
            images=images,
        )
        self.history.append(result)
        return result

    def _train_epoch(self, on_step: OnStep) -> tuple[float, int, int, float]:
        """The mean loss, how many were right, of how many images, in how many seconds."""
        self.model.train()
        sums = torch.zeros(2, device=self.backend.device)  # loss and right answers
        images = 0
        every = LOOK_EVERY if self.backend.has_events else 1
        start_s = self._clock()
        for number, batch in enumerate(self.feed.epoch(self.epoch), start=1):
            loss, right = self.train_step(*self.prepared(batch))
            images += len(batch[1])
            sums += torch.stack([loss.float() * len(batch[1]), right.float()])
            if number % every == 0 or number == self.settings.steps:
                time_s = self._look(sums, images, number, start_s, on_step)
        total_loss, total_right = sums.tolist()
        return total_loss / images, round(total_right), images, time_s

    def _look(
        self, sums: Tensor, images: int, number: int, start_s: float, on_step: OnStep
    ) -> float:
        """Wait for the device, refuse a loss that is no number, tell; answers the time so far."""
        loss, right = sums.tolist()
        time_s = self._clock() - start_s
        if not math.isfinite(loss):
            raise RidgelineError(
                f"the loss is no finite number any more, in epoch {self.epoch + 1} at step"
                f" {number}",
                hint=f"try a lower --lr (it is {self.settings.lr:g}) or a longer --warmup (it is "
                f"{self.settings.warmup_steps} steps); what was saved before is as it was",
            )
        on_step(
            StepProgress(
                epoch=self.epoch + 1,
                step=number,
                steps=self.settings.steps,
                loss=loss / images,
                accuracy=right / images,
                images_per_s=images / max(time_s, 1e-9),
            )
        )
        return time_s

    def test(self) -> float:
        """The share of the test images that is recognised."""
        self.model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self.backend.device)
        size = self.settings.batch_size
        with torch.no_grad():
            for batch in zip(*(part.split(size) for part in self._test), strict=True):
                images, labels = self.prepared(batch)
                with self.precision.autocast(self.backend):
                    right += correct(self.model(images), labels)
        return int(right) / len(self._test[1])

    # ------------------------------------------------------------ saved and gone on with

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on, in tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {
                "step": self.step,
                "warmup_steps": self.settings.warmup_steps,
                "total_steps": self.settings.total_steps,
                "peak_lr": self.settings.lr,
            },
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "epoch": self.epoch,
            "best_accuracy": self.best_accuracy,
            "history": [asdict(result) for result in self.history],
            "random": random_state(),
            "settings": asdict(self.settings),
            "made_on": made_on(self.backend),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to a saved state."""
        try:
            with explained(self.settings):
                self.model.load_state_dict(state["model"])
                self.optimizer.load_state_dict(state["optimizer"])
                if self.scaler is not None and state["scaler"]:
                    self.scaler.load_state_dict(state["scaler"])
                self.step = int(state["scheduler"]["step"])
                self.history = [EpochResult(**values) for values in state["history"]]
                restore_random_state(state["random"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise RidgelineError(
                f"the checkpoint does not fit {self.settings.model}: {one_line(error)}",
                hint="has the network changed since? Take a checkpoint of this very one",
            ) from error

    def weights(self) -> dict[str, Tensor]:
        """The weights alone, on the CPU, where everyone can load them."""
        return {name: value.cpu() for name, value in self.model.state_dict().items()}


# ---------------------------------------------------------------- all epochs, or one step


def train(
    trainer: Trainer,
    files: CheckpointFolder,
    *,
    save_every: int = 0,
    on_step: OnStep = lambda progress: None,
    on_epoch: Callable[[EpochResult], object] = lambda result: None,
) -> TrainResult:
    """Train the epochs that are left; each is saved before the next one begins."""
    before = trainer.epoch
    if trainer.is_best and not files.best.exists():  # resumed in another folder
        save(files.best, checkpoint(trainer.state()))
    while trainer.epoch < trainer.settings.epochs:
        result = trainer.run_epoch(on_step)
        _save_epoch(trainer, files, save_every=save_every)
        on_epoch(result)
    save(files.final_weights, trainer.weights())
    return TrainResult(
        settings=trainer.settings, history=tuple(trainer.history), epochs_before=before
    )


def _save_epoch(trainer: Trainer, files: CheckpointFolder, *, save_every: int) -> None:
    """Write the checkpoints of an epoch.

    `last` comes last: after a kill in between, the epoch is done again and writes the others anew.
    """
    content = checkpoint(trainer.state())
    if trainer.is_best:
        save(files.best, content)
    if save_every and trainer.epoch % save_every == 0:
        save(files.epoch(trainer.epoch), content)
    save(files.last, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """The one step that was marked."""

    step: int  # the first of the training is 1
    loss: float
    is_marked: bool  # False where there is no profiler to mark it for


def profile_one_step(
    trainer: Trainer,
    *,
    warmup_iters: int = 20,
    profile_iter: int = 1,
    on_step: Callable[[int, int], object] = lambda done, total: None,
) -> ProfiledStep:
    """Run `warmup_iters` steps, then mark the `profile_iter`-th that follows, all of it.

    Forward, loss, backward and optimizer are inside, each in a range of its own; making the batch
    is not.
    """
    trainer.model.train()
    batches = (batch for epoch in count() for batch in trainer.feed.epoch(epoch))
    total = warmup_iters + profile_iter
    with explained(trainer.settings):
        for done in range(1, total):
            trainer.train_step(*trainer.prepared(next(batches)))
            on_step(done, total)
        images, labels = trainer.prepared(next(batches))
        with marked(trainer.backend) as is_marked:
            named = nvtx_range if is_marked else lambda phase: nullcontext()
            loss, _ = trainer.train_step(images, labels, named)
    return ProfiledStep(step=total, loss=float(loss), is_marked=is_marked)


# ---------------------------------------------------------------- parts


def made_on(backend: Backend) -> dict[str, Any]:
    """What else decides the last bits of a result."""
    return {
        "backend": backend.kind,
        "device_name": backend.name,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
    }


def smoothed_loss(output: Any, labels: Tensor, smoothing: float) -> Tensor:
    """Cross entropy, also of the auxiliary heads where the output has them."""

    def loss(scores: Tensor) -> Tensor:
        return functional.cross_entropy(scores.float(), labels, label_smoothing=smoothing)

    return sum_heads(output, loss)


def correct(output: Any, labels: Tensor) -> Tensor:
    """How many labels have the highest score."""
    scores = output if isinstance(output, Tensor) else output[0]
    return (scores.detach().argmax(1) == labels).sum()


@contextmanager
def explained(settings: TrainSettings) -> Iterator[None]:
    """Turn what the device or the workers run out of into advice."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if is_out_of_memory(error):
            smaller = "--batch-size" if settings.batch_size > 1 else "--image-size"
            raise RidgelineError(
                f"{settings.model} with batches of {settings.batch_size} does not fit into memory",
                hint=f"try a smaller {smaller}, or --amp on a GPU",
            ) from error
        if "DataLoader worker" in str(error):
            raise RidgelineError(
                f"a worker ended unexpectedly: {one_line(error)}",
                hint="use fewer --workers, or none: batches are then made on the device",
            ) from error
        raise


# ---------------------------------------------------------------- batches
# All of an epoch's chances are drawn at once from the seed and the number of the epoch, and from
# nothing else. So a batch is the same whoever makes it: this process, one of several workers, or
# a training that was killed and begins the epoch again.

PADDING = 4  # pixels on each side before a crop of the image's own size
EPOCHS_APART = 1_000_003  # between the seeds of two trainings whose seeds are neighbours

Batch = tuple[Tensor, Tensor]  # uint8 images and labels


class EpochPlan(NamedTuple):
    """What chance decides in an epoch: a row per place in it."""

    order: Tensor  # which image
    moves: Tensor  # where its crop begins, down and right, in a frame of PADDING pixels
    mirrored: Tensor


def plan_epoch(count: int, *, seed: int, epoch: int, augment: bool) -> EpochPlan:
    """The order of `count` images in an epoch, and what is done to each."""
    generator = Generator().manual_seed((seed * EPOCHS_APART + epoch) % 2**63)
    order = torch.randperm(count, generator=generator)
    if not augment:  # the middle of the frame is the image itself
        return EpochPlan(order, torch.full((count, 2), PADDING), torch.zeros(count) > 0)
    moves = torch.randint(0, 2 * PADDING + 1, (count, 2), generator=generator)
    return EpochPlan(order, moves, torch.rand(count, generator=generator) < 0.5)


def augmented(images: Tensor, moves: Tensor, mirrored: Tensor) -> Tensor:
    """Each image (N, 3, H, W) in a black frame, cropped at its `moves`, and perhaps mirrored."""
    count, channels, height, width = images.shape
    framed = functional.pad(images, (PADDING,) * 4)
    rows = moves[:, :1] + torch.arange(height, device=images.device)
    columns = moves[:, 1:] + torch.arange(width, device=images.device)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    return framed[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def normalized(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes to numbers around 0 with a spread of about 1."""
    mean, std = _mean_and_std(images.device)
    return ((images.float() - mean) / std).to(dtype)


@cache  # to copy them in every step would make the device wait for the host
def _mean_and_std(device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, device=device) * 255 for values in (MEAN, STD))
    return mean[:, None, None], std[:, None, None]


class TrainBatches(Dataset[Batch]):
    """The batches of a training, by epoch and number."""

    def __init__(
        self, images: Tensor, labels: Tensor, *, batch_size: int, seed: int, augment: bool
    ) -> None:
        self.images, self.labels = images, labels
        self.batch_size, self.seed, self.augment = batch_size, seed, augment
        self._planned: tuple[int, EpochPlan] | None = None

    @property
    def steps(self) -> int:
        return steps_per_epoch(len(self.labels), self.batch_size)

    def __getitem__(self, position: tuple[int, int]) -> Batch:
        epoch, number = position
        plan = self._plan(epoch)
        here = slice(number * self.batch_size, (number + 1) * self.batch_size)
        chosen = plan.order[here]
        images = augmented(self.images[chosen], plan.moves[here], plan.mirrored[here])
        return images, self.labels[chosen]

    def _plan(self, epoch: int) -> EpochPlan:
        if self._planned is None or self._planned[0] != epoch:
            plan = plan_epoch(len(self.labels), seed=self.seed, epoch=epoch, augment=self.augment)
            on_device = (part.to(self.labels.device) for part in plan)
            self._planned = (epoch, EpochPlan(*on_device))
        return self._planned[1]


class Feed:
    """Brings batches to a device: made there, or by worker processes and then copied."""

    def __init__(self, batches: TrainBatches, device: torch.device, workers: int = 0) -> None:
        self.batches, self.device = batches, device
        self._places: list[tuple[int, int]] = []  # epoch and number of the batches to come
        self._loader = self._make_loader(workers) if workers else None
        if not workers:
            batches.images = batches.images.to(device)
            batches.labels = batches.labels.to(device)

    def _make_loader(self, workers: int) -> DataLoader[Batch]:
        return DataLoader(
            self.batches,
            batch_size=None,  # an item is a batch already
            sampler=self._places,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            persistent_workers=True,
            generator=Generator(),  # or it would take numbers from those of the model
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, on the device."""
        self._places[:] = [(number, step) for step in range(self.batches.steps)]
        if self._loader is None:
            yield from (self.batches[position] for position in self._places)
            return
        for images, labels in self._loader:
            yield (
                images.to(self.device, non_blocking=True),
                labels.to(self.device, non_blocking=True),
            )

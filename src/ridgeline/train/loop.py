"""A whole training with its checkpoints, and the marking of one step for a profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from ridgeline.measure.backends import MarkCalls, marked
from ridgeline.train.batches import Batch
from ridgeline.train.checkpoints import CheckpointFolder, checkpoint, save
from ridgeline.train.records import EpochResult, TrainResult
from ridgeline.train.trainer import OnStep, Trainer, explained


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
        save_epoch(trainer, files, save_every=save_every)
        on_epoch(result)
    save(files.final_weights, trainer.weights())
    return TrainResult(
        settings=trainer.settings, history=tuple(trainer.history), epochs_before=before
    )


def save_epoch(trainer: Trainer, files: CheckpointFolder, *, save_every: int) -> None:
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
    calls: MarkCalls | None,
    *,
    warmup_iters: int = 20,
    profile_iter: int = 1,
    on_step: Callable[[int, int], object] = lambda done, total: None,
) -> ProfiledStep:
    """Run `warmup_iters` steps, then mark the `profile_iter`-th that follows, all of it.

    Forward, backward and optimizer are inside; making the batch is not.
    """
    trainer.model.train()
    batches = _endless(trainer)
    total = warmup_iters + profile_iter
    with explained(trainer.settings):
        for done in range(1, total):
            trainer.train_step(*trainer.prepared(next(batches)))
            on_step(done, total)
        images, labels = trainer.prepared(next(batches))
        with marked(calls):
            loss, _ = trainer.train_step(images, labels)
    return ProfiledStep(step=total, loss=float(loss), is_marked=calls is not None)


def _endless(trainer: Trainer) -> Iterator[Batch]:
    for epoch in count():
        yield from trainer.feed.epoch(epoch)

"""What `ridgeline train` shows: progress while it trains, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ridgeline.measure.backends import Backend
from ridgeline.measure.profiler_mark import STEP
from ridgeline.train.checkpoints import CheckpointFolder
from ridgeline.train.loop import ProfiledStep
from ridgeline.train.records import EpochResult, StepProgress, TrainResult, TrainSettings
from ridgeline.units import format_percent, format_time
from ridgeline.workloads.cifar10 import ARCHIVE

HEADER = "epoch   loss  train acc   test acc         lr   images/s       time"

Tell = Callable[[StepProgress], object]
TellEpoch = Callable[[EpochResult], object]


def headline(settings: TrainSettings, backend: Backend) -> str:
    """What is about to be done."""
    return (
        f"{settings.model} in {settings.precision} on {backend.name} ({backend.kind}): "
        f"{settings.train_images} + {settings.test_images} images of {settings.data}, "
        f"{settings.epochs} epochs of {settings.steps} steps"
    )


def epoch_row(result: EpochResult) -> str:
    """A line below HEADER."""
    return (
        f"{result.epoch:>5}  {result.train_loss:>5.3f}  {format_percent(result.train_accuracy):>9}"
        f"  {format_percent(result.test_accuracy):>9}  {result.lr:>9.3g}"
        f"  {result.images_per_s:>9.1f}  {format_time(result.time_s + result.test_time_s):>9}"
    )


def summary(result: TrainResult, files: CheckpointFolder, run: Path) -> str:
    """What came of a training, and where it is."""
    settings, best = result.settings, result.best
    whats = {
        files.best: f"epoch {best.epoch}, the best",
        files.last: "the last epoch",
        files.final_weights: "its weights alone",
        run: "this run",
    }
    rows = {str(path): what for path, what in whats.items() if path.exists()}
    width = max(len(path) for path in rows)
    return "\n".join(
        [
            f"{settings.model} on {settings.data}: {format_percent(best.test_accuracy)} of the test"
            f" images recognised after epoch {best.epoch},"
            f" {format_percent(result.history[-1].test_accuracy)} at the end",
            f"{result.images_per_s:.1f} images/s in the median epoch{_which(result)}, "
            f"{format_time(result.time_s)} in all",
            *(f"{path:<{width}}  {what}" for path, what in rows.items()),
        ]
    )


def _which(result: TrainResult) -> str:
    """Speeds of epochs before --resume may be of another machine."""
    before = result.epochs_before
    return f" since epoch {before}" if before else ""


def nothing_left(result: TrainResult, resumed: Path | None) -> str:
    settings = result.settings
    return (
        f"{resumed} has all of its {settings.epochs} epochs: nothing is left to train, and no run "
        "is stored\n"
        "  hint: to train longer, begin anew: the same command with --epochs "
        f"{2 * settings.epochs} --out-dir DIR and without --resume"
    )


def profiled_text(step: ProfiledStep, settings: TrainSettings, backend: Backend) -> str:
    what = f"step {step.step} of {settings.model}, {settings.batch_size} images: "
    if step.is_marked:
        return what + f"marked for the profiler, as the range {STEP} (loss {step.loss:.3f})"
    return what + f"done; on {backend.kind} there is no profiler to mark it for"


# ---------------------------------------------------------------- while it runs


@contextmanager
def epoch_progress(settings: TrainSettings, *, quiet: bool) -> Iterator[tuple[Tell, TellEpoch]]:
    """A line per epoch on stderr and, where somebody looks on, a bar for the running one."""
    if quiet:
        yield lambda progress: None, lambda result: None
        return
    if not sys.stderr.isatty():
        print(HEADER, file=sys.stderr, flush=True)
        yield lambda progress: None, lambda r: print(epoch_row(r), file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        console.print(HEADER, style="bold")
        task = bar.add_task("starting", total=settings.total_steps)

        def tell(progress: StepProgress) -> None:
            done = (progress.epoch - 1) * progress.steps + progress.step
            bar.update(task, completed=done, description=progress_text(progress, settings))

        yield tell, lambda result: console.print(epoch_row(result))


def progress_text(progress: StepProgress, settings: TrainSettings) -> str:
    return (
        f"epoch {progress.epoch}/{settings.epochs}, step {progress.step}/{progress.steps}: "
        f"loss {progress.loss:.3f}, {format_percent(progress.accuracy)}, "
        f"{progress.images_per_s:.0f} images/s"
    )


@contextmanager
def step_progress(total: int, *, quiet: bool) -> Iterator[Callable[[int, int], object]]:
    """A bar for the steps before the one that is marked."""
    from ridgeline.cli.progress import progress_bar

    with progress_bar(total, quiet=quiet, first="starting") as step:
        yield lambda done, of: step(f"step {done} of {of}")


@contextmanager
def download_progress(quiet: bool) -> Iterator[Callable[[int, int], object]]:
    """A bar in bytes, from the first one that arrives."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(ARCHIVE), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(ARCHIVE, visible=False, total=None)
        yield lambda done, total: bar.update(
            task, completed=done, total=total or None, visible=True
        )

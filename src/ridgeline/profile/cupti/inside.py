"""The process that counts its own step: once for every pass, the work of known size before it.

What cannot be counted so is refused, in a file that says why; someone else may count it then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ridgeline.profile.cupti.launches import Launch, LaunchLog, current_context
from ridgeline.profile.cupti.library import RefusedError, loaded_cupti
from ridgeline.profile.cupti.ranges import Chip, RangeCounters
from ridgeline.profile.cupti.told import CountedLaunches, Foretold
from ridgeline.profile.marks import OpMarks
from ridgeline.profile.metrics import choose_metrics
from ridgeline.profile.self_test import PREFIX, load_known_work, run_known_work
from ridgeline.profile.step_mark import REFUSED, Job, wait_for

SETUP = f"{PREFIX}setup"  # what the work of known size needs, beside it
SPARE = 64  # kernels more than the step had when it was traced
OF_FREE_MEMORY = 0.25  # of the host's, for counters


def count_inside(job: Job, device: int, step: Callable[[], Any]) -> None:
    """Warm up, say what can be counted, and count it when our turn comes."""
    for _ in range(job.warmup):
        step()
    torch.cuda.synchronize()
    load_known_work(job.kinds)
    try:
        found = _counted(job, device, step)
    except RefusedError as refused:
        job.path(REFUSED).write_text(str(refused), encoding="utf-8")
    else:
        found.write(job)
        job.path("done").touch()


def refuse_without_cupti(job: Job) -> None:
    """Say at once what needs no device to know, and end."""
    try:
        loaded_cupti()
    except RefusedError as refused:
        job.path(REFUSED).write_text(str(refused), encoding="utf-8")
        sys.exit(0)


def _counted(job: Job, device: int, step: Callable[[], Any]) -> CountedLaunches:
    cupti = loaded_cupti()
    chip = Chip.of(cupti, current_context(), device)
    chosen = choose_metrics(chip.metrics(), job.precision, job.level)
    metrics = [name for atom in chosen.atoms for name in atom]
    counters = RangeCounters(chip, metrics)
    foretold = Foretold(
        metrics=tuple(metrics),
        passes=counters.passes,
        missing=chosen.missing,
        compute_capability="{}.{}".format(*torch.cuda.get_device_capability(device)),
        cupti_version=cupti.version,
    )
    foretold.write(job)
    kernels = int(wait_for(job, "go", after="ready"))
    log = LaunchLog()
    with log.listening(cupti):
        with log.range(SETUP):
            run_known_work(job.kinds, log.range)
        most = kernels + len(log.taken()) + SPARE
        with counters.enabled(most, _memory_bytes()):
            launches = _all_passes(job, counters, log, step)
            values = counters.values()
    if len(values) != len(launches):
        raise RefusedError(f"{len(launches)} kernels were launched and {len(values)} counted")
    return CountedLaunches(launches=launches, values=values)


def _all_passes(
    job: Job, counters: RangeCounters, log: LaunchLog, step: Callable[[], Any]
) -> list[Launch]:
    """Count, and see that each pass launched the same."""
    first: list[Launch] | None = None
    is_last = False
    while not is_last:
        counters.start()
        with log.range(SETUP):
            run_known_work(job.kinds, log.range)
        for _ in range(job.steps):
            with _numbered(job, log):
                step()
        torch.cuda.synchronize()
        if log.graphs:
            raise RefusedError("kernels of a CUDA graph cannot be told apart")
        is_last = counters.stop()
        launches = log.taken()
        if first is not None and launches != first:
            raise RefusedError("the step launches other kernels each time")
        first = launches
    return first or []


@contextmanager
def _numbered(job: Job, log: LaunchLog) -> Iterator[None]:
    """With a range around every operator, where code may be looked into."""
    with ExitStack() as stack:
        if job.has_marks:
            stack.enter_context(OpMarks(log.range).watching())
        yield


def _memory_bytes() -> int:
    import psutil

    return int(OF_FREE_MEMORY * psutil.virtual_memory().available)

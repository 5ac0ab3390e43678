"""The process that counts its own step: once for every pass, the work of known size before it.

What cannot be counted so is refused, in a file that says why; someone else may count it then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from ridgeline.machine.system import find_limits
from ridgeline.profile.cupti.launches import Launch, LaunchLog, current_context
from ridgeline.profile.cupti.library import Cupti, RefusedError, loaded_cupti
from ridgeline.profile.cupti.ranges import Chip, RangeCounters
from ridgeline.profile.cupti.told import CountedLaunches, Foretold, refuse
from ridgeline.profile.marks import OpMarks
from ridgeline.profile.metrics import choose_metrics
from ridgeline.profile.self_test import PREFIX, copy_size, load_known_work, run_known_work
from ridgeline.profile.step_mark import Job, is_forsaken, wait_for

SETUP = f"{PREFIX}setup"  # what the work of known size needs, beside it
SPARE_KERNELS = 64  # more than the step had when it was traced
MOST_OF_MEMORY = 0.25  # of the host's that is free, for counters
Step = Callable[[], Any]


def refuse_without_cupti(job: Job) -> None:
    """Say at once what needs no device to know, and end."""
    try:
        loaded_cupti()
    except RefusedError as refused:
        refuse(job, str(refused))
        sys.exit(0)


def count_inside(job: Job, device: int, step: Step) -> None:
    """Warm up, say what can be counted, and count it when our turn comes."""
    for _ in range(job.warmup):
        step()
    torch.cuda.synchronize()
    load_known_work(job.kinds)
    try:
        cupti = loaded_cupti()
        counters = _chosen(job, cupti, device)
        kernels = int(wait_for(job, "go", after="ready"))
        found = _counted(job, cupti, counters, kernels, step)
    except RefusedError as refused:
        refuse(job, str(refused))
    else:
        found.write(job)
        job.path("done").touch()


def _chosen(job: Job, cupti: Cupti, device: int) -> RangeCounters:
    """The counters for the question, told beforehand."""
    chip = Chip.of(cupti, current_context(), device)
    chosen = choose_metrics(chip.metrics(), job.precision, job.level)
    counters = RangeCounters(chip, [name for atom in chosen.atoms for name in atom])
    Foretold(
        metrics=counters.metrics,
        passes=counters.passes,
        missing=chosen.missing,
        compute_capability="{}.{}".format(*torch.cuda.get_device_capability(device)),
        cupti_version=cupti.version,
    ).write(job)
    return counters


def _counted(
    job: Job, cupti: Cupti, counters: RangeCounters, kernels: int, step: Step
) -> CountedLaunches:
    log, copy_bytes = LaunchLog(), copy_size()
    with log.listening(cupti):
        _known_work(job, log, copy_bytes)
        most = kernels + len(log.taken()) + SPARE_KERNELS
        with counters.enabled(most, _memory_bytes()):
            launches = _all_passes(job, counters, log, copy_bytes, step)
            values = counters.values()
    if len(values) != len(launches):
        raise RefusedError(f"{len(launches)} kernels were launched and {len(values)} counted")
    return CountedLaunches(launches=launches, values=values)


def _all_passes(
    job: Job, counters: RangeCounters, log: LaunchLog, copy_bytes: int, step: Step
) -> list[Launch]:
    """Count, and see that each pass launched the same."""
    first: list[Launch] = []
    for number in range(counters.passes):
        if is_forsaken(Path(job.folder)):
            sys.exit(f"ridgeline: nobody waits for {job.name} any more")
        counters.start()
        _known_work(job, log, copy_bytes)
        for _ in range(job.steps):
            with _numbered(job, log):
                step()
        torch.cuda.synchronize()
        if log.graphs:
            raise RefusedError("kernels of a CUDA graph cannot be told apart")
        is_last = counters.stop()
        launches = log.taken()
        if number == 0:
            first = launches
        elif launches != first:
            raise RefusedError("the step launches other kernels each time")
        if is_last:
            return first
    raise RefusedError(f"{counters.passes} passes were foretold, and more are needed")


def _known_work(job: Job, log: LaunchLog, copy_bytes: int) -> None:
    with log.range(SETUP):
        run_known_work(job.kinds, copy_bytes, log.range)


def _numbered(job: Job, log: LaunchLog) -> AbstractContextManager[None]:
    """With a range around every operator, where code may be looked into."""
    return OpMarks(log.range).watching() if job.has_marks else nullcontext()


def _memory_bytes() -> int:
    """For counters: what is free, and not more than this process may have."""
    import psutil

    free_bytes = psutil.virtual_memory().available
    return int(MOST_OF_MEMORY * min(free_bytes, find_limits().memory_bytes or free_bytes))

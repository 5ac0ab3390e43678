"""The program under the profiler: builds a model and takes the step that is profiled.

`python -m ridgeline.profile.model_process TASK` with a pickled `Task`; the job that the environment
names says what to do with the step. It loads what it needs and leaves the device alone until it is
told to begin. Autotuners are off: every process must launch the same kernels.

With CUPTI it counts its own step, once for every pass, the work of known size before it. What
cannot be counted so is refused, in a file that says why; Nsight Compute may count it then.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from ridgeline.errors import RidgelineError
from ridgeline.machine.system import find_limits
from ridgeline.measure.backends import choose_backend, choose_precision
from ridgeline.measure.measure_workload import build_stepper
from ridgeline.measure.step import torch_settings
from ridgeline.measure.timing import NoMarks
from ridgeline.measure.worker import Task
from ridgeline.profile.counting import (
    CountedLaunches,
    CounterPlan,
    write_record,
    write_refusal,
)
from ridgeline.profile.cupti import (
    Chip,
    Cupti,
    Launch,
    LaunchLog,
    RangeCounters,
    RefusedError,
    current_context,
    loaded_cupti,
)
from ridgeline.profile.op_ranges import OpRanges
from ridgeline.profile.profile_step import (
    INSIDE,
    KNOWN_WORK,
    Job,
    copy_size,
    is_parent_gone,
    job_here,
    load_known_work,
    profile_step,
    run_known_work,
    wait_for,
)
from ridgeline.profile.request import choose_metrics
from ridgeline.workloads import resolve

BAD_INPUT = 2
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"  # others are processes, which ncu waits for
SMALL_SCALE = 2.0**7  # of the loss: gradients stay finite, and every step is taken
SETUP = f"{KNOWN_WORK}setup"  # what the work of known size needs, beside it
SPARE_KERNELS = 64  # more than the step had when it was traced
MOST_OF_MEMORY = 0.25  # of the host's that is free, for counters
Step = Callable[[], Any]


def main(task: Task) -> None:
    """Take marked steps until `profile_step` ends the program."""
    job = job_here()
    assert job is not None
    os.environ[COMPILE_THREADS] = "1"
    workload = resolve(task.spec)
    if job.role == INSIDE:
        refuse_without_cupti(job)
    wait_for(job, "begin", after="loaded")
    settings = task.settings.for_counting
    backend = choose_backend(settings.backend, settings.device)
    with torch_settings(settings, choose_precision(settings.precision, backend)):
        stepper = build_stepper(workload, task.spec, settings)
        if stepper.scaler is not None:  # no step may be skipped in one process and not in another
            stepper.scaler = torch.amp.GradScaler(backend.kind, init_scale=SMALL_SCALE)
        no_marks = NoMarks()
        if job.role == INSIDE:
            count_inside(job, settings.device, lambda: stepper.step(no_marks))
            sys.exit(0)
        for _ in range(job.warmup + job.steps):
            with profile_step():
                stepper.step(no_marks)


def refuse_without_cupti(job: Job) -> None:
    """Refuse at once what needs no device to know, and end."""
    try:
        loaded_cupti()
    except RefusedError as refused:
        write_refusal(job, str(refused))
        sys.exit(0)


def count_inside(job: Job, device: int, step: Step) -> None:
    """Warm up, write what can be counted, and count it when our turn comes."""
    for _ in range(job.warmup):
        step()
    torch.cuda.synchronize()
    load_known_work(job.kinds)
    try:
        cupti = loaded_cupti()
        counters = _plan_counters(job, cupti, device)
        kernels = int(wait_for(job, "go", after="ready"))
        launches = _count_step(job, cupti, counters, kernels, step)
    except RefusedError as refused:
        write_refusal(job, str(refused))
    else:
        write_record(job, launches)
        job.path("done").touch()


def _plan_counters(job: Job, cupti: Cupti, device: int) -> RangeCounters:
    """The counters for the job; what they are is written beforehand."""
    chip = Chip.of(cupti, current_context(), device)
    chosen = choose_metrics(chip.metrics(), job.precision, job.level, job.metrics)
    counters = RangeCounters(chip, chosen.metrics)
    planned = CounterPlan(
        metrics=counters.metrics,
        passes=counters.passes,
        missing=chosen.missing,
        compute_capability="{}.{}".format(*torch.cuda.get_device_capability(device)),
        cupti_version=cupti.version,
    )
    write_record(job, planned)
    return counters


def _count_step(
    job: Job, cupti: Cupti, counters: RangeCounters, kernels: int, step: Step
) -> CountedLaunches:
    log, copy_bytes = LaunchLog(), copy_size()
    with log.listening(cupti):
        _run_known_work(job, log, copy_bytes)
        most = kernels + len(log.take()) + SPARE_KERNELS
        with counters.enabled(most, _memory_bytes()):
            launches = _run_passes(job, counters, log, copy_bytes, step)
            values = counters.values()
    if len(values) != len(launches):
        raise RefusedError(f"{len(launches)} kernels were launched and {len(values)} counted")
    return CountedLaunches(launches=launches, values=values)


def _run_passes(
    job: Job, counters: RangeCounters, log: LaunchLog, copy_bytes: int, step: Step
) -> list[Launch]:
    """Count, and see that each pass launched the same."""
    first: list[Launch] = []
    for number in range(counters.passes):
        if is_parent_gone(job):
            sys.exit(f"ridgeline: the parent process of {job.name} ended")
        counters.start()
        _run_known_work(job, log, copy_bytes)
        for _ in range(job.steps):
            with _number_operators(job, log):
                step()
        torch.cuda.synchronize()
        if log.graphs:
            raise RefusedError("kernels of a CUDA graph cannot be told apart")
        is_last = counters.stop()
        launches = log.take()
        if number == 0:
            first = launches
        elif launches != first:
            raise RefusedError("the step launches other kernels each time")
        if is_last:
            return first
    raise RefusedError(f"{counters.passes} passes were foretold, and more are needed")


def _run_known_work(job: Job, log: LaunchLog, copy_bytes: int) -> None:
    with log.range(SETUP):
        run_known_work(job.kinds, copy_bytes, log.range)


def _number_operators(job: Job, log: LaunchLog) -> AbstractContextManager[None]:
    """With a range around every operator, where code may be looked into."""
    return OpRanges(log.range).watching() if job.has_marks else nullcontext()


def _memory_bytes() -> int:
    """For counters: what is free, and not more than this process may have."""
    import psutil

    free_bytes = psutil.virtual_memory().available
    return int(MOST_OF_MEMORY * min(free_bytes, find_limits().memory_bytes or free_bytes))


if __name__ == "__main__":
    try:
        main(pickle.loads(Path(sys.argv[1]).read_bytes()))
    except RidgelineError as error:
        sys.stderr.write(f"ridgeline: {error}\n")
        sys.exit(BAD_INPUT)
    except SystemExit as ended:
        if ended.code != 0:
            raise
        # others wait for this process to be gone, and there is nothing to clean up
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

"""A sweep whose cases take milliseconds: run as a script, so that it can be killed.

python -m tests.sweep.quick_sweep FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ridgeline.measure.worker import MeasuredCase, Task
from ridgeline.records import RunResult, StepTime, WarmUp
from ridgeline.store import ResultsFolder
from ridgeline.sweep.run import LocalRun, Sweep, open_sweep

MATRIX = {
    "name": "study",
    "models": ["lstm", "yolo", "resnet18_cifar"],
    "backend": "cpu",
    "stages": {"quick": {"batch_size": [1, 64]}, "full": {"batch_size": "1:6", "promote": "50%"}},
}
CASE_S = 0.01
FAILING = ("yolo", 6)  # a case that runs out of memory, always


def measure(task: Task, send: Any = None) -> MeasuredCase:
    """Stands for a measurement: it takes a while, and its result is made of what was asked for."""
    time.sleep(CASE_S)
    if (task.spec.model, task.spec.batch_size) == FAILING:
        raise MemoryError
    step_s = task.spec.batch_size / 1000
    step = StepTime(count=1, median=step_s, mean=step_s, min=step_s, max=step_s, samples=(step_s,))
    return MeasuredCase(
        result=RunResult(
            source="own", backend="cpu", device_name="a processor", precision="fp32", iters=1,
            step_time_s=step, warmup=WarmUp(times_s=(step_s,)), samples_processed=1,
            elapsed_s=step_s,
        )
    )  # fmt: skip


def make_sweep(folder: Path) -> Sweep:
    return open_sweep(MATRIX, ResultsFolder(folder))


def run_sweep(folder: Path) -> Sweep:
    sweep = make_sweep(folder)
    sweep.save()
    LocalRun(sweep=sweep, work=measure, in_process=True).run()
    return sweep


if __name__ == "__main__":
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    run_sweep(Path(sys.argv[1]))

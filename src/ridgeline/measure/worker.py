"""What a process of its own does: measure a configuration, or find out how much memory it needs.

The server of processes imports this module once; everything heavy that a measurement needs is
imported here, and no device is touched.
"""

from __future__ import annotations

import torch
import torch._dynamo  # torch does so with the first optimizer, which takes a second

from ridgeline.measure.found import found, tables
from ridgeline.measure.isolation import Send
from ridgeline.measure.marks import NoMarks
from ridgeline.measure.measure_workload import build_stepper, measure_workload
from ridgeline.measure.step import torch_settings
from ridgeline.measure.tasks import Found, Progress, Task
from ridgeline.provenance import torch_backends
from ridgeline.workloads import resolve


def measure(task: Task, send: Send) -> Found:
    """Measure the configuration."""

    def tell(what: str, done: int, total: int) -> None:
        send(Progress(what=what, done=done, total=total))

    measured, stepper = measure_workload(resolve(task.spec), task.spec, task.settings, tell)
    return Found(
        found=found(measured),
        tables=tables(measured, stepper.module),
        log="\n".join(measured.log),
        backends=torch_backends(torch),
    )


def peak_bytes(task: Task, send: Send) -> tuple[int, int]:
    """The peak of the device's memory over two steps, and what the device has in all."""
    stepper = build_stepper(resolve(task.spec), task.spec, task.settings)
    backend = stepper.backend
    with torch_settings(task.settings, stepper.precision):
        for _ in range(2):
            stepper.step(NoMarks())
        backend.synchronize()
    memory = backend.peak_memory()
    return memory.reserved_bytes or 0, backend.total_memory_bytes() or 0

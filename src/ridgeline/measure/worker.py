"""Work that a process of its own does for a configuration. Importing this imports no torch.

The server of processes imports what a measurement needs once (`preload`), and touches no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.measure.isolation import Send
from ridgeline.records import RunRequest, RunResult, WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.workloads.sources import file_digest

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One configuration."""

    spec: WorkloadSpec
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A configuration that was measured, ready to be stored."""

    result: RunResult
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    log: str = ""
    backends: dict[str, str] = field(default_factory=dict)  # CUDA and cuDNN that torch used


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is going on, and how much of it is done."""

    what: str
    done: int
    total: int  # 0: not known


def ignore_message(message: object) -> None:
    """For callers without an interest in progress."""


def measure_task(task: Task, send: Send = ignore_message) -> MeasuredCase:
    """Measure a configuration."""
    with torch_needed():
        import torch  # noqa: F401
    from ridgeline.workloads import resolve
    from ridgeline.workloads.workload import with_weights

    workload = resolve(task.spec)
    if task.settings.weights is not None:
        workload = with_weights(workload, Path(task.settings.weights))
    return measure_case(workload, task, send)


def measure_case(workload: Workload, task: Task, send: Send = ignore_message) -> MeasuredCase:
    """Measure a workload that is built already, as the configuration says."""
    import torch

    from ridgeline.measure.measure_workload import measure_workload
    from ridgeline.measure.run_record import make_tables
    from ridgeline.provenance import torch_backends

    def on_progress(what: str, done: int, total: int) -> None:
        send(Progress(what=what, done=done, total=total))

    measured, stepper = measure_workload(workload, task.spec, task.settings, on_progress)
    return MeasuredCase(
        result=measured.result,
        tables=make_tables(measured, stepper.module),
        log="\n".join(measured.log),
        backends=torch_backends(torch),
    )


def memory_task(task: Task, send: Send = ignore_message) -> tuple[int, int]:
    """The peak of the device's memory over two steps, and what the device has in all."""
    with torch_needed():
        import torch  # noqa: F401
    from ridgeline.measure.measure_workload import build_stepper
    from ridgeline.measure.step import torch_settings
    from ridgeline.measure.timing import NoMarks
    from ridgeline.workloads import resolve

    stepper = build_stepper(resolve(task.spec), task.spec, task.settings)
    backend = stepper.backend
    with torch_settings(task.settings, stepper.precision):
        for _ in range(2):
            stepper.step(NoMarks())
        backend.synchronize()
    memory = backend.peak_memory()
    return memory.reserved_bytes or 0, backend.total_memory_bytes() or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongModel:
    """A model that cannot be run as it was asked for."""

    model: str
    problem: str
    hint: str
    missing_size: str | None = None  # "seq_len" or "input_size", where it only has no such size


def check_task(
    specs: tuple[WorkloadSpec, ...], send: Send = ignore_message
) -> tuple[WrongModel, ...]:
    """What a user can put right; others will be failed runs."""
    with torch_needed():
        import torch  # noqa: F401
    from ridgeline.workloads import resolve

    problems = []
    for spec in specs:
        try:
            resolve(spec)
        except RidgelineError as error:
            missing = error.name if isinstance(error, MissingSizeError) else None
            problems.append(
                WrongModel(
                    model=spec.model, problem=error.problem, hint=error.hint, missing_size=missing
                )
            )
        except (Exception, SystemExit):
            continue
    return tuple(problems)


def run_request(
    task: Task, *, label: str = "", repeat: int = 1, digest: str | None = None
) -> RunRequest:
    """The request of a run. `digest` tells networks of the same name apart; a file has its own."""
    workload, settings = vars(task.spec), vars(task.settings)
    digest = digest or file_digest(task.spec.model)
    return RunRequest(**workload, **settings, label=label, repeat=repeat, digest=digest)


@contextmanager
def torch_needed() -> Iterator[None]:
    """Say what to do where torch is missing, or a library that it needs."""
    try:
        yield
    except (ImportError, OSError) as error:
        raise RidgelineError(
            f"torch cannot be imported: {' '.join(str(error).split())}",
            hint="pip install 'ridgeline[torch]'; `ridgeline doctor` says what works here",
        ) from error

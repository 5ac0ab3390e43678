"""What goes to a process of its own and what comes back. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Send
from ridgeline.records import RunRequest, WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.workloads.sources import file_digest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One configuration."""

    spec: WorkloadSpec
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a configuration came to, ready to be stored."""

    found: dict[str, Any]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    log: str = ""
    backends: dict[str, str] = field(default_factory=dict)  # CUDA and cuDNN that torch used


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is going on, and how much of it is done."""

    what: str
    done: int
    total: int  # 0: not known


def measure_task(task: Task, send: Send) -> Found:
    """Measure a configuration."""
    with torch_needed():
        from ridgeline.measure.worker import measure

    return measure(task, send)


def memory_task(task: Task, send: Send) -> tuple[int, int]:
    """Find out how much of the device's memory a configuration needs, and how much there is."""
    with torch_needed():
        from ridgeline.measure.worker import peak_bytes

    return peak_bytes(task, send)


def check_task(specs: tuple[WorkloadSpec, ...], send: Send) -> tuple[tuple[str, str], ...]:
    """Which of these cannot be found: the problem and the hint of each that is wrong."""
    with torch_needed():
        import torch  # noqa: F401

    return tuple(wrong for spec in specs if (wrong := _wrong(spec)) is not None)


def _wrong(spec: WorkloadSpec) -> tuple[str, str] | None:
    """What a user can put right about a workload; what fails otherwise will be a failed run."""
    from ridgeline.workloads import resolve

    try:
        resolve(spec)
    except RidgelineError as error:
        return error.problem, error.hint
    except (Exception, SystemExit):
        return None
    return None


def run_request(
    task: Task, *, label: str = "", repeat: int = 1, digest: str | None = None
) -> RunRequest:
    """The request of a run. `digest` tells networks of the same name apart; a file has its own."""
    workload, settings = vars(task.spec), vars(task.settings)
    digest = digest or file_digest(task.spec.model)
    return RunRequest(**workload, **settings, label=label, repeat=repeat, digest=digest)


def question(
    task: Task, *, label: str = "", repeat: int = 1, digest: str | None = None
) -> dict[str, Any]:
    """The request of a run as plain values."""
    return vars(run_request(task, label=label, repeat=repeat, digest=digest))


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

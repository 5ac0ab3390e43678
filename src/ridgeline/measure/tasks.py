"""What goes to a process of its own and what comes back. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.measure.isolation import Send
from ridgeline.measure.settings import Settings
from ridgeline.records import WorkloadSpec

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is going on, and how much of it is done."""

    what: str
    done: int
    total: int  # 0: not known


def measure_task(task: Task, send: Send) -> Found:
    """Measure a configuration."""
    from ridgeline.measure.worker import measure

    return measure(task, send)


def memory_task(task: Task, send: Send) -> tuple[int, int]:
    """Find out how much of the device's memory a configuration needs, and how much there is."""
    from ridgeline.measure.worker import peak_bytes

    return peak_bytes(task, send)

"""`ridgeline import`: files of profilers read, joined and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ridgeline.captures.capture import (
    Capture,
    files_of,
    find_devices,
    store_capture,
)
from ridgeline.captures.read import join_captures, read_part
from ridgeline.errors import RidgelineError
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder


class OnProgress(Protocol):
    """Hears which file is read."""

    def start(self, what: str) -> None: ...


@dataclass(slots=True)
class ImportOutcome:
    """The captures that could be read, and where they are stored."""

    captures: list[Capture] = field(default_factory=list)
    errors: list[RidgelineError] = field(default_factory=list)  # of the other files
    paths: list[Path] = field(default_factory=list)
    is_interrupted: bool = False


def import_captures(
    files: Sequence[Path],
    results: ResultsFolder | None,
    label: str | None,
    progress: OnProgress,
    *,
    device: str | None = None,
) -> ImportOutcome:
    """Read all files; store the captures if there is a folder for them, all of them or none.

    `device` is that of files that do not name one.
    """
    devices = find_devices(device) if device else []
    parts, errors = [], []
    for file in files:
        progress.start(file.name)
        try:
            parts.append(read_part(file, devices))
        except RidgelineError as error:
            errors.append(error)
    captures, refusals = join_captures(parts)
    outcome = ImportOutcome(captures, errors + refusals)
    if results is None:
        return outcome
    try:
        with interrupts_later():
            for capture in captures:
                outcome.paths.append(store_capture(results, capture, label=label).path)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    return outcome


def name_files(capture: Capture) -> str:
    """The names of its files, without their folders."""
    return " + ".join(Path(file).name for file in files_of(capture))

"""`ridgeline import`: files of profilers read, joined and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ridgeline.captures.capture import (
    Capture,
    files_of,
    find_devices,
    store_capture,
)
from ridgeline.captures.read import join_captures, read_part
from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import ignore_message
from ridgeline.plain import plain_text
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder
from ridgeline.units import format_time


@dataclass(slots=True)
class ImportOutcome:
    """The captures that could be read, and where they are stored."""

    captures: list[Capture] = field(default_factory=list)
    errors: list[RidgelineError] = field(default_factory=list)  # of the other files
    paths: list[Path] = field(default_factory=list)


READ_BYTES_PER_S, UNPACKED = 4e6, 20  # of text; a .gz holds about so many times its size
MOST_NAMES = 3  # in a line


def describe_reading(files: Sequence[Path]) -> str:
    """What an import will do, and about how long it takes."""
    sizes = [_text_bytes(file) for file in files]
    names = ", ".join(file.name for file in files[:MOST_NAMES])
    more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
    time_s = max(1, round(sum(sizes) / READ_BYTES_PER_S))
    return plain_text(f"reading and joining {names}{more}: about {format_time(time_s)}")


def _text_bytes(file: Path) -> float:
    size = file.stat().st_size if file.is_file() else 0
    return float(size * UNPACKED if file.suffix == ".gz" else size)


def import_captures(
    files: Sequence[Path],
    on_progress: Callable[[str], None] = ignore_message,
    *,
    device: str | None = None,
) -> ImportOutcome:
    """Read all files and join those of one capture; `device` is that of files that name none."""
    devices = find_devices(device) if device else []
    parts, errors = [], []
    for file in files:
        on_progress(file.name)
        try:
            parts.append(read_part(file, devices))
        except RidgelineError as error:
            errors.append(error)
    captures, refusals = join_captures(parts)
    return ImportOutcome(captures, errors + refusals)


def store_captures(outcome: ImportOutcome, results: ResultsFolder, label: str | None) -> None:
    """Store all of them or none."""
    with interrupts_later():
        for capture in outcome.captures:
            outcome.paths.append(store_capture(results, capture, label=label).path)


def name_files(capture: Capture) -> str:
    """The names of its files, without their folders."""
    return " + ".join(Path(file).name for file in files_of(capture))

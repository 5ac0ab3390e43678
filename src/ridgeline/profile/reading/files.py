"""From paths to captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import Capture
from ridgeline.profile.reading.assemble import counted, from_counters
from ridgeline.profile.reading.counters import Counters, Part
from ridgeline.profile.reading.detect import Detected, detect
from ridgeline.profile.reading.header import DETAILS, KINETO, NSYS, RAW, REPORT, TEXT, UI
from ridgeline.profile.reading.opening import TellBytes, at_rest, named, reading
from ridgeline.profile.reading.source import Read


def read_captures(paths: Sequence[Path]) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    from ridgeline.profile.reading.joining import join_captures

    captures, refused = join_captures([read_part(Path(path)) for path in paths])
    if refused:
        raise refused[0]
    return captures


def read_ncu_csv(path: Path) -> Capture:
    """What `ncu --csv --page raw` (or details) printed."""
    return from_counters(read_ncu_counters(path))


def read_ncu_counters(path: Path) -> Counters:
    """The same before quantities are made of it."""
    found = detect(path)
    if found.kind not in (RAW, UI, DETAILS):
        raise RidgelineError(f"{path} is no CSV of Nsight Compute", hint="use ncu --csv --page raw")
    return counted(str(path), found.kind, _table(path, found, None), found.log)


def read_capture(path: Path, tell: TellBytes | None = None) -> Capture:
    """One file, whatever it is. `tell` hears how many bytes of how many have been read."""
    part = read_part(path, tell)
    return part if isinstance(part, Capture) else from_counters(part)


def read_part(path: Path, tell: TellBytes | None = None) -> Part:
    """The same, as far as it can be read without the other files of a capture."""
    with reading(path), at_rest(path) as file:
        if file == path:
            return _read(path, detect(path), tell)
        with named(path, file):
            found = _read(file, detect(file), tell)
        return replace(found, file=str(path))


def _read(path: Path, found: Detected, tell: TellBytes | None) -> Part:
    if found.kind == KINETO:
        from ridgeline.profile.reading.kineto import read_trace

        return read_trace(path, tell)
    if found.kind == REPORT:
        from ridgeline.profile.reading.report import read_report

        return read_report(path)
    if found.kind == NSYS:
        from ridgeline.profile.reading.nsys import read_nsys

        assert found.source is not None
        return read_nsys(found.source, tell)
    return counted(str(path), found.kind, _table(path, found, tell), found.log)


def _table(path: Path, found: Detected, tell: TellBytes | None) -> Read:
    if found.kind == TEXT:
        from ridgeline.profile.reading.sections import read_sections

        return read_sections(path, found.log, tell)
    assert found.source is not None
    if found.kind == DETAILS:
        from ridgeline.profile.reading.long import read_long

        return read_long(found.source, tell)
    from ridgeline.profile.reading.wide import read_wide

    return read_wide(found.source, tell)

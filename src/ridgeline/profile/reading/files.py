"""From paths to captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import Capture
from ridgeline.profile.reading.assemble import from_counters
from ridgeline.profile.reading.detect import Detected, detect
from ridgeline.profile.reading.header import DETAILS, KINETO, NSYS, RAW, REPORT, TEXT, UI
from ridgeline.profile.reading.opening import TellBytes, reading
from ridgeline.profile.reading.source import Read


def read_captures(paths: Sequence[Path]) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    from ridgeline.profile.reading.joining import join_captures

    return join_captures([read_capture(Path(path)) for path in paths])


def read_ncu_csv(path: Path) -> Capture:
    """What `ncu --csv --page raw` (or details) printed."""
    found = detect(path)
    if found.kind not in (RAW, UI, DETAILS):
        raise RidgelineError(f"{path} is no CSV of Nsight Compute", hint="use ncu --csv --page raw")
    return _read(path, found, None)


def read_capture(path: Path, tell: TellBytes | None = None) -> Capture:
    """One file, whatever it is. `tell` hears how many bytes of how many have been read."""
    with reading(path):
        return _read(path, detect(path), tell)


def _read(path: Path, found: Detected, tell: TellBytes | None) -> Capture:
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
    return from_counters(str(path), found.kind, _table(path, found, tell), found.log)


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

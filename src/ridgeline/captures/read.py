"""From paths to captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ridgeline.captures.capture import Capture
from ridgeline.captures.counters import Part
from ridgeline.captures.detect import detect
from ridgeline.captures.table import DETAILS, KINETO, NSYS, REPORT, TEXT
from ridgeline.captures.text_io import OnBytes, explain_os_errors, refuse_pipes


def read_captures(paths: Sequence[Path]) -> list[Capture]:
    """Every file read; those that are parts of one capture are joined."""
    from ridgeline.captures.join import join_captures

    captures, refusals = join_captures([read_part(Path(path)) for path in paths])
    if refusals:
        raise refusals[0]
    return captures


def read_capture(path: Path, on_bytes: OnBytes | None = None) -> Capture:
    """One file of any kind. `on_bytes` gets the bytes read so far and those of the file."""
    from ridgeline.captures.to_capture import to_capture

    part = read_part(path, on_bytes)
    return part if isinstance(part, Capture) else to_capture(part)


def read_part(path: Path, on_bytes: OnBytes | None = None) -> Part:
    """One file, as far as it can be read without the other files of a capture."""
    with explain_os_errors(path):
        refuse_pipes(path)
        return _read(path, on_bytes)


def _read(path: Path, on_bytes: OnBytes | None) -> Part:
    detected = detect(path)
    if detected.kind == KINETO:
        from ridgeline.captures.kineto import read_trace

        return read_trace(path, on_bytes)
    if detected.kind == REPORT:
        from ridgeline.captures.ncu_rep import read_report

        return read_report(path)
    if detected.kind == TEXT:
        from ridgeline.captures.text import read_text

        return read_text(path, detected.log, on_bytes)
    assert detected.table is not None
    if detected.kind == NSYS:
        from ridgeline.captures.nsys import read_nsys

        return read_nsys(detected.table, on_bytes)
    if detected.kind == DETAILS:
        from ridgeline.captures.csv_long import read_long

        return read_long(detected.table, on_bytes)
    from ridgeline.captures.csv_wide import read_wide

    return read_wide(detected.table, on_bytes)

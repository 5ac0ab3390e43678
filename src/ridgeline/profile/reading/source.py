"""A file with kernels in it: where its table begins, what stands before it, what was read of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ridgeline.profile.reading.header import Header
from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table that was found in a file."""

    path: Path
    header: Header
    lines_before: int  # the header
    lines_below: tuple[str, ...]  # the first of them, for what they tell of the numbers
    is_plain: bool  # as pyarrow reads it: UTF-8, nothing before its lines
    turned: tuple[str, ...] = ()  # lines of a table that was turned round to be read
    log: Log = field(default_factory=Log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a reader made of it."""

    launches: Launches
    remarks: tuple[str, ...] = ()
    has_rules: bool = False  # remarks of the profiler in place of metrics

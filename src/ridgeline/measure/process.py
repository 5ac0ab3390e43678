"""What the process cost the system: what `/usr/bin/time -v` tells, on Linux and macOS."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from time import perf_counter

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    """Of a process and its ended children, since it began."""

    user_time_s: float
    system_time_s: float
    peak_rss_bytes: int  # of the process; that of its largest child apart
    peak_child_rss_bytes: int
    minor_faults: int
    major_faults: int  # those that had to read from a disk
    voluntary_switches: int  # it waited
    involuntary_switches: int  # somebody else was given the processor


def process_stats() -> ProcessStats:
    """Up to now."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ProcessStats(
        user_time_s=own.ru_utime + children.ru_utime,
        system_time_s=own.ru_stime + children.ru_stime,
        peak_rss_bytes=own.ru_maxrss * RSS_UNIT_BYTES,
        peak_child_rss_bytes=children.ru_maxrss * RSS_UNIT_BYTES,
        minor_faults=own.ru_minflt + children.ru_minflt,
        major_faults=own.ru_majflt + children.ru_majflt,
        voluntary_switches=own.ru_nvcsw + children.ru_nvcsw,
        involuntary_switches=own.ru_nivcsw + children.ru_nivcsw,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of the processor during a stretch of time."""

    user_time_s: float
    system_time_s: float
    elapsed_s: float
    involuntary_switches: int

    @property
    def cores(self) -> float:
        """How many cores were busy on average."""
        return (self.user_time_s + self.system_time_s) / self.elapsed_s if self.elapsed_s else 0.0


class Stopwatch:
    """Takes the usage from when it was made."""

    def __init__(self) -> None:
        self._start = resource.getrusage(resource.RUSAGE_SELF)
        self._start_s = perf_counter()

    def usage(self) -> Usage:
        now = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(
            user_time_s=now.ru_utime - self._start.ru_utime,
            system_time_s=now.ru_stime - self._start.ru_stime,
            elapsed_s=perf_counter() - self._start_s,
            involuntary_switches=now.ru_nivcsw - self._start.ru_nivcsw,
        )

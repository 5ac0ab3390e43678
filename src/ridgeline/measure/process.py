"""What the process cost the system: what `/usr/bin/time -v` tells, on Linux and macOS."""

from __future__ import annotations

import resource
import sys
from time import perf_counter

from ridgeline.records import ProcessStats, Usage

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB


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


class Stopwatch:
    """Takes the usage from when it was made."""

    def __init__(self) -> None:
        self._start = resource.getrusage(resource.RUSAGE_SELF)
        self._start_s = perf_counter()

    def usage(self) -> Usage:
        now = resource.getrusage(resource.RUSAGE_SELF)
        user_s = now.ru_utime - self._start.ru_utime
        system_s = now.ru_stime - self._start.ru_stime
        elapsed_s = perf_counter() - self._start_s
        return Usage(
            user_time_s=user_s,
            system_time_s=system_s,
            elapsed_s=elapsed_s,
            involuntary_switches=now.ru_nivcsw - self._start.ru_nivcsw,
            cores=(user_s + system_s) / elapsed_s if elapsed_s else 0.0,
        )

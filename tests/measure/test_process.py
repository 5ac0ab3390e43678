"""What a process cost, by the system's own counts."""

from __future__ import annotations

import resource
import runpy
import sys
from types import SimpleNamespace

import psutil
import pytest

from ridgeline.measure import process
from ridgeline.measure.process import Stopwatch, process_stats
from ridgeline.records import ProcessStats, Usage


def counts(scale: int) -> SimpleNamespace:
    return SimpleNamespace(
        ru_utime=1.0 * scale, ru_stime=0.5 * scale, ru_maxrss=1000 * scale, ru_minflt=20 * scale,
        ru_majflt=2 * scale, ru_nvcsw=7 * scale, ru_nivcsw=3 * scale,
    )  # fmt: skip


def test_a_process_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {resource.RUSAGE_SELF: counts(1), resource.RUSAGE_CHILDREN: counts(10)}
    monkeypatch.setattr(resource, "getrusage", lambda who: of[who])
    monkeypatch.setattr(process, "RSS_UNIT_BYTES", 1024)

    assert process_stats() == ProcessStats(
        user_time_s=11.0,
        system_time_s=5.5,
        peak_rss_bytes=1_024_000,
        peak_child_rss_bytes=10_240_000,
        minor_faults=220,
        major_faults=22,
        voluntary_switches=77,
        involuntary_switches=33,
    )


@pytest.mark.parametrize(("platform", "unit_bytes"), [("linux", 1024), ("darwin", 1)])
def test_macos_counts_bytes_where_linux_counts_kib(
    monkeypatch: pytest.MonkeyPatch, platform: str, unit_bytes: int
) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    assert runpy.run_path(process.__file__)["RSS_UNIT_BYTES"] == unit_bytes


def test_the_peak_is_of_the_size_of_this_process() -> None:
    now_bytes = psutil.Process().memory_info().rss

    assert now_bytes / 2 < process_stats().peak_rss_bytes < 100 * now_bytes


def test_usage_of_a_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    uses, times_s = iter([counts(1), counts(4)]), iter([10.0, 12.25])
    monkeypatch.setattr(resource, "getrusage", lambda _who: next(uses))
    monkeypatch.setattr(process, "perf_counter", lambda: next(times_s))

    usage = Stopwatch().usage()

    assert usage == Usage(
        user_time_s=3.0, system_time_s=1.5, elapsed_s=2.25, involuntary_switches=9, cores=2.0
    )

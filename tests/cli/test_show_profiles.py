"""Profiles in the terminal: of a run whose model was counted, with counters and without."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.analyzed_here import Printed
from tests.report.profiled import folder, kernels, store_profile

from ridgeline.cli.show_profiles import show_profiles

COST = {"planned_s": 60.0, "counted_s": 62.0, "taken_s": 66.0, "passes": 3}
TESTED = {"ratios": {"copy": 1.004}, "is_trusted": True}


def last_column(printed: str) -> dict[str, str]:
    """Executed over model FLOPs by part of the step."""
    return dict(re.findall(r"(step|forward|backward|optimizer) +\d.* (\S+) *$", printed, re.M))


def test_executed_over_model(tmp_path: Path, capsys: Printed) -> None:
    results = folder(tmp_path)
    profile = store_profile(results, cost=COST, self_test=TESTED)
    show_profiles([profile], results, quiet=True)
    ratios = last_column(capsys.readouterr().out)
    # 819.7 of 789.0 GFLOP
    assert (ratios["step"], ratios["forward"]) == ("1.039", "1.057")


def test_times_alone_have_no_ratio(tmp_path: Path, capsys: Printed) -> None:
    # given a profile without counters of a model that was counted
    results = folder(tmp_path)
    table = kernels()
    times = table.drop(columns=[n for n in map(str, table) if "flops_" in n or "bytes" in n])
    profile = store_profile(results, times, tier="time", self_test=None, totals={}, plan=None)
    show_profiles([profile], results, quiet=True)
    printed = capsys.readouterr().out
    assert set(last_column(printed).values()) == {"–"}
    assert "kernels take 7.92 ms (637 launches) of a step of 22.5 ms" in printed

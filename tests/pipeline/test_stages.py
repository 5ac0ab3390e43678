"""What an analysis did is kept, stage by stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.pipeline.analyze import Stages
from ridgeline.report.study import read_stages


def test_stages_are_kept_for_the_report(tmp_path: Path) -> None:
    # given a stage that works, one that fails and one that is skipped
    stages = Stages()
    with stages.begin("machine") as stage:
        stage.status, stage.reason = "cached", "kept from 2026-11-15"
    with stages.begin("count"):
        raise RidgelineError("no formula", hint="register one")
    with stages.begin("profile") as stage:
        stage.status, stage.reason = "skipped", "no counters"
    stages.write(tmp_path, ["r1"])
    # when they are read back
    found = read_stages(tmp_path, ["r1"])
    # then each has its status and reason, and the failure ended nothing
    assert found == (
        {"stage": "machine", "status": "cached", "reason": "kept from 2026-11-15"},
        {"stage": "count", "status": "failed", "reason": "no formula   hint: register one"},
        {"stage": "profile", "status": "skipped", "reason": "no counters"},
    )
    # and they are not told of other runs
    assert read_stages(tmp_path, ["r1", "r2"]) == ()


def test_a_bug_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError), Stages().begin("run"):
        _ = 1 / 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stages": [{"stage": 1}]}', '{"stages": 3}'])
def test_a_damaged_file_is_no_stages(tmp_path: Path, content: str) -> None:
    (tmp_path / "analysis.json").write_text(content)
    assert read_stages(tmp_path, []) == ()

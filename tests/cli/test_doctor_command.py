"""`ridgeline doctor` as a user meets it: what it prints and how it exits."""

from __future__ import annotations

import json
from functools import partial

import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command

from ridgeline.machine import doctor
from ridgeline.machine.doctor import Check

FINE = Check(group="software", name="Python", state="ok", result="3.11.7")
ABSENT = Check(
    group="gpu", name="GPU", state="missing", result="none [yet]", fix="buy one [bold]now"
)
ILL = Check(group="counters", name="Nsight Compute", state="broken", result="does not start",
            fix="install it again")  # fmt: skip


ridgeline = partial(command, "doctor")


@pytest.mark.parametrize(
    ("checks", "options", "code", "shown", "hidden", "err"),
    [
        ([FINE, ABSENT], [], 0, ["missing", "→ buy one [bold]now"], [],  # brackets are text
         "2 checks: 1 ok, 1 missing\n"),
        ([FINE, ABSENT, ILL], ["--quiet"], 1, ["install it again"], ["Python"], ""),
        ([FINE, ABSENT], ["-q"], 0, [], ["Python", "GPU"], ""),
    ],
    ids=["missing is no failure", "broken is one", "quiet and well"],
)  # fmt: skip
def test_printed(
    checks: list[Check],
    options: list[str],
    code: int,
    shown: list[str],
    hidden: list[str],
    err: str,
    monkeypatch: MonkeyPatch,
    capsys: Printed,
) -> None:
    monkeypatch.setattr(doctor, "diagnose", lambda facts, before: checks)
    assert ridgeline(*options) == code
    printed = capsys.readouterr()
    assert [text for text in shown if text not in printed.out] == []
    assert [text for text in hidden if text in printed.out] == []
    assert printed.err == err


def test_json(monkeypatch: MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(doctor, "diagnose", lambda facts, before: [FINE, ILL])
    assert ridgeline("--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "healthy": False,
        "checks": [FINE.to_dict(), ILL.to_dict()],
    }

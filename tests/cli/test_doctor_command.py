"""`ridgeline doctor` as a user meets it: what it prints and how it exits."""

from __future__ import annotations

import json

import pytest

from ridgeline.cli import main
from ridgeline.machine import doctor
from ridgeline.machine.doctor import Check

FINE = Check(group="software", name="Python", state="ok", result="3.11.7")
ABSENT = Check(
    group="gpu", name="GPU", state="missing", result="none [yet]", fix="buy one [bold]now"
)
ILL = Check(group="counters", name="Nsight Compute", state="broken", result="does not start",
            fix="install it again")  # fmt: skip


def ridgeline(*arguments: str) -> int:
    """Run the command line in this process; answers the exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", *arguments])
    return int(stopped.value.code or 0)


def here(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    """Let the doctor find these."""
    monkeypatch.setattr(doctor, "diagnose", lambda facts, before: list(checks))


def test_what_is_missing_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here(monkeypatch, FINE, ABSENT)
    assert ridgeline() == 0
    printed = capsys.readouterr()
    assert "missing" in printed.out
    assert "→ buy one [bold]now" in printed.out  # brackets are text
    assert "2 checks: 1 ok, 1 missing" in printed.err


def test_what_is_broken_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here(monkeypatch, FINE, ABSENT, ILL)
    assert ridgeline("--quiet") == 1
    printed = capsys.readouterr()
    assert "install it again" in printed.out
    assert "Python" not in printed.out
    assert printed.err == ""


def test_quiet_and_well_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here(monkeypatch, FINE, ABSENT)
    assert ridgeline("-q") == 0
    assert capsys.readouterr() == ("", "")


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    here(monkeypatch, FINE, ILL)
    assert ridgeline("--json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "schema": 1,
        "healthy": False,
        "checks": [
            {"name": "Python", "state": "ok", "found": "3.11.7", "fix": "", "group": "software"},
            {"name": "Nsight Compute", "state": "broken", "found": "does not start",
             "fix": "install it again", "group": "counters"},
        ],
    }  # fmt: skip
    assert printed.err == ""


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert ridgeline("--help") == 0
    assert "ridgeline doctor --json" in capsys.readouterr().out


def test_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline("--json")
    answer = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["healthy"] else 1)
    states = {check["name"]: check["state"] for check in answer["checks"]}
    assert states["Python"] == states["core packages"] == "ok"

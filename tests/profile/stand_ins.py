"""Stand-ins for ncu and for the program that takes the step: they play back one of an H200."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ridgeline.profile import processes

HERE = Path(__file__).parent
PROGRAM = (sys.executable, str(HERE / "fake_program.py"))


def use_stand_ins(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """FAKE_NCU, FAKE_PROGRAM and FAKE_CUPTI in the environment name ways to fail."""
    ncu = folder / "ncu"
    ncu.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_ncu.py"} "$@"\n')
    ncu.chmod(0o755)
    monkeypatch.setenv("RIDGELINE_NCU", str(ncu))
    monkeypatch.setattr(processes, "target_program", lambda path: list(PROGRAM))

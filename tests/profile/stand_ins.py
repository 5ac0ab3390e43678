"""Stand-ins for ncu and for the program under it, which play back a step of an H200."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ridgeline.profile import profiling

HERE = Path(__file__).parent
PROGRAM = (sys.executable, str(HERE / "fake_program.py"))


def use_stand_ins(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """FAKE_NCU and FAKE_PROGRAM in the environment name ways to fail."""
    ncu = folder / "ncu"
    ncu.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_ncu.py"} "$@"\n')
    ncu.chmod(0o755)
    monkeypatch.setenv("RIDGELINE_NCU", str(ncu))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(profiling, "target_program", lambda path: list(PROGRAM))

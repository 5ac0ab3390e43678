"""The progress bar beside printed lines, on a terminal that shows both."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals")

SCRIPT = """
from ridgeline.cli.progress import progress_bar

with progress_bar(2, quiet=False) as progress:
    for number in (1, 2):
        progress.start(f"run {number}")
        progress.update("timing", 1, 2)
        with progress.aside():
            print(f"line {number}", flush=True)
        progress.update("layers", 1, 2)
with progress_bar(60.0, quiet=False) as progress:
    progress.start("machine", 30)
    progress.update("cpu", 0, 0)
with progress_bar(1, quiet=False) as progress:
    progress.start("training")
    progress.update("epoch 1", 3, 4)
print("table")
"""


def screen(text: str) -> list[str]:
    """What a terminal shows in the end: it can move up, go to the left and wipe out a line."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return lines


def seen(script: Path) -> str:
    """All that a script writes to a terminal."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=theirs, stderr=theirs, env=environment
    ):
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # the way in which Linux says that the other end is closed
            pass
    os.close(ours)
    return text.decode()


def test_lines_stay_and_bars_go(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    written = seen(script)
    assert "run 2: timing" in written
    assert "machine: cpu" in written
    assert "epoch 1" in written
    assert [line for line in screen(written) if line] == ["line 1", "line 2", "table"]

"""The kernel's small text files. Absent and unreadable ones have nothing to say."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")
PROC = Path("/proc")


def text_of(path: Path) -> str:
    """The content, or nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def thousandths(path: Path) -> float | None:
    """A whole number of thousandths of a unit, as the unit: 45500 is 45.5."""
    text = text_of(path).strip()
    return int(text) / 1000 if text.lstrip("-").isdigit() else None

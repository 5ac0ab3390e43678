"""Words around numbers: plurals, lists, ratios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_LISTED = 6


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`, `2 batches`."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def some(parts: Sequence[str], *, most: int = MOST_LISTED, joint: str = "; ") -> str:
    """The first of many, and how many more there are."""
    shown = joint.join(parts[:most])
    left = len(parts) - most
    return f"{shown}{joint}and {left} more" if left > 0 else shown


def capped(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def three_digits(value: float) -> str:
    """Three significant digits, zeros included, so that numbers side by side look alike."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")


def times(ratio: float) -> str:
    """`1.25 times`."""
    return f"{three_digits(ratio)} times"


def span(low: str, high: str) -> str:
    """`3 to 5`, or `3` where both ends read the same."""
    return low if low == high else f"{low} to {high}"

"""Texts of files that anybody may have written, as no terminal obeys them.

What moves the cursor, colours, or turns the direction of writing is shown as its escape.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAK = re.compile(r"[\t\n]")


def plain_text(text: str) -> str:
    """Tabs and line ends stay."""
    if text.isprintable():  # nearly every name is, and this takes no time
        return text
    return _CONTROL.sub(_escape, text)


def plain_line(text: str) -> str:
    """Nothing stays that ends a line: for names, which have no business to."""
    return text if text.isprintable() else _BREAK.sub(_escape, plain_text(text))


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]

"""Texts that anybody may have written, as no terminal obeys them."""

from __future__ import annotations

from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_line, plain_text


def test_a_text_keeps_its_lines() -> None:
    assert plain_text("a\tb\nc é 漢") == "a\tb\nc é 漢"
    assert plain_text("\x1b[31mred\x07\r\x9b\u202e\u2028") == r"\x1b[31mred\x07\r\x9b\u202e\u2028"
    assert plain_text("\u061c\udcff") == r"\u061c\udcff"  # of a name that is no UTF-8


def test_a_line_is_one() -> None:
    assert plain_line("a\tb\nc é 漢") == r"a\tb\nc é 漢"
    assert plain_line("\x1b[31mred\n\r") == r"\x1b[31mred\n\r"
    assert plain_line("") == ""


def test_an_error_quotes_nothing_that_a_terminal_obeys() -> None:
    error = RidgelineError("there is no \x1b[2J", hint="name\nanother \x07")

    assert str(error) == "there is no \\x1b[2J\n  hint: name\nanother \\x07"
    assert (error.problem, error.hint) == (r"there is no \x1b[2J", "name\nanother \\x07")

"""Names of a file in errors, and the options that give a number for them."""

from __future__ import annotations

import shlex

from ridgeline.onnx.expressions import LONGEST
from ridgeline.plain import plain_line


def shown(name: str) -> str:
    """A name in a sentence: one line, and not without end."""
    return plain_line(name if len(name) <= LONGEST else f"{name[:LONGEST]}…")


def quoted(name: str) -> str:
    """The same between quotation marks."""
    return f"'{shown(name)}'"


def can_be_written(name: str) -> bool:
    """Whether one would write it on a command line."""
    return len(name) <= LONGEST and name.isprintable()


def option_for(name: str, number: str = "N") -> str:
    """The option that gives a size, as a shell takes it: a name may have blanks and stars in it."""
    return plain_line(f"--dim {shlex.quote(f'{name}={number}')}")

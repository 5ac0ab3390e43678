"""Ctrl-C: never lost, never a traceback.

Python raises KeyboardInterrupt wherever the program happens to be. Inside of callbacks of the
garbage collector and of some C code (numpy comparing types, pyarrow importing pandas) it is thrown
away. So it is noted, too, and raised again when the next piece of work begins; and while large
libraries are imported the command ends at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ridgeline.cli import INTERRUPTED

_pressed: list[int] = []


def watch() -> None:
    """Note interrupts from now on; the process is the command's own."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, or someone else's
    signal.signal(signal.SIGINT, _note)
    told = sys.unraisablehook

    def tell(ignored: Any) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            told(ignored)

    sys.unraisablehook = tell


def _note(number: int, frame: object) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def stop_if_pressed() -> None:
    """Raise an interrupt again that was thrown away where it was raised."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def stopped_at_once(
    message: str = "interrupted", before: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Let Ctrl-C end the command here and now; `before` prints what a script still needs."""

    def stop(*_: object) -> None:
        before()
        print(f"ridgeline: {message}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

    usual = signal.getsignal(signal.SIGINT)
    if usual not in (signal.default_int_handler, _note):
        yield  # ignored, or someone else's
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def import_tables() -> None:
    """pandas and pyarrow, inside of which an interrupt is lost or turns into other errors."""
    with stopped_at_once(), suppress(ImportError):
        import pandas
        import pyarrow  # noqa: F401

        assert pandas

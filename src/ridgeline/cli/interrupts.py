"""Ctrl-C: never lost, never a traceback.

Python raises KeyboardInterrupt wherever the program happens to be, and some libraries throw it away
or make an ImportError of it. So it is noted, too: it is raised again when the next unit of work
begins, and looked for when the command ends. While large libraries are imported the command ends at
once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from ridgeline.signals import INTERRUPTED

_pressed: list[int] = []


def watch() -> None:
    """Note interrupts from now on; the process is the command's own."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, or someone else's
    signal.signal(signal.SIGINT, _note)
    usual = sys.unraisablehook

    def hide_interrupts(ignored: Any) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            usual(ignored)

    sys.unraisablehook = hide_interrupts


def _note(number: int, frame: object) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def was_pressed() -> bool:
    """Whether an interrupt came, even one that was thrown away."""
    return bool(_pressed)


def stop_if_pressed() -> None:
    """Raise an interrupt again that was thrown away where it was raised."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """An interrupt leaves this block as KeyboardInterrupt, whatever a library made of it."""
    try:
        yield
    except Exception:
        stop_if_pressed()
        raise
    stop_if_pressed()


@contextmanager
def stopped_at_once(message: str = "interrupted") -> Iterator[None]:
    """Let Ctrl-C end the command here and now."""

    def stop(*_: object) -> None:
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
    _import_at_once("pandas", "pyarrow")


def import_figures() -> None:
    """matplotlib; an interrupt inside of its C++ modules lets Python abort at its end."""
    _import_at_once("matplotlib.backends.backend_agg", "matplotlib.figure", "matplotlib.style")


def _import_at_once(*modules: str) -> None:
    """What cannot be imported is an error where it is used."""
    with stopped_at_once(), suppress(Exception):
        for module in modules:
            import_module(module)

"""Ctrl-C: never lost, never a traceback.

Python raises KeyboardInterrupt wherever the program happens to be. Inside of callbacks of the
garbage collector (every import runs one, for its lock) and of some C code (numpy comparing types,
pyarrow importing pandas) it is thrown away, or it becomes an ImportError. So it is noted, too.
It is sent again when Python reports that it was thrown away, raised again when the next unit of
work begins, and looked for when the command ends. While large libraries are imported the command
ends at once.
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

SEND_AGAIN_S = 0.02  # after this the callback that lost an interrupt has ended
_pressed: list[int] = []


def watch() -> None:
    """Note interrupts from now on; the process is the command's own."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, or someone else's
    signal.signal(signal.SIGINT, _note)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    usual = sys.unraisablehook

    def notice(ignored: Any) -> None:
        if isinstance(ignored.exc_value, KeyboardInterrupt):
            _send_again(SEND_AGAIN_S)
        else:
            usual(ignored)

    sys.unraisablehook = notice


def _note(number: int, frame: object) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def _send_again(after_s: float) -> None:
    """Send an interrupt after a while, as Ctrl-C does; after 0 s: send none any more."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, after_s)


def was_pressed() -> bool:
    """Whether an interrupt came, even one that was thrown away."""
    return bool(_pressed)


def stop_if_pressed() -> None:
    """Raise an interrupt again that was thrown away where it was raised."""
    if _pressed:
        _send_again(0)
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

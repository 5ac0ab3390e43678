"""Ctrl-C where the middle of something is a bad place for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended, as shells report it


@contextmanager
def interrupts_noted(interrupts: list[int]) -> Iterator[None]:
    """An interrupt ends this block and is noted: what was done until then is shown next."""
    try:
        yield
    except KeyboardInterrupt:
        interrupts.append(signal.SIGINT)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """An interrupt waits for the end of this; what is started inside never hears of one.

    The mask, which such a process inherits, is of this thread: where another one takes the
    signal, the handler still runs here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no interrupt is raised here
        return
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)

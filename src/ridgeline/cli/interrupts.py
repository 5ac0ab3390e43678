"""Ctrl-C while libraries are imported: inside numpy and torch it is lost, or turns into errors."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ridgeline.cli import INTERRUPTED


@contextmanager
def stopped_at_once(
    message: str = "interrupted", before: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Let Ctrl-C end the command here and now; `before` prints what a script still needs."""

    def stop(*_: object) -> None:
        before()
        print(f"ridgeline: {message}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # ignored, or someone else's
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

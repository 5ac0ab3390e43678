"""Standard output, with failures that cannot be taken for anything else.

A full disk and a closed pipe raise OSError from any print. Typer and rich each have their own
idea of what that means, and it looks like any other OSError; so it becomes an error of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from ridgeline.errors import RidgelineError


class StdoutError(RidgelineError):
    """Standard output took no more."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"cannot write to standard output: {error.strerror}",
            hint="make room there, or send the output elsewhere",
        )
        self.reader_has_gone = isinstance(error, BrokenPipeError)


class _Guarded:
    """A text stream that raises StdoutError where the stream below raises OSError."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _raising_stdout_error():
            return self._stream.write(text)

    def flush(self) -> None:
        with _raising_stdout_error():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _raising_stdout_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StdoutError(error) from error


@contextmanager
def guarded_stdout() -> Iterator[None]:
    """Everything printed inside has arrived at the end, or StdoutError is raised."""
    if sys.stdout is None:  # closed by the shell: `>&-`
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            yield
        return
    if isinstance(sys.stdout, TextIOWrapper):  # `\xe9` in an ASCII terminal rather than an error
        sys.stdout.reconfigure(errors="backslashreplace")
    guarded: Any = _Guarded(sys.stdout)
    with redirect_stdout(guarded):
        try:
            yield
        finally:  # a command ends in SystemExit
            guarded.flush()


def open_stderr() -> None:
    """Somewhere for advice to go where the shell has closed it, `2>&-`; children inherit it."""
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")


def give_up_stdout() -> None:
    """Let what is still buffered go nowhere: Python would try it again, and fail, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Standard output, with failures that cannot be taken for anything else.

A full disk and a closed pipe raise OSError from any print. Typer and rich each have their own
idea of what that means, and it looks like any other OSError; so it becomes an error of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
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
        try:
            return self._stream.write(text)
        except OSError as error:
            raise StdoutError(error) from error
        except UnicodeEncodeError:  # `\\xe9` in an ASCII terminal
            return self._stream.write(text.encode("ascii", "backslashreplace").decode())

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise StdoutError(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded_stdout() -> Iterator[None]:
    """Everything printed inside has arrived at the end, or StdoutError is raised."""
    with Path(os.devnull).open("w") as nowhere:
        guarded: Any = _Guarded(sys.stdout or nowhere)  # the shell closes it by `>&-`
        with redirect_stdout(guarded):
            try:
                yield
            finally:  # a command ends in SystemExit
                guarded.flush()


def give_up_stdout() -> None:
    """Let what is still buffered go nowhere: Python would try it again, and fail, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

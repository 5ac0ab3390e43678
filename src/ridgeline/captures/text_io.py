"""Files as text: plain or packed with gzip, in UTF-8 or UTF-16."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from ridgeline.errors import RidgelineError

HEAD_BYTES = 2**20
GZIP_MARK = b"\x1f\x8b"
_CHUNK = 2**20  # of a line that is skipped
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

OnBytes = Callable[[int, int], None]  # bytes read and bytes in all


class _WatchedFile(io.RawIOBase):
    """A file that reports how far it has been read."""

    def __init__(self, path: Path, on_bytes: OnBytes | None) -> None:
        self._file = path.open("rb", buffering=0)
        self._on_bytes, self._total = on_bytes, path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a narrower buffer
        count = cast(int, self._file.readinto(buffer))
        if self._on_bytes is not None:
            self._on_bytes(self._file.tell(), self._total)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system or of gzip into one that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise RidgelineError(f"there is no file {path}", hint="check the path") from error
    except IsADirectoryError as error:
        raise RidgelineError(f"{path} is a folder", hint="name the files in it") from error
    except _DAMAGED as error:
        raise RidgelineError(
            f"{path} cannot be unpacked: it is damaged or not whole", hint="copy it again"
        ) from error
    except OSError as error:
        raise RidgelineError(
            f"cannot read {path}: {error.strerror or error}", hint="check the file"
        ) from error


def refuse_pipes(path: Path) -> None:
    """A pipe can be read only once, and a terminal never ends."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise RidgelineError(
            f"{path} is a pipe or a device", hint="write it to a file and import that"
        )


@contextmanager
def open_bytes(path: Path, on_bytes: OnBytes | None = None) -> Iterator[BinaryIO]:
    """The unpacked content of a file."""
    with (
        explain_os_errors(path),
        io.BufferedReader(_WatchedFile(path, on_bytes), buffer_size=2**20) as raw,
    ):
        if not raw.peek(2).startswith(GZIP_MARK):
            yield cast(BinaryIO, raw)
            return
        with gzip.GzipFile(fileobj=cast(Any, raw), mode="rb") as unpacked:
            yield cast(BinaryIO, unpacked)


@contextmanager
def open_text(path: Path, on_bytes: OnBytes | None = None) -> Iterator[TextIO]:
    """The content as text; bytes without a meaning in its encoding are replaced."""
    encoding = find_encoding(read_head(path))
    with open_bytes(path, on_bytes) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
        yield text
        text.detach()


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of the content; as many as there are if its end is damaged."""
    head = bytearray()
    with open_bytes(path) as stream:
        try:
            while len(head) < size and (part := stream.read(min(2**16, size))):
                head += part
        except (*_DAMAGED, OSError):
            if not head:
                raise
    return bytes(head[:size])


def skip_lines(stream: TextIO | BinaryIO, count: int) -> None:
    """Read past lines of any length in little memory."""
    while count and (part := stream.readline(_CHUNK)):
        count -= part[-1:] in ("\n", b"\n")


def find_encoding(head: bytes) -> str:
    """By the byte order mark; UTF-8 without one."""
    marks = _BYTE_ORDER_MARKS.items()
    return next((name for mark, name in marks if head.startswith(mark)), "utf-8")


def decode_head(head: bytes) -> str:
    """The beginning of a file as text."""
    return head.decode(find_encoding(head), errors="replace")

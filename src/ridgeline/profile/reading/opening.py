"""Files as text, whatever they are packed and encoded in: gzip, UTF-8, UTF-16, Latin-1."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, AnyStr, BinaryIO, TextIO, cast

from ridgeline.errors import RidgelineError

HEAD_BYTES = 2**20
_PIECE = 2**20  # of a line that is not kept
GZIP = b"\x1f\x8b"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

TellBytes = Callable[[int, int], None]  # bytes read and bytes in all


class Watched(io.RawIOBase):
    """A file that tells how far it has been read."""

    def __init__(self, path: Path, tell: TellBytes | None) -> None:
        self._file = path.open("rb", buffering=0)
        self._tell, self._total = tell, path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = cast(int, self._file.readinto(buffer))
        if self._tell is not None:
            self._tell(self._file.tell(), self._total)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what a file system or a packed file refuses into advice."""
    try:
        yield
    except FileNotFoundError as error:
        raise RidgelineError(f"there is no file {path}", hint="check the path") from error
    except IsADirectoryError as error:
        raise RidgelineError(f"{path} is a folder", hint="name the files in it") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RidgelineError(
            f"{path} cannot be unpacked: it is damaged or not whole", hint="copy it again"
        ) from error
    except OSError as error:
        raise RidgelineError(
            f"cannot read {path}: {error.strerror or error}", hint="check the file"
        ) from error


@contextmanager
def open_bytes(path: Path, tell: TellBytes | None = None) -> Iterator[BinaryIO]:
    """The unpacked content of a file."""
    with reading(path):
        with path.open("rb") as file:
            is_packed = file.read(len(GZIP)) == GZIP
        raw = io.BufferedReader(Watched(path, tell), buffer_size=2**20)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw) if is_packed else raw)
        with raw, stream:
            yield stream


@contextmanager
def open_text(path: Path, tell: TellBytes | None = None) -> Iterator[TextIO]:
    """The content as text; bytes that have no meaning in its encoding are replaced."""
    encoding = encoding_of(read_head(path))
    with open_bytes(path, tell) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
        yield text
        text.detach()


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of the content; as many as there are if its end is damaged."""
    with open_bytes(path) as stream:
        parts = bytearray()
        try:
            while len(parts) < size and (part := stream.read(min(2**16, size))):
                parts += part
        except (EOFError, zlib.error, OSError):
            if not parts:
                raise
    return bytes(parts[:size])


def skip_lines(stream: IO[AnyStr], count: int) -> None:
    """Read past lines, of any length, in little memory."""
    while count and (piece := stream.readline(_PIECE)):
        count -= piece.endswith(b"\n" if isinstance(piece, bytes) else "\n")


def lines_of(stream: TextIO, longest: int) -> Iterator[str]:
    """Lines; one that is longer than any of a capture comes in pieces."""
    while line := stream.readline(longest):
        yield line


def line_ends(stream: TextIO, longest: int) -> Iterator[str]:
    """Every line; of one that is longer, at least so many of its last characters."""
    end = ""
    while piece := stream.readline(longest):
        end = end[-longest:] + piece if end else piece
        if end.endswith("\n"):
            yield end
            end = ""
    if end:
        yield end


def encoding_of(head: bytes) -> str:
    """By its mark; without one, every second byte of UTF-16 is 0 in texts like these."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    sample = head[:2000]
    if sample[1::2].count(0) > len(sample) // 4:
        return "utf-16-le"
    if sample[0::2].count(0) > len(sample) // 4:
        return "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def head_text(head: bytes) -> str:
    """The beginning of a file as text."""
    return head.decode(encoding_of(head), errors="replace")

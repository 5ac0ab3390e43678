"""Files as text, whatever they are packed (gzip, bzip2, xz) and encoded in; pipes, too."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from ridgeline.errors import RidgelineError
from ridgeline.profile.reading.prefixes import BareLines, prefixes_in

HEAD_BYTES = 2**20
_PIECE = 2**20  # of a line that is not kept
MARK_BYTES = 16  # that tell how a file is packed
_LAYERS = 3  # of packing; more are no accident
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Lines = TextIO | BareLines
TellBytes = Callable[[int, int], None]  # bytes read and bytes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A way to pack files: how one begins, and what unpacks it, here and in a shell."""

    mark: re.Pattern[bytes]
    unpack: Callable[[Any], Any]
    program: str


PACKINGS = (
    Packing(mark=re.compile(rb"\x1f\x8b"), program="gunzip --keep",
            unpack=lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    Packing(mark=re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), program="bunzip2 --keep",
            unpack=bz2.BZ2File),
    Packing(mark=re.compile(rb"\xfd7zXZ\0"), program="unxz --keep", unpack=lzma.LZMAFile),
)  # fmt: skip


def packing_of(head: bytes) -> Packing | None:
    """How a file that begins like this is packed."""
    return next((packing for packing in PACKINGS if packing.mark.match(head)), None)


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
        hint = "a pipe is /dev/stdin" if str(path) == "-" else "check the path"
        raise RidgelineError(f"there is no file {path}", hint=hint) from error
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


@contextmanager
def at_rest(path: Path) -> Iterator[Path]:
    """The file itself; of a pipe, which can be read only once, a copy of the same name."""
    if path.is_char_device():
        raise RidgelineError(
            f"{path} is a terminal or another device, no file",
            hint="name a file, or send one through a pipe: … | ridgeline import /dev/stdin",
        )
    if not path.is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with path.open("rb") as pipe, copy.open("wb") as file:
            shutil.copyfileobj(pipe, file)
        yield copy


@contextmanager
def named(path: Path, copy: Path) -> Iterator[None]:
    """Refusals of a copy, or of what was made of a file, in the name of the file."""
    try:
        yield
    except RidgelineError as error:
        problem = error.problem.replace(str(copy), str(path))
        raise RidgelineError(problem, hint=error.hint) from error


@contextmanager
def open_bytes(path: Path, tell: TellBytes | None = None) -> Iterator[BinaryIO]:
    """The unpacked content of a file."""
    with reading(path), ExitStack() as opened:
        raw = io.BufferedReader(Watched(path, tell), buffer_size=2**20)
        stream: Any = opened.enter_context(raw)
        for _ in range(_LAYERS):
            packing = packing_of(stream.peek(MARK_BYTES))
            if packing is None:
                break
            stream = opened.enter_context(packing.unpack(stream))
        yield cast(BinaryIO, stream)


@contextmanager
def open_text(path: Path, tell: TellBytes | None = None) -> Iterator[TextIO]:
    """The content as text; bytes that have no meaning in its encoding are replaced."""
    encoding = encoding_of(read_head(path))
    with open_bytes(path, tell) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
        yield text
        text.detach()


@contextmanager
def open_lines(path: Path, tell: TellBytes | None = None) -> Iterator[Lines]:
    """The lines of a text, without what was put before them when it was pasted."""
    prefixes = prefixes_in(head_text(read_head(path)))
    with open_text(path, tell) as text:
        yield text if prefixes is None else BareLines(text, path, prefixes)


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of the content; as many as there are if its end is damaged."""
    with open_bytes(path) as stream:
        parts = bytearray()
        try:
            while len(parts) < size and (part := stream.read(min(2**16, size))):
                parts += part
        except (*_DAMAGED, OSError):
            if not parts:
                raise
    return bytes(parts[:size])


def skip_lines(stream: Lines | BinaryIO, count: int) -> None:
    """Read past lines, of any length, in little memory."""
    while count and (piece := stream.readline(_PIECE)):
        count -= piece[-1:] in ("\n", b"\n")


def lines_of(stream: Lines, longest: int) -> Iterator[str]:
    """Lines; one that is longer than any of a capture comes in pieces."""
    while line := stream.readline(longest):
        yield line


def line_ends(stream: Lines, longest: int) -> Iterator[str]:
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

"""A wide table in pieces: its rows by column, and the layout that says what each column holds.

A regular file goes through pyarrow, piece by piece; one with ragged rows, another encoding or a
second header is read row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from ridgeline.profile.counter_ways import is_needed
from ridgeline.profile.reading.decimals import ungrouped
from ridgeline.profile.reading.display_names import metric_of, without_label
from ridgeline.profile.reading.header import (
    KERNEL_NAMES,
    RAW,
    UI,
    Header,
    cell,
    header_among,
    rows,
)
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.opening import TellBytes, open_bytes, open_lines, skip_lines
from ridgeline.profile.reading.source import Source

WIDE = (RAW, UI)
BLOCK_BYTES = 2**20  # small ones stay in the processor's cache
BLOCKS = 16  # that are turned into numbers at once
BATCH_ROWS = 5000
_TEXTS = {  # by the names that versions and the UI give them
    "id": ("ID",),
    "process_id": ("Process ID", "Process"),
    "host": ("Host Name",),
    "kernel": KERNEL_NAMES,
    "stream": ("Stream", "Stream ID", "launch__stream_id"),
    "grid": ("Grid Size",),
    "block": ("Block Size",),
    "device": ("device__attribute_display_name", "Device Name"),
    "device_number": ("Device",),
    "compute_capability": ("CC",),
    "passes": ("profiler__replayer_passes",),
}
_MAJOR, _MINOR = (f"device__attribute_compute_capability_{part}" for part in ("major", "minor"))


class OddError(Exception):
    """The file is not regular enough for the quick way."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which column holds what."""

    texts: dict[str, int]
    nvtx: tuple[int, ...]
    version: tuple[int, int] | None  # the two parts of the compute capability
    metrics: dict[int, str]
    again: tuple[str, ...] = ()  # metrics that another column has, too

    @classmethod
    def of(cls, header: Header) -> Layout:
        texts = {key: header.find(*names) for key, names in _TEXTS.items()}
        parts = (header.find(_MAJOR), header.find(_MINOR))
        names = map(without_label, header.names)
        named = ((n, metric_of(name, header.units[n])) for n, name in enumerate(names))
        metrics: dict[str, int] = {}
        again: list[str] = []
        for column, name in named:
            if name is not None and is_needed(name) and metrics.setdefault(name, column) != column:
                again.append(name)
        return cls(
            {key: column for key, column in texts.items() if column is not None},
            header.ranges,
            (parts[0], parts[1]) if parts[0] is not None and parts[1] is not None else None,
            {column: name for name, column in metrics.items()},
            tuple(dict.fromkeys(again)),
        )

    @property
    def columns(self) -> list[int]:
        every = {*self.texts.values(), *self.nvtx, *self.metrics, *(self.version or ())}
        return sorted(every)


@dataclass(slots=True)
class Piece:
    """Some rows of the table, and what there is to know to read them."""

    header: Header
    columns: dict[int, Any]  # cells: a list of texts or an arrow array
    is_new: bool = False  # the first below its header


# ---------------------------------------------------------------- quickly


def quick_pieces(source: Source, tell: TellBytes | None) -> Iterator[Piece]:
    """Pieces as arrow arrays; raises OddError where the careful way is needed."""
    import pyarrow as pa
    from pyarrow import csv

    layout = Layout.of(source.header)
    wanted = [str(column) for column in layout.columns]
    names = [str(column) for column in range(len(source.header.names))]

    with open_bytes(source.path, tell) as stream:
        skip_lines(stream, source.lines_before + 1)
        whole = _WholeLines(stream)
        try:
            reader = csv.open_csv(
                whole,
                read_options=csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
                parse_options=csv.ParseOptions(delimiter=source.header.delimiter),
                convert_options=csv.ConvertOptions(
                    include_columns=wanted, column_types=dict.fromkeys(names, pa.string())
                ),
            )
            is_new = True
            while batches := list(islice(reader, BLOCKS)):
                table = pa.Table.from_batches(batches).combine_chunks()
                arrays = (column.chunk(0) for column in table.columns if column.num_chunks)
                columns: dict[int, Any] = dict(zip(layout.columns, arrays, strict=True))
                _check_regular(columns, layout, is_first=is_new)
                yield Piece(source.header, columns, is_new)
                is_new = False
        except pa.ArrowInvalid as error:
            raise OddError from error
    if whole.rest:
        last = [whole.rest.decode(errors="replace")]
        yield from _pieces(iter(last), source, is_new=is_new)


class _WholeLines:
    """A file for pyarrow without its last line if that has no end: it may be cut off."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.rest = b""

    def read(self, size: int) -> bytes:
        """Lines of so many bytes at most."""
        while found := self._stream.read(size - len(self.rest)):
            lines, end, rest = (self.rest + found).rpartition(b"\n")
            self.rest = rest
            if end:
                return lines + end
            if len(rest) >= size:
                raise OddError
        return b""

    def close(self) -> None:
        self.closed = True


def _check_regular(columns: dict[int, Any], layout: Layout, *, is_first: bool) -> None:
    """Every row but a first one with units must be that of a kernel."""
    import pyarrow.compute as pc

    if "id" not in layout.texts:
        raise OddError
    identifiers = columns[layout.texts["id"]]
    if is_first and len(identifiers) and not identifiers[0].as_py().strip():
        identifiers = identifiers[1:]
    if "kernel" in layout.texts:
        names = columns[layout.texts["kernel"]]
        opened, closed = (pc.count_substring(names, mark) for mark in "()")
        if pc.any(pc.greater(opened, closed), min_count=0).as_py():  # a comma may have cut it
            raise OddError
    are_plain = pc.match_substring_regex(identifiers, r"^\d+(?:\.0)?$")
    if not pc.all(are_plain, min_count=0).as_py():
        others = identifiers.filter(pc.invert(are_plain)).to_pylist()
        if not all(ungrouped(text).isdigit() for text in others):
            raise OddError


# ---------------------------------------------------------------- with care


def careful_pieces(source: Source, tell: TellBytes | None) -> Iterator[Piece]:
    """Pieces as lists, from the first line below the header on."""
    if source.turned:
        yield from _pieces(iter(source.turned), source)
        return
    with open_lines(source.path, tell) as stream:
        skip_lines(stream, source.lines_before + 1)
        yield from _pieces(stream, source)


def _pieces(lines: Iterator[str], source: Source, *, is_new: bool = True) -> Iterator[Piece]:
    """Short rows are filled up, and what is no row is left out."""
    header, layout, log = source.header, Layout.of(source.header), source.log
    pending: list[list[str]] = []
    for row in rows(log.sift(lines), header.delimiter, log):
        another = header_among(row, header.delimiter)
        if another is not None and another.kind not in WIDE:
            log.has_other_form = True
            break
        if another is not None or len(pending) >= BATCH_ROWS:
            yield Piece(header, _cells(pending, layout), is_new)
            pending, is_new = [], another is not None
        if another is not None:
            header, layout = another, Layout.of(another)
        elif not _is_row(row, layout, log, is_unit_row=is_new and not pending):
            log.leave_out(row)
        elif header.is_shifted(row, log):
            log.shifted += 1
        elif log.is_open and len(row) < len(header.names):
            log.is_cut = True
            pending += [row] * _is_named(row, layout, log)
        else:
            pending.append(row)
    yield Piece(header, _cells(pending, layout), is_new)


def _is_row(row: list[str], layout: Layout, log: Log, *, is_unit_row: bool) -> bool:
    column, name = layout.texts.get("id"), layout.texts.get("kernel")
    if name is not None and len(row) <= name and not log.is_open:
        return False  # a program may print numbers
    if column is None:
        assert name is not None
        return bool(cell(row, name))
    number = cell(row, column)
    if number.isdigit() or (is_unit_row and not number and len(row) > max(layout.columns)):
        return True
    has_name = bool(cell(row, name))  # 1.234 may be a word of a program
    return has_name and ungrouped(number).isdigit()


def _is_named(row: list[str], layout: Layout, log: Log) -> bool:
    """Whether a row that is cut off has the whole name of its kernel."""
    name = layout.texts.get("kernel")
    if name is None:
        return True
    return bool(cell(row, name)) and (len(row) > name + 1 or log.open_end == '"')


def _cells(pending: list[list[str]], layout: Layout) -> dict[int, list[str]]:
    """By column; a row that ends early has nothing there."""
    return {
        column: [row[column] if len(row) > column else "" for row in pending]
        for column in layout.columns
    }

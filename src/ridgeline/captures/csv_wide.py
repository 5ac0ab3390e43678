"""Tables with a row per kernel and a column per metric: `--csv --page raw`, and the UI's export.

A regular file goes through pyarrow; one with ragged rows, another encoding or a second header is
read row by row. Only the columns that are needed are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from ridgeline.captures.counters import TEXT_COLUMNS, Counters, make_counters
from ridgeline.captures.normalise import READ_TEXT, Decimals, Normaliser, read_ranges, strip_groups
from ridgeline.captures.table import (
    WIDE,
    Header,
    OnBytes,
    Table,
    make_next_header,
    open_bytes,
    read_cell,
    skip_lines,
)

BLOCK_BYTES = 2**20  # small ones stay in the processor's cache
BLOCKS = 16  # that are turned into numbers at once
BATCH_ROWS = 5000
_MAJOR, _MINOR = (f"device__attribute_compute_capability_{part}" for part in ("major", "minor"))
_NOT_NUMBERS = frozenset(
    ["ID", "Process ID", "Process", "Context", "Stream", "Device", "CC", "Grid Size", "Block Size",
     "Kernel Time", "Kernel Name", "Host Name", "Process Name"]
)  # fmt: skip


class IrregularTableError(Exception):
    """The file is not regular enough for pyarrow."""


@dataclass(slots=True)
class _Batch:
    """Rows of a table by column, as arrow arrays of texts."""

    header: Header
    columns: dict[int, Any]
    is_first: bool  # below its header: its first row may hold units


def read_wide(table: Table, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a wide table."""
    if table.is_utf8 and table.header.find("ID") is not None:
        try:
            return _read_batches(table, _read_with_arrow(table, on_bytes))
        except IrregularTableError:
            pass
    return _read_batches(table, _read_with_csv(table, on_bytes))


def _read_batches(table: Table, batches: Iterator[_Batch]) -> Counters:
    import pandas as pd

    normaliser = Normaliser(Decimals.decide(_sample_numbers(table)))
    frames: list[tuple[pd.DataFrame, pd.DataFrame]] = []
    units: dict[int, str] = {}
    rows = 0
    for batch in batches:
        if batch.is_first:
            units, batch.columns = _take_units(batch)
        count = len(next(iter(batch.columns.values()), ()))
        if count:
            kernels = _read_texts(batch, rows, count)
            frames.append((kernels, _read_metrics(batch, units, normaliser, kernels.index)))
            rows += count
    empty = (pd.DataFrame(columns=[*TEXT_COLUMNS, "launches"]), pd.DataFrame())
    kernels, metrics = (pd.concat(parts) for parts in zip(*(frames or [empty]), strict=True))
    return make_counters(
        str(table.path), table.header.kind, (kernels, metrics), table.log,
        notes=normaliser.notes(), unusable=tuple(normaliser.unusable),
    )  # fmt: skip


def _sample_numbers(table: Table) -> Iterator[tuple[str, str, str]]:
    header, rows = table.header, table.sample_rows()
    units = header.units
    if rows and not read_cell(rows[0], header.find("ID")) and header.find("ID") is not None:
        units = tuple(own or read_cell(rows[0], n) for n, own in enumerate(units))
    for column, name in enumerate(header.names):
        if name not in _NOT_NUMBERS and "Domain:" not in name:
            cells = dict.fromkeys(row[column] for row in rows if len(row) > column)
            yield from ((name, units[column], text) for text in cells)


def _take_units(batch: _Batch) -> tuple[dict[int, str], dict[int, Any]]:
    """The units of all columns, from the header or the first row; and the rows that are left."""
    columns = batch.columns
    units = {column: batch.header.units[column] for column in columns}
    identifiers = columns.get(batch.header.find("ID") or 0, ())
    if len(identifiers) and not identifiers[0].as_py().strip():
        units = {column: str(cells[0]) for column, cells in columns.items()}
        columns = {column: cells[1:] for column, cells in columns.items()}
    return units, columns


def _read_texts(batch: _Batch, first_row: int, count: int) -> Any:
    """The texts of each launch; few are different, so each is changed once."""
    import pandas as pd

    header, columns = batch.header, batch.columns
    texts: dict[str, Any] = {
        key: _change(columns[column], READ_TEXT.get(key, str.strip))
        for key, column in header.find_texts().items()
    }
    index = pd.RangeIndex(first_row, first_row + count)
    if "id" not in texts:
        texts["id"] = index.astype(str)
    ranges = [pd.Series(_change(columns[c], read_ranges)) for c in header.range_columns]
    if ranges:
        joined = ranges[0]
        for other in ranges[1:]:
            joined = (joined + "/" + other).str.strip("/")
        texts["nvtx"] = joined.to_numpy()
    parts = header.find(_MAJOR), header.find(_MINOR)
    if "compute_capability" not in texts and parts[0] is not None and parts[1] is not None:
        major, minor = (
            pd.Series(_change(columns[part], strip_groups)) for part in parts if part is not None
        )
        texts["compute_capability"] = (major + "." + minor).where(major.ne(""), "").to_numpy()
    return pd.DataFrame(
        {**{name: texts.get(name, "") for name in TEXT_COLUMNS}, "launches": 1}, index=index
    )


def _change(cells: Any, change: Callable[[str], str]) -> Any:
    import numpy as np

    encoded = cells.dictionary_encode()
    values = np.array([change(text) for text in encoded.dictionary.to_pylist()], dtype=object)
    return values[encoded.indices.to_numpy()]


def _read_metrics(
    batch: _Batch, units: dict[int, str], normaliser: Normaliser, index: Any
) -> Any:  # fmt: skip
    """The metrics that are needed; of a metric with several columns the first."""
    import pandas as pd

    metrics: dict[str, Any] = {}
    for column, cells in batch.columns.items():
        used = normaliser.read_column(batch.header.names[column], units[column], cells)
        if used is not None:
            metrics.setdefault(*used)
    return pd.DataFrame(metrics, index=index)


def needed_columns(header: Header) -> list[int]:
    """The columns to read: texts of launches, ranges and metrics."""
    from ridgeline.captures.metric_formulas import is_needed
    from ridgeline.captures.normalise import DISPLAY_NAMES, strip_label

    names = enumerate(map(strip_label, header.names))
    metrics = {n for n, name in names if is_needed(name) or name in DISPLAY_NAMES}
    parts = {n for n, name in enumerate(header.names) if name in (_MAJOR, _MINOR)}
    return sorted({*header.find_texts().values(), *header.range_columns, *metrics, *parts})


# ---------------------------------------------------------------- with pyarrow


def _read_with_arrow(table: Table, on_bytes: OnBytes | None) -> Iterator[_Batch]:
    import pyarrow as pa
    from pyarrow import csv

    header, columns = table.header, needed_columns(table.header)
    names = [str(column) for column in range(len(header.names))]
    with open_bytes(table.path, on_bytes) as stream:
        skip_lines(stream, table.lines_before + 1)
        try:
            reader = csv.open_csv(
                _WholeLines(stream),
                read_options=csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
                parse_options=csv.ParseOptions(delimiter=header.delimiter),
                convert_options=csv.ConvertOptions(
                    include_columns=list(map(str, columns)),
                    column_types=dict.fromkeys(names, pa.string()),
                ),
            )
            is_first = True
            while batches := list(islice(reader, BLOCKS)):
                whole = pa.Table.from_batches(batches).combine_chunks()
                arrays = (column.chunk(0) for column in whole.columns if column.num_chunks)
                batch = _Batch(header, dict(zip(columns, arrays, strict=True)), is_first)
                _check_regular(batch)
                yield batch
                is_first = False
        except pa.ArrowInvalid as error:
            raise IrregularTableError from error


class _WholeLines:
    """A file for pyarrow; one whose last line has no end may be cut off and is not regular."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._last = b"\n"

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        if not content and self._last != b"\n":
            raise IrregularTableError
        self._last = content[-1:] or self._last
        return content

    def close(self) -> None:
        self.closed = True


def _check_regular(batch: _Batch) -> None:
    """Every row but a first one with units must be that of a kernel."""
    import pyarrow.compute as pc

    texts = batch.header.find_texts()
    identifiers = batch.columns[texts["id"]]
    if batch.is_first and len(identifiers) and not identifiers[0].as_py().strip():
        identifiers = identifiers[1:]
    is_number = pc.match_substring_regex(identifiers, r"^\d+(?:\.0)?$")
    if not pc.all(is_number, min_count=0).as_py():
        others = identifiers.filter(pc.invert(is_number)).to_pylist()
        if not all(strip_groups(text).isdigit() for text in others):
            raise IrregularTableError


# ---------------------------------------------------------------- row by row


def _read_with_csv(table: Table, on_bytes: OnBytes | None) -> Iterator[_Batch]:
    """Short rows are filled up, and lines that are not rows are skipped."""
    header, is_first = table.header, True
    rows: list[list[str]] = []
    for row in table.read_rows(on_bytes):
        another = make_next_header(row, header.delimiter)
        if another is not None and another.kind not in WIDE:
            table.log.has_other_table = True
            break
        if another is not None or len(rows) >= BATCH_ROWS:
            yield _make_batch(header, rows, is_first)
            rows, is_first = [], another is not None
        if another is not None:
            header = another
        elif _is_row(row, header, may_be_units=is_first and not rows):
            rows.append(row)
        else:
            table.log.skipped += any(text.strip() for text in row)
    yield _make_batch(header, rows, is_first)


def _is_row(row: list[str], header: Header, *, may_be_units: bool) -> bool:
    if header.is_too_long(row):
        return False
    texts = header.find_texts()
    kernel = read_cell(row, texts.get("kernel"))
    if "id" not in texts:
        return bool(kernel)
    number = read_cell(row, texts["id"])
    if may_be_units and not number:
        return len(row) == len(header.names)
    return strip_groups(number).isdigit() and (bool(kernel) or "kernel" not in texts)


def _make_batch(header: Header, rows: list[list[str]], is_first: bool) -> _Batch:
    import pyarrow as pa

    columns = {
        column: pa.array([row[column] if len(row) > column else "" for row in rows], pa.string())
        for column in needed_columns(header)
    }
    return _Batch(header, columns, is_first)

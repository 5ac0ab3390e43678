"""A table with its metrics one below the other and a column per kernel, as the UI copies it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

from ridgeline.profile.reading.header import DELIMITERS, KERNEL_NAMES, Header, header_of

_LEAST = 2  # metrics, to be such a table
_TITLE = re.compile(rf'^"?(?:{"|".join(KERNEL_NAMES)})"?[{"".join(DELIMITERS)}]', re.MULTILINE)


class Turned(NamedTuple):
    """The header of such a table, and its columns as lines of a usual one."""

    header: Header
    lines: tuple[str, ...]


def turned_round(text: str) -> Turned | None:
    """Such a table; None for other texts."""
    if not _TITLE.search(text):
        return None
    for delimiter in DELIMITERS:
        rows = _rows(text, delimiter)
        titles = [row[0] for row in rows]
        is_of_kernels = any(title in KERNEL_NAMES for title in titles)
        if is_of_kernels and sum("__" in title for title in titles) >= _LEAST:
            header = header_of(titles, delimiter)
            return Turned(header, _lines(rows, delimiter)) if header is not None else None
    return None


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """The rows, if the first column is of titles and all have as many values; else none."""
    try:
        rows = [
            [cell.strip() for cell in row]
            for row in csv.reader(StringIO(text), delimiter=delimiter)
        ]
    except csv.Error:
        return []
    rows = [row for row in rows if any(row)]
    widths = {len(row) for row in rows}
    unnamed = [row for row in rows if "Name" not in row[0]]  # names may look like metrics
    has_titles_inside = any("__" in cell for row in unnamed for cell in row[1:])
    return rows if len(widths) == 1 and min(widths) > 1 and not has_titles_inside else []


def _lines(rows: Sequence[Sequence[str]], delimiter: str) -> tuple[str, ...]:
    text = StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(zip(*(row[1:] for row in rows), strict=True))
    return tuple(text.getvalue().splitlines(keepends=True))

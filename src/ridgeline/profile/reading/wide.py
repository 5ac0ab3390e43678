"""Tables with a row per kernel and a column per metric: `--csv --page raw`, and the UI's export.

Only the columns that are needed are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ridgeline.profile.reading import evidence, metric_units
from ridgeline.profile.reading.decimals import Evidence, read_number, ungrouped
from ridgeline.profile.reading.header import Header
from ridgeline.profile.reading.launches import (
    ABOUT,
    Launches,
    capability,
    dimensions,
    process_number,
    range_names,
)
from ridgeline.profile.reading.named_metrics import misfits_told, told_twice
from ridgeline.profile.reading.opening import TellBytes
from ridgeline.profile.reading.source import Read, Source
from ridgeline.profile.reading.unitless import Unitless, first_scaled
from ridgeline.profile.reading.wide_pieces import (
    Layout,
    OddError,
    Piece,
    careful_pieces,
    quick_pieces,
)

_CHANGES: Mapping[str, Callable[[str], str]] = {
    "grid": dimensions,
    "block": dimensions,
    "process_id": process_number,
    "stream": ungrouped,
    "device": str.strip,
    "device_number": ungrouped,
    "compute_capability": capability,
}
# no comma, or one before every three digits: 1,234,567.8; never 65,77 nor 1,234E+10
_GROUPED = r"^(?:[^,]*|[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?)$"


def read_wide(source: Source, tell: TellBytes | None = None) -> Read:
    """The kernels of a wide table."""
    if source.is_plain:
        try:
            return _read(source, quick_pieces(source, tell))
        except OddError:
            pass
    return _read(source, careful_pieces(source, tell))


def _read(source: Source, pieces: Iterator[Piece]) -> Read:
    launches = Launches()
    builders: list[_Builder] = []
    clues = evidence.of_rows(source.header, source.lines_below)
    for piece in pieces:
        if piece.is_new:
            _finish(builders)
            builders.append(_Builder(launches, piece.header, clues))
        builders[-1].add(piece.columns)
    _finish(builders)
    remarks = clues.remarks() + [said for builder in builders for said in builder.remarks()]
    return Read(launches=launches, remarks=tuple(dict.fromkeys(remarks)))


def _finish(builders: Sequence[_Builder]) -> None:
    """The last of them, where there is one: its rows are those at the end."""
    for builder in builders[-1:]:
        builder.finish()


class _Builder:
    """Turns pieces of a table into launches. The first row below a header may hold its units."""

    def __init__(self, launches: Launches, header: Header, clues: Evidence) -> None:
        self.launches, self.header, self.clues = launches, header, clues
        self.layout = Layout.of(header)
        self.factors: dict[int, float] | None = None
        self.unitless = Unitless()
        self.first = len(launches)
        self.misfits: list[str] = []

    def add(self, columns: dict[int, Any]) -> None:
        if self.factors is None and len(next(iter(columns.values()), [])):
            columns = self._units(columns)
        count = len(next(iter(columns.values()), []))
        if not count:
            return
        texts = {key: _texts(columns[column]) for key, column in self.layout.texts.items()}
        for key, change in _CHANGES.items():
            if key in texts:
                texts[key] = _changed(texts[key], change)
        if self.layout.version and "compute_capability" not in texts:
            texts["compute_capability"] = self._versions(columns)
        if "id" not in texts:
            texts["id"] = [str(len(self.launches) + n) for n in range(count)]
        elif not all(map(str.isdigit, texts["id"])):
            texts["id"] = [ungrouped(text) for text in texts["id"]]
        ranges = [_changed(_texts(columns[column]), range_names) for column in self.layout.nvtx]
        if ranges:
            texts["nvtx"] = _ways(ranges)
        first = self.launches.add_texts(count, texts)
        self._about(texts)
        assert self.factors is not None
        for column, factor in self.factors.items():
            name = self.layout.metrics[column]
            values = _numbers(columns[column], self.clues)
            if name in self.unitless.metrics:
                self.unitless.see(name, first_scaled(name, values))
            self.launches.add_numbers(first, name, _in_base_units(values, factor))

    def finish(self) -> None:
        """Leave out what cannot be used after all, before another table follows."""
        self.unitless.forget(self.launches, self.first)

    def _about(self, texts: Mapping[str, Sequence[str]]) -> None:
        for key in ABOUT:
            for text in dict.fromkeys(texts.get(key, ())):
                self.launches.note({key: text.strip()})

    def _versions(self, columns: dict[int, Any]) -> list[str]:
        """The compute capability of each row, from its two parts."""
        assert self.layout.version is not None
        parts = [_changed(_texts(columns[c]), ungrouped) for c in self.layout.version]
        return [f"{major}.{minor}" if major else "" for major, minor in zip(*parts, strict=True)]

    def _units(self, columns: dict[int, Any]) -> dict[int, Any]:
        """Find the units, in the header or in the first row; the rows that are left."""
        units = {column: self.header.units[column] or "" for column in self.layout.metrics}
        identifier = self.layout.texts.get("id", next(iter(self.layout.texts.values())))
        if not str(columns[identifier][0]).strip():
            units = {column: str(columns[column][0]) for column in units}
            columns = {column: cells[1:] for column, cells in columns.items()}
        self.factors = {}
        for column, unit in units.items():
            if not unit.strip():
                self.unitless.see(self.layout.metrics[column], None)
            factor = metric_units.factor(self.layout.metrics[column], unit)
            if factor is None:
                self.misfits.append(f"{self.layout.metrics[column]} in {unit}")
                self.launches.left_out[self.layout.metrics[column]] = None
            else:
                self.factors[column] = factor
        return columns

    def remarks(self) -> list[str]:
        again = told_twice(self.layout.again, "in several columns")
        return misfits_told(self.misfits) + self.unitless.remarks() + again


def _texts(cells: Any) -> list[str]:
    return cells if isinstance(cells, list) else cells.to_pylist()


def _changed(texts: Sequence[str], change: Callable[[str], str]) -> list[str]:
    """Few are different, so each is changed once."""
    known = {text: change(text) for text in dict.fromkeys(texts)}
    return [known[text] for text in texts]


def _ways(ranges: Sequence[Sequence[str]]) -> list[str]:
    """The ranges of all domains as one text, for each row; few are different here, too."""
    known: dict[tuple[str, ...], str] = {}
    rows = list(zip(*ranges, strict=True))
    for parts in set(rows):
        known[parts] = "/".join(filter(None, parts))
    return [known[parts] for parts in rows]


def _numbers(cells: Any, clues: Evidence) -> Any:
    """Values as they stand there."""
    import numpy as np

    values = None if clues.comma else _cast(cells)
    if values is None:
        texts = _texts(cells)
        known = {text: read_number(text, clues.mark) for text in dict.fromkeys(texts)}
        values = np.array([known[text] for text in texts], dtype=float)
    return values


def _in_base_units(values: Any, factor: float) -> bytes:
    """As doubles in a row."""
    import numpy as np

    with np.errstate(over="ignore"):  # which is said later
        result: bytes = metric_units.scaled(values, factor).tobytes()
    return result


def _cast(cells: Any) -> Any:
    """All at once where commas group digits, if there are any; None for a closer look."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(cells, pa.string()) if isinstance(cells, list) else cells
    if pc.any(pc.match_substring(texts, ",")).as_py():
        if not pc.all(pc.match_substring_regex(texts, _GROUPED)).as_py():
            return None
        texts = pc.replace_substring(texts, ",", "")
    try:
        found = pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return None
    values = found.to_numpy(zero_copy_only=False)
    return values if np.isfinite(values).all() else None

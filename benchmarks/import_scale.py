"""Time and memory of `ridgeline import` on 200,000 kernels, beside pandas and pyarrow."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.fresh import call, peak_bytes, start_memory
from benchmarks.report import Report, Table
from ridgeline.units import format_bytes, format_time

RECORDED = (
    Path(__file__).parents[1]
    / "tests" / "data" / "ncu" / "h200_resnet50_bs32_amp_train_step_raw.csv.gz"
)  # fmt: skip
KERNELS = 200_000
COLUMNS = 260
REPEATS = 3  # the fastest counts
READERS = {
    "ridgeline": "ridgeline import: the needed columns, units and totals",
    "pandas_all": "pandas.read_csv: all columns, thousands removed",
    "pandas_needed": "pandas.read_csv: the columns that ridgeline takes",
    "pyarrow_all": "pyarrow.csv.read_csv: all columns, numbers as texts where they have commas",
    "pyarrow_needed": "pyarrow.csv.read_csv: the columns that ridgeline takes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """One reader on the file."""

    reader: str
    time_s: float
    peak_bytes: int  # of the process, with all libraries
    own_bytes: int  # of that, above what it had once its libraries were there


def run() -> Report:
    """Make the file, read it in each way in processes of their own."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "capture.csv"
        make_file(path, KERNELS)
        size_bytes = path.stat().st_size
        parsed = [_fastest(reader, path) for reader in READERS]
    return Report(
        title="How the import of captures grows",
        summary=[_verdict(parsed, size_bytes)],
        tables=[_table(parsed)],
        notes=[_how(size_bytes)],
    )


def _how(size_bytes: int) -> str:
    return (
        "A recorded raw page of Nsight Compute (a training step of ResNet-50, 637 kernels), with"
        f" {COLUMNS} of its columns and its rows repeated under new numbers: {KERNELS:,} kernels in"
        f" {format_bytes(size_bytes)}. Each reader in a process of its own, {REPEATS} times; the"
        " fastest counts. Peak memory is the highest resident set, with all libraries; the last"
        " column is what reading added to it. ridgeline finds header, units and decimal mark, turns"
        " texts into numbers in base units, and ends with a table of FLOPs, bytes and times; the"
        " others are told where the header is and end with the columns as they are: numbers with"
        " separators stay texts in pyarrow."
    )


def make_file(path: Path, kernels: int) -> None:
    """The recorded file as if it were of so many kernels."""
    preamble, header, units, rows = _recorded()
    kept = _columns(header, rows)
    lines = [_line(["", *(row[n] for n in kept[1:])]) for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(preamble)
        file.write(_line([header[n] for n in kept]))
        file.write(_line([units[n] for n in kept]))
        for number, line in enumerate(islice(cycle(lines), kernels)):
            file.write(f'"{number}{line[1:]}')


def _columns(header: list[str], rows: list[list[str]]) -> list[int]:
    """As many as a usual capture has: of those that ridgeline does not take, the narrowest go."""
    needed = set(_needed(_line(header)))
    spare = [n for n, name in enumerate(header) if name not in needed]
    spare.sort(key=lambda n: sum(len(row[n]) for row in rows))
    dropped = set(spare[: len(header) - COLUMNS])
    return [n for n in range(len(header)) if n not in dropped]


def _recorded() -> tuple[list[str], list[str], list[str], list[list[str]]]:
    """What stands before the table, its header, its units and its rows."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        lines = file.readlines()
    first = next(n for n, line in enumerate(lines) if line.startswith('"ID"'))
    header, units, *rows = csv.reader(lines[first:])
    return lines[:first], header, units, rows


def _line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _fastest(reader: str, path: Path) -> Parsed:
    found = [_parsed(reader, path) for _ in range(REPEATS)]
    return min(found, key=lambda one: one.time_s)


def _parsed(reader: str, path: Path) -> Parsed:
    found = call(f"benchmarks.import_scale:{reader}", path=str(path))
    if "error" in found:
        raise RuntimeError(f"{reader}: {found['error']}")
    print(f"{reader}: {found}", file=sys.stderr)
    return Parsed(reader=reader, **found)


# ---------------------------------------------------------------- readers, each in a new process


def ridgeline(path: str) -> dict[str, Any]:
    import pandas
    import pyarrow.compute
    import pyarrow.csv

    from ridgeline.captures import ncu_tables, read_capture
    from ridgeline.captures.capture import totals

    assert pandas and pyarrow.csv and pyarrow.compute and ncu_tables  # here, as for the others
    with _Watch() as watch:
        told = totals(read_capture(Path(path)))
    assert told["kernels"] == KERNELS, told
    return watch.found


def pandas_all(path: str) -> dict[str, Any]:
    return _pandas(path)


def pandas_needed(path: str) -> dict[str, Any]:
    return _pandas(path, usecols=list(_needed(_header(path))))


def _pandas(path: str, **options: Any) -> dict[str, Any]:
    import pandas as pd

    before = _lines_before(path)
    with _Watch() as watch:
        table = pd.read_csv(
            path, skiprows=[*range(before), before + 1], thousands=",", low_memory=False, **options
        )
    assert len(table) == KERNELS
    return watch.found


def pyarrow_all(path: str) -> dict[str, Any]:
    return _pyarrow(path)


def pyarrow_needed(path: str) -> dict[str, Any]:
    return _pyarrow(path, include_columns=list(_needed(_header(path))))


def _pyarrow(path: str, **options: Any) -> dict[str, Any]:
    from pyarrow import csv as arrow_csv

    read = arrow_csv.ReadOptions(skip_rows=_lines_before(path))
    with _Watch() as watch:
        table = arrow_csv.read_csv(
            path, read_options=read, convert_options=arrow_csv.ConvertOptions(**options)
        )
    assert len(table) == KERNELS + 1  # the row of units is one of them
    return watch.found


class _Watch:
    """Time and memory of a block."""

    def __enter__(self) -> _Watch:
        self._before_bytes = start_memory()
        self._start_s = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        time_s, peak = perf_counter() - self._start_s, peak_bytes()
        own = peak - self._before_bytes
        self.found = {"time_s": time_s, "peak_bytes": peak, "own_bytes": own}


def _lines_before(path: str) -> int:
    with Path(path).open(encoding="utf-8") as file:
        return next(n for n, line in enumerate(file) if line.startswith('"ID"'))


def _needed(line: str) -> Iterator[str]:
    """The columns below a header that ridgeline takes."""
    from ridgeline.captures.ncu_tables import needed_columns
    from ridgeline.captures.table import parse_header

    header = parse_header(line)
    assert header is not None
    return (header.names[column] for column in needed_columns(header))


def _header(path: str) -> str:
    with Path(path).open(encoding="utf-8") as file:
        return next(line for line in file if line.startswith('"ID"'))


# ---------------------------------------------------------------- the page


def _verdict(parsed: list[Parsed], size_bytes: int) -> str:
    by_name = {one.reader: one for one in parsed}
    own = by_name["ridgeline"]
    pandas, pyarrow = by_name["pandas_all"], by_name["pyarrow_all"]
    return (
        f"{KERNELS:,} kernels in {format_bytes(size_bytes)}: {format_time(own.time_s)} and"
        f" {format_bytes(own.peak_bytes)}. pandas.read_csv takes"
        f" {pandas.time_s / own.time_s:.1f} times the time and"
        f" {pandas.peak_bytes / own.peak_bytes:.1f} times the memory, pyarrow's reader"
        f" {pyarrow.time_s / own.time_s:.1f} and {pyarrow.peak_bytes / own.peak_bytes:.1f} times."
    )


def _table(parsed: list[Parsed]) -> Table:
    own = next(one for one in parsed if one.reader == "ridgeline")
    return Table(
        title="Readers",
        columns=[
            "reader",
            "time",
            "to ridgeline's",
            "peak memory",
            "to ridgeline's",
            "for the file",
        ],
        rows=[
            [
                READERS[one.reader],
                format_time(one.time_s),
                f"{one.time_s / own.time_s:.2f}",
                format_bytes(one.peak_bytes),
                f"{one.peak_bytes / own.peak_bytes:.2f}",
                format_bytes(one.own_bytes),
            ]
            for one in parsed
        ],
    )

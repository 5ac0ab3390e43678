"""The decimal mark of a file, from the numbers at its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ridgeline.profile.reading.decimals import Evidence
from ridgeline.profile.reading.display_names import without_label
from ridgeline.profile.reading.header import DETAILS, Header, rows
from ridgeline.profile.reading.log import Log

WHOLE = frozenset(
    [
        "launch__grid_size", "launch__block_size", "launch__thread_count", "launch__stack_size",
        "launch__registers_per_thread", "Grid Size", "Block Size", "Threads", "Stack Size",
        "Registers Per Thread", "Elapsed Cycles",
    ]
)  # fmt: skip
WHOLE_UNITS = ("byte", "inst")  # of a sum in base units
NANOSECONDS = ("ns", "nsecond")  # of which nobody counts parts
ROWS = 400  # that are looked at
_NOT_NUMBERS = frozenset(
    ["ID", "Process ID", "Process", "Context", "Stream", "Device", "CC", "Grid Size", "Block Size",
     "Kernel Time", "Kernel Name", "Host Name", "Process Name"]
)  # fmt: skip


def is_whole(metric: str, unit: str) -> bool:
    """Whether its values have no decimals, so that any mark in them groups digits."""
    metric = without_label(metric)
    is_sum = metric.endswith(".sum") and unit in WHOLE_UNITS
    return metric in WHOLE or is_sum or unit in NANOSECONDS


def of_rows(header: Header, lines: Sequence[str]) -> Evidence:
    """From the first rows below a header."""
    evidence = Evidence()
    log = Log()
    every = rows(iter(lines[:ROWS]), header.delimiter, log)
    seen = (row for row in every if not header.is_shifted(row, log))
    if header.kind == DETAILS:
        _see_long(header, seen, evidence)
    else:
        _see_wide(header, list(seen), evidence)
    return evidence


def _see_long(header: Header, seen: Iterable[list[str]], evidence: Evidence) -> None:
    name, value = header.find("Metric Name"), header.find("Metric Value", "Average")
    unit = header.find("Metric Unit")
    for row in seen:
        if name is None or value is None or len(row) <= max(name, value, unit or 0):
            continue
        whole = is_whole(row[name], row[unit] if unit is not None else "")
        evidence.see([row[value]], are_whole=whole)


def _see_wide(header: Header, seen: list[list[str]], evidence: Evidence) -> None:
    units = list(header.units)
    identifier = header.find("ID")
    if (
        seen
        and identifier is not None
        and not "".join(seen[0][identifier : identifier + 1]).strip()
    ):
        first = seen.pop(0)
        units = [unit or cell for unit, cell in zip(units, first, strict=False)]
    for column, name in enumerate(header.names):
        if name in _NOT_NUMBERS or "Domain:" in name:
            continue
        unit = units[column] if column < len(units) else ""
        cells = dict.fromkeys(row[column] for row in seen if len(row) > column)
        evidence.see(cells, are_whole=is_whole(name, unit or ""))

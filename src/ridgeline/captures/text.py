"""Nsight Compute's plain text, which it prints without --csv.

      sgemm(int, const float *) (32, 32, 1)x(32, 32, 1), Context 1, Stream 7, Device 0, CC 7.5
        Section: GPU Speed Of Light Throughput
        ----------------------- ------------- -------------
        Metric Name               Metric Unit  Metric Value
        ----------------------- ------------- -------------
        Duration                      msecond         96.32

Older versions leave out grid and block, or have a date in the first line. A metric may have no
unit, and a value may be `(!) n/a`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from ridgeline.captures.counters import TEXT_METRICS, Counters, KernelRows, make_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import (
    DISPLAY_NAMES,
    Decimals,
    Normaliser,
    read_capability,
    read_dimensions,
)
from ridgeline.captures.table import TEXT, OnBytes, open_text

KERNEL_LINE = re.compile(
    r"\s*(?P<name>\S.*?)(?: \((?P<grid>[\d, ]+)\)x\((?P<block>[\d, ]+)\))?"
    r"(?:, \d{4}-\w{3}-\d{2} [\d:]+)?, Context \d+, Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+[.,]\d+))?\s*"
)
_PROCESS_LINE = re.compile(r"\[(\d+)\] \S.*@\S+\s*")
_METRIC_LINE = re.compile(
    rf"(?:[^_(]*\()?(?P<name>[a-z0-9]+__[\w.]+|{'|'.join(DISPLAY_NAMES)})"
    r"(?:\)| \([^()]*\))?\s+(?:(?P<unit>[^\s\d(!.,+-][^\s]*)\s+)?"
    r"(?P<value>(?:\(!\) )?(?:n/a|nan|[-+\d.,][-+\d.,'\u00a0\u202feE]*)(?: [{(].*)?)"
)
_DEVICE_LINE = re.compile(r"device__attribute_display_name\s+(?P<value>\S.*)")
_RULES = ("INF ", "WRN ", "OPT ", "ERR ")
_LONGEST = 20_000  # characters of a line
_SAMPLE_LINES = 10_000  # for the decimal mark


def read_text(path: Path, log: ReadingLog, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a text."""
    with open_text(path) as stream:
        samples = list(_find_metrics(islice(_read_lines(stream), _SAMPLE_LINES)))
    reader = _TextReader(Normaliser(Decimals.decide(samples)))
    with open_text(path, on_bytes) as stream:
        for line in log.drop_messages(_read_lines(stream)):
            if not line.endswith("\n") and parse_metric(line):
                log.is_cut = True  # its number may be half of one
            else:
                reader.add(line)
    return make_counters(
        str(path), TEXT, reader.rows.frames(), log, notes=reader.normaliser.notes(),
        unusable=tuple(reader.normaliser.unusable), has_rules=reader.has_rules,
    )  # fmt: skip


def _read_lines(stream: TextIO) -> Iterator[str]:
    """Lines; one that is longer than any of a capture comes in parts."""
    while line := stream.readline(_LONGEST):
        yield line


def _find_metrics(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    return filter(None, map(parse_metric, lines))


def parse_metric(line: str) -> tuple[str, str, str] | None:
    """Name, unit and value of a line of a table."""
    match = _METRIC_LINE.fullmatch(line.strip()) if line.startswith(" ") else None
    return (match["name"], match["unit"] or "", match["value"]) if match else None


class _TextReader:
    """Lines as they come: a process, its kernels, their metrics."""

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self.rows = KernelRows()
        self.has_rules = False
        self._process = ""
        self._row: int | None = None
        self._kernels = 0  # of the process so far

    def add(self, line: str) -> None:
        process = _PROCESS_LINE.fullmatch(line) if line.startswith("[") else None
        if process:
            self._process, self._kernels = process[1], 0
        elif ", Context " in line and (kernel := KERNEL_LINE.fullmatch(line)):
            self._add_kernel(kernel)
        elif self._row is not None:
            self._add_metric(self._row, line)

    def _add_metric(self, row: int, line: str) -> None:
        device, metric = _DEVICE_LINE.fullmatch(line.strip()), parse_metric(line)
        if device:
            self.rows.texts[row]["device"] = device["value"]
        elif metric and metric[0] in TEXT_METRICS:
            self.rows.texts[row][TEXT_METRICS[metric[0]]] = metric[2]
        elif metric:
            value = self.normaliser.read_metric(*metric)
            if value is not None:
                self.rows.add_value(row, *value)
        elif line.lstrip().startswith(_RULES):
            self.has_rules = True

    def _add_kernel(self, match: re.Match[str]) -> None:
        texts = {
            "kernel": match["name"],
            "id": str(self._kernels),
            "process_id": self._process,
            "stream": match["stream"],
            "grid": read_dimensions(match["grid"] or ""),
            "block": read_dimensions(match["block"] or ""),
            "device_number": match["device"] or "",
            "compute_capability": read_capability(match["cc"] or ""),
        }
        self._row = self.rows.add_row(len(self.rows.texts), texts)
        self._kernels += 1

"""Names that Nsight Compute shows people, and the metrics behind them where they give a quantity.

`Memory Throughput` is a share of the peak in one section and bytes per second in another: the unit
tells which. With `--print-metric-name label-name`, the metric stands beside its label.
"""

from __future__ import annotations

import re

from ridgeline.profile.reading.metric_units import BYTE_RATE, RATE, TIME, parse_unit

_BY_UNIT = {
    ("Duration", TIME): "gpu__time_duration.sum",
    ("Memory Throughput", BYTE_RATE): "dram__bytes.sum.per_second",
    ("DRAM Throughput", BYTE_RATE): "dram__bytes.sum.per_second",
    ("DRAM Bandwidth", BYTE_RATE): "dram__bytes.sum.per_second",
    ("SM Frequency", RATE): "gpc__cycles_elapsed.avg.per_second",
}
_BY_NAME = {"Elapsed Cycles": "gpc__cycles_elapsed.max"}
_SHOWN = frozenset(name for name, _ in _BY_UNIT)
# by itself: pmsampling:dram__bytes_read.sum and TriageCompute.dram__… are other metrics
_METRIC = re.compile(r"(?<![^\s(\[])[a-z0-9]+__\w+(?:\.\w+)*(?=[\s)\]]|$)")


def without_label(name: str) -> str:
    """The metric in `Duration (gpu__time_duration.sum)`, either way around; else the name."""
    found = _METRIC.search(name) if "__" in name else None
    return found[0] if found else name


def metric_of(name: str, unit: str | None) -> str | None:
    """The metric of a name without its label; None for one that only people can use."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name not in _SHOWN:
        return name
    found = parse_unit(unit or "")
    return _BY_UNIT.get((name, found.kind)) if found else None

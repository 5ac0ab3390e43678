"""Units as Nsight tools write them, and the factor from each to the base unit.

Prefixes are powers of 1000: a Kbyte is 1000 bytes; of KiB and MiB, powers of 1024. The base units
are byte, second and hertz; everything else is a plain count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

PREFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6,
    "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
BYTE, TIME, RATE, BYTE_RATE, COUNT = "byte", "time", "rate", "byte rate", "count"
_PER_CYCLE = f"{COUNT}/cycle"
_BASES = {
    BYTE: ("byte", "bytes", "B"),
    TIME: ("second", "seconds", "sec", "s"),
    RATE: ("hz", "Hz", "HZ"),
    COUNT: (
        "inst",
        "insts",
        "cycle",
        "cycles",
        "op",
        "ops",
        "sector",
        "sectors",
        "warp",
        "warps",
        "thread",
        "threads",
        "request",
        "requests",
        "pass",
    ),
}
_WHOLE = {
    "": (COUNT, 1.0), "minute": (TIME, 60.0), "min": (TIME, 60.0), "hour": (TIME, 3600.0),
    **{prefix: (COUNT, PREFIXES[prefix]) for prefix in "kKMGTP"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures, and how many base units it is."""

    kind: str
    factor: float


@cache
def parse_unit(text: str) -> Unit | None:
    """`Mbyte` is 1e6 bytes, `cycle/nsecond` 1e9 hertz; None for what is no unit we know."""
    text = text.strip()
    above, slash, below = text.partition("/")
    if not slash:
        return _simple(above)
    return _ratio(_simple(above), _simple(below), below)


def _simple(text: str) -> Unit | None:
    if text in _WHOLE:
        return Unit(*_WHOLE[text])
    for kind, bases in _BASES.items():
        for base in bases:
            prefix = text.removesuffix(base)
            if text.endswith(base) and prefix in PREFIXES:
                return Unit(kind, PREFIXES[prefix])
    if text == "1" or re.fullmatch(r"[A-Za-z][A-Za-z ]*", text):
        return Unit(COUNT, 1.0)  # inst, cycle, warp, sector, register…; 1/s
    return None


def _ratio(above: Unit | None, below: Unit | None, name: str) -> Unit | None:
    if above is None or below is None:
        return None
    if below.kind != TIME:
        return Unit(above.kind + "/" + name, above.factor / below.factor)
    kinds = {BYTE: BYTE_RATE, COUNT: RATE}
    kind = kinds.get(above.kind)
    return Unit(kind, above.factor / below.factor) if kind else None


def expected_kind(metric: str) -> str:
    """What a metric measures, by its name; its unit must agree."""
    base, _, rest = metric.partition(".")
    if "per_second" in rest:
        return BYTE_RATE if _is_bytes(base) else RATE
    if base == "gpu__time_duration":
        return TIME
    return BYTE if _is_bytes(base) else COUNT


def _is_bytes(base: str) -> bool:
    return "bytes" in base


NANOSECOND = 1e-9  # of a time without a unit: the base unit of the tools


def factor(metric: str, unit: str) -> float | None:
    """What to multiply a metric's values with; None where unit and metric do not fit together."""
    expected = expected_kind(metric)
    if not unit.strip():
        return NANOSECOND if expected == TIME else 1.0
    found = parse_unit(unit)
    if expected == COUNT and "%" not in unit:
        return _factor_of_count(metric, found)
    return found.factor if found is not None and found.kind == expected else None


def _factor_of_count(metric: str, unit: Unit | None) -> float | None:
    """Whatever it is called, it is counted; but bytes, times and rates are no counts."""
    if unit is None:
        return 1.0
    is_rate = unit.kind == _PER_CYCLE and "per_cycle" not in metric
    return None if is_rate or unit.kind in (BYTE, TIME, RATE, BYTE_RATE) else unit.factor


def is_missing(metric: str, unit: str) -> bool:
    """Whether a metric that needs a unit has none, so that one must be taken for granted."""
    return not unit.strip() and expected_kind(metric) != COUNT


def scaled(values: Any, by: float) -> Any:
    """A number or an array times a factor; 65.77 us are 6.577e-05 s, not 6.5769999e-05."""
    return values / round(1 / by) if by < 1 else values * by

"""From texts of a file to numbers in base units: names, units and decimal marks of any version.

Prefixes are powers of 1000 (a Kbyte is 1000 bytes), those of KiB and MiB powers of 1024. The base
units are byte, second and hertz; everything else is a plain count.

Comma or full stop is decided once per file: `65,77`, `1.234,5` and `1,718E+10` can be read in one
way only, `117.344` in two. Without such evidence the full stop is the decimal mark, with a note.
A number that contradicts the mark is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ridgeline.captures.quantities import is_needed

# ---------------------------------------------------------------- units

BYTE, TIME, RATE, BYTE_RATE, SHARE = "byte", "time", "rate", "byte rate", "share"
COUNT, PER_CYCLE = "count", "per cycle"
_PREFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6,
    "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_PREFIX = f"({'|'.join(_PREFIXES)})"
_BYTES, _SECONDS = rf"{_PREFIX}(?:bytes?|B)", rf"{_PREFIX}(?:seconds?|sec|s)"
_COUNTED = rf"{_PREFIX}(?:(?:inst|cycle|op|sector|warp|thread|request|pass)s?|1)"
_UNITS = {  # the forms of each kind, with the prefixes above and below a slash
    BYTE: re.compile(_BYTES),
    TIME: re.compile(_SECONDS),
    RATE: re.compile(rf"{_PREFIX}[hH]z|{_COUNTED}/{_SECONDS}"),
    BYTE_RATE: re.compile(rf"{_BYTES}/{_SECONDS}"),
    SHARE: re.compile("%"),
    PER_CYCLE: re.compile(rf"{_COUNTED}/cycle"),
    COUNT: re.compile(rf"{_COUNTED}|([kKMGTP])"),
}
_WITHOUT_UNIT = {TIME: 1e-9, SHARE: 0.01}  # a time in nanoseconds, a share in percent


def unit_kind(unit: str) -> str:
    """The kind of quantity that a unit is for: any other word is the name of what is counted."""
    return next((kind for kind, form in _UNITS.items() if form.fullmatch(unit.strip())), COUNT)


def expected_kind(metric: str) -> str:
    """The kind of quantity that a metric measures, by its name; its unit must agree."""
    base, _, rest = metric.partition(".")
    if "pct_of_peak" in rest:
        return SHARE
    if "per_second" in rest:
        return BYTE_RATE if "bytes" in base else RATE
    if "per_cycle" in rest:
        return PER_CYCLE
    if base == "gpu__time_duration":
        return TIME
    return BYTE if "bytes" in base else COUNT


def unit_factor(metric: str, unit: str) -> float | None:
    """The factor to base units; None where unit and metric do not fit together."""
    kind, unit = expected_kind(metric), unit.strip()
    if not unit:
        return _WITHOUT_UNIT.get(kind, 1.0)
    if unit_kind(unit) != kind:
        return None
    if kind == SHARE:
        return _WITHOUT_UNIT[SHARE]
    match = _UNITS[kind].fullmatch(unit)
    if match is None:  # an unknown name of what is counted
        return None if "%" in unit else 1.0
    above, *below = (_PREFIXES[text] for text in match.groups() if text is not None)
    return above / below[0] if below else above


def to_base_units(values: Any, factor: float) -> Any:
    """A number or an array times a factor; 65.77 us are 6.577e-05 s, not 6.5769999e-05."""
    return values / round(1 / factor) if factor < 1 else values * factor


# ---------------------------------------------------------------- numbers

POINT, COMMA = ".", ","
_SPACES = r"[\s'\x{2019}\x{a0}\x{2009}\x{202f}]"  # that group digits
_NO_DIGITS = rf"^\s*\(!\)|[{{(;].*|{_SPACES}"  # `(!) n/a`; the parts of `12 {3; 4; 5}`
_SIGN, _EXPONENT = r"[+-]?", r"(?:[eE][+-]?\d{1,3})?"
_IN_EITHER_WAY = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
_GROUPED = {  # digits in groups of three, by the decimal mark
    POINT: r"[1-9]\d{0,2}(?:,\d{3})",
    COMMA: r"[1-9]\d{0,2}(?:\.\d{3})",
}
_IN_ONE_WAY = {  # one mark behind groups, several groups, or a mark and no groups
    mark: re.compile(rf"{_SIGN}(?:{groups}+[{mark}]\d+|{groups}{{2,}}|\d*[{mark}]\d+){_EXPONENT}")
    for mark, groups in _GROUPED.items()
}
_NUMBER = {
    mark: rf"^{_SIGN}(?:{groups}+(?:[{mark}]\d*)?|(?:\d+(?:[{mark}]\d*)?|[{mark}]\d+){_EXPONENT})$"
    for mark, groups in _GROUPED.items()
}
_SAMPLE = 400  # texts of each column, for the decimal mark


def find_mark(text: str) -> str | None:
    """The decimal mark of a number; "" if it could be either, None if there is no evidence."""
    if _IN_EITHER_WAY.fullmatch(text):
        return ""
    return next((mark for mark, form in _IN_ONE_WAY.items() if form.fullmatch(text)), None)


def decide_mark(columns: Iterable[Any]) -> tuple[str, str]:
    """The decimal mark that most numbers of arrow arrays have.

    Where nothing tells, the full stop, and a number that can be read in two ways.
    """
    import pyarrow.compute as pc

    texts = [
        text
        for column in columns
        for text in pc.replace_substring_regex(column.slice(0, _SAMPLE), _NO_DIGITS, "").to_pylist()
        if POINT in text or COMMA in text
    ]
    marks = [find_mark(text) for text in texts]
    commas, points = marks.count(COMMA), marks.count(POINT)
    is_open = not commas and not points and "" in marks
    return COMMA if commas > points else POINT, texts[marks.index("")] if is_open else ""


def read_numbers(texts: Any, mark: str) -> Any:
    """The numbers of an arrow array; nan where there is none, or one with another decimal mark."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if mark == POINT:
        with suppress(pa.ArrowInvalid):  # most files have plain numbers
            return pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
    is_number = pc.match_substring_regex(texts, _NUMBER[mark])
    if not pc.all(is_number).as_py():
        texts = pc.replace_substring_regex(texts, _NO_DIGITS, "")
        is_number = pc.match_substring_regex(texts, _NUMBER[mark])
    plain = pc.replace_substring(texts, COMMA if mark == POINT else POINT, "")
    if mark == COMMA:
        plain = pc.replace_substring(plain, COMMA, POINT)
    plain = pc.if_else(is_number, plain, None)
    return pc.cast(plain, pa.float64()).to_numpy(zero_copy_only=False)


# ---------------------------------------------------------------- names of metrics

DURATION = "gpu__time_duration.sum"
_BY_UNIT = {  # `Memory Throughput` is a share of the peak in one section, a rate in another
    ("Duration", TIME): DURATION,
    ("Memory Throughput", BYTE_RATE): "dram__bytes.sum.per_second",
    ("DRAM Throughput", BYTE_RATE): "dram__bytes.sum.per_second",
    ("DRAM Bandwidth", BYTE_RATE): "dram__bytes.sum.per_second",
    ("DRAM Throughput", SHARE): "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ("Compute (SM) Throughput", SHARE): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("SM Frequency", RATE): "gpc__cycles_elapsed.avg.per_second",
    ("Elapsed Cycles", COUNT): "gpc__cycles_elapsed.max",
}
DISPLAY_NAMES = tuple(dict.fromkeys(name for name, _ in _BY_UNIT))
# by itself: pmsampling:dram__bytes_read.sum and TriageCompute.dram__… are other metrics
_METRIC_NAME = re.compile(r"(?<![^\s(\[])[a-z0-9]+__\w+(?:\.\w+)*(?=[\s)\]]|$)")


def strip_label(name: str) -> str:
    """The metric in `Duration (gpu__time_duration.sum)`, either way around; else the name."""
    match = _METRIC_NAME.search(name) if "__" in name else None
    return match[0] if match else name


def metric_name(name: str, unit: str) -> str | None:
    """The metric that a title stands for; None for a display name without one."""
    name = strip_label(name)
    return _BY_UNIT.get((name, unit_kind(unit))) if name in DISPLAY_NAMES else name


# ---------------------------------------------------------------- the one step

_WITHOUT_UNITS = "the table has no units: bytes, nanoseconds and hertz are taken for granted"
_MOST_NAMED = 5
Columns = Mapping[tuple[str, str], Any]  # arrow arrays of texts, by title and unit


def normalise(columns: Columns) -> tuple[dict[str, Any], list[str]]:
    """The metrics that are needed as arrays in base units, and notes on how they were read."""
    import numpy as np

    mark, ambiguous = decide_mark(columns.values())
    metrics: dict[str, Any] = {}
    wrong_units: dict[str, None] = {}
    notes = []
    for (title, unit), texts in columns.items():
        metric = metric_name(title, unit)
        if metric is None or not is_needed(metric):
            continue
        factor = unit_factor(metric, unit)
        if factor is None:
            wrong_units[f"{strip_label(title)} in {unit}"] = None
            continue
        with np.errstate(over="ignore"):  # infinite values are dropped later
            values = to_base_units(read_numbers(texts, mark), factor)
        before = metrics.get(metric, values)
        metrics[metric] = np.where(np.isnan(before), values, before)
        if not unit.strip() and expected_kind(metric) not in (COUNT, SHARE):
            notes += [_WITHOUT_UNITS] * bool(np.isfinite(values).any())
    if ambiguous:
        notes.insert(
            0,
            f"the decimal mark of this file is not clear: {ambiguous} is read as"
            f" {float(ambiguous.replace(COMMA, '')):g}; export it with --print-units base in an"
            " English locale if that is wrong",
        )
    if wrong_units:
        wrong = ", ".join(list(wrong_units)[:_MOST_NAMED])
        notes.append(f"not used, for their units: {wrong}; export with --print-units base")
    return metrics, notes


# ---------------------------------------------------------------- texts of a launch

_RANGE = re.compile(r'"([^"]*)"')
_RANGE_DETAILS = 6  # payload, colour and message, after domain and name
_GROUPED_DIGITS = re.compile(r"[1-9]\d{0,2}(?:[.,'\u2019\u00a0\u2009\u202f ]\d{3})+")


def strip_groups(text: str) -> str:
    """`17313` of `17,313`, in any locale; other texts as they are."""
    text = text.strip()
    return re.sub(r"\D", "", text) if _GROUPED_DIGITS.fullmatch(text) else text


def read_dimensions(text: str) -> str:
    """`(128, 1, 1)`, from that or from `128, 1, 1`; any other text as it is."""
    numbers = re.findall(r"\d+", text)
    return f"({', '.join(numbers)})" if len(numbers) == 3 else text.strip()


def read_process(text: str) -> str:
    """`4711`, from that, from `4,711` or from the UI's `[4711] python3.12`."""
    match = re.match(r"\[(\d[^\]]*)\]", text)
    return strip_groups(match[1] if match else text)


def read_ranges(text: str) -> str:
    """The NVTX ranges in a cell, outer/inner: `658  "<default domain>:step:none:…"` → `step`.

    A name may itself hold colons; the fields around it have a fixed number.
    """
    names = []
    for content in _RANGE.findall(text):
        fields = content.split(":")
        if len(fields) >= _RANGE_DETAILS + 2:
            fields = fields[1:-_RANGE_DETAILS]
        names.append(":".join(fields))
    return "/".join(names) or (text.strip() if '"' not in text else "")


READ_TEXT: dict[str, Callable[[str], str]] = {
    "id": strip_groups,
    "process_id": read_process,
    "stream": strip_groups,
    "grid": read_dimensions,
    "block": read_dimensions,
    "nvtx": read_ranges,
    "device_number": strip_groups,
    "compute_capability": lambda text: text.strip().replace(",", "."),
}

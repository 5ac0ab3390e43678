"""From texts of a file to numbers in base units: names, units and decimal marks of any version.

Prefixes are powers of 1000 (a Kbyte is 1000 bytes), those of KiB and MiB powers of 1024. The base
units are byte, second and hertz; everything else is a plain count.

Comma or full stop is decided once per file: `65,77`, `1.234,5` and `1,718E+10` can be read in one
way only, `117.344` in two. Without such evidence the full stop is the decimal mark, with a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ridgeline.captures.quantities import is_needed

# ---------------------------------------------------------------- units

BYTE, TIME, RATE, BYTE_RATE, SHARE, COUNT = "byte", "time", "rate", "byte rate", "share", "count"
PERCENT = 0.01
NANOSECOND = 1e-9  # the base unit of the tools, also of a time without a unit
_PREFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6,
    "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_BASES = {
    "byte": BYTE, "bytes": BYTE, "B": BYTE, "second": TIME, "seconds": TIME, "sec": TIME, "s": TIME,
    "hz": RATE, "Hz": RATE,
}  # fmt: skip
_COUNTED = "(?:inst|cycle|op|sector|warp|thread|request|pass)s?"
_UNIT = re.compile(f"({'|'.join(_PREFIXES)})({'|'.join(_BASES)}|{_COUNTED})")


@cache
def parse_unit(text: str) -> tuple[str, float] | None:
    """Kind and factor: `Mbyte` is 1e6 bytes, `cycle/nsecond` 1e9 hertz; None for an unknown one."""
    above, slash, below = text.strip().partition("/")
    unit, per = _parse_simple(above), _parse_simple(below)
    if not slash or unit is None or per is None:
        return None if slash else unit
    kind, factor = unit[0], unit[1] / per[1]
    if per[0] != TIME:
        return f"{kind}/{below}", factor
    rate = {BYTE: BYTE_RATE, COUNT: RATE}.get(kind)
    return (rate, factor) if rate else None


def _parse_simple(text: str) -> tuple[str, float] | None:
    if text == "%":
        return SHARE, PERCENT
    if text in ("", "1", *"kKMGTP"):
        return COUNT, _PREFIXES.get(text, 1.0)
    match = _UNIT.fullmatch(text)
    if match:
        return _BASES.get(match[2], COUNT), _PREFIXES[match[1]]
    return (COUNT, 1.0) if re.fullmatch(r"[A-Za-z][A-Za-z ]*", text) else None


def expected_kind(metric: str) -> str:
    """The kind of quantity that a metric measures, by its name; its unit must agree."""
    base, _, rest = metric.partition(".")
    if "pct_of_peak" in rest:
        return SHARE
    if "per_second" in rest:
        return BYTE_RATE if "bytes" in base else RATE
    if base == "gpu__time_duration":
        return TIME
    return BYTE if "bytes" in base else COUNT


def unit_factor(metric: str, unit: str) -> float | None:
    """The factor to base units; None where unit and metric do not fit together."""
    expected, parsed = expected_kind(metric), parse_unit(unit)
    if not unit.strip():
        return {TIME: NANOSECOND, SHARE: PERCENT}.get(expected, 1.0)
    if expected != COUNT:
        return parsed[1] if parsed is not None and parsed[0] == expected else None
    if parsed is None:  # an unknown name of what is counted
        return None if "%" in unit else 1.0
    is_rate = parsed[0] == f"{COUNT}/cycle" and "per_cycle" not in metric
    return None if is_rate or parsed[0] in (BYTE, TIME, RATE, BYTE_RATE, SHARE) else parsed[1]


def to_base_units(values: Any, factor: float) -> Any:
    """A number or an array times a factor; 65.77 us are 6.577e-05 s, not 6.5769999e-05."""
    return values / round(1 / factor) if factor < 1 else values * factor


# ---------------------------------------------------------------- numbers

POINT, COMMA = ".", ","
_SPACES = re.compile(r"[\s'\u2019\u00a0\u202f_]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_MARKED = re.compile(r"[+-]?(\d*)((?:[.,]\d+)+)([eE][+-]?\d+)?")
_INSTANCES = re.compile(r"\s*[{(;].*", re.DOTALL)  # "12 {3; 4; 5}": the values of the parts
_LONGEST = 400  # characters of a number
_GROUPS = re.compile(r"[1-9]\d{0,2}([.,'\u2019\u00a0\u2009\u202f ])(?:\d{2,3}\1)*\d{3}")


def find_mark(text: str) -> str | None:
    """The decimal mark of a number; "" if it could be either, None if there is no evidence."""
    match = _MARKED.fullmatch(_clean_number(text))
    if match is None:
        return None
    marks: list[str] = re.findall(r"[.,]", match[2])
    groups = re.split(r"[.,]", match[2])[1:]
    is_grouped = 1 <= len(match[1]) <= 3 and not match[1].startswith("0")
    if len(marks) == 1:
        is_ambiguous = is_grouped and len(groups[0]) == 3 and not match[3]
        return "" if is_ambiguous else marks[0]
    before = groups if len(set(marks)) == 1 else groups[:-1]
    if not is_grouped or any(len(group) != 3 for group in before) or len(set(marks[:-1])) != 1:
        return None  # 127.0.0.1 is not a number
    if len(set(marks)) == 2:
        return marks[-1]
    return COMMA if marks[0] == POINT else POINT  # 1.234.567 has groups and no decimals


def read_number(text: str, mark: str) -> float:
    """The number in a text; nan without one. Its own evidence goes before `mark`."""
    text = _clean_number(text)
    own = find_mark(text) or mark
    plain = text.replace(POINT if own == COMMA else COMMA, "").replace(COMMA, POINT)
    value = float(plain) if _NUMBER.fullmatch(plain) else math.nan
    return value if math.isfinite(value) else math.nan


def _clean_number(text: str) -> str:
    """Without spaces, values of parts, and the mark of a doubtful value, `(!) n/a`."""
    return _SPACES.sub("", _INSTANCES.sub("", text[:_LONGEST].strip().removeprefix("(!)").strip()))


def strip_groups(text: str) -> str:
    """`17313` of `17,313`, in any locale; other texts as they are."""
    text = text.strip()
    return re.sub(r"\D", "", text) if _GROUPS.fullmatch(text) else text


# ---------------------------------------------------------------- names of metrics

_BY_UNIT = {  # `Memory Throughput` is a share of the peak in one section, a rate in another
    ("Duration", TIME): "gpu__time_duration.sum",
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
    if name not in DISPLAY_NAMES:
        return name
    parsed = parse_unit(unit)
    return _BY_UNIT.get((name, parsed[0])) if parsed else None


# ---------------------------------------------------------------- the one step

_WITHOUT_UNITS = "the table has no units: bytes, nanoseconds and hertz are taken for granted"
_MOST_NAMED = 5
# no comma, or one before every three digits: 1,234,567.8; never 65,77 nor 1,234E+10
_GROUPED = r"^(?:[^,]*|[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?)$"


@dataclass(slots=True)
class Normaliser:
    """Turns the metrics of a file into numbers in base units."""

    mark: str = POINT  # of decimals
    ambiguous: str = ""  # a number that can be read in two ways, where there is no evidence
    _wrong_units: dict[str, None] = field(default_factory=dict)
    _lacks_units: bool = False

    @classmethod
    def decide(cls, samples: Iterable[str]) -> Normaliser:
        """With the decimal mark that most numbers of the file have."""
        texts = [text for text in samples if POINT in text or COMMA in text]
        marks = [find_mark(text) for text in texts]
        commas, points = marks.count(COMMA), marks.count(POINT)
        ambiguous = "" if commas or points or "" not in marks else texts[marks.index("")].strip()
        return cls(COMMA if commas > points else POINT, ambiguous)

    def read_column(self, title: str, unit: str, cells: Any) -> tuple[str, Any] | None:
        """The metric of a title and its values in base units, of an arrow array of texts.

        None where it is not used.
        """
        import numpy as np

        metric = metric_name(title, unit)
        if metric is None or not is_needed(metric):
            return None
        factor = unit_factor(metric, unit)
        if factor is None:
            self._wrong_units[f"{strip_label(title)} in {unit}"] = None
            return None
        values = _cast(cells) if self.mark == POINT else None
        if values is None:
            values = map_texts(cells, lambda text: read_number(text, self.mark)).astype(float)
        has_unit = unit.strip() or expected_kind(metric) in (COUNT, SHARE)
        self._lacks_units |= not has_unit and bool(np.isfinite(values).any())
        with np.errstate(over="ignore"):  # infinite values are dropped later
            return metric, to_base_units(values, factor)

    def notes(self) -> list[str]:
        notes = []
        if self.ambiguous:
            notes.append(
                f"the decimal mark of this file is not clear: {self.ambiguous} is read as"
                f" {read_number(self.ambiguous, POINT):g}; export it with --print-units base in an"
                " English locale if that is wrong"
            )
        if self._wrong_units:
            wrong = ", ".join(list(self._wrong_units)[:_MOST_NAMED])
            notes.append(f"not used, for their units: {wrong}; export with --print-units base")
        return notes + [_WITHOUT_UNITS] * self._lacks_units


def map_texts(cells: Any, change: Callable[[str], Any]) -> Any:
    """An arrow array of texts, changed; few are different, so each is changed once."""
    import numpy as np

    encoded = cells.dictionary_encode()
    values = np.array([change(text) for text in encoded.dictionary.to_pylist()], dtype=object)
    return values[encoded.indices.to_numpy()]


def _cast(cells: Any) -> Any:
    """All at once where commas group digits, if there are any; None for a closer look."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(cells, ",")).as_py():
        if not pc.all(pc.match_substring_regex(cells, _GROUPED)).as_py():
            return None
        cells = pc.replace_substring(cells, ",", "")
    try:
        values = pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return values if np.isfinite(values).all() else None


# ---------------------------------------------------------------- texts of a launch

_RANGE = re.compile(r'"([^"]*)"')
_RANGE_DETAILS = 6  # payload, colour and message, after domain and name


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
    "device_number": strip_groups,
    "compute_capability": lambda text: text.strip().replace(",", "."),
}

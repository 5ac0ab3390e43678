"""Numbers to text for people, and back. The only place that knows a prefix.

Inside, every quantity is a plain number in an SI base unit. Here it gets three significant
digits and a prefix. kB, MB and GB are powers of 1000; powers of 1024 are read (`80GiB`), and
written only for caches, which are known by them.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from ridgeline.errors import RidgelineError

PREFIXES = {
    "E": 1e18,
    "P": 1e15,
    "T": 1e12,
    "G": 1e9,
    "M": 1e6,
    "k": 1e3,
    "": 1.0,
    "m": 1e-3,
    "µ": 1e-6,
    "n": 1e-9,
    "p": 1e-12,
}
BINARY_PREFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

_BYTES = re.compile(r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*(?P<prefix>[kmgtpe]i?)?b?", re.IGNORECASE)
_BYTE_FACTORS = {
    "": 1,
    **{prefix.lower(): int(PREFIXES[prefix]) for prefix in "kMGTPE"},
    **{prefix.lower(): factor for prefix, factor in BINARY_PREFIXES.items()},
}


def si(value: float, unit: str = "") -> str:
    """Three significant digits and a prefix: `si(4.09e9, "FLOP")` is `4.09 GFLOP`."""
    if not math.isfinite(value) or value == 0:
        return _joined(f"{value:g}", unit)
    number, prefix = _scaled(value)
    return _joined(number, prefix + unit)


def format_count(count: float) -> str:
    """A number of things: `25.6 M`."""
    return si(count)


def format_bytes(size_bytes: float) -> str:
    """An amount of memory, by powers of 1000: `97.8 MB`."""
    return si(size_bytes, "B")


def format_cache(size_bytes: int) -> str:
    """The size of a cache, by powers of 1024: `48 KiB`, `1.25 MiB`."""
    prefix = "Mi" if size_bytes >= BINARY_PREFIXES["Mi"] else "Ki"
    return f"{size_bytes / BINARY_PREFIXES[prefix]:.5g} {prefix}B"


def format_flops(flops: float) -> str:
    """An amount of arithmetic: `8.18 GFLOP`."""
    return si(flops, "FLOP")


def format_time(time_s: float) -> str:
    """A duration: `12.3 ms`, and from two minutes on `2 min 05 s` or `1 h 02 min`."""
    if not 120 <= abs(time_s) < math.inf:
        return si(time_s, "s")
    sign = "-" if time_s < 0 else ""
    minutes, seconds = divmod(round(abs(time_s)), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds:02} s"
    hours, minutes = divmod(round(abs(time_s) / 60), 60)
    return f"{sign}{hours} h {minutes:02} min"


def format_percent(fraction: float) -> str:
    """A share of a whole: `format_percent(0.123)` is `12.3 %`.

    All and nothing are only claimed when they are exact: 0.99999 is `>99.9 %`, not `100.0 %`.
    """
    text = f"{100 * fraction:.1f} %"
    if text == "100.0 %" and fraction < 1:
        return ">99.9 %"
    if text == "0.0 %" and fraction > 0:
        return "<0.1 %"
    return text


def format_change(share: float) -> str:
    """A change as a share, with its sign: `format_change(0.032)` is `+3.2 %`."""
    text = f"{100 * share:+.1f}"
    return f"{text if float(text) else '0.0'} %".replace("-", "−")


def format_ratio(ratio: float, unit: str = "") -> str:
    """A ratio that is read against others, so without a prefix: `0.25 FLOP/B`, `1350 FLOP/B`."""
    if not math.isfinite(ratio) or abs(ratio) >= 999.5:
        return _joined(f"{ratio:.0f}", unit)
    return _joined(f"{ratio:.3g}", unit)


def parse_bytes(size: str | int | float) -> int:
    """Read an amount of memory: `24GB`, `80GiB`, `1e9` or a plain number of bytes."""
    match = _BYTES.fullmatch(str(size).strip())
    if match is None:
        raise _not_a_size(size)
    factor = _BYTE_FACTORS[(match["prefix"] or "").lower()]
    try:
        return round(Decimal(match["number"]) * factor)
    except InvalidOperation:  # "1.2.3" has the right characters only
        raise _not_a_size(size) from None


def parse_seconds(text: str | float) -> float:
    """Read a length of time: `90s`, `2min`, `500ms` or a plain number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|)", str(text).strip())
    if match is None:
        raise RidgelineError(
            f"{str(text)!r} is not a length of time", hint="write 90s, 2min, 500ms or 90"
        )
    return float(match[1]) * {"ms": 1e-3, "min": 60.0, "m": 60.0}.get(match[2], 1.0)


def _not_a_size(size: object) -> RidgelineError:
    return RidgelineError(
        f"{str(size)!r} is not an amount of memory",
        hint="write a number of bytes (1e9), or a number with kB, MB, GB, TB (powers of 1000) "
        "or KiB, MiB, GiB, TiB (powers of 1024), such as 24GB or 80GiB",
    )


def _scaled(value: float) -> tuple[str, str]:
    """The number and its prefix. Rounds first, so that 999.9e6 becomes 1.00 G, not 1000 M."""
    rounded = float(f"{value:.2e}")
    prefix = next((p for p, factor in PREFIXES.items() if abs(rounded) >= factor), "p")
    if prefix == "" and float(value).is_integer():
        return f"{value:.0f}", prefix  # a small count is exact: 7, not 7.00
    return _three_digits(rounded / PREFIXES[prefix]), prefix


def _three_digits(number: float) -> str:
    if abs(number) >= 1000:
        return f"{number:.3g}"  # beyond the largest prefix
    decimals = 2 - math.floor(math.log10(abs(number)))
    return f"{number:.{min(2, max(0, decimals))}f}"


def _joined(number: str, unit: str) -> str:
    return f"{number} {unit}".rstrip()

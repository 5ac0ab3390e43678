"""Words around numbers, rows as plain values; text and tables for Markdown and LaTeX, templates.

Text from a results folder was written by people and programs: a model called `a|b` must not make a
new column, and one called `<script>` must not become one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from ridgeline.units import format_bytes, format_percent, format_time

if TYPE_CHECKING:
    import jinja2
    import pandas as pd

Item = TypeVar("Item")
MOST_LISTED = 6
LONGEST_NAME = 100  # of a file
MISSING = "–"
_SPECIAL = re.compile(r"([\\`*\[\]~$#])")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # within a word it means nothing
_START = re.compile(r"^(?:([-+=])|(\d+)([.)]))")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
PREAMBLE = r"% needs \usepackage{booktabs,longtable} and \usepackage[T1]{fontenc}"
_PIPE = "&#124;"  # unlike with a backslash, all readers of tables agree about it


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`, `2 batches`."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def some(parts: Sequence[str], *, most: int = MOST_LISTED, joint: str = "; ") -> str:
    """The first of many, and how many more there are."""
    shown = joint.join(parts[:most])
    left = len(parts) - most
    return f"{shown}{joint}and {left} more" if left > 0 else shown


def capped(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def three_digits(value: float) -> str:
    """Three significant digits, zeros included, so that numbers side by side look alike."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")


def times(ratio: float) -> str:
    """`1.25 times`."""
    return f"{three_digits(ratio)} times"


def safe_name(text: str, *, otherwise: str) -> str:
    """For a file: letters, digits, dots, dashes and underscores; never hidden. An end says most."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[-LONGEST_NAME:]
    return safe.strip("-.") or otherwise


def no_rows() -> pd.DataFrame:
    """A table of nothing, for fields of records."""
    import pandas as pd

    return pd.DataFrame()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, as mappings."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def group_by(items: Iterable[Item], keys: Iterable[Hashable]) -> dict[Any, list[Item]]:
    """Items by their keys, in the order of first appearance."""
    groups: dict[Any, list[Item]] = {}
    for item, same in zip(items, keys, strict=True):
        groups.setdefault(same, []).append(item)
    return groups


def number(value: Any) -> float | None:
    """A finite number, or None: tables say not-a-number for what is not known."""
    try:
        known = float(value)
    except (TypeError, ValueError):
        return None
    return known if isfinite(known) else None


def plain(value: Any) -> Any:
    """A cell as a plain value: None for nothing, int for a whole number of numpy's."""
    if value is None or value != value:
        return None
    item = value.item() if hasattr(value, "item") else value
    return int(item) if isinstance(item, float) and item.is_integer() else item


# ---------------------------------------------------------------- markup


def one_line(text: object) -> str:
    """Without line breaks or other control characters."""
    words = " ".join(str(text).split())
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" else c for c in words)


def markdown(text: object) -> str:
    """Text that Markdown shows as it is, in one line."""
    safe = "".join(_HTML.get(c, c) for c in one_line(text))
    return _UNDERSCORE.sub(r"\\_", _SPECIAL.sub(r"\\\1", safe)).replace("|", _PIPE)


def markdown_line(text: object) -> str:
    """The same at the start of a line, where a dash or a number would begin a list."""
    return _START.sub(_escaped_start, markdown(text))


def _escaped_start(match: re.Match[str]) -> str:
    return f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}"


def code_block(text: str, language: str = "") -> str:
    """Text between fences that are longer than any in it.

    A line that would look like a mark for own words is moved by a space.
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    body = re.sub(r"^<!--", " <!--", text.replace("\r", ""), flags=re.MULTILINE)
    return f"{fence}{language}\n{body}\n{fence}"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: str = "") -> str:
    """A table. `numeric` has an `r` for every column that is aligned to the right."""
    sides = ["---:" if side == "r" else "---" for side in numeric.ljust(len(headers), "l")]
    lines = [[markdown(cell) for cell in row] for row in rows]
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in ([markdown(h) for h in headers], sides, *lines)
    )


def latex_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    label: str,
    numeric: str = "",
) -> str:
    """A table with booktabs' rules that may go over pages."""
    import pandas as pd

    cells = [[one_line(cell) for cell in row] for row in rows]
    source = pd.DataFrame(cells, columns=list(headers)).to_latex(
        index=False,
        escape=True,
        longtable=True,
        caption=caption.replace("%", r"\%"),
        label=f"tab:{label}",
        column_format=numeric.ljust(len(headers), "l"),
    )
    return f"{PREAMBLE}\n{source}"


# ---------------------------------------------------------------- templates


class Markdown(str):
    """Text that is Markdown already: templates do not escape it again."""

    __slots__ = ()


FILTERS: dict[str, Callable[..., Any]] = {
    "counted": counted, "listed": listed,
    "some": lambda parts, **how: some(list(parts), **how), "bytes": format_bytes, "repr": repr,
    "time": format_time,
    "percent": lambda share: format_percent(share or 0.0),
    "sentence": lambda text: f"{str(text).removesuffix('.')}.",
    "md": lambda text: Markdown(markdown(text)), "line": lambda text: Markdown(markdown_line(text)),
}  # fmt: skip


@cache
def template_environment() -> jinja2.Environment:
    """The templates of reports. What they write is as it is; the filter `md` escapes it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ridgeline.report"),
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # this is no HTML
    )
    environment.filters |= FILTERS
    return environment

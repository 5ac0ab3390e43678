"""Text and tables for Markdown and LaTeX, and templates: whatever a name contains, it stays a name.

Text from a results folder was written by people and programs: a model called `a|b` must not make a
new column, and one called `<script>` must not become one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ridgeline.report.text import counted, listed, some, span, three_digits, times
from ridgeline.units import (
    format_bytes,
    format_flops,
    format_percent,
    format_ratio,
    format_time,
    si,
)

if TYPE_CHECKING:
    import jinja2

MISSING = "–"
_SPECIAL = re.compile(r"([\\`*\[\]~$#])")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # within a word it means nothing
_START = re.compile(r"^(?:([-+=])|(\d+)([.)]))")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_PIPE = "&#124;"  # unlike with a backslash, all readers of tables agree about it


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


_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "_": r"\_", "&": r"\&",
    "#": r"\#", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"''", "`": r"{`}",
    "[": r"{[}", "]": r"{]}", "*": r"{*}",  # after the end of a row, these would be its options
    "µ": r"$\mu$", "×": r"$\times$", "→": r"$\rightarrow$", "≥": r"$\geq$", "≤": r"$\leq$",
    "−": r"$-$", "–": "--", "—": "---", "·": r"$\cdot$", "…": r"\ldots{}", "±": r"$\pm$",
    "°": r"$^\circ$", "ß": r"\ss{}", "\u2060": "{}",
}  # fmt: skip


def latex(text: object) -> str:
    """Text that LaTeX shows as it is; letters that a plain one lacks lose their accents."""
    apart = re.sub("-(?=-)", "-\u2060", one_line(text))  # or two would become a dash
    return "".join(_tex_character(c) for c in apart)


def _tex_character(character: str) -> str:
    if character in _TEX:
        return _TEX[character]
    if character.isascii():
        return character
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_TEX.get(c, c) for c in bare) or "?"


def latex_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    label: str,
    numeric: str = "",
) -> str:
    """A table with booktabs' rules that may go over pages."""
    head = " & ".join(latex(header) for header in headers) + r" \\"
    sides = numeric.ljust(len(headers), "l")
    body = [" & ".join(latex(cell) for cell in row) + r" \\" for row in rows]
    lines = [
        r"% needs \usepackage{booktabs,longtable}",
        rf"\begin{{longtable}}{{{sides}}}",
        rf"\caption{{{latex(caption)}}}\label{{tab:{label}}}\\",
        r"\toprule", head, r"\midrule", r"\endfirsthead",
        r"\toprule", head, r"\midrule", r"\endhead",
        r"\bottomrule", r"\endfoot",
        *body,
        r"\end{longtable}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- templates


class Markdown(str):
    """Text that is Markdown already: templates do not escape it again."""

    __slots__ = ()


def of_all(number_of: int, of: int) -> str:
    """`2 of 5 configurations`."""
    if number_of == of:
        return "the one configuration" if of == 1 else f"all {of} configurations"
    return f"{number_of} of {counted(of, 'configuration')}"


def _each(items: Iterable[Any], macro: Callable[[Any], str]) -> list[str]:
    """What a macro writes about each of some items."""
    return [one_line(macro(item)) for item in items]


FILTERS: dict[str, Callable[..., Any]] = {
    "counted": counted, "listed": listed, "span": span, "each": _each, "of_all": of_all,
    "some": lambda parts, **how: some(list(parts), **how), "times": times, "digits": three_digits,
    "general": "{:g}".format, "percent": lambda share: format_percent(share or 0.0),
    "ratio": format_ratio, "time": format_time, "bytes": format_bytes, "flops": format_flops,
    "si": si, "repr": repr, "sentence": lambda text: f"{str(text).removesuffix('.')}.",
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


def write_sentence(macro: str, values: Mapping[str, Any]) -> str:
    """What a macro of statements.j2 makes of values, in one line."""
    macros = template_environment().get_template("statements.j2").module
    return one_line(getattr(macros, macro)(**values))

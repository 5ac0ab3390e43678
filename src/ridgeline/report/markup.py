"""Text and tables for Markdown and LaTeX: whatever a name contains, it stays a name.

Text from a results folder was written by people and programs: a model called `a|b` must not make a
new column, and one called `<script>` must not become one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

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

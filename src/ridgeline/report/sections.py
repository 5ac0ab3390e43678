"""What the sections of report.md share: their material, tables that stay readable, citations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from ridgeline.report.analysis import Statement
from ridgeline.report.configurations import Case
from ridgeline.report.hypotheses import Verdict
from ridgeline.report.markup import markdown, markdown_line
from ridgeline.report.study import Study
from ridgeline.report.tables import Column, as_markdown
from ridgeline.report.text import counted, plain

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 60  # of a table in the report; the CSV files have all


class FigureLike(Protocol):
    """A figure on disk, as report/figures gives it."""

    @property
    def path(self) -> Path: ...
    @property
    def kind(self) -> str: ...
    @property
    def env(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that the sections are written from."""

    study: Study
    cases: Sequence[Case]
    names: dict[str, str]  # R1, R2, … by run id
    statements: Sequence[Statement]
    verdicts: Sequence[Verdict]
    figures: Sequence[FigureLike]
    folder: Path  # of the report

    @property
    def envs(self) -> list[str]:
        return list(dict.fromkeys(case.env for case in self.cases))


def table(content: pd.DataFrame, columns: Sequence[Column]) -> str:
    """A table for people; columns in which nothing is known are left out, and rows beyond many."""
    known = [c for c in columns if c.name in content and _says_something(content, c)]
    shown = as_markdown(content.head(MOST_ROWS), known)
    left = len(content) - MOST_ROWS
    if left <= 0:
        return shown
    return f"{shown}\n\n{counted(left, 'more row')} in the CSV file of this table."


def _says_something(content: pd.DataFrame, column: Column) -> bool:
    return any(plain(value) not in (None, "") for value in content[column.name])


def cited(run_ids: Iterable[str], names: dict[str, str]) -> str:
    """`R1, R3–R5`: the runs that a statement is about."""
    numbers = sorted(int(names[run_id][1:]) for run_id in set(run_ids) if run_id in names)
    spans: list[list[int]] = []
    for n in numbers:
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ", ".join(f"R{a}" if a == b else f"R{a}{'–' if b > a + 1 else ', R'}{_end(a, b)}"
                     for a, b in spans)  # fmt: skip


def _end(first: int, last: int) -> str:
    return f"R{last}" if last > first + 1 else f"{last}"


def statement_line(statement: Statement, names: dict[str, str]) -> str:
    """A bullet with its source."""
    source = ", ".join(
        part for part in (statement.provenance, cited(statement.run_ids, names)) if part
    )
    return f"- {markdown_line(statement.text)} *({source})*"


def figure_block(figure: FigureLike, number: int, folder: Path) -> str:
    """A picture with its number, title and caption; its path is relative to the report."""
    path = quote(Path(relpath(Path(figure.path).resolve(), folder.resolve())).as_posix())
    title = markdown(figure.title).rstrip(".")
    return f"![{title}]({path})\n\n*Figure {number}.* **{title}.** {markdown(figure.caption)}"

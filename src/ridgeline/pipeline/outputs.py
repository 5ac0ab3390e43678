"""Everything that is made from a study: points, figures, page, report.md, tables, notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.report.study import Study

if TYPE_CHECKING:
    from ridgeline.report.figures import Figure

OnProgress = Callable[[str], None]
FORMATS = ("png", "svg")


@dataclass(slots=True, kw_only=True)
class Outputs:
    """What was written."""

    points: Path | None = None
    page: Path | None = None
    markdown: Path | None = None
    notebook: Path | None = None
    figures: list[Figure] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what happened to files that were there


def write_points(study: Study, outputs: Outputs) -> None:
    """roofline_points.csv."""
    from ridgeline.report import tables

    outputs.points = tables.write_points(study, study.results / "roofline_points.csv")


def write_figures(
    study: Study,
    outputs: Outputs,
    *,
    folder: Path | None = None,
    formats: Sequence[str] = FORMATS,
    kinds: Sequence[str] | None = None,
    on_progress: OnProgress = lambda what: None,
) -> None:
    """The figures, into `figures/` of the results folder if no other is named."""
    from ridgeline.report import figures

    where = folder or study.results / "figures"
    outputs.figures = figures.write_figures(
        study, where, formats=tuple(formats), kinds=kinds, on_progress=on_progress
    )


def write_report(
    study: Study,
    outputs: Outputs,
    *,
    title: str | None = None,
    notebook: bool = False,
    on_progress: OnProgress = lambda what: None,
) -> None:
    """The page, report.md with the figures that were made, tables, and a notebook if asked."""
    from ridgeline.report import markdown, tables
    from ridgeline.report import page as pages

    on_progress("page")
    outputs.page = pages.write_page(study, study.results / "report.html", title=title)
    on_progress("report.md")
    outputs.markdown = markdown.write_report_md(
        study,
        study.results / "report.md",
        outputs.figures,
        title=title,
        on_message=outputs.notes.append,
    )
    on_progress("tables")
    outputs.tables = tables.write_tables(study, study.results / "tables")
    if notebook:
        on_progress("notebook")
        outputs.notebook = markdown.write_notebook(study, study.results / "report.ipynb")

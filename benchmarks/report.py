"""A benchmark's tables as Markdown, with the date, the versions and the processor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import peers
from ridgeline.provenance import Provenance

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
LIBRARIES = ("torch", "torchvision", "timm", "transformers")
PLACE = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-])")  # folders before a file's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under a heading; the last columns are numbers and stand to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    text_columns: int = 1

    def markdown(self) -> str:
        rules = ["---" if i < self.text_columns else "--:" for i in range(len(self.columns))]
        lines = [_line(self.columns), "|" + "|".join(rules) + "|", *map(_line, self.rows)]
        heading = [f"## {self.title}", ""] if self.title else []
        return "\n".join([*heading, *lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one benchmark found."""

    title: str
    summary: Sequence[str]  # a paragraph each; what to remember first
    tables: Sequence[Table]
    notes: Sequence[str] = field(default=())  # how it was done
    uses_peers: bool = False


def write(name: str, report: Report, made: Provenance) -> Path:
    """The report as a page of the documentation."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.md"
    path.write_text(markdown(name, report, made), encoding="utf-8")
    return path


def markdown(name: str, report: Report, made: Provenance) -> str:
    """The whole page."""
    parts = [
        f"# {report.title}",
        *report.summary,
        *(table.markdown() for table in report.tables),
        "## How it was done",
        *report.notes,
        made_on(name, made, uses_peers=report.uses_peers),
    ]
    return without_folders("\n\n".join(parts)) + "\n"


def made_on(name: str, made: Provenance, *, uses_peers: bool) -> str:
    """When, with what and on which processor, as a list."""
    versions = [f"{lib} {made.libraries[lib]}" for lib in LIBRARIES if lib in made.libraries]
    commit = made.commit
    state = f" at {commit.sha[:10]}{' and changes' if commit.is_dirty else ''}" if commit else ""
    lines = [
        f"- `python -m benchmarks {name}` on {made.time[:10]}",
        f"- ridgeline {made.ridgeline}{state}, Python {made.python}, {', '.join(versions)}",
        f"- {made.host.cpu}, {made.host.usable_cores} cores",
    ]
    if uses_peers:
        lines.insert(2, f"- {', '.join(peers.described())}")
    return "\n".join(lines)


def replace_part(name: str, part: str, text: str) -> Path:
    """Put text between the marks of a part of a page that several scripts write."""
    path = RESULTS / f"{name}.md"
    page = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, after = page.split(begin)[0], page.split(end)[1]
    path.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")
    return path


def without_folders(text: str) -> str:
    """Error messages name files; where these are on this machine is nobody's business."""
    return PLACE.sub("", text)


def one_line(text: object, limit: int = 160) -> str:
    """A message in one cell of a table."""
    flat = " ".join(str(text).split()).replace("|", "/").replace("`", "'").replace("*", "·")
    flat = flat.replace("<", "&lt;").replace(">", "&gt;")
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"

"""`report.md`, a study written up, with a place for its author's own words in every section; and a
notebook that reads the results folder again.

A place is what stands between two lines:

    <!-- yours: analysis -->
    <!-- /yours -->

A file ends in a digest of all that was generated. If an older file does not match its own, or has
none, somebody changed it outside these places, or it is not ours: it is then kept beside the new
one, so that nothing is ever lost.

The notebook is plain nbformat 4 JSON. Its cells are the text and the code blocks of
templates/notebook.md.j2: plain Python, which also runs anywhere else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.report import sections
from ridgeline.report.hypotheses import Hypothesis, judge_hypotheses
from ridgeline.report.predictions import describe_predictions
from ridgeline.report.study import Study
from ridgeline.report.summary import name_study
from ridgeline.report.text import Markdown, markdown, template_environment
from ridgeline.store import IN_RESULTS, atomic_write_text, to_json, whole_file, writing

if TYPE_CHECKING:
    from ridgeline.report.figures import Figure

NAME = r"[A-Za-z0-9 _.-]+"
_BLOCK = re.compile(
    rf"^<!-- yours: (?P<name>{NAME}) -->\n(?P<words>.*?)^<!-- /yours -->$", re.DOTALL | re.MULTILINE
)
_DIGEST = re.compile(r"^<!-- generated: (?P<digest>[0-9a-f]{64}) -->$", re.MULTILINE)
OLD_TITLE = "## From an earlier report"
_OLD_SECTIONS = re.compile(  # with nothing in it but places that are empty
    rf"^{OLD_TITLE}$(?:\s*^<!-- yours: {NAME} -->\n<!-- /yours -->$)+", re.MULTILINE
)
_CELL = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.MULTILINE)  # of code
_CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$", re.DOTALL | re.MULTILINE)


def write_report_md(
    study: Study,
    path: Path,
    figures: Sequence[Figure] = (),
    *,
    title: str | None = None,
    on_message: Callable[[str], None] = lambda text: None,
    own_hypotheses: Sequence[Hypothesis] = (),
) -> Path:
    """Write the report; what its author wrote into an older one stays.

    `on_message` gets a sentence about an older file that was changed elsewhere, and kept.
    """
    text = report_text(
        study, figures, folder=path.parent, title=title, own_hypotheses=own_hypotheses
    )
    if note := write_with_own_sections(path, text):
        on_message(note)
    return path


def report_text(
    study: Study,
    figures: Sequence[Figure] = (),
    *,
    folder: Path,
    title: str | None = None,
    own_hypotheses: Sequence[Hypothesis] = (),
) -> str:
    """The report with empty places."""
    judged = judge_hypotheses(study, own_hypotheses)
    escaping = template_environment().overlay(trim_blocks=True, finalize=_escape)
    text = escaping.get_template("report.md.j2").render(
        title=title or f"Roofline study of {name_study(study)}",
        configurations=study.cases,
        study=study,
        has_captures=not study.captures.empty,
        **{name: values(study) for name, values in sections.VALUES.items()},
        tables=sections.list_tables(study),
        predictions=describe_predictions(study.predictions),
        figures=sections.arrange_figures(figures, folder),
        verdicts=judged,
        outcomes=sections.list_outcomes(judged),
        cite=partial(sections.cite, study),
        own_section=own_section,
    )
    return unwrap(text) + "\n"


def _escape(value: Any) -> Markdown:
    return value if isinstance(value, Markdown) else Markdown(markdown(value))


def unwrap(text: str) -> str:
    """Each paragraph and each item of a list in one line; code and tables are left alone."""
    blocks: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        blocks += [*_unwrap_blocks(text[end : code.start()]), code[0]]
        end = code.end()
    return "\n\n".join([*blocks, *_unwrap_blocks(text[end:])])


def _unwrap_blocks(text: str) -> list[str]:
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]
    return [block if block[0] in "|<#" else _unwrap_items(block) for block in blocks]


def _unwrap_items(block: str) -> str:
    return "\n".join(" ".join(item.split()) for item in re.split(r"\n(?=- )", block))


# ---------------------------------------------------------------- the user's own words


def own_section(name: str, words: str = "") -> Markdown:
    """A place for own words, with those that it has."""
    ending = "" if not words or words.endswith("\n") else "\n"
    return Markdown(f"<!-- yours: {name} -->\n{words}{ending}<!-- /yours -->")


def read_words(text: str) -> dict[str, str]:
    """The words in an older file, by place; several places of one name become one."""
    words: dict[str, str] = {}
    for block in _BLOCK.finditer(text):
        words[block["name"]] = words.get(block["name"], "") + block["words"]
    return words


def digest(text: str) -> str:
    """Of all that is generated: neither the words nor spaces at the ends of lines matter."""
    generated = _BLOCK.sub(lambda block: own_section(block["name"]), text)
    generated = _DIGEST.sub("", _OLD_SECTIONS.sub("", generated))
    lines = "\n".join(line.rstrip() for line in generated.split("\n")).strip()
    return hashlib.sha256(lines.encode("utf-8", errors="backslashreplace")).hexdigest()


def with_words(generated: str, words: Mapping[str, str]) -> str:
    """A generated text with the user's words in their places, and its digest.

    Words whose place is no more come at the end.
    """
    known = {block["name"] for block in _BLOCK.finditer(generated)}
    text = _BLOCK.sub(
        lambda block: own_section(block["name"], words.get(block["name"], "")), generated
    )
    left = {name: own for name, own in words.items() if name not in known and own.strip()}
    if left:
        blocks = "\n\n".join(own_section(name, own) for name, own in left.items())
        text = f"{text.rstrip()}\n\n{OLD_TITLE}\n\n{blocks}\n"
    return f"{text.rstrip()}\n\n<!-- generated: {digest(generated)} -->\n"


def write_with_own_sections(path: Path, generated: str, *, now: datetime | None = None) -> str:
    """Write a generated text; the user's words in the file of that name stay.

    An older file that was changed elsewhere than in its places is kept beside the new one, which
    then begins with a sentence about it. Returns that sentence.
    """
    with writing(path.parent):
        old_bytes = path.read_bytes() if path.is_file() else None
    if old_bytes is None:
        atomic_write_text(path, with_words(generated, {}))
        return ""
    # some editors add a mark and other line ends
    text = old_bytes.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    words = read_words(text)
    new = with_words(generated, words)
    is_as_generated = _DIGEST.findall(_BLOCK.sub("", text)) == [digest(text)]
    written = {name: own for name, own in words.items() if own.strip()}
    note = ""
    if not is_as_generated or "\ufffd" in text or not read_words(new).items() >= written.items():
        backup = _back_up(path, old_bytes, now or datetime.now(UTC))
        note = (
            f"{path.name} had been changed outside of the places for own words, or was not made by"
            f" ridgeline; as it was, it is kept as {backup.name}"
        )
        new = with_words(f"> {markdown(note)}\n\n{generated}", words)
    atomic_write_text(path, new)
    return note


def _back_up(path: Path, content: bytes, now: datetime) -> Path:
    stem = f"{path.name}.bak-{now:%Y%m%dT%H%M%SZ}"
    names = [stem, *(f"{stem}-{n}" for n in range(2, 1000))]
    backup = next(new for name in names if not (new := path.with_name(name)).exists())
    with writing(path.parent), whole_file(backup) as file:
        file.write(content)
    return backup


# ---------------------------------------------------------------- the notebook


def write_notebook(study: Study, path: Path) -> Path:
    """Write the notebook; it finds the results folder by its place relative to `path`."""
    results = Path(relpath(study.results.resolve(), path.resolve().parent)).as_posix()
    atomic_write_text(path, to_json(notebook(study, results)), elsewhere=IN_RESULTS)
    return path


def notebook(study: Study, results: str) -> dict[str, Any]:
    """The notebook as JSON; `results` is the path of the results folder as its cells see it."""
    template = template_environment().get_template("notebook.md.j2")
    parts = _CELL.split(
        template.render(title=name_study(study), results=results)
    )  # text, code, text, …
    cells = [_cell(part.strip("\n"), is_code=n % 2 == 1) for n, part in enumerate(parts)]
    cells = [cell for cell in cells if cell["source"]]
    return {
        "cells": [{"id": f"cell-{n}", **cell} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(source: str, *, is_code: bool) -> dict[str, Any]:
    return {
        "cell_type": "code" if is_code else "markdown",
        **({"execution_count": None} if is_code else {}),
        "metadata": {},
        **({"outputs": []} if is_code else {}),
        "source": source.splitlines(keepends=True),
    }

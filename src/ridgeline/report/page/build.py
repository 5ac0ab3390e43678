"""One HTML file from a template, styles, scripts and the payload."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.report.page.columns import to_script
from ridgeline.report.page.data import Content, content
from ridgeline.report.study import Study
from ridgeline.store import atomic_write_text

if TYPE_CHECKING:
    import jinja2

SCRIPTS = (  # in this order they become one script: a later one uses what earlier ones define
    "format.js",
    "data.js",
    "dom.js",
    "provenance.js",
    "scales.js",
    "roofs.js",
    "views.js",
    "marks.js",
    "plot.js",
    "pointer.js",
    "filters.js",
    "table.js",
    "layers.js",
    "charts.js",
    "sections.js",
    "executed.js",
    "runs.js",
    "main.js",
)


def write_page(study: Study, path: Path, *, title: str | None = None) -> Path:
    """Write the report of a study as one HTML file that needs nothing else."""
    atomic_write_text(path, page(content(study, title=title)))
    return path


def page(told: Content) -> str:
    """The whole text of the file."""
    from markupsafe import Markup

    style, script = asset("page.css"), scripts()
    template = _environment().get_template("template.html.j2")
    return template.render(
        page=told,
        style=Markup(style),
        script=Markup(script),
        payload=Markup(to_script(told.payload)),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@cache
def scripts() -> str:
    """All scripts in one scope of their own: nothing leaks but the hook that tests read."""
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


@cache
def asset(name: str) -> str:
    file = resources.files("ridgeline.report.page").joinpath("assets", name)
    return file.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """By which the page's own policy knows its script and style, and refuses any other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,  # every word of the results folder is text
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

"""The report as one HTML file that opens anywhere: no server, no network, no library.

Here template, styles and scripts are put together into the file; the rest is in

content.py  the words of the template: headline, headrooms, a table of ceilings per machine
payload.py  what the scripts draw, as compact JSON: runs, points, profiles and kernels
assets/     template.html.j2, page.css, and the scripts in the order below
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.report.page.content import describe_page
from ridgeline.report.page.payload import make_payload, to_script
from ridgeline.report.study import Study
from ridgeline.store import atomic_write_text

if TYPE_CHECKING:
    import jinja2

__all__ = ["write_page"]
SCRIPTS = (  # in this order they become one script: a later one uses what earlier ones define
    "format.js", "data.js", "dom.js", "provenance.js", "scales.js", "roofs.js", "views.js",
    "marks.js", "plot.js", "pointer.js", "filters.js", "table.js", "layers.js", "charts.js",
    "sections.js", "executed.js", "runs.js", "main.js",
)  # fmt: skip


def write_page(study: Study, path: Path, *, title: str | None = None) -> Path:
    """Write the report of a study as one HTML file that needs nothing else."""
    from markupsafe import Markup

    payload, left_out = make_payload(study)
    style, script = read_asset("page.css"), join_scripts()
    text = (
        _make_environment()
        .get_template("template.html.j2")
        .render(
            page=describe_page(study, title=title),
            left_out=left_out,
            has_points=bool(payload["points"]["count"]),
            style=Markup(style),
            script=Markup(script),
            payload=Markup(to_script(payload)),
            style_hash=_hash_text(style),
            script_hash=_hash_text(script),
        )
    )
    atomic_write_text(path, text)
    return path


@cache
def join_scripts() -> str:
    """All scripts in one scope of their own: nothing leaks but the hook that tests read."""
    parts = "\n".join(read_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


@cache
def read_asset(name: str) -> str:
    """The text of a file under assets/."""
    file = resources.files("ridgeline.report.page").joinpath("assets", name)
    return file.read_text(encoding="utf-8")


def _hash_text(text: str) -> str:
    """By which the page's own policy knows its script and style, and refuses any other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _make_environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(read_asset),
        autoescape=True,  # every word of the results folder is text
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

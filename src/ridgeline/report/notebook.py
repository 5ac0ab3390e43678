"""A notebook that reads the results folder again and shows runs, points, findings and a roofline.

It is plain nbformat 4 JSON, so nothing but an editor of notebooks is needed to open it. Its cells
are the text and the code blocks of templates/notebook.md.j2: plain Python, which also runs anywhere
else.
"""

from __future__ import annotations

import re
from os.path import relpath
from pathlib import Path
from typing import Any

from ridgeline.report.markup import template_environment
from ridgeline.report.study import Study
from ridgeline.report.text import counted, listed
from ridgeline.store import IN_RESULTS, atomic_write_text, to_json

FORMAT, MINOR = 4, 5
_CODE = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


def write_notebook(study: Study, path: Path) -> Path:
    """Write the notebook; it finds the results folder by its place relative to `path`."""
    results = Path(relpath(study.results.resolve(), path.resolve().parent)).as_posix()
    atomic_write_text(path, to_json(notebook(study, results)), elsewhere=IN_RESULTS)
    return path


def notebook(study: Study, results: str) -> dict[str, Any]:
    """The notebook as JSON; `results` is the path of the results folder as its cells see it."""
    envs = [machine.env for machine in study.machines]
    title = counted(len(study.runs), "run") + (f" on {listed(envs)}" if envs else "")
    template = template_environment().get_template("notebook.md.j2")
    parts = _CODE.split(template.render(title=title, results=results))  # text, code, text, …
    cells = [_cell(part.strip("\n"), is_code=n % 2 == 1) for n, part in enumerate(parts)]
    cells = [cell for cell in cells if cell["source"]]
    return {
        "cells": [{"id": f"cell-{n}", **cell} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": FORMAT,
        "nbformat_minor": MINOR,
    }


def _cell(source: str, *, is_code: bool) -> dict[str, Any]:
    return {
        "cell_type": "code" if is_code else "markdown",
        **({"execution_count": None} if is_code else {}),
        "metadata": {},
        **({"outputs": []} if is_code else {}),
        "source": source.splitlines(keepends=True),
    }

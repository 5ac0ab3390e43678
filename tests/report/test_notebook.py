"""The notebook: valid JSON of its format, and cells that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.report.hostile import make_folder

from ridgeline.report.markdown import write_notebook
from ridgeline.report.study import read_study
from ridgeline.store import ResultsFolder


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    """Two runs and their counts, in a folder whose name needs quotes."""
    return make_folder(tmp_path / "it's results").results


def run_cells(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The cells in a fresh namespace, from the folder of the notebook."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    monkeypatch.chdir(path.parent)
    space: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(path), "exec"), space)
    plt.close("all")
    return space


def test_its_cells_read_the_folder_again(
    results: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = read_study(results)
    path = write_notebook(study, results.path / "deeper" / "study.ipynb")

    space = run_cells(path, monkeypatch)

    assert space["RESULTS"] == Path("..")
    assert space["study"].runs["run_id"].tolist() == study.runs["run_id"].tolist()
    assert space["steps"]["flops"].tolist()[0] == 7e12
    assert space["axes"][0][0].lines  # roofs and marks
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    kinds = [cell["cell_type"] for cell in content["cells"]]
    assert (kinds.count("code"), kinds.count("markdown")) == (6, 5)
    code = {"cell_type", "execution_count", "id", "metadata", "outputs", "source"}
    for cell in content["cells"]:
        is_code = cell["cell_type"] == "code"
        assert set(cell) == (code if is_code else code - {"execution_count", "outputs"})

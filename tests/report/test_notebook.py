"""The notebook: valid JSON of its format, and cells that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.report.hand_study import make_study
from tests.stored import write_run

from ridgeline.report.notebook import write_notebook
from ridgeline.report.study import read_study
from ridgeline.store import ResultsFolder

ASKED = {
    "model": "resnet <b>", "batch_size": 8, "mode": "train", "input_size": None, "seq_len": None,
    "config": {}, "optimizer": "sgd",
}  # fmt: skip
FOUND = {
    "status": "ok", "backend": "cuda", "device_name": "NVIDIA H200", "precision": "amp",
    "iters": 10, "elapsed_s": 0.2, "samples_per_s": 400.0, "samples_processed": 80,
    "warmup": {"times_s": [0.02]},
    "step_time_s": {"median": 0.02, "mean": 0.02, "std": 0.0, "min": 0.02, "max": 0.02,
                    "interval": [0.019, 0.021]},
    "split_s": {"forward": {"median": 0.006}, "backward": {"median": 0.012}},
}  # fmt: skip
OPS = pd.DataFrame(
    {
        "path": ["conv", "conv"], "op": ["aten::convolution"] * 2, "kind": ["conv"] * 2,
        "phase": ["forward", "weight-grad"], "input_shapes": ["8x3"] * 2, "dtype": ["fp16"] * 2,
        "macs": [10**9, 10**9], "other_flops": [0, 0], "flops": [2 * 10**9, 2 * 10**9],
        "read_bytes": [10**8, 10**8], "written_bytes": [10**7, 10**7],
    }
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    """A run on a device whose roofs are known from its datasheet, and the count of its step."""
    folder = ResultsFolder(tmp_path / "it's results")
    run = {"command": "run", "precision": "amp", "data": "synthetic", "label": "", **ASKED}
    write_run(folder, label="run", asked=run, found=FOUND, provenance={"time": "2026"})
    count = {"command": "count", "precision": "amp", **ASKED}
    write_run(folder, label="count", asked=count, found={"flops": 4 * 10**9}, provenance={},
                     tables={"ops": OPS})  # fmt: skip
    return folder


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
    assert space["steps"]["flops"].tolist() == [4e9]
    assert len(space["axes"][0][0].lines) == 3  # a roof, a mark, the bar of its range
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    kinds = [cell["cell_type"] for cell in content["cells"]]
    assert (kinds.count("code"), kinds.count("markdown")) == (6, 5)
    code = {"cell_type", "execution_count", "id", "metadata", "outputs", "source"}
    for cell in content["cells"]:
        is_code = cell["cell_type"] == "code"
        assert set(cell) == (code if is_code else code - {"execution_count", "outputs"})


def test_throughput_is_that_of_all_batches_of_a_step(
    results: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"command": "run", "precision": "amp", "data": "synthetic", "label": "", **ASKED}
    found = {**FOUND, "samples_processed": 320}  # four batches of eight in each of ten steps
    write_run(results, label="run", asked={**run, "grad_accum_steps": 4}, found=found,
                      provenance={})  # fmt: skip

    space = run_cells(
        write_notebook(read_study(results), results.path / "study.ipynb"), monkeypatch
    )

    machine = "nvidia-h200"
    assert space["lines"] == {
        f"resnet <b>, amp training, {machine}": {8: 400.0},
        f"resnet <b>, amp training, 4 batches a step, {machine}": {8: 1600.0},
    }


def test_an_empty_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(results=tmp_path, machines=())

    space = run_cells(write_notebook(study, tmp_path / "study.ipynb"), monkeypatch)

    assert space["study"].runs.empty

"""A small results folder with everything in it, and ways to spoil a file of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tests.stored import write_run

from ridgeline.errors import RidgelineError
from ridgeline.report.compare import compare
from ridgeline.report.comparison import Comparison, as_markdown
from ridgeline.report.markdown import write_report_md
from ridgeline.report.page import write_page
from ridgeline.report.study import Study, read_study
from ridgeline.report.tables import write_points, write_tables
from ridgeline.report.views import write_views
from ridgeline.store import ResultsFolder

DATA = Path(__file__).parents[1] / "data"
MEASURED = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
KERNELS = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv").head(3)
GONE = object()  # instead of a value: the field is taken out

OPS = pd.DataFrame(
    [
        ("a", "aten::convolution", "conv", "forward", "fp32", "8x3", 1.0e12, 0, 2.0e12, 2e9, 1e9),
        ("b", "aten::addmm", "linear", "forward", "fp32", "8x9", 0.5e12, 0, 1.0e12, 1e9, 1e9),
        ("a", "aten::convolution_backward", "conv", "weight-grad", "fp32", "8x3", 2.0e12, 0,
         4.0e12, 3e9, 1e9),
    ],
    columns=["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
             "flops", "read_bytes", "written_bytes"],
)  # fmt: skip
COUNTED = pd.DataFrame({"path": ["a", "b"], "own_fused_bytes": [1e9, 1e9]})
LAYERS = pd.DataFrame(
    {
        "layer": ["a", "b"], "kind": ["Conv2d", "Linear"], "input_shape": ["8x3x32x32", "8x9"],
        "in_channels": [3, 9], "out_channels": [8, 4], "kernel_size": ["3x3", None],
        "stride": ["1x1", None], "padding": ["1x1", None], "forward_s": [0.02, 0.01],
        "backward_s": [0.04, 0.02], "time_s": [0.06, 0.03], "mean_s": [0.06, 0.03],
        "std_s": [0.0, 0.0], "percentage": [66.0, 33.0], "forward_samples_s": [[0.02], [0.01]],
        "backward_samples_s": [[0.04], [0.02]], "energy_per_layer_j": [None, None],
        "energy_interval_j": [None, None], "energy_attribution": [None, None],
        "power_mean_w": [None, None], "power_std_w": [None, None], "power_samples": [None, None],
    }
)  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """A results folder: a healthy run, one to spoil, their counts and the passport of their GPU."""

    results: ResultsFolder
    healthy: str  # ids of runs
    victim: str
    count: str  # of the victim

    @property
    def run_json(self) -> Path:
        return self.results.runs_path / self.victim / "run.json"

    @property
    def count_json(self) -> Path:
        return self.results.runs_path / self.count / "run.json"

    @property
    def passport(self) -> Path:
        return self.results.path / "machines" / "nvidia-h200.json"

    def table(self, run_id: str, name: str) -> Path:
        return self.results.runs_path / run_id / f"{name}.parquet"

    def copy(self, path: Path) -> Folder:
        shutil.copytree(self.results.path, path)
        return Folder(ResultsFolder(path), self.healthy, self.victim, self.count)


def make_folder(path: Path) -> Folder:
    results = ResultsFolder(path)
    (path / "machines").mkdir(parents=True)
    shutil.copy(DATA / "passport-h200.json", path / "machines" / "nvidia-h200.json")
    healthy, _ = _stored(results, "sound")
    victim, count = _stored(results, "spoilt")
    return Folder(results, healthy, victim, count)


def _stored(results: ResultsFolder, model: str) -> tuple[str, str]:
    """The ids of a run and of its count."""
    run = deepcopy(MEASURED)
    run["asked"] |= {"model": model, "label": model}
    run["found"]["layers"] = {"difference": 0.01, "clock": "device events", "sum_s": 0.09}
    run["provenance"]["backends"] = {"cuda": "13.0"}
    stored = write_run(results,
        label=model, asked=run["asked"], found=run["found"], provenance=run["provenance"],
        tables={"layers": LAYERS, "kernels": KERNELS},
    )  # fmt: skip
    asked = {"command": "count", "precision": "tf32", "optimizer": "sgd"}
    asked |= {name: run["asked"][name]
              for name in ("model", "batch_size", "mode", "input_size", "seq_len", "config")
              }  # fmt: skip
    found = {
        "flops": 7e12, "macs": 3.5e12, "read_bytes": 6e9, "written_bytes": 3e9, "params": 1000,
        "fused_bytes": {"read_bytes": 2e9, "written_bytes": 1e9}, "coverage": 1.0,
        "memory": {"peak_bytes": 10**10}, "phases": {"forward": {"flops": 3e12}},
    }  # fmt: skip
    counted = write_run(results,
        label=f"count-{model}", asked=asked, found=found, provenance={},
        tables={"ops": OPS, "layers": COUNTED},
    )  # fmt: skip
    return stored.run_id, counted.run_id


def put(path: Path, name: str, value: Any) -> None:
    """Another value into a field of a JSON file; `ceilings.0.samples` names one."""
    content = json.loads(path.read_text(encoding="utf-8"))
    holder: Any = content
    *way, last = name.split(".")
    for part in way:
        holder = holder[int(part) if isinstance(holder, list) else part]
    if value is GONE:
        del holder[last]
    else:
        holder[int(last) if isinstance(holder, list) else last] = value
    path.write_text(json.dumps(content), encoding="utf-8")


def change(path: Path, how: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Another table into a Parquet file."""
    how(pd.read_parquet(path)).to_parquet(path, index=False)


def report(folder: Folder) -> Study:
    """All that the commands do with a results folder, but for figures."""
    study = read_study(folder.results)
    out = folder.results.path
    write_views(folder.results)
    write_points(study, out / "roofline_points.csv")
    write_page(study, out / "report.html")
    write_report_md(study, out / "report.md")
    write_tables(study, out / "tables")
    return study


def compared(folder: Folder, sound: Folder) -> Comparison:
    """The folder beside an undamaged one, in every form."""
    found = compare(f"{folder.results.path}/", f"{sound.results.path}/", layers=True)
    assert isinstance(found, Comparison)
    as_markdown(found)
    json.dumps(found.to_dict())
    return found


def refusal(work: Callable[[], object]) -> str:
    """What a RidgelineError says; empty if there was none."""
    try:
        work()
    except RidgelineError as error:
        return str(error)
    return ""

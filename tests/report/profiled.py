"""A results folder with a profile: the recorded step of ResNet-50 (amp, batch 32) on an H200.

The kernels are recorded; to which layer and phase each belongs is said here by its name, and the
count stands for all operators of the network with a few.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from tests.stored import write_run

from ridgeline.serialize import to_dict
from ridgeline.store import ResultsFolder, Run

DATA = Path(__file__).parent.parent / "data"
OP_COLUMNS = ["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
              "flops", "read_bytes", "written_bytes"]  # fmt: skip
STEP_S = 0.0225
STEM, REST = 3.776e9, 127.07e9  # MACs of the first convolution and of all others, forward
BELONGS = (  # a part of the name, and then layer and phase; the first that fits
    ("fprop_image_first", "conv1", "forward"), ("wgrad_image_first", "conv1", "backward"),
    ("fprop", "layers", "forward"), ("dgrad", "layers", "backward"),
    ("wgrad", "layers", "backward"), ("bias_TNT", "fc", "forward"),
    ("_TN", "layers", "forward"), ("nvjet", "layers", "backward"),
    ("splitKreduce", "layers", "backward"), ("Padding", "conv1", "forward"),
    ("batchnorm_fw", "bn", "forward"), ("batchnorm_bw", "bn", "backward"),
    ("vectorized", "relu", "forward"), ("unrolled", "layers", "forward"),
    ("workspace", "layers", "backward"), ("at::amp", "", ""), ("at::reduce", "avgpool", "forward"),
    ("at::", "", "optimizer"), ("", "", ""),
)  # fmt: skip


def kernels() -> pd.DataFrame:
    """The recorded kernels with their places."""
    table = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")
    places = [next((layer, phase) for part, layer, phase in BELONGS if part in name)
              for name in table["kernel"]]  # fmt: skip
    return table.assign(layer=[p[0] for p in places], phase=[p[1] for p in places], op="",
                        counter_time_s=table["time_s"], time_source="counter")  # fmt: skip


def ops() -> pd.DataFrame:
    """778 GFLOP of products, and the elementwise work around them."""
    rows = [("conv1", "conv", "forward", STEM, 0), ("conv1", "conv", "weight-grad", STEM, 0),
            ("layers", "conv", "forward", REST, 0), ("layers", "conv", "input-grad", REST, 0),
            ("layers", "conv", "weight-grad", REST, 0), ("fc", "matmul", "forward", 65.5e6, 0),
            ("bn", "norm", "forward", 0, 4e9), ("bn", "norm", "input-grad", 0, 6e9),
            ("relu", "pointwise", "forward", 0, 1e9), ("maxpool", "pool", "forward", 0, 2.3e8),
            ("", "pointwise", "optimizer", 0, 1.5e8)]  # fmt: skip
    sizes = {"layers": 1.2e9, "bn": 0.9e9, "relu": 1.6e9, "conv1": 60e6, "fc": 8e6}
    return pd.DataFrame(
        [(path, f"aten::{kind}", kind, phase, "fp16" if kind == "conv" else "fp32", "32x64x56x56",
          int(macs), int(other), int(2 * macs + other), int(sizes.get(path, 1e8)),
          int(sizes.get(path, 1e8) / 2)) for path, kind, phase, macs, other in rows],
        columns=OP_COLUMNS,
    )  # fmt: skip


ASKED = {"command": "run", "model": "resnet50", "batch_size": 32, "mode": "train",
         "precision": "amp", "input_size": None, "seq_len": None, "config": {}}  # fmt: skip
FOUND = {
    "status": "ok", "device_name": "NVIDIA H200", "backend": "cuda", "precision": "amp",
    "tier": "counters", "level": "hierarchical", "is_deduplicated": False, "iters": 1,
    "kernel_time_s": 0.007924, "step_time_s": STEP_S, "gap_s": STEP_S - 0.007924, "launches": 637,
    "attributed_share": 0.985, "layer_share": 0.9, "phases": {"forward": {"launches": 300}},
    "totals": {"flops": {"tensor_fp16": 797_680_599_040, "tensor_fp8": None}},
    "cost": {"planned_s": 60, "taken_s": 66.0, "passes": 3},
    "self_test": {"copy_ratio": 1.004, "product_ratio": 1.0, "is_trusted": True},
    "warnings": ["the clock was <not> locked"],
}  # fmt: skip


def folder(path: Path) -> ResultsFolder:
    """An H200's passport, a run, and its count."""
    (path / "machines").mkdir(parents=True)
    (path / "machines" / "nvidia-h200.json").write_text((DATA / "passport-h200.json").read_text())
    results = ResultsFolder(path)
    recorded = json.loads((DATA / "run-h200-vgg16.json").read_text())
    times = {"median": STEP_S, "mean": STEP_S, "min": STEP_S, "max": STEP_S}
    split = {"forward": {"median": 0.008}, "backward": {"median": 0.012},
             "optimizer": {"median": 0.002}}  # fmt: skip
    write_run(results,
        label="run-resnet50",
        asked={**recorded["asked"], **ASKED},
        found={**recorded["found"], "precision": "amp", "step_time_s": times, "split_s": split,
               "layers": None, "kernels": {"time_s": 0.009, "kernels": 640}},
        provenance=recorded["provenance"],
    )  # fmt: skip
    count = {"flops": 789e9, "macs": 389e9, "read_bytes": 6e9, "written_bytes": 3e9,
             "fused_bytes": {"read_bytes": 4e9, "written_bytes": 2e9}, "params": 25_557_032,
             "memory": {"peak_bytes": 4e9}, "coverage": 1.0}  # fmt: skip
    write_run(results, label="count", asked={**ASKED, "command": "count", "optimizer": "sgd"},
                      found=count, provenance={}, tables={"ops": ops()})  # fmt: skip
    return results


def the_run(results: ResultsFolder) -> Run:
    return next(run for run in results.read_runs() if run.request.command == "run")


def store_profile(results: ResultsFolder, table: pd.DataFrame | None = None, **found: Any) -> Run:
    """A profile of the run; without a table it has the recorded kernels."""
    run = the_run(results)
    return write_run(
        results,
        label="profile-resnet50",
        asked={**to_dict(run.request), "command": "profile", "of_run": run.run_id},
        found={**FOUND, **found},
        provenance=run.made,
        tables={"kernels": kernels() if table is None else table},
    )


IMPORTED = {"command": "import", "files": ["captures/step.csv"]}


def store_capture(
    results: ResultsFolder,
    label: str = "RN50 amp",
    asked: Mapping[str, Any] = IMPORTED,
    **found: Any,
) -> Run:
    """The same kernels as if they had been captured elsewhere: no layers, no phases."""
    bare = kernels().drop(columns=["layer", "phase"])
    return write_run(results,
        label="import",
        asked={**asked, "label": label},
        found={"status": "ok", "device_name": "NVIDIA H200", "backend": "cuda", "kind": "ncu-raw",
               "totals": {}, "kernel_time_s": 0.007924, "launches": 637, "warnings": [], **found},
        provenance={"time": "2026-11-16T10:00:00+00:00",
                    "command": ["ridgeline", "import", "captures/step.csv", "--label", label]},
        tables={"kernels": bare},
    )  # fmt: skip


def profiled_folder(path: Path) -> ResultsFolder:
    results = folder(path)
    store_profile(results)
    return results

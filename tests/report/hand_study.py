"""A small study made by hand: one toy machine, and numbers that can be checked by eye.

The toy does 1 TFLOP/s in fp32, 4 TFLOP/s in fp16, moves 100 GB/s and launches a kernel in 10 µs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from ridgeline.findings import COLUMNS as FINDING_COLUMNS
from ridgeline.report.configurations import add_rates
from ridgeline.report.study import Machine, Study
from ridgeline.roofline.points import COLUMNS as POINT_COLUMNS
from ridgeline.roofline.roofs import Roofs
from ridgeline.store import Run, to_run

NAN = float("nan")
TOY = Roofs(
    env="toy", device="cpu", device_name="Toy 1",
    compute={"fp32 matrix": 1e12, "fp16 matrix": 4e12}, bandwidth={"dram": 1e11},
    launch_s={"kernel": 1e-5}, clock_hz=2e9, measured_at="2026-11-15T09:00:00+00:00",
)  # fmt: skip
RUN = {
    "run_id": "a", "env": "toy", "device": "cpu", "model": "net", "arch": "net", "backend": "cpu",
    "device_name": "Toy 1", "mode": "train", "precision": "fp32", "batch_size": 8,
    "input_size": "32", "seq_len": None, "compile": None, "channels_last": False,
    "grad_accum_steps": 1, "optimizer": "sgd", "deterministic": False, "cudnn_benchmark": False,
    "data_root": "synthetic", "threads": 2, "torch_version": "2.15.0", "label": "",
    "images_processed": 80, "measured_iters": 10, "elapsed_sec": 0.2, "images_per_sec": 400.0,
    "step_median_s": 0.02, "step_mean_s": 0.02, "step_interval_low_s": 0.016,
    "step_interval_high_s": 0.025, "data_s": 0.0, "copy_s": 0.0, "forward_s": 0.006,
    "backward_s": 0.012, "optimizer_s": 0.002, "busy_fraction": NAN, "kernel_time_s": NAN,
    "energy_meter": None, "energy_j_per_step": NAN, "energy_j_per_sample": NAN,
    "mean_power_w": NAN, "idle_power_w": NAN, "peak_memory_bytes": 1e9,
    "reserved_memory_bytes": NAN, "clock_hz": NAN, "memory_clock_hz": NAN, "temperature_c": NAN,
    "throttle_reasons": "", "warnings": 0, "clock_flag": "", "flag": "", "count_id": "c",
    "params": 1e6, "macs": 5e9, "flops": 1e10, "moved_bytes": 5e8, "fused_bytes": 1e8,
    "counted_peak_bytes": 2e8, "coverage": 1.0,
}  # fmt: skip
DATA = Path(__file__).parents[1] / "data"

STEP = {
    "run_id": "a", "env": "toy", "device": "cpu", "model": "net", "label": "", "mode": "train",
    "precision": "fp32", "batch_size": 8, "grain": "step", "name": "net", "layer": "",
    "phase": "all", "kind": "step", "shapes": "", "provenance": "static",
    "time_provenance": "measured", "flops": 1e10, "dram_bytes": 5e8, "fused_bytes": 1e8,
    "launches": 100, "ai": 20.0, "ai_high": 100.0, "time_s": 0.02,
    "attained_flops_per_s": 5e11, "compute_s": 0.01, "dram_s": 0.005, "launch_s": 0.001,
    "floor_s": 0.01, "bound": "compute", "efficiency": 0.5, "headroom_s": 0.01,
    "peak_flops_per_s": 1e12, "peak_bytes_per_s": 1e11, "roof_source": "measured", "flag": "",
}  # fmt: skip


def run_row(**changes: Any) -> dict[str, Any]:
    """A row of study.runs: 8 samples in a step of 20 ms."""
    return {**RUN, "arch": changes.get("model", "net"), **changes}


def step_row(**changes: Any) -> dict[str, Any]:
    """A row of study.points: 10 GFLOP and 500 MB in 20 ms, so half of what the toy can do."""
    return {**STEP, **changes}


def phase_row(phase: str, **changes: Any) -> dict[str, Any]:
    return step_row(grain="phase", name=phase, phase=phase, kind="phase", **changes)


def layer_row(layer: str, **changes: Any) -> dict[str, Any]:
    return step_row(grain="layer", name=layer, layer=layer, **{"kind": "Conv2d", **changes})


def stored(run_id: str, **changes: Any) -> Run:
    """A run as it is stored; `asked`, `found` and `provenance` may be given."""
    recorded = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    bare: dict[str, Any] = {
        "warnings": [],
        "energy": None,
        "energy_reasons": [],
        "timed_usage": None,
    }
    made: dict[str, Any] = {"command": ["ridgeline", "run", "net"]}
    content = {
        "schema_version": 1,
        "asked": {**recorded["asked"], "model": "net", "label": "", **changes.get("asked", {})},
        "found": {**recorded["found"], **bare, **changes.get("found", {})},
        "provenance": {**made, **changes.get("provenance", {})},
    }
    return to_run(Path(run_id), content)


def training(**changes: Any) -> Run:
    """A training of two epochs, as it is stored."""
    epochs = [
        {"epoch": n, "train_loss": 2.0 / n, "train_accuracy": 0.2 * n, "test_accuracy": accuracy,
         "lr": 0.1, "time_s": 1.0, "test_time_s": 0.5, "images": 64, "images_per_s": 64.0}
        for n, accuracy in ((1, 0.5), (2, 0.75))
    ]  # fmt: skip
    settings = {"model": "net", "data": "synthetic", "epochs": 2, "batch_size": 16, "lr": 0.1}
    found = {"device_name": "Toy 1", "precision": "fp32", "best_accuracy": 0.75, "best_epoch": 2,
             "time_s": 3.0, "history": epochs, **changes}  # fmt: skip
    asked = {"command": "train", "settings": settings}
    content = {"schema_version": 1, "asked": asked, "found": found, "provenance": {}}
    return to_run(Path("training"), content)


def make_study(
    runs: list[dict[str, Any]] | None = None,
    points: list[dict[str, Any]] | None = None,
    findings: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Study:
    """A study of these rows."""
    return Study(
        results=Path(more.pop("results", "results")),
        machines=more.pop("machines", (Machine(roofs=TOY),)),
        runs=add_rates(pd.DataFrame(runs or [])),
        points=pd.DataFrame(points or [], columns=[*POINT_COLUMNS, "flag"]),
        findings=pd.DataFrame(findings or [], columns=list(FINDING_COLUMNS)),
        **more,
    )


def batches(*pairs: tuple[int, float], **changes: Any) -> Study:
    """A run for each (batch size, step time in seconds); efficiency is 0.5 everywhere."""
    runs, points = [], []
    for size, step_s in pairs:
        run_id = f"b{size}"
        runs.append(
            run_row(run_id=run_id, batch_size=size, images_processed=10 * size,
                    step_median_s=step_s, step_mean_s=step_s, step_interval_low_s=0.99 * step_s,
                    step_interval_high_s=1.01 * step_s, **changes)
        )  # fmt: skip
        points.append(step_row(run_id=run_id, batch_size=size, time_s=step_s))
    return make_study(runs, points)

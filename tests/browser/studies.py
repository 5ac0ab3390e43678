"""Studies for the page: recorded runs and roofs of an H200, with work that was made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tests.roofline.hand_points import find, make_step, run_points

from ridgeline.machine.datasheets import find_published_roofs
from ridgeline.machine.passport import read_passport
from ridgeline.report.configurations import add_rates
from ridgeline.report.executed import run_kernels
from ridgeline.report.study import Machine, Study
from ridgeline.report.views import metrics
from ridgeline.roofline.points import CountedStep, MeasuredStep
from ridgeline.roofline.reconcile import reconcile
from ridgeline.roofline.roofs import datasheet_roofs, measured_roofs, user_roofs
from ridgeline.roofline.sanity_checks import find_flags
from ridgeline.store import MeasuredRun, to_run

DATA = Path(__file__).parent.parent / "data"
SCRIPT = "<script>alert(1)</script>"
OP_COLUMNS = ["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
              "flops", "read_bytes", "written_bytes"]  # fmt: skip
LAYERS = {  # path: (kind, FLOPs and bytes of each direction, seconds of all), at a batch of 128
    "features.0": ("Conv2d", 4e12, 8e9, 0.04),
    "features.1": ("ReLU", 2e9, 9e9, 0.02),
    "features.3.conv": ("Conv2d", 7e12, 6e9, 0.09),
    "classifier": ("Linear", 1e11, 4e9, 0.0025),  # faster than DRAM can be: marked
}
STEP_S = 0.2


def h200() -> Machine:
    """The recorded passport of an H200, with its datasheet."""
    passport = read_passport(DATA / "passport-h200.json")
    roofs = measured_roofs(passport, "cuda:0")
    sheet = datasheet_roofs(
        find_published_roofs(passport)["cuda:0"], env=passport.name, device="cuda:0"
    )
    return Machine(roofs=roofs, datasheet=sheet, passport=passport)


def other_machine() -> Machine:
    return Machine(roofs=user_roofs("small", "cpu", compute={"fp32": 2e11}, dram_bytes_per_s=1e11))


def recorded_run(run_id: str, *, batch: int = 128, **asked: Any) -> MeasuredRun:
    """The recorded run of VGG-16, as if it had been asked for something else."""
    stored = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    stored["asked"] |= {"batch_size": batch, **asked}
    stored["found"] |= {"warnings": ["step times are unstable <b>"]}
    return to_run(Path(run_id), stored)


def counted(factor: float) -> CountedStep:
    """Each layer forward, and twice as much backward."""
    rows = []
    for path, (kind, flops_at_128, bytes_at_128, _) in LAYERS.items():
        flops, size = factor * flops_at_128, factor * bytes_at_128
        macs = flops / 2 if kind != "ReLU" else 0
        what = (path, "aten::op", kind.lower())
        work = ("fp32", "128x64x8x8", macs, flops - 2 * macs, flops, size / 2, size / 2)
        rows += [(*what, phase, *work) for phase in ("forward", "input-grad", "weight-grad")]
    return CountedStep(
        ops=pd.DataFrame(rows, columns=OP_COLUMNS),
        fused_bytes=factor * 3e9,
        layer_fused_bytes={path: factor * size / 2 for path, (_, _, size, _) in LAYERS.items()},
    )


def timed_layers(factor: float) -> pd.DataFrame:
    rows = [
        (path, kind, "128x64x8x8", factor * time_s, factor * time_s / 3, factor * time_s * 2 / 3)
        for path, (kind, _, _, time_s) in LAYERS.items()
    ]
    columns = ["layer", "kind", "input_shape", "time_s", "forward_s", "backward_s"]
    return pd.DataFrame(rows, columns=columns)


def kernels(count: int) -> pd.DataFrame:
    """Recorded kernels of ResNet-50, again and again until there are `count`, and smaller."""
    recorded = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")
    rows = pd.concat([recorded] * (count // len(recorded) + 1), ignore_index=True).head(count)
    size = 1 / (1 + rows.index.to_series() % 977)
    amounts = [str(name) for name in rows if name not in ("kernel", "launches")]
    rows[amounts] = rows[amounts].mul(size, axis=0)
    rows["time_s"] *= 1 + (rows.index % 13) / 10
    rows["kernel"] = rows["kernel"] + "_" + rows.index.astype(str)
    return rows


def study(
    *,
    model: str = "vgg16",
    batches: tuple[int, ...] = (64, 128),
    machines: tuple[Machine, ...] | None = None,
    kernel_count: int = 0,
) -> Study:
    """Runs of one model at some batches on each machine; kernels belong to the first run."""
    machines = machines or (h200(),)
    runs: list[tuple[MeasuredRun, Machine]] = []
    points: list[pd.DataFrame] = []
    findings: list[pd.DataFrame] = []
    for machine in machines:
        for batch in batches:
            run = recorded_run(f"{machine.env}-{batch}", batch=batch, model=model)
            backend = machine.roofs.device.partition(":")[0]
            run = replace(run, result=replace(run.result, backend=backend))
            table = _points(run, machine, kernel_count if not runs else 0)
            step = make_step(precision="tf32", step_time_s=STEP_S)
            findings.append(find(table, step, machine.roofs))
            runs.append((run, machine))
            points.append(table)
    table = metrics([run for run, _ in runs])
    table = table.assign(
        env=[machine.env for _, machine in runs], model=model, clock_flag="", flag="", flops=3.6e13,
        device=[machine.roofs.device for _, machine in runs],
    )  # fmt: skip
    found = pd.concat(findings, ignore_index=True)
    first = runs[0][0].run_id
    profiled = kernels(kernel_count) if kernel_count else pd.DataFrame()
    return Study(
        results=Path("results"),
        machines=machines,
        runs=add_rates(table),
        points=pd.concat(points, ignore_index=True),
        findings=found.sort_values("headroom_s", ascending=False).reset_index(drop=True),
        kernels=run_kernels(profiled).assign(run_id=first) if kernel_count else profiled,
        reconciled=_reconciled(profiled, batches[0] / 128).assign(run_id=first),
        stages=({"stage": "profile", "status": "skipped", "reason": "no <b>ncu</b>"},),
        raw_runs=tuple(run for run, _ in runs),
    )


def _reconciled(profiled: pd.DataFrame, factor: float) -> pd.DataFrame:
    if profiled.empty:
        return profiled
    return reconcile(counted(factor).ops, profiled, precision="tf32")


def _points(run: MeasuredRun, machine: Machine, kernel_count: int) -> pd.DataFrame:
    batch = run.request.batch_size
    points = run_points(
        MeasuredStep(run_id=run.run_id, model=run.request.model, mode="train", precision="tf32",
                 batch_size=batch, step_time_s=STEP_S * batch / 128,
                 phase_times_s={"forward": 0.06, "backward": 0.13, "optimizer": 0.001}),
        machine.roofs,
        counted=counted(batch / 128),
        layers=timed_layers(batch / 128),
        kernels=kernels(kernel_count) if kernel_count else None,
    )  # fmt: skip
    return points.assign(flag=find_flags(points))


def empty_study() -> Study:
    full = study()
    return replace(
        full, machines=(), runs=pd.DataFrame(), points=full.points.iloc[:0],
        findings=full.findings.iloc[:0], raw_runs=(), stages=(), problems=("nothing <i>here",),
    )  # fmt: skip

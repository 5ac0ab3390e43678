"""Predicted against measured steps on the CPU of this machine, for networks not in the corpus.

    python -m benchmarks.predict_cpu calibrate   # 150 s
    python -m benchmarks.predict_cpu run         # each step in a process of its own; call again
    python -m benchmarks.predict_cpu table       # writes docs/results/predict-cpu.md

`run` keeps what was measured and goes on where it ended. Of each step the 20th percentile of its
samples counts: other programs only add time. The baselines use what the calibration measured:
FLOPs over the peak or bytes over the bandwidth (roofline), the same for each operator (floors),
one rate of FLOP/s fitted to the measured steps themselves (FLOPs), and the operators without what
the host and the allocator add (sum).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

from benchmarks.shape_corpus import CPU_TESTS
from ridgeline.count.counting import Settings, count_workload
from ridgeline.pipeline.predict import CalibrationRequest, calibrate_machine
from ridgeline.predict.calibration import Calibration, Calibrations
from ridgeline.predict.operators import points_of
from ridgeline.predict.predict import predict_step
from ridgeline.records import WorkloadSpec

RESULTS = Path("/tmp/ridgeline-predict-cpu")
PAGE = Path("docs/results/predict-cpu.md")
CASES = [(name, batch, "infer") for name in CPU_TESTS for batch in (1, 8)]
TRAIN_CASES = [(name, 8, "train") for name in CPU_TESTS if name not in ("vgg13", "googlenet")]
STEP = """
import json, sys, time
from ridgeline.measure.measure_workload import build_stepper
from ridgeline.measure.timing import NoMarks
from ridgeline.records import WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.workloads import resolve
model, batch, mode, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
spec = WorkloadSpec(model=model, batch_size=batch, mode=mode)
stepper = build_stepper(resolve(spec), spec, Settings(backend="cpu"))
samples, begun = [], time.perf_counter()
while len(samples) < 8 or (time.perf_counter() - begun < seconds and len(samples) < 60):
    start = time.perf_counter()
    stepper.step(NoMarks())
    samples.append(time.perf_counter() - start)
print(json.dumps(samples[3:]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A step, measured and predicted in several ways."""

    name: str
    measured_s: float
    predicted_s: float
    is_inside: bool
    baselines_s: dict[str, float]
    flops: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Predictions on a CPU, checked.")
    parser.add_argument("part", choices=("calibrate", "run", "table"))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--budget", type=float, default=150)
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args(arguments)
    if args.part == "calibrate":
        start_s = perf_counter()
        stored = calibrate_machine(CalibrationRequest(backend="cpu", budget_s=args.budget), RESULTS)
        print(f"{stored.added} operators in {perf_counter() - start_s:.0f} s")
        return 0
    if args.part == "run":
        return run_steps([*CASES, *(TRAIN_CASES if args.train else [])], args.seconds)
    rows = predict_all(read_calibration(), read_labels())
    text = make_page(rows, read_calibration())
    PAGE.write_text(text)
    print(text)
    return 0


def run_steps(cases: list[tuple[str, int, str]], seconds: float) -> int:
    """Measure those that were not; 1 if some are left."""
    start_s, labels = perf_counter(), read_labels()
    for model, batch, mode in cases:
        name = f"{model}, {batch}, {mode}"
        if name in labels:
            continue
        if perf_counter() - start_s > seconds:
            print("call it again for the rest")
            return 1
        command = [sys.executable, "-c", STEP, model, str(batch), mode, "3"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        samples = sorted(json.loads(done.stdout))
        labels[name] = {"p20_s": samples[len(samples) // 5], "median_s": median(samples),
                        "n": len(samples)}  # fmt: skip
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "steps.json").write_text(json.dumps(labels))
        print(name, labels[name], flush=True)
    return 0


def read_labels() -> dict[str, Any]:
    path = RESULTS / "steps.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def read_calibration() -> Calibration:
    calibrations = Calibrations(RESULTS)
    return calibrations.read(calibrations.names()[0])


def predict_all(calibration: Calibration, labels: dict[str, Any]) -> list[Row]:
    rows = []
    peak = calibration.peak("fp32")
    assert peak is not None and calibration.dram_bytes_per_s
    rates = peak.sustained_flops_per_s, calibration.dram_bytes_per_s
    for name, label in labels.items():
        model, batch, mode = name.split(", ")
        spec = WorkloadSpec(model=model, batch_size=int(batch), mode=mode)
        count = count_workload(spec, Settings(mode=mode))
        prediction = predict_step(count, calibration)
        points = [use.point for use in points_of(count)]
        low, high = prediction.interval_s
        rows.append(Row(
            name=name, measured_s=label["p20_s"], predicted_s=prediction.time_s,
            is_inside=low <= label["p20_s"] <= high, flops=float(count.total.flops),
            baselines_s={
                "roofline": max(sum(p.flops for p in points) / rates[0],
                                count.fused.total_bytes / rates[1]),
                "floors": sum(max(p.flops / rates[0], p.moved_bytes / rates[1]) for p in points),
                "sum": prediction.kernel_time_s,
            },
        ))  # fmt: skip
    rate = median(row.flops / row.measured_s for row in rows)
    for row in rows:
        row.baselines_s["FLOPs"] = row.flops / rate
    return rows


def make_page(rows: list[Row], calibration: Calibration) -> str:
    errors = sorted(abs(row.error) for row in rows)
    names = ["roofline", "floors", "FLOPs", "sum"]
    header = ["network, batch, mode", "measured", "predicted", "error", "in interval"]
    lines = [" | ".join(header), "|".join(["---"] + ["--:"] * 4)]
    for row in rows:
        lines.append(
            f"{row.name} | {row.measured_s * 1e3:.1f} ms | {row.predicted_s * 1e3:.1f} ms"
            f" | {100 * row.error:+.0f} % | {'yes' if row.is_inside else 'no'}"
        )
    inside = sum(row.is_inside for row in rows)
    table = ["method | mean error | median | 90th percentile", "---|--:|--:|--:",
             _summary("predict", errors)]  # fmt: skip
    for name in names:
        off = sorted(abs(row.baselines_s[name] / row.measured_s - 1) for row in rows)
        table.append(_summary(name, off))
    return "\n".join([
        f"{len(rows)} steps, {len(calibration.points)} operators measured; the 80 % interval holds"
        f" {inside} of {len(rows)} ({100 * inside / len(rows):.0f} %).", "",
        *table, "", *lines, "",
    ])  # fmt: skip


def _summary(name: str, errors: list[float]) -> str:
    high = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return (
        f"{name} | {100 * mean(errors):.1f} % | {100 * median(errors):.1f} % | {100 * high:.1f} %"
    )


if __name__ == "__main__":
    sys.exit(main())

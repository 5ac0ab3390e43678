"""Predicted against measured steps on the CPU of this machine, for networks not in the corpus.

    python -m benchmarks.predict_cpu calibrate   # 170 s
    python -m benchmarks.predict_cpu run         # each step in a process of its own; call again
    python -m benchmarks.predict_cpu refine      # 3 s for each step, then its prediction again
    python -m benchmarks.predict_cpu table       # writes its part of docs/results/predict.md

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

from benchmarks.report import Table, replace_part
from benchmarks.shape_corpus import CPU_TESTS
from ridgeline.count.counting import Settings, count_workload
from ridgeline.count.result import CountResult
from ridgeline.pipeline.predict import calibrate_machine
from ridgeline.predict.calibration import Calibration, Calibrations
from ridgeline.predict.operators import points_of
from ridgeline.predict.predict import points_to_refine, predict_step
from ridgeline.records import WorkloadSpec

RESULTS = Path("/tmp/ridgeline-predict-cpu")
PAGE = "predict"
CASES = [(name, batch, "infer") for name in CPU_TESTS for batch in (1, 8)]
TOO_LARGE = ("vgg13", "googlenet", "transformers:gpt_neo")  # to be trained in a minute
TRAIN_CASES = [(name, 8, "train") for name in CPU_TESTS if name not in TOO_LARGE]
STEP_S, REFINE_S = 3.0, 3.0
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
    """A time that was measured, predicted and estimated by simpler methods."""

    name: str
    measured_s: float
    predicted_s: float
    flops: float
    interval_s: tuple[float, float] | None = None
    baselines_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def is_inside(self) -> bool:
        low, high = self.interval_s or (0.0, 0.0)
        return low <= self.measured_s <= high


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Predictions on a CPU, checked.")
    parser.add_argument("part", choices=("calibrate", "run", "refine", "table"))
    parser.add_argument("--seconds", type=float, default=500, help="of `run`")
    parser.add_argument("--budget", type=float, default=170, help="of `calibrate`")
    args = parser.parse_args(arguments)
    if args.part == "calibrate":
        start_s = perf_counter()
        stored = calibrate_machine(
            RESULTS, backend="cpu", precisions=("fp32",), budget_s=args.budget
        )
        print(f"{stored.added} operators in {perf_counter() - start_s:.0f} s")
        write_labels("calibration", {"seconds": perf_counter() - start_s})
        return 0
    if args.part == "run":
        return run_steps([*CASES, *TRAIN_CASES], args.seconds)
    if args.part == "refine":
        write_labels("refined", refine_steps(read_calibration(), read_labels("steps")))
        return 0
    calibration = read_calibration()
    text = make_page(predict_all(calibration, read_labels("steps")), calibration)
    replace_part(PAGE, "cpu", text)
    print(text)
    return 0


def run_steps(cases: list[tuple[str, int, str]], seconds: float) -> int:
    """Measure those that were not; 1 if some are left."""
    start_s, labels = perf_counter(), read_labels("steps")
    for model, batch, mode in cases:
        name = f"{model}, {batch}, {mode}"
        if name in labels:
            continue
        if perf_counter() - start_s > seconds:
            print("call it again for the rest")
            return 1
        command = [sys.executable, "-c", STEP, model, str(batch), mode, str(STEP_S)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        samples = sorted(json.loads(done.stdout.splitlines()[-1]))
        labels[name] = {"p20_s": samples[len(samples) // 5], "median_s": median(samples),
                        "n": len(samples)}  # fmt: skip
        write_labels("steps", labels)
        print(name, labels[name], flush=True)
    return 0


def read_labels(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_labels(name: str, labels: Mapping[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(labels))


def read_calibration() -> Calibration:
    calibrations = Calibrations(RESULTS)
    return calibrations.read(calibrations.names()[0])


def count_case(name: str) -> CountResult:
    model, batch, mode = name.split(", ")
    spec = WorkloadSpec(model=model, batch_size=int(batch), mode=mode)
    return count_workload(spec, Settings(mode=mode))


def refine_steps(calibration: Calibration, labels: Mapping[str, Any]) -> dict[str, float]:
    """Predicted seconds after a few seconds of measuring the operators that matter most."""
    from ridgeline.predict.calibrate import measure_more

    found = {}
    for name in labels:
        count = count_case(name)
        order = points_to_refine(points_of(count), predict_step(count, calibration))
        known = measure_more(calibration, order, REFINE_S)
        found[name] = predict_step(count, known).time_s
        print(name, found[name], flush=True)
    return found


def predict_all(calibration: Calibration, labels: Mapping[str, Any]) -> list[Row]:
    rows = []
    for name, label in labels.items():
        count = count_case(name)
        prediction = predict_step(count, calibration)
        rows.append(Row(
            name=name, measured_s=label["p20_s"], predicted_s=prediction.time_s,
            interval_s=prediction.interval_s, flops=float(count.total.flops),
            baselines_s={**list_baselines(count, calibration), "sum": prediction.kernel_time_s},
        ))  # fmt: skip
    return add_rate(rows)


def list_baselines(count: CountResult, calibration: Calibration) -> dict[str, float]:
    """Seconds of a step by the limits of a device alone."""
    points = [use.point for use in points_of(count)]
    limits = {p.precision: calibration.limits(p.precision) for p in points}
    compute = [p.flops / limits[p.precision].flops_per_s for p in points]
    bytes_per_s = calibration.limits("fp32").dram_bytes_per_s
    return {
        "roofline": max(sum(compute), count.fused.total_bytes / bytes_per_s),
        "floors": sum(
            max(compute_s, point.moved_bytes / bytes_per_s)
            for compute_s, point in zip(compute, points, strict=True)
        ),
        "torch": sum(  # torch.utils._runtime_estimation: half of the FLOPs at 75 % of the peak
            max(compute_s / 2 / 0.75, point.moved_bytes / bytes_per_s)
            for compute_s, point in zip(compute, points, strict=True)
        ),
    }


def add_rate(rows: Sequence[Row]) -> list[Row]:
    """With the baseline of one rate of FLOP/s, which is fitted to the measured steps."""
    rate = median([row.flops / row.measured_s for row in rows] or [1.0])
    return [
        replace(row, baselines_s={**row.baselines_s, "FLOPs": row.flops / rate}) for row in rows
    ]


# ---------------------------------------------------------------- the page

METHODS = {
    "roofline": "roofline of the step",
    "floors": "sum of operator floors",
    "torch": "torch's runtime estimator",
    "FLOPs": "FLOPs-only, fitted to these steps",
    "sum": "operators without host and memory",
}


def make_page(rows: list[Row], calibration: Calibration) -> str:
    refined = read_labels("refined")
    kinds = {
        "infer, batch 1": [r for r in rows if r.name.endswith(", 1, infer")],
        "infer, batch 8": [r for r in rows if r.name.endswith(", 8, infer")],
        "train, batch 8": [r for r in rows if r.name.endswith("train")],
        "all": rows,
    }
    table = [[f"ridgeline predict, {kind}", *summarise(some)] for kind, some in kinds.items()]
    if refined:
        again = [replace(row, predicted_s=refined[row.name]) for row in rows]
        table.append([f"with --refine {REFINE_S:.0f}s, all", *summarise(again)[:-1], ""])
    table += baseline_rows(rows)
    seconds = read_labels("calibration").get("seconds", 0.0)
    parts = [
        f"{len(rows)} steps; the calibration measured {len(calibration.points)} operators in"
        f" {seconds:.0f} s.",
        Table(columns=SUMMARY, rows=table).markdown(),
        Table(
            columns=["network, batch, mode", "measured", "predicted", "error", "in interval"],
            rows=[
                [row.name, f"{row.measured_s * 1e3:.1f} ms", f"{row.predicted_s * 1e3:.1f} ms",
                 f"{100 * row.error:+.0f} %", "yes" if row.is_inside else "no"]
                for row in rows
            ],
        ).markdown(),
    ]  # fmt: skip
    return "\n\n".join(parts)


SUMMARY = ["method", "steps", "mean error", "median", "90th percentile", "in the 80 % interval"]


def summarise(rows: Sequence[Row], method: str | None = None) -> list[str]:
    """Of a prediction, or of a baseline: how many, mean, median, 90th percentile, inside."""
    times = [(row.baselines_s[method] if method else row.predicted_s) for row in rows]
    errors = sorted(abs(t / row.measured_s - 1) for t, row in zip(times, rows, strict=True))
    if not errors:
        return ["0", "", "", "", ""]
    high = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    inside = sum(row.is_inside for row in rows) / len(rows)
    has_interval = method is None and rows[0].interval_s is not None
    return [
        str(len(rows)), *(f"{100 * one:.1f} %" for one in (mean(errors), median(errors), high)),
        f"{100 * inside:.0f} %" if has_interval else "",
    ]  # fmt: skip


def baseline_rows(rows: Sequence[Row]) -> list[list[str]]:
    return [[words, *summarise(rows, name)] for name, words in METHODS.items()
            if rows and name in rows[0].baselines_s]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

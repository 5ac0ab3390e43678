"""Predicted against measured steps on an NVIDIA GPU, for networks not in the corpus.

    python -m benchmarks.predict_gpu calibrate run refine --out FOLDER   # 8 minutes of the GPU
    python -m benchmarks.predict_gpu table --out FOLDER                  # needs no GPU

About a hundred steps: each network three times, in another batch size, precision and mode each.
Of each step are measured its time (median, the host waits after each), what its kernels keep the
device busy (profiler), and the memory that was allocated at most. `refine` measures the operators
that matter most of every twelfth step for five seconds and predicts it again. What was measured is
kept in FOLDER (calibration, steps.json, refined.json), and `table` writes steps.csv beside it and
its part of docs/results/predict.md.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

from benchmarks.predict_cpu import (
    SUMMARY,
    Row,
    add_rate,
    baseline_rows,
    list_baselines,
    summarise,
)
from benchmarks.report import Table, replace_part
from benchmarks.shape_corpus import GPU_TESTS
from ridgeline.count.counting import Settings as CountSettings
from ridgeline.count.counting import count_workload
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.pipeline.predict import calibrate_machine
from ridgeline.predict.calibration import Calibration, Calibrations
from ridgeline.predict.operators import points_of
from ridgeline.predict.predict import points_to_refine, predict_step
from ridgeline.records import WorkloadSpec
from ridgeline.settings import Settings

PAGE = "predict"
CASES_OF_NETWORK = 3
BATCHES = (1, 8, 32, 128)
PRECISIONS = ("fp32", "tf32", "amp", "bf16")
LARGE_IMAGES = ("fasterrcnn", "retinanet", "deeplabv3")  # batch 8 at most
MOST_TOKENS_BATCH = 32  # of a language model
STEP_SAMPLES, STEP_S = 30, 0.5
REFINE_S, REFINE_EVERY = 5.0, 12
GPU_BOUND = 0.85  # of the step's time, that its kernels take


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: str
    batch_size: int
    mode: str
    precision: str
    optimizer: str

    @property
    def name(self) -> str:
        mode = f"train {self.optimizer}" if self.mode == "train" else "infer"
        return f"{self.model}, {self.batch_size}, {self.precision}, {mode}"

    @property
    def spec(self) -> WorkloadSpec:
        return WorkloadSpec(model=self.model, batch_size=self.batch_size, mode=self.mode)

    def count(self) -> CountResult:
        settings = CountSettings(mode=self.mode, precision=self.precision, optimizer=self.optimizer)
        return count_workload(self.spec, settings)


def list_cases() -> list[Case]:
    """Batch sizes, precisions, modes and optimizers take turns, so that all of them mix."""
    cases = []
    for number, model in enumerate(GPU_TESTS):
        for turn in range(CASES_OF_NETWORK):
            place = CASES_OF_NETWORK * number + turn
            batch = BATCHES[place % len(BATCHES)]
            most = 8 if model.startswith(LARGE_IMAGES) else batch
            most = MOST_TOKENS_BATCH if model.startswith("transformers:") else most
            cases.append(Case(
                model=model, batch_size=min(batch, most),
                precision=PRECISIONS[(place + place // len(BATCHES)) % len(PRECISIONS)],
                mode=("infer", "train")[(number + turn) % 2],
                optimizer=("sgd", "adamw")[number % 2],
            ))  # fmt: skip
    return list(dict.fromkeys(cases))


# ---------------------------------------------------------------- on the GPU


def run_cases(
    cases: Sequence[Case], out: Path, seconds: float, backend: str = "cuda"
) -> dict[str, Any]:
    """What was measured of each, or why it was not; those of before are kept."""
    start_s, labels = perf_counter(), read_labels(out, "steps")
    for case in cases:
        if case.name in labels:
            continue
        if perf_counter() - start_s > seconds:
            print("the time is spent: call it again for the rest", flush=True)
            break
        try:
            labels[case.name] = measure_case(case, backend)
        except (RidgelineError, RuntimeError) as error:  # one network of many
            labels[case.name] = {"error": " ".join(str(error).split())[:200]}
        print(case.name, labels[case.name], flush=True)
        write_labels(out, "steps", labels)
    return labels


def measure_case(case: Case, backend: str) -> dict[str, Any]:
    """Seconds of the step and of its kernels, and the peak of memory."""
    import torch

    from ridgeline.measure.measure_workload import build_stepper
    from ridgeline.measure.step import torch_settings
    from ridgeline.measure.timing import NoMarks, measure_kernel_time
    from ridgeline.workloads import resolve

    settings = Settings(backend=backend, precision=case.precision, optimizer=case.optimizer)
    stepper = build_stepper(resolve(case.spec), case.spec, settings)
    device, marks = stepper.backend, NoMarks()
    try:
        with torch_settings(settings, stepper.precision):
            for _ in range(3):
                stepper.step(marks)
            device.synchronize()
            device.reset_peak_memory()
            samples: list[float] = []
            while len(samples) < 5 or (sum(samples) < STEP_S and len(samples) < STEP_SAMPLES):
                start_s = perf_counter()
                stepper.step(marks)
                device.synchronize()
                samples.append(perf_counter() - start_s)
            memory = device.peak_memory()
            has_kernels = backend == "cuda"
            kernels = (
                measure_kernel_time(stepper.step, device.synchronize, steps=2)
                if has_kernels
                else None
            )
    finally:
        del stepper
        gc.collect()
        if backend == "cuda":
            torch.cuda.empty_cache()
    return {
        "step_s": median(samples), "kernel_s": kernels.time_s if kernels else None,
        "kernels": kernels.kernels if kernels else None, "memory": asdict(memory),
    }  # fmt: skip


def refine_cases(cases: Sequence[Case], out: Path) -> dict[str, Any]:
    """Kernel time and step time that are predicted after a few seconds of measuring."""
    from ridgeline.predict.calibrate import measure_more

    calibration, found = read_calibration(out), read_labels(out, "refined")
    for case in cases[::REFINE_EVERY]:
        count = case.count()
        order = points_to_refine(points_of(count), predict_step(count, calibration))
        prediction = predict_step(count, measure_more(calibration, order, REFINE_S))
        found[case.name] = {"kernel_s": prediction.kernel_time_s, "step_s": prediction.time_s}
        write_labels(out, "refined", found)
        print(case.name, found[case.name], flush=True)
    return found


# ---------------------------------------------------------------- files


def read_labels(out: Path, name: str) -> dict[str, Any]:
    path = out / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_labels(out: Path, name: str, labels: Mapping[str, Any]) -> None:
    (out / f"{name}.json").write_text(json.dumps(labels, indent=1))


def read_calibration(out: Path) -> Calibration:
    calibrations = Calibrations(out)
    return calibrations.read(calibrations.names()[0])


# ---------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A step that was measured and predicted."""

    case: Case
    step: Row
    kernel: Row | None
    memory_bytes: int | None  # allocated at most
    predicted_bytes: int

    @property
    def is_gpu_bound(self) -> bool:
        return self.kernel is not None and (
            self.kernel.measured_s > GPU_BOUND * self.step.measured_s
        )


def predict_cases(
    cases: Sequence[Case], labels: Mapping[str, Any], calibration: Calibration
) -> list[Result]:
    found = []
    for case in cases:
        label = labels.get(case.name, {"error": "not measured"})
        if "error" in label:
            continue
        count = case.count()
        prediction = predict_step(count, calibration)
        baselines = list_baselines(count, calibration)
        flops = float(count.total.flops)
        step = Row(
            name=case.name, measured_s=label["step_s"], predicted_s=prediction.time_s,
            interval_s=prediction.interval_s, flops=flops,
            baselines_s={**baselines, "sum": prediction.kernel_time_s},
        )  # fmt: skip
        kernel = label["kernel_s"] and Row(
            name=case.name, measured_s=label["kernel_s"], predicted_s=prediction.kernel_time_s,
            flops=flops, baselines_s=baselines,
        )  # fmt: skip
        found.append(Result(
            case=case, step=step, kernel=kernel, predicted_bytes=prediction.memory_bytes,
            memory_bytes=label["memory"].get("allocated_bytes"),
        ))  # fmt: skip
    return found


def make_page(results: Sequence[Result], calibration: Calibration, out: Path) -> str:
    refined = read_labels(out, "refined")
    kernels = add_rate([r.kernel for r in results if r.kernel])
    steps = add_rate([r.step for r in results])
    bound = {r.case.name: r.is_gpu_bound for r in results}
    table = [["kernel time", *summarise(kernels)]]
    for precision in PRECISIONS:
        some = [r for r in kernels if f", {precision}, " in r.name]
        table.append([f"kernel time, {precision}", *summarise(some)])
    again = [
        Row(name=r.name, measured_s=r.measured_s, predicted_s=refined[r.name]["kernel_s"], flops=0)
        for r in kernels
        if r.name in refined
    ]
    table.append([f"kernel time with --refine {REFINE_S:.0f}s", *summarise(again)])
    for words, is_gpu in (("the GPU", True), ("the host", False)):
        some = [r for r in steps if bound[r.name] is is_gpu]
        table.append([f"step time, {words} is the bound", *summarise(some)])
    table += [[f"step time: {words}", *cells] for words, *cells in baseline_rows(steps)]
    table += [[f"kernel time: {words}", *cells] for words, *cells in baseline_rows(kernels)]
    sizes = [(r.predicted_bytes, r.memory_bytes) for r in results if r.memory_bytes]
    off = [abs(predicted / measured - 1) for predicted, measured in sizes]
    missed = sum(1.05 * predicted < measured for predicted, measured in sizes)
    memory = (
        f"Peak memory of {len(sizes)} steps: {100 * mean(off):.1f} % mean error; {missed} are more"
        " than 5 % above what was predicted."
        if sizes
        else "Peak memory was not measured."
    )
    return "\n\n".join([
        f"{calibration.device_name}: {len(results)} steps of {len({r.case.model for r in results})}"
        f" networks; {len(calibration.points)} operators were measured.",
        Table(columns=SUMMARY, rows=table).markdown(),
        memory,
    ])  # fmt: skip


def write_csv(results: Sequence[Result], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([
            "model", "batch_size", "mode", "precision", "optimizer", "step_s", "predicted_step_s",
            "low_s", "high_s", "kernel_s", "predicted_kernel_s", "memory_bytes",
            "predicted_memory_bytes",
        ])  # fmt: skip
        for one in results:
            case, step = one.case, one.step
            writer.writerow([
                case.model, case.batch_size, case.mode, case.precision, case.optimizer,
                step.measured_s, step.predicted_s, *(step.interval_s or ()),
                one.kernel.measured_s if one.kernel else "",
                one.kernel.predicted_s if one.kernel else "",
                one.memory_bytes or "", one.predicted_bytes,
            ])  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Predictions on a GPU, checked.")
    parser.add_argument("parts", nargs="+", choices=("calibrate", "run", "refine", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="cuda", help="cpu: to try the script itself")
    parser.add_argument("--budget", type=float, default=115, help="seconds of `calibrate`")
    parser.add_argument("--seconds", type=float, default=260, help="of `run`")
    parser.add_argument("--cases", type=int, help="the first so many only")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    cases = list(islice(list_cases(), args.cases))
    for part in args.parts:
        start_s = perf_counter()
        if part == "calibrate":
            stored = calibrate_machine(args.out, backend=args.backend, budget_s=args.budget)
            print(f"{stored.added} operators; refused: {len(stored.refused)}")
            print("\n".join(stored.refused[:30]), flush=True)
        elif part == "run":
            run_cases(cases, args.out, args.seconds, args.backend)
        elif part == "refine":
            refine_cases(cases, args.out)
        else:
            calibration = read_calibration(args.out)
            results = predict_cases(cases, read_labels(args.out, "steps"), calibration)
            write_csv(results, args.out / "steps.csv")
            text = make_page(results, calibration, args.out)
            print(text)
            if args.backend == "cuda":
                replace_part(PAGE, "gpu", text)
        print(f"{part}: {perf_counter() - start_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Modelled against measured joules of training steps on an NVIDIA GPU.

    python -m benchmarks.energy_gpu run --out FOLDER     # 4 minutes of the GPU, after
                                                         # machine measure, then with --energy
    python -m benchmarks.energy_gpu table --out FOLDER   # needs no GPU

FOLDER is a results folder with a passport that has energy coefficients. None of the twelve networks
was fitted. A step's joules are differences of the energy counter over two seconds; its work is by
hardware counters. Then matrix products for longer than a burst, for the rate under the power cap.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from benchmarks.report import Table
from ridgeline.machine.passport import EnergyModel, Passports
from ridgeline.measure.energy import CallLoop, evaluate_passes, take_pass
from ridgeline.records import WorkloadSpec
from ridgeline.roofline.floors import find_capped_time, price_of_flop
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import FAST_S, Meters, Sampler
from ridgeline.settings import Settings

NETWORKS = ("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet",
            "mobilenet_v2", "regnet_y_400mf", "resnet18", "resnet50", "swin_t", "vgg16",
            "vit_b_16")  # fmt: skip
PRECISIONS = ("fp32", "amp")
BATCH = 32
LEAD_S, WINDOW_S = 0.5, 2.0
PRODUCTS = {"bf16": 8192, "fp16": 8192, "tf32": 8192}  # sides that the fit has, too


def measure_joules(call: Callable[[], object], meters: Meters) -> dict[str, Any]:
    """Seconds and joules of a call, and the clock."""
    import torch

    loop = CallLoop(call, torch.cuda.synchronize, perf_counter)
    loop.calibrate(0.05)
    sampler = Sampler(meters, interval_s=FAST_S)
    with sampler:
        take_pass("lead-in", loop.run_for, LEAD_S, perf_counter)
        window = take_pass("window", loop.run_for, WINDOW_S, perf_counter)
    energy = evaluate_passes(meters, sampler.readings, [window], 1).energy
    assert energy is not None and energy.energy_total_j is not None
    return {
        "time_s": window.duration_s / window.steps,
        "energy_j": energy.energy_total_j / window.steps,
        "clock_hz": energy.conditions.clock_hz,
    }


def run(out: Path, seconds: float) -> None:
    """Measure every network in every precision, then products at the cap."""
    import torch

    from ridgeline.machine.describe import describe
    from ridgeline.profile.count_calls import CallCounter

    gpu = describe().find_gpu("cuda:0")
    meters = find_meters("cuda", uuid=gpu.uuid if gpu else None)
    torch.zeros(1, device="cuda")  # counters want a context
    start_s, rows = perf_counter(), read_rows(out)
    counters = {precision: CallCounter(0, precision) for precision in PRECISIONS}
    for model in NETWORKS:
        for precision in PRECISIONS:
            name = f"{model}, {precision}"
            if name in rows or perf_counter() - start_s > seconds:
                continue
            try:
                rows[name] = measure_step(model, precision, meters, counters[precision])
            except Exception as error:  # of one network of many
                rows[name] = {"problem": " ".join(str(error).split())[:200]}
            print(name, {k: v for k, v in rows[name].items() if k != "counted"}, flush=True)
            write_rows(out, rows)
            gc.collect()
            torch.cuda.empty_cache()
    for precision, side in PRODUCTS.items():
        if f"product, {precision}" not in rows:
            rows[f"product, {precision}"] = measure_product(precision, side, meters)
    write_rows(out, rows)


def measure_step(model: str, precision: str, meters: Meters, counter: Any) -> dict[str, Any]:
    """Joules of a training step and what its kernels did."""
    from ridgeline.measure.measure_workload import build_stepper
    from ridgeline.measure.step import torch_settings
    from ridgeline.measure.timing import NoMarks
    from ridgeline.workloads import resolve

    spec = WorkloadSpec(model=model, batch_size=BATCH, mode="train")
    settings = Settings(backend="cuda", precision=precision)
    stepper, marks = build_stepper(resolve(spec), spec, settings), NoMarks()
    with torch_settings(settings, stepper.precision):
        row = measure_joules(lambda: stepper.step(marks), meters)
        counted = counter.count({"step": lambda: stepper.step(marks)}).loc["step"]
    return {**row, "counted": {str(name): float(value) for name, value in counted.items()}}


def measure_product(precision: str, side: int, meters: Meters) -> dict[str, Any]:
    """The sustained rate of products, and the time that they take at full clock."""
    import torch

    from ridgeline.pipeline.machine import make_product

    load = make_product(torch, "cuda:0", precision, side)
    assert load.call is not None
    row = measure_joules(load.call, meters)
    return {**row, "flops": load.flops[precision]}


def read_rows(out: Path) -> dict[str, Any]:
    path = out / "energy-steps.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_rows(out: Path, rows: Mapping[str, Any]) -> None:
    (out / "energy-steps.json").write_text(json.dumps(rows, indent=1))


# ---------------------------------------------------------------- the table


def model_joules(row: Mapping[str, Any], model: EnergyModel) -> float:
    """Joules of a step by the coefficients: its time, its kernels, its FLOPs and bytes."""
    counted: Mapping[str, float] = row["counted"]
    busy_w = model.working_power_w - model.constant_power_w.value
    kernel_s = min(row["time_s"], counted["counter_time_s"])
    joules = model.constant_power_w.value * row["time_s"] + busy_w * kernel_s
    for name, flops in counted.items():
        if name.startswith("flops_") and name.endswith(("_matrix", "_vector")):
            joules += flops * (price_of_flop(model, name.split("_")[1]) or 0.0)
    of_l2 = max(0.0, counted["l2_bytes"] - counted["dram_bytes"])
    joules += counted["dram_bytes"] * model.j_per_byte["dram"].value
    return float(joules + of_l2 * model.j_per_byte["l2"].value)


def model_rate(row: Mapping[str, Any], precision: str, model: EnergyModel) -> float:
    """FLOP/s of a product under the power cap, by the coefficients."""
    import numpy as np

    highest_hz = max(point.clock_hz or 0.0 for point in model.points)
    load = next(p for p in model.points if p.label == f"{precision} products")
    share = row["flops"] / load.flops[precision]
    bytes_j = sum(share * amount * model.j_per_byte[level].value
                  for level, amount in load.moved_bytes.items())  # fmt: skip
    work_j = row["flops"] * model.j_per_flop[precision].value + bytes_j
    full_s = row["time_s"] * row["clock_hz"] / highest_hz
    (time_s,) = find_capped_time(
        np.array([work_j]),
        np.array([full_s]),
        above_w=(model.power_cap_w or 0.0) - model.constant_power_w.value,
        busy_w=model.working_power_w - model.constant_power_w.value,
        exponent=model.clock_exponent.value if model.clock_exponent else 0.0,
    )
    return float(row["flops"] / max(time_s, full_s))


def make_tables(rows: Mapping[str, Any], model: EnergyModel) -> list[str]:
    steps, errors, products = [], [], []
    for name, row in rows.items():
        if "problem" in row:
            steps.append([name, row["problem"], "", "", ""])
        elif "counted" in row:
            modelled_j = model_joules(row, model)
            errors.append(modelled_j / row["energy_j"] - 1)
            steps.append([
                name, f"{1e3 * row['time_s']:.1f} ms", f"{row['energy_j']:.2f} J",
                f"{modelled_j:.2f} J", f"{100 * errors[-1]:+.1f} %",
            ])  # fmt: skip
        else:
            precision = name.split(", ")[1]
            measured, rate = row["flops"] / row["time_s"], model_rate(row, precision, model)
            products.append([
                precision, f"{row['energy_j'] / row['time_s']:.0f} W",
                f"{row['clock_hz'] / 1e6:.0f} MHz", f"{measured / 1e12:.0f} TFLOP/s",
                f"{rate / 1e12:.0f} TFLOP/s", f"{100 * (rate / measured - 1):+.1f} %",
            ])  # fmt: skip
    columns = ["step", "time", "measured", "modelled", "difference"]
    text = f"Mean of the differences without sign: {100 * mean(map(abs, errors)):.1f} %."
    capped = ["product", "power", "clock", "sustained", "by the model", "difference"]
    return [Table(columns=columns, rows=steps).markdown(), text,
            Table(columns=capped, rows=products).markdown()]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Joules of networks, modelled and measured.")
    parser.add_argument("parts", nargs="+", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=230, help="of `run`")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    if "run" in args.parts:
        run(args.out, args.seconds)
    if "table" in args.parts:
        passports = Passports(args.out)
        model = passports.read(passports.names()[0]).energy_model("cuda:0")
        if model is None:
            print("no energy coefficients: ridgeline machine measure --energy", file=sys.stderr)
            return 2
        print("\n\n".join(make_tables(read_rows(args.out), model)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

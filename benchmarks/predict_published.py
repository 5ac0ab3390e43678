"""Published measurements against ridgeline's own curves, beside what others predict.

    python -m benchmarks.predict_published [--data ../shared/data/predict] [--parts gemm,micro,…]

Four parts: AIConfigurator's tables of matrix products, NeuSight's tables of single operators,
NeuSight's times of whole Transformers, timm's tables of whole vision networks. Some rows of a table
are measured points of a calibration, chosen at random; the rest is to be predicted from them. The
script writes its part of docs/results/predict.md. It needs no device, and four minutes of a core.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Table, replace_part
from ridgeline.count.counting import Settings, count_workload
from ridgeline.errors import RidgelineError
from ridgeline.predict.calibration import Calibration, CalibrationPoint, Peak
from ridgeline.predict.operators import OperatorPoint, features_of, group_of, points_of
from ridgeline.predict.predict import estimate_points
from ridgeline.records import WorkloadSpec

Array = NDArray[np.float64]
DATA = Path("../shared/data/predict")
PAGE = "predict"
SEEDS, MOST_TESTS = 3, 8000
MOST_ROWS = 1500  # of a table of single operators, of one GPU
NEIGHBOURS = 4
SIZES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The figures of a datasheet."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    cache_bytes: int
    units: int

    def calibrate(self, points: Sequence[OperatorPoint], times_s: Iterable[float]) -> Calibration:
        """A calibration that measured these points."""
        peak = {"burst_flops_per_s": self.flops_per_s, "sustained_flops_per_s": self.flops_per_s}
        times = list(times_s)
        precisions = sorted({point.precision for point in points})
        return Calibration(
            machine="published",
            device="cuda:0",
            device_name=self.name,
            units=self.units,
            cache_bytes=self.cache_bytes,
            dram_bytes_per_s=self.bytes_per_s,
            floor_s=min(times, default=2e-6),
            peaks=tuple(Peak(precision=one, **peak) for one in precisions),
            points=tuple(
                CalibrationPoint(point=point, samples_s=(time_s,))
                for point, time_s in zip(points, times, strict=True)
            ),
        ).fit_curves()


# ---------------------------------------------------------------- operator points


def make_point(
    op: str, sizes: Sequence[Sequence[int]], output: Sequence[int], flops: float, *,
    kind: str, precision: str = "fp32", rest: Sequence[Any] = (),
) -> OperatorPoint:  # fmt: skip
    """A call whose tensors have these sizes; what it reads and writes moves once."""
    arguments = [[*({precision: list(one)} for one in sizes), *rest], {}]
    moved = SIZES[precision] * (sum(map(prod, sizes)) + prod(output))
    return OperatorPoint(
        op=op, arguments=json.dumps(arguments), precision=precision,
        group=group_of(op, arguments), kind=kind, flops=float(flops), moved_bytes=float(moved),
        output=tuple(output),
    )  # fmt: skip


def product_point(b: int, m: int, n: int, k: int, precision: str = "fp32") -> OperatorPoint:
    """b products of m·k and k·n."""
    op, batch = ("aten::bmm", [b]) if b > 1 else ("aten::mm", [])
    sizes, output = ([*batch, m, k], [*batch, k, n]), (*batch, m, n)
    return make_point(op, sizes, output, 2.0 * b * m * n * k, kind="matmul", precision=precision)


def conv_point(row: Mapping[str, str]) -> OperatorPoint:
    b, c_in, c_out, kernel, size, stride, padding = (
        int(row[name])
        for name in ("B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size",
                     "Stride", "Padding")
    )  # fmt: skip
    out = (size + 2 * padding - kernel) // stride + 1
    rest = [None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1]
    flops = 2.0 * b * c_out * out * out * c_in * kernel * kernel
    sizes = ([b, c_in, size, size], [c_out, c_in, kernel, kernel])
    output = (b, c_out, out, out)
    return make_point("aten::convolution", sizes, output, flops, kind="conv", rest=rest)


READS_TWO = ("add", "mul", "div", "pow")  # with a "u" after it, the second operand is a number
NORMS = ("ln", "softmax")


def vector_point(name: str, *sizes: Sequence[int]) -> OperatorPoint:
    """A pointwise operator or a norm over rows."""
    largest = max(sizes, key=prod)
    kind = "norm" if name in NORMS else "pointwise"
    flops = prod(largest) * (5 if kind == "norm" else 1)
    return make_point(f"aten::{name}", sizes, largest, flops, kind=kind)


def vector_row(row: Mapping[str, str]) -> OperatorPoint:
    sizes = [int(row["B"]), int(row["H"])]
    name = row["OPName"]
    return vector_point(name, *([sizes] * (2 if name in READS_TWO else 1)))


# ---------------------------------------------------------------- methods


Predict = Callable[[Sequence[OperatorPoint], Array, Sequence[OperatorPoint]], Array]


def predict_by_curves(
    device: Device, known: Sequence[OperatorPoint], times_s: Array, wanted: Sequence[OperatorPoint]
) -> Array:
    estimates = estimate_points(wanted, device.calibrate(known, times_s.tolist()))
    return np.array([estimates[point.key].time_s for point in wanted])


def predict_by_roofline(
    device: Device, known: Sequence[OperatorPoint], times_s: Array, wanted: Sequence[OperatorPoint]
) -> Array:
    del known, times_s
    flops, moved = work_of(wanted)
    return np.maximum(flops / device.flops_per_s, moved / device.bytes_per_s)


def predict_by_four(
    device: Device, known: Sequence[OperatorPoint], times_s: Array, wanted: Sequence[OperatorPoint]
) -> Array:
    """floor + ((F/P)^p + (B/W)^p)^(1/p): four parameters, no residual."""
    start = np.log([times_s.min(), 0.7 * device.flops_per_s, 0.8 * device.bytes_per_s, 2.0])

    def times_of(logs: Array, points: Sequence[OperatorPoint]) -> Array:
        floor, flop_rate, byte_rate, p = np.exp(np.clip(logs, -40, 60))
        flops, moved = work_of(points)
        a, b = flops / flop_rate, moved / byte_rate
        high, p = np.maximum(a, b), min(max(p, 0.5), 20)
        return np.asarray(floor + high * (1 + (np.minimum(a, b) / high) ** p) ** (1 / p))

    def cost_of(logs: Array) -> float:
        return float(np.abs(np.log(times_of(logs, known) / times_s)).mean())

    return times_of(descend(cost_of, start), wanted)


def descend(cost_of: Callable[[Array], float], start: Array, rounds: int = 60) -> Array:
    """A minimum near the start, by steps along the axes."""
    best, least, steps = start, cost_of(start), np.full(len(start), 0.5)
    for _ in range(rounds):
        for axis in range(len(start)):
            for sign in (1, -1):
                trial = best + sign * steps[axis] * np.eye(len(start))[axis]
                if (cost := cost_of(trial)) < least:
                    best, least = trial, cost
                    break
            else:
                steps[axis] /= 1.5
    return best


def predict_by_utilisation(
    device: Device, known: Sequence[OperatorPoint], times_s: Array, wanted: Sequence[OperatorPoint]
) -> Array:
    """The share of the roofline that the nearest points reach."""
    share = predict_by_roofline(device, known, times_s, known) / times_s
    places, targets = places_of(known), places_of(wanted)
    logs = []
    for part in np.array_split(targets, max(1, len(targets) // 1000)):
        square = ((part[:, None] - places[None]) ** 2).sum(2)
        near = np.argsort(square, axis=1)[:, :NEIGHBOURS]
        weights = 1 / (np.take_along_axis(square, near, 1) + 1e-6)
        logs.append((weights * np.log(share)[near]).sum(1) / weights.sum(1))
    roof = predict_by_roofline(device, known, times_s, wanted)
    return np.asarray(roof / np.exp(np.concatenate(logs)))


def work_of(points: Sequence[OperatorPoint]) -> tuple[Array, Array]:
    return np.array([p.flops for p in points]), np.array([p.moved_bytes for p in points])


def places_of(points: Sequence[OperatorPoint]) -> Array:
    return np.log2([features_of(point).dims for point in points])


METHODS = {
    "ridgeline": predict_by_curves,
    "datasheet roofline": predict_by_roofline,
    "4 parameters": predict_by_four,
    "utilisation": predict_by_utilisation,
}


def errors_of(
    device: Device, points: Sequence[OperatorPoint], times_s: Array, count: int, method: str
) -> Array:
    """Relative errors of the rows that were not measured points, over several choices of them."""
    found = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(points))
        known, tests = order[:count], order[count : count + MOST_TESTS]
        predicted = METHODS[method](
            device, [points[i] for i in known], times_s[known], [points[i] for i in tests]
        )
        found.append(np.abs(predicted / times_s[tests] - 1))
    return np.concatenate(found)


def show(errors: Array) -> str:
    """Mean and median in per cent."""
    return f"{100 * errors.mean():.1f} / {100 * np.median(errors):.1f}"


# ---------------------------------------------------------------- AIConfigurator's products

GEMM_FILES = {
    "H200": "gemm_h200_sxm_vllm-0.24.0.csv.gz",
    "A100": "gemm_a100_sxm_sglang-0.5.10.csv.gz",
    "L40S": "gemm_l40s_vllm-0.24.0.csv.gz",
}
GEMM_DEVICES = {  # dense bf16, from the vendor's datasheets
    "H200": Device(name="H200", flops_per_s=989e12, bytes_per_s=4.8e12, cache_bytes=50 << 20,
                   units=132),
    "A100": Device(name="A100", flops_per_s=312e12, bytes_per_s=2.039e12, cache_bytes=40 << 20,
                   units=108),
    "L40S": Device(name="L40S", flops_per_s=362e12, bytes_per_s=0.864e12, cache_bytes=96 << 20,
                   units=142),
}  # fmt: skip
GEMM_COUNTS = (60, 200, 600)
GEMM_TO_BEAT = {  # wave model with a residual, the better of two variants
    "H200": ("7.9 / 5.7", "6.3 / 4.6", "5.3 / 3.8"),
    "A100": ("11.4 / 8.5", "9.1 / 6.5", "7.9 / 5.6"),
    "L40S": ("15.1 / 10.8", "12.8 / 8.7", "11.3 / 7.5"),
}


def read_gemm(path: Path) -> tuple[list[OperatorPoint], Array]:
    times: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for row in read_rows(path):
        if row["gemm_dtype"] == "bfloat16":
            shape = int(row["m"]), int(row["n"]), int(row["k"])
            times[shape].append(float(row["latency_ms"]) / 1e3)
    points = [product_point(1, m, n, k, "bf16") for m, n, k in times]
    return points, np.array([np.median(one) for one in times.values()])


def test_gemm(data: Path) -> Iterator[Table]:
    rows = []
    for name, device in GEMM_DEVICES.items():
        points, times_s = read_gemm(data / "aiconfigurator" / GEMM_FILES[name])
        for count, to_beat in zip(GEMM_COUNTS, GEMM_TO_BEAT[name], strict=True):
            cells = [show(errors_of(device, points, times_s, count, one)) for one in METHODS]
            rows.append([name, count, *cells, to_beat])
    yield Table(
        title="Matrix products, bf16 (AIConfigurator): mean / median error, %",
        columns=["GPU", "points", *METHODS, "to beat"], rows=rows,
    )  # fmt: skip


# ---------------------------------------------------------------- NeuSight's operators

NEUSIGHT_COUNTS = {"linear": (100, 300), "bmm": (100, 300), "vector": (100, 300), "conv": (300,)}
NEUSIGHT_POINTS: Mapping[str, Callable[[Mapping[str, str]], OperatorPoint]] = {
    # N is the depth of a linear layer
    "linear": lambda row: product_point(1, int(row["M"]), int(row["K"]), int(row["N"])),
    "bmm": lambda row: product_point(int(row["B"]), int(row["M"]), int(row["N"]), int(row["K"])),
    "vector": vector_row,
    "conv": conv_point,
}


def read_devices(data: Path) -> dict[str, Device]:
    found = {}
    for key, one in json.loads((data / "neusight/device_configs.json").read_text()).items():
        rate = one.get("SingleFLOPs") or one["SingleFLOPsMM"]
        found[key] = Device(
            name=one["Device"], flops_per_s=rate * 1e9, bytes_per_s=one["Mem_Bw"] * 1e9,
            cache_bytes=one["L2Cache"] << 20, units=one["Num_Sm"],
        )  # fmt: skip
    return found


def read_operators(data: Path, name: str) -> dict[str, tuple[list[OperatorPoint], Array]]:
    """Points and times by device: those to learn from; where there are none, those of the tests."""
    parts: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(data / "neusight" / f"micro_{name}_fp32.csv.gz"):
        parts[row["Device"].replace(" ", "_")][row["split"]].append(row)
    found = {}
    for device, splits in parts.items():
        rows = splits.get("train") or splits["test"]
        order = np.random.default_rng(0).permutation(len(rows))[:MOST_ROWS]
        known = {}
        for row in (rows[i] for i in order):
            point = NEUSIGHT_POINTS[name](row)
            known[point.key] = point, float(row["Latency"]) / 1e3
        found[device] = [p for p, _ in known.values()], np.array([t for _, t in known.values()])
    return found


def test_operators(data: Path) -> Iterator[Table]:
    rows = []
    devices = read_devices(data)
    for name, counts in NEUSIGHT_COUNTS.items():
        tables = OPERATORS(data, name)
        for count in counts:
            cells = []
            for method in METHODS:
                errors = [
                    errors_of(devices[key], points, times_s, count, method)
                    for key, (points, times_s) in tables.items()
                    if len(points) > 2 * count
                ]
                cells.append(show(np.concatenate(errors)))
            rows.append([name, len(errors), count, *cells])
    yield Table(
        title="Single operators, fp32 (NeuSight): mean / median error, %",
        columns=["operators", "GPUs", "points", *METHODS], rows=rows,
    )  # fmt: skip


# ---------------------------------------------------------------- NeuSight's Transformers

LAYER = ("transformer_h_0_", "bert_encoder_layer_0_", "model_decoder_layers_0_")
MOVES = ("contiguous", "where", "dropout", "EMBEDDING")  # classes that copy
MOVING = ("<built-in method max>", "masked_fill", "<function embedding>")
TRAINING_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A whole network as NeuSight measured it."""

    device: str
    mode: str
    model: str
    time_s: float
    others_s: Mapping[str, float]  # predicted by others
    uses: Sequence[tuple[OperatorPoint, int]]  # with repeats
    nodes_s: float  # sum of the measured operators


def read_steps(data: Path) -> Iterator[Step]:
    nodes: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(data / "neusight/node_measured.csv.gz"):
        nodes[row["device"], row["workload"]].append(row)
    for row in read_rows(data / "neusight/e2e_measured.csv"):
        workload = "-".join(row[name] for name in ("model", "mode", "seqlen", "batch"))
        parts = nodes.get((row["device"], workload))
        layers = int(float(row["num_layer"] or 0))
        if not parts or not layers or row["option"] or "AMD" in row["device"]:
            continue
        repeats = count_repeats([part["Name"] for part in parts],
                                [part["op"] for part in parts], layers)  # fmt: skip
        uses = [
            (point, times)
            for part, times in zip(parts, repeats, strict=True)
            for point in points_of_node(part, is_training=row["mode"] == "train")
        ]
        names = ("neusight", "habitat", "li2023")
        others = {n: float(row[f"{n}_pred_ms"]) / 1e3 for n in names if row[f"{n}_pred_ms"]}
        yield Step(
            device=row["device"], mode=row["mode"], model=row["model"],
            time_s=float(row["e2e_ms"]) / 1e3, others_s=others, uses=uses,
            nodes_s=sum(
                times * sum(float(part[f"{p}_latency"]) for p in ("fw", "bw", "acc")) / 1e3
                for part, times in zip(parts, repeats, strict=True)
                if points_of_node(part, is_training=False)
            ),
        )  # fmt: skip


def count_repeats(names: Sequence[str], ops: Sequence[str], layers: int) -> list[int]:
    """How often each node runs: those from the first layer's first module to its last addition."""
    inside = [i for i, name in enumerate(names) if name.startswith(LAYER)]
    after = (i for i in range(inside[-1] + 1, len(names)) if ops[i] == "call_module")
    end = next(after, len(names))
    return [layers if inside[0] <= i < end else 1 for i in range(len(names))]


def points_of_node(node: Mapping[str, str], *, is_training: bool) -> list[OperatorPoint]:
    """The calls of one node: forward, and backward in training; none for views and numbers."""
    sizes = [one for one in json.loads(node["input_shapes"]) if one != [1]]
    output = [int(part) for part in node["output_shape"].strip("()").split(",") if part.strip()]
    kind = node["op_class"]
    if output == [1] or not sizes:
        return []
    if kind == "Linear":
        m, n, k = prod(output[:-1]), output[-1], (sizes[1] if len(sizes) == 3 else sizes[0])[-1]
        return products_of(1, m, n, k, is_training)
    if kind == "BMM":
        return products_of(prod(output[:-2]), output[-2], output[-1], sizes[0][-1], is_training)
    if kind.startswith("VEC"):
        point = vector_point(kind.removeprefix("VEC"), *sizes)
    elif kind in MOVES or node["target"] in MOVING:
        point = make_point("aten::clone", [output], output, 0, kind="pointwise")
    else:
        return []
    is_free = kind in ("VECadd", "VECaddu") or not is_training
    return [point] if is_free else [point, point]  # the gradient of a sum is the gradient


def products_of(b: int, m: int, n: int, k: int, is_training: bool) -> list[OperatorPoint]:
    forward = product_point(b, m, n, k)
    if not is_training:
        return [forward]
    return [forward, product_point(b, m, k, n), product_point(b, k, n, m)]


def calibrate_devices(
    data: Path, devices: Mapping[str, Device], count: int, seed: int
) -> dict[str, Calibration]:
    """A calibration of each device, of so many points of linear, bmm and vector operators."""
    chosen: dict[str, list[tuple[OperatorPoint, float]]] = defaultdict(list)
    for name in ("linear", "bmm", "vector"):
        for key, (points, times_s) in OPERATORS(data, name).items():
            order = np.random.default_rng(seed).permutation(len(points))[:count]
            chosen[key] += [(points[i], float(times_s[i])) for i in order]
    return {
        key: devices[key].calibrate([p for p, _ in rows], [t for _, t in rows])
        for key, rows in chosen.items()
    }


class _Operators:
    """The tables of single operators, read once."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[list[OperatorPoint], Array]]] = {}

    def __call__(self, data: Path, name: str) -> dict[str, tuple[list[OperatorPoint], Array]]:
        if name not in self._known:
            self._known[name] = read_operators(data, name)
        return self._known[name]


OPERATORS = _Operators()


def predict_whole(step: Step, calibration: Calibration) -> float:
    points = {point.key: point for point, _ in step.uses}
    found = estimate_points(points.values(), calibration)
    return sum(found[point.key].time_s * times for point, times in step.uses)


def test_transformers(data: Path) -> Iterator[Table]:
    devices, steps = read_devices(data), list(read_steps(data))
    calibrations = {
        count: [calibrate_devices(data, devices, count, seed) for seed in range(SEEDS)]
        for count in (30, 100, 300)
    }
    rows = []
    for title, chosen in choose_steps(steps).items():
        cells = [title, len(chosen)]
        roof = [roofline_s(step, devices[step.device]) / step.time_s - 1 for step in chosen]
        cells.append(show(np.abs(roof)))
        cells += [
            show(np.array([abs(s.others_s[name] / s.time_s - 1) for s in chosen
                           if name in s.others_s]))
            for name in ("habitat", "li2023", "neusight")
        ]  # fmt: skip
        for found in calibrations.values():
            errors = [
                abs(predict_whole(s, one[s.device]) / s.time_s - 1) for one in found for s in chosen
            ]
            cells.append(show(np.array(errors)))
        cells.append(show(np.array([abs(s.nodes_s / s.time_s - 1) for s in chosen])))
        rows.append(cells)
    yield Table(
        title="Whole Transformers, fp32 (NeuSight): mean / median error, %",
        columns=["steps", "n", "datasheet roofline", "Habitat", "Li'23", "NeuSight",
                 "ridgeline, 30 points a class", "100", "300", "sum of measured operators"],
        rows=rows,
    )  # fmt: skip


def roofline_s(step: Step, device: Device) -> float:
    flops, moved = work_of([point for point, _ in step.uses])
    times = np.array([times for _, times in step.uses])
    return float((times * np.maximum(flops / device.flops_per_s, moved / device.bytes_per_s)).sum())


LEARNT = ("Tesla_V100-PCIE-32GB", "NVIDIA_A100-PCIE-40GB", "Tesla_P100-PCIE-16GB", "Tesla_P4",
          "Tesla_T4")  # fmt: skip


def choose_steps(steps: Sequence[Step]) -> dict[str, list[Step]]:
    known = [s for s in steps if "switch" not in s.model and "neusight" in s.others_s]
    infer = [s for s in known if s.mode == "inf"]
    return {
        "inference, 5 GPUs of the training tables": [s for s in infer if s.device in LEARNT],
        "inference, all 7 GPUs": infer,
        "training without optimizer": [s for s in known if s.mode == "train"],
    }


# ---------------------------------------------------------------- timm's networks


TIMM_FOLDS, TIMM_COUNTED = 5, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TimmFile:
    """One of timm's tables, and the datasheet of its device."""

    title: str
    name: str
    mode: str
    precision: str
    device: Device
    pointwise_flops_per_s: float


TIMM_FILES = (
    TimmFile(
        title="RTX 4090, amp, infer",
        name="benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv", mode="infer", precision="amp",
        device=Device(name="RTX 4090", flops_per_s=165e12, bytes_per_s=1.008e12,
                      cache_bytes=72 << 20, units=128),
        pointwise_flops_per_s=82e12,
    ),
    TimmFile(
        title="RTX 3090, amp, train",
        name="benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv", mode="train", precision="amp",
        device=Device(name="RTX 3090", flops_per_s=71e12, bytes_per_s=0.936e12,
                      cache_bytes=6 << 20, units=82),
        pointwise_flops_per_s=36e12,
    ),
    TimmFile(
        title="i7-12700H, fp32, batch 1, infer, compiled",
        name="benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv", mode="infer",
        precision="fp32",
        device=Device(name="i7-12700H", flops_per_s=1.2e12, bytes_per_s=76.8e9,
                      cache_bytes=24 << 20, units=14),
        pointwise_flops_per_s=1.2e12,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A row of timm's tables; work of one image."""

    name: str
    size: int
    batch: int
    image_s: float
    macs: float
    activations: float
    params: float

    @property
    def family(self) -> str:
        name = self.name
        for prefix in ("tf_", "legacy_", "swsl_", "ssl_", "gluon_", "test_"):
            name = name.removeprefix(prefix)
        return name.split("_")[0].rstrip("0123456789")


def read_networks(data: Path, file: TimmFile) -> list[Network]:
    """The networks of a table; the work of one comes from a table of inference."""
    work = {r["model"]: r for r in read_rows(data / "timm" / TIMM_FILES[0].name)}
    found = []
    for row in read_rows(data / "timm" / file.name):
        name, known = row["model"], work.get(row["model"])
        if known is None or not float(row[f"{file.mode}_samples_per_sec"] or 0):
            continue
        size = int(row[f"{file.mode}_img_size"])
        area = (size / int(known["infer_img_size"])) ** 2
        found.append(Network(
            name=name, size=size, batch=int(row[f"{file.mode}_batch_size"]),
            image_s=1 / float(row[f"{file.mode}_samples_per_sec"]),
            macs=float(known["infer_gmacs"]) * area, params=float(known["param_count"]),
            activations=float(known["infer_macts"]) * area,
        ))  # fmt: skip
    return [one for one in found if one.macs > 0]


def test_timm(data: Path) -> Iterator[Table]:
    rows = []
    for file in TIMM_FILES:
        networks = read_networks(data, file)
        folds = fold_by_family(networks)
        counted = count_some(networks, file)
        flops = predict_in_folds(networks, folds, partial(fit_linear, names=("macs",)))
        linear = predict_in_folds(
            networks, folds, partial(fit_linear, names=("macs", "activations", "params"))
        )
        times_s = np.array([one.image_s for one in networks])
        some = np.array(sorted(counted))
        sheet = np.array([counted[i] for i in some])
        factor = float(np.median(times_s[some] / sheet))
        scaled = np.array([
            counted[i] * np.median([times_s[j] / counted[j] for j in some if folds[j] != folds[i]])
            for i in some
        ])  # fmt: skip
        rows.append([
            file.title, len(networks), show(np.abs(flops / times_s - 1)),
            show(np.abs(linear / times_s - 1)), len(some),
            *(show(np.abs(one / times_s[some] - 1))
              for one in (flops[some], linear[some], sheet, scaled)),
            f"{factor:.2f}",
        ])  # fmt: skip
    yield Table(
        title="Whole vision networks (timm): mean / median error, %",
        columns=["table", "n", "FLOPs-only", "linear", "counted", "FLOPs-only of these",
                 "linear of these", "ridgeline, datasheet", "with one factor", "the factor"],
        rows=rows,
    )  # fmt: skip


def fold_by_family(networks: Sequence[Network]) -> list[int]:
    families = sorted({one.family for one in networks})
    order = np.random.default_rng(0).permutation(len(families))
    fold = {family: int(place) % TIMM_FOLDS for family, place in zip(families, order, strict=True)}
    return [fold[one.family] for one in networks]


def predict_in_folds(
    networks: Sequence[Network], folds: Sequence[int], fit: Callable[[list[Network]], Any]
) -> Array:
    """Each network by a fit to the networks of other families."""
    models = [
        fit([n for n, of in zip(networks, folds, strict=True) if of != fold])
        for fold in range(TIMM_FOLDS)
    ]
    return np.array([models[fold](one) for one, fold in zip(networks, folds, strict=True)])


def fit_linear(networks: list[Network], names: Sequence[str]) -> Callable[[Network], float]:
    """Rates of work that fit the relative error best; none is negative."""
    times_s = np.array([one.image_s for one in networks])
    left = list(names)
    while True:
        work = np.array([[getattr(one, name) for name in left] for one in networks])
        rates = np.linalg.lstsq(work / times_s[:, None], np.ones(len(networks)), rcond=None)[0]
        if rates.min() >= 0:
            break
        left.pop(int(rates.argmin()))
    of = dict(zip(left, rates.tolist(), strict=True))
    return lambda one: sum(rate * getattr(one, name) for name, rate in of.items())


def count_some(networks: Sequence[Network], file: TimmFile) -> dict[int, float]:
    """Seconds for one image of some of the networks, by their operators and a datasheet."""
    from timm import list_models

    known, found = set(list_models()), {}
    chosen = [i for i, one in enumerate(networks) if one.name in known]
    for i in chosen[:: max(1, len(chosen) // TIMM_COUNTED)]:
        with suppress(RidgelineError):
            found[i] = datasheet_s(networks[i], file) / networks[i].batch
    return found


def datasheet_s(network: Network, file: TimmFile) -> float:
    """Seconds of a step, from the datasheet alone."""
    spec = WorkloadSpec(
        model=f"timm:{network.name}", batch_size=network.batch, mode=file.mode,
        input_size=(network.size,),
    )  # fmt: skip
    count = count_workload(spec, Settings(mode=file.mode, precision=file.precision))
    known = file.device.calibrate([], [])
    rates = {"fp16": file.device.flops_per_s, "fp32": file.pointwise_flops_per_s}
    known = replace(known, peaks=tuple(
        Peak(precision=name, burst_flops_per_s=rate, sustained_flops_per_s=rate)
        for name, rate in rates.items()
    ))  # fmt: skip
    uses = points_of(count)
    found = estimate_points({use.point.key: use.point for use in uses}.values(), known)
    return sum(found[use.point.key].time_s * use.repeats for use in uses)


# ---------------------------------------------------------------- the page


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


PARTS = {"gemm": test_gemm, "micro": test_operators, "e2e": test_transformers, "timm": test_timm}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Published measurements, predicted.")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--parts", default=",".join(PARTS))
    args = parser.parse_args(arguments)
    for name in args.parts.split(","):
        start_s = perf_counter()
        text = "\n\n".join(table.markdown() for table in PARTS[name](args.data))
        print(text, f"\n{name}: {perf_counter() - start_s:.0f} s\n", flush=True)
        replace_part(PAGE, name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

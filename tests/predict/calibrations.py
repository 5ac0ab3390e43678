"""A small calibration made by hand, and counts to predict from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ridgeline.machine.describe import describe, machine_name
from ridgeline.predict.calibration import (
    Calibration,
    CalibrationPoint,
    Calibrations,
    HostCosts,
    Peak,
)
from ridgeline.predict.operators import OperatorPoint, Use

MEBI = 1 << 20
KNOWN_FILE = "small.calibration.json.gz"


def relu(elements: int, *, op: str = "relu", precision: str = "fp32") -> OperatorPoint:
    """Reads and writes so many floats."""
    return OperatorPoint(
        op=f"aten::{op}", arguments=f'[[{{"{precision}":[{elements}]}}],{{}}]',
        precision=precision, group=op.replace("_", " in place"), kind="pointwise",
        flops=float(elements), moved_bytes=8.0 * elements, output=(elements,),
    )  # fmt: skip


def product(m: int, n: int, k: int, *, precision: str = "fp32") -> OperatorPoint:
    sizes = f'{{"{precision}":[{m},{k}]}},{{"{precision}":[{k},{n}]}}'
    return OperatorPoint(
        op="aten::mm", arguments=f"[[{sizes}],{{}}]", precision=precision, group="mm nn",
        kind="matmul", flops=2.0 * m * n * k,
        moved_bytes=4.0 * (m * k + k * n + m * n), output=(m, n),
    )  # fmt: skip


def measured(point: OperatorPoint, time_s: float) -> CalibrationPoint:
    return CalibrationPoint(point=point, samples_s=(time_s,))


RELUS = {size * MEBI: size * 1e-3 for size in (1, 2, 4, 8, 16)}  # 8 MiB a millisecond
PRODUCTS = {size: 2 * size**3 / 50e9 for size in (128, 256, 512, 1024)}  # 50 GFLOP/s


def calibration(**changes: Any) -> Calibration:
    """A CPU on which relu (fp32) and mm (fp32) were measured."""
    points = [measured(relu(size), time_s) for size, time_s in RELUS.items()]
    points += [measured(product(n, n, n), time_s) for n, time_s in PRODUCTS.items()]
    known: dict[str, Any] = {
        "machine": "small", "device": "cpu", "device_name": "A CPU", "threads": 2, "units": 2,
        "memory_bytes": 1 << 30, "dram_bytes_per_s": 8.4e9, "floor_s": 1e-6,
        "peaks": (Peak(precision="fp32", burst_flops_per_s=5e10, sustained_flops_per_s=5e10),
                  Peak(precision="bf16", burst_flops_per_s=1e11, sustained_flops_per_s=1e11)),
        "host": HostCosts(per_operator_s=1e-5, train_per_operator_s=2e-5),
        "points": tuple(points),
    }  # fmt: skip
    return Calibration(**{**known, **changes})


def counted(**changes: Any) -> Any:
    """What a prediction reads of a count whose calls come apart from it."""
    known = {
        "model": "net", "batch_size": 4, "mode": "infer", "precision": "fp32", "optimizer": "sgd",
        "memory": SimpleNamespace(peak_bytes=600 * MEBI), "notes": (), "storage_changes": (),
        "modules": {"": SimpleNamespace(type_name="Net"), "a": SimpleNamespace(type_name="Linear"),
                    "b": SimpleNamespace(type_name="ReLU")},
    }  # fmt: skip
    return SimpleNamespace(**{**known, **changes})


def use(point: OperatorPoint, path: str = "", repeats: int = 1) -> Use:
    return Use(point=point, path=path, shares={"forward": 1.0}, repeats=repeats)


def store_own(results: Path, **changes: Any) -> Calibration:
    """The same of this machine's CPU, stored."""
    from ridgeline.predict.calibrate import empty_calibration

    description = describe()
    fresh = empty_calibration(machine_name(description), "cpu", description)
    small = calibration()
    own = replace(
        fresh, points=small.points, host=small.host, peaks=small.peaks,
        dram_bytes_per_s=small.dram_bytes_per_s, **changes,
    )  # fmt: skip
    Calibrations(results).write(own)
    return own

"""Runs to compare: one that was measured on an H200, with other times and settings put in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.stored import write_run

from ridgeline.machine.sampling import summarise
from ridgeline.store import ResultsFolder, Run

MEASURED = json.loads(
    (Path(__file__).parents[1] / "data" / "run-h200-vgg16.json").read_text(encoding="utf-8")
)
BUSY = {  # what a run finds whose two threads had one core, with 50 interruptions a second
    "backend": "cpu", "threads": 2,
    "timed_usage": {"cores": 1.0, "elapsed_s": 10.0, "involuntary_switches": 500},
}  # fmt: skip
QUIET = {**BUSY, "timed_usage": {"cores": 1.9, "elapsed_s": 10.0, "involuntary_switches": 500}}
TEN = [0.100, 0.101, 0.102, 0.103, 0.104, 0.105, 0.106, 0.107, 0.108, 0.109]  # median 0.1045


def near(value: Any, **tolerance: Any) -> Any:
    """`pytest.approx` in a place that wants a number."""
    return pytest.approx(value, **tolerance)


def times(scale: float = 1.0) -> list[float]:
    return [scale * sample for sample in TEN]


def write(
    results: ResultsFolder,
    samples: Sequence[float] = TEN,
    *,
    layers: pd.DataFrame | None = None,
    found: dict[str, Any] | None = None,
    provenance: dict[str, Any] | None = None,
    **asked: Any,
) -> Run:
    """Store a run with these step times, as `ridgeline run` would."""
    run = deepcopy(MEASURED)
    run["asked"] |= asked
    run["found"]["step_time_s"] = {**asdict(summarise(samples)), "samples": list(samples)}
    run["found"]["samples_per_step"] = run["asked"]["batch_size"]
    run["found"]["samples_processed"] = run["asked"]["batch_size"] * len(samples)
    run["found"]["iters"] = len(samples)
    run["found"] |= {"split_s": {"forward": {"median": 0.0, "samples": [s / 4 for s in samples]},
                                 "backward": {"median": 0.0, "samples": [s / 2 for s in samples]}},
                     "layers": None if layers is None else {"sum_s": 0.1}, "warnings": [],
                     "precision": run["asked"]["precision"]}  # fmt: skip
    run["found"] |= found or {}
    run["provenance"] |= provenance or {}
    return write_run(
        results,
        label=asked.get("label") or "run",
        asked=run["asked"],
        found=run["found"],
        provenance=run["provenance"],
        tables={} if layers is None else {"layers": layers},
    )


def layer_table(**layers: tuple[Sequence[float], Sequence[float]]) -> pd.DataFrame:
    """A row per layer, from the samples of its forward and backward pass."""
    return pd.DataFrame(
        [
            {"layer": name, "time_s": sum(forward[:1]) + sum(backward[:1]),
             "forward_samples_s": list(forward), "backward_samples_s": list(backward)}
            for name, (forward, backward) in layers.items()
        ]
    )  # fmt: skip

"""Time, memory and size of the report for thousands of runs and kernels."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fresh import call, peak_bytes
from benchmarks.report import Report, Table
from ridgeline.store import ResultsFolder
from ridgeline.units import format_bytes, format_time

DATA = Path(__file__).parents[1] / "tests" / "data"
RUNS = (250, 500, 1000, 2000)
KERNELS = (25_000, 50_000, 100_000, 200_000)
MODELS = tuple(f"{family}_{n}" for n in range(13) for family in ("resnet", "vgg", "vit", "swin"))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MANNERS: tuple[dict[str, bool], ...] = (  # that share a count
    {},
    {"channels_last": True},
    {"cudnn_benchmark": True},
    {"channels_last": True, "cudnn_benchmark": True},
)
LAYERS = [f"layer{n // 10}.{n % 10}" for n in range(50)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One report."""

    amount: int
    read_s: float
    page_s: float
    markdown_s: float
    page_bytes: int
    markdown_bytes: int
    peak_bytes: int

    @property
    def total_s(self) -> float:
        return self.read_s + self.page_s + self.markdown_s


def run() -> Report:
    """Reports of growing folders, each in a process of its own."""
    runs = [_made(amount, "runs") for amount in RUNS]
    kernels = [_made(amount, "kernels") for amount in KERNELS]
    return Report(
        title="How the report grows",
        summary=[_verdict(runs, "runs"), _verdict(kernels, "kernels of one run")],
        tables=[_table("Runs", runs), _table("Kernels", kernels)],
        notes=[
            "Runs: a recorded run of an H200 as if it were of other networks, batch sizes and"
            f" settings. Each is a configuration of its own, with {len(LAYERS)} timed layers and a"
            f" count that up to {len(MANNERS)} runs share. Kernels: the recorded kernels of a"
            " ResNet-50 training step, repeated with other times. Reading, the page and report.md"
            " are timed apart; figures are not made here. Memory is the highest resident set of the"
            " process, with all libraries.",
        ],
    )


def _made(amount: int, what: str) -> Made:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "results"
        {"runs": _store_runs, "kernels": _store_kernels}[what](ResultsFolder(folder), amount)
        found = call("benchmarks.report_scale:report", folder=str(folder))
    if "error" in found:
        raise RuntimeError(f"{amount} {what}: {found['error']}")
    print(f"{amount} {what}: {found}", file=sys.stderr)
    return Made(amount=amount, **found)


def report(folder: str) -> dict[str, Any]:
    """Read a folder and write its report; what that took."""
    from ridgeline.report.markdown import write_report_md
    from ridgeline.report.page import write_page
    from ridgeline.report.study import read_study

    start_s = perf_counter()
    study = read_study(ResultsFolder(Path(folder)))
    read_s = perf_counter()
    page = write_page(study, Path(folder) / "report.html")
    page_s = perf_counter()
    text = write_report_md(study, Path(folder) / "report.md", [])
    end_s = perf_counter()
    return {
        "read_s": read_s - start_s,
        "page_s": page_s - read_s,
        "markdown_s": end_s - page_s,
        "page_bytes": page.stat().st_size,
        "markdown_bytes": text.stat().st_size,
        "peak_bytes": peak_bytes(),
    }


def _store_runs(results: ResultsFolder, amount: int) -> None:
    """Runs that are all configurations of their own."""
    recorded = _recorded(results)
    layers = _timed_layers(recorded["found"]["step_time_s"]["median"])
    found = {**recorded["found"], "layers": {"clock": "device events", "difference": 0.0}}
    for one in _configurations(amount):
        asked = {**recorded["asked"], **one}
        results.save_run(label=f"run-{asked['model']}", request=asked, result=found,
                          provenance=recorded["provenance"],
                          tables={"layers": layers})  # fmt: skip
    counted = {(one["model"], one["batch_size"]) for one in _configurations(amount)}
    for model, batch in sorted(counted):
        _store_count(results, {**recorded["asked"], "model": model, "batch_size": batch})


def _configurations(amount: int) -> Iterator[dict[str, Any]]:
    """The first of all combinations, none of them twice."""
    every = product(BATCHES, MODELS, MANNERS)
    for batch, model, manner in islice(every, amount):
        yield {"model": model, "batch_size": batch, **manner}


def _timed_layers(step_s: float) -> pd.DataFrame:
    """As long as the step, the later ones longer."""
    weights = np.arange(1, len(LAYERS) + 1)
    times = step_s * weights / weights.sum()
    return pd.DataFrame({"layer": LAYERS, "kind": "Conv2d", "input_shape": "64x64x8x8",
                         "time_s": times, "forward_s": times / 3,
                         "backward_s": 2 * times / 3})  # fmt: skip


def _store_kernels(results: ResultsFolder, amount: int) -> None:
    recorded = _recorded(results)
    few = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")
    table = few.iloc[np.arange(amount) % len(few)].reset_index(drop=True)
    spread = np.random.default_rng(0).lognormal(0, 0.3, amount)
    table["time_s"] = table["time_s"] * spread / 100
    results.save_run(label="run-resnet50", request=recorded["asked"], result=recorded["found"],
                      provenance=recorded["provenance"], tables={"kernels": table})  # fmt: skip
    _store_count(results, recorded["asked"])


def _recorded(results: ResultsFolder) -> dict[str, Any]:
    """A passport into the folder, and a run to be stored."""
    machines = results.path / "machines"
    machines.mkdir(parents=True)
    passport = (DATA / "passport-h200.json").read_text(encoding="utf-8")
    (machines / "nvidia-h200.json").write_text(passport, encoding="utf-8")
    content: dict[str, Any] = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    return content


def _store_count(results: ResultsFolder, asked: dict[str, Any]) -> None:
    """A step of a hundred operators."""
    rows = [
        (layer, "aten::convolution", "conv", phase, "fp32", "64x64", 10**10, 0, 2 * 10**10, 10**8,
         10**8)
        for layer in LAYERS
        for phase in ("forward", "weight-grad")
    ]  # fmt: skip
    columns = ["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
               "flops", "read_bytes", "written_bytes"]  # fmt: skip
    question = {**asked, "command": "count", "precision": "tf32"}
    found = {"flops": 2 * 10**12, "macs": 10**12, "read_bytes": 10**10, "written_bytes": 10**10}
    results.save_run(label="count", request=question, result=found, provenance={},
                      tables={"ops": pd.DataFrame(rows, columns=columns)})  # fmt: skip


def _verdict(made: list[Made], what: str) -> str:
    first, last = made[0], made[-1]
    times, more = last.total_s / first.total_s, last.amount / first.amount
    size = last.page_bytes / first.page_bytes
    linear = "no faster than linearly" if max(times, size) <= more * 1.1 else "FASTER than linearly"
    return (
        f"{last.amount:,} {what}: {format_time(last.total_s)}, a page of"
        f" {format_bytes(last.page_bytes)}. {more:.0f} times as many take {times:.1f} times as long"
        f" and {size:.1f} times the size: it grows {linear}."
    )


def _table(title: str, made: list[Made]) -> Table:
    return Table(
        title=title,
        columns=["amount", "read and join", "page", "report.md", "all", "per unit", "page's size",
                 "report.md's size", "peak memory"],
        rows=[
            [
                f"{one.amount:,}",
                format_time(one.read_s),
                format_time(one.page_s),
                format_time(one.markdown_s),
                format_time(one.total_s),
                format_time(one.total_s / one.amount),
                format_bytes(one.page_bytes),
                format_bytes(one.markdown_bytes),
                format_bytes(one.peak_bytes),
            ]
            for one in made
        ],
    )  # fmt: skip

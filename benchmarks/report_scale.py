"""Time, memory and size of the report for thousands of runs and kernels."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
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
MODELS = ("resnet50", "vgg16", "mobilenet_v2", "vit_b_16")
BATCHES = (8, 16, 32, 64, 128)


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
            "Runs: a recorded run of an H200 under other names and batch sizes, with a count of"
            " their steps. Kernels: the recorded kernels of a ResNet-50 training step, repeated"
            " with other times. Reading, the page and report.md are timed apart; figures are not"
            " made here. Memory is the highest resident set of the process, with all libraries.",
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
    recorded = _recorded(results)
    for number in range(amount):
        model = MODELS[number % len(MODELS)]
        batch = BATCHES[number // len(MODELS) % len(BATCHES)]
        asked = {**recorded["asked"], "model": model, "batch_size": batch, "repeat": number}
        results.write_run(label=f"run-{model}-bs{batch}", asked=asked, found=recorded["found"],
                          provenance=recorded["provenance"])  # fmt: skip
    for model in MODELS:
        for batch in BATCHES:
            _store_count(results, {**recorded["asked"], "model": model, "batch_size": batch})


def _store_kernels(results: ResultsFolder, amount: int) -> None:
    recorded = _recorded(results)
    few = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")
    table = few.iloc[np.arange(amount) % len(few)].reset_index(drop=True)
    spread = np.random.default_rng(0).lognormal(0, 0.3, amount)
    table["time_s"] = table["time_s"] * spread / 100
    results.write_run(label="run-resnet50", asked=recorded["asked"], found=recorded["found"],
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
        (f"layer{n // 10}.{n % 10}", "aten::convolution", "conv", phase, "fp32", "64x64", 10**10, 0,
         2 * 10**10, 10**8, 10**8)
        for n in range(50)
        for phase in ("forward", "weight-grad")
    ]  # fmt: skip
    columns = ["path", "op", "kind", "phase", "dtype", "input_shapes", "macs", "other_flops",
               "flops", "read_bytes", "written_bytes"]  # fmt: skip
    question = {**asked, "command": "count", "precision": "tf32"}
    found = {"flops": 2 * 10**12, "macs": 10**12, "read_bytes": 10**10, "written_bytes": 10**10}
    results.write_run(label="count", asked=question, found=found, provenance={},
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

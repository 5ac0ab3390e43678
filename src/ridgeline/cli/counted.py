"""The work behind `ridgeline count`: count everything that was asked, then show and keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.cli import INTERRUPTED, counted_files, files, show
from ridgeline.cli.progress import progress_bar
from ridgeline.cli.render_onnx_comparison import check_same_macs
from ridgeline.count.capacity import max_batch
from ridgeline.count.growth import BATCHES, SIZES_TRIED, Growth
from ridgeline.count.growth import growth as find_growth
from ridgeline.count.result import CountResult
from ridgeline.count.settings import Settings
from ridgeline.errors import RidgelineError
from ridgeline.onnx.compare import OnnxComparison, compare_with_onnx
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.sources import is_onnx
from ridgeline.workloads.sources import workload_spec as spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, parsed."""

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    mode: str
    precision: str
    optimizer: str
    input_size: tuple[int, ...] | None
    seq_len: int | None
    config: dict[str, Any]
    causal: str
    depth: int | None
    formulas: bool
    growth: bool
    limit_bytes: int | None
    compare_onnx: Path | None
    form: str
    table: str
    outputs: tuple[Path, ...]
    output_dir: Path | None
    results: Path | None
    quiet: bool
    batch_given: bool = True
    dims: dict[str, int] = field(default_factory=dict)

    def spec(self, model: str, batch_size: int = 1) -> WorkloadSpec:
        return spec(model, batch_size, self.input_size, self.seq_len, self.config)

    @property
    def settings(self) -> Settings:
        return Settings(
            mode=self.mode, precision=self.precision, optimizer=self.optimizer, causal=self.causal
        )


@dataclass(slots=True)
class Counted:
    """What has been counted so far."""

    results: list[CountResult] = field(default_factory=list)
    growths: dict[str, Growth] = field(default_factory=dict)
    max_batches: dict[str, int] = field(default_factory=dict)
    comparisons: list[OnnxComparison] = field(default_factory=list)
    errors: list[tuple[str, RidgelineError]] = field(default_factory=list)


def check(asked: Asked) -> None:
    """Refuse what cannot be counted before any work."""
    _ = asked.settings  # refuses an unknown mode, precision or optimizer
    counted_files.check_comparison(asked)
    counted_files.check_options(asked)


def run(asked: Asked) -> None:
    """Count, show, keep. What was counted is shown even if a later model fails."""
    counted = Counted()
    interrupted = False
    try:
        _count_all(asked, counted)
    except KeyboardInterrupt:
        interrupted = True
    _answer(asked, counted)
    if interrupted:
        above = "; what was counted until then is above" if counted.results else ""
        print(f"ridgeline: interrupted{above}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if counted.errors:
        _raise_errors(counted.errors)
    for comparison in counted.comparisons:
        check_same_macs(comparison)


def _answer(asked: Asked, counted: Counted) -> None:
    """A table of nothing is none; JSON is there always, with the errors in it."""
    if not counted.results and asked.form != "json":
        return
    try:
        show.show(asked, counted)
    finally:  # files are written even if nobody reads what is printed: `… -o FILE | head`
        if counted.results:
            files.keep(asked, counted)


def _raise_errors(errors: list[tuple[str, RidgelineError]]) -> None:
    """The last error ends the command; those before it are printed."""
    *earlier, (_, last) = errors
    for _, error in earlier:
        print(f"ridgeline: {error}", file=sys.stderr)
    raise last


def _count_all(asked: Asked, counted: Counted) -> None:
    with progress_bar(_steps(asked), quiet=asked.quiet, first="importing") as step:
        for model in asked.models:
            try:
                _count_model(asked, counted, model, step)
            except RidgelineError as error:
                counted.errors.append((model, error))


def _steps(asked: Asked) -> int:
    each = len(asked.batch_sizes) + (len(BATCHES) + SIZES_TRIED if asked.growth else 0)
    return each * len(asked.models)


def _count_model(asked: Asked, counted: Counted, model: str, step: Callable[[str], None]) -> None:
    for batch_size in asked.batch_sizes:
        step(f"{model}, batch {batch_size}")
        result = _count(asked, model, batch_size)
        counted.results.append(result)
        if asked.compare_onnx is not None:
            _compare_with_onnx(asked, counted, model, result)
    if asked.growth:
        spec = asked.spec(model)
        counted.growths[model] = find_growth(
            spec, asked.settings, progress=lambda: step(f"{model}, growth")
        )
    if asked.limit_bytes is not None:
        counted.max_batches[model] = _max_batch(asked, model, step)


def _count(asked: Asked, model: str, batch_size: int) -> CountResult:
    if is_onnx(model):
        return counted_files.count_file(asked, model, batch_size)
    from ridgeline.measure.worker import torch_needed

    with torch_needed():
        from ridgeline.count.counting import count_workload
    return count_workload(asked.spec(model, batch_size), asked.settings)


def _compare_with_onnx(asked: Asked, counted: Counted, model: str, result: CountResult) -> None:
    """The ONNX file of the model, at the same sizes, and how it differs."""
    assert asked.compare_onnx is not None
    spec = asked.spec(model, result.batch_size)
    onnx, comparison = compare_with_onnx(result, asked.compare_onnx, spec=spec, dims=asked.dims)
    counted.results.append(onnx)
    counted.comparisons.append(comparison)


def _max_batch(asked: Asked, model: str, step: Callable[[str], None]) -> int:
    def peak_bytes(batch_size: int) -> int:
        step(f"{model}, does batch {batch_size} fit?")
        return _count(asked, model, batch_size).memory.peak_bytes

    return max_batch(peak_bytes, asked.limit_bytes or 0)

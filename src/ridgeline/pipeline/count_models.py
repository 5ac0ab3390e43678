"""`ridgeline count`: every model at every batch size, how it grows, and what fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.count.capacity import max_batch
from ridgeline.count.growth import BATCHES, SIZES_TRIED, Growth
from ridgeline.count.growth import growth as find_growth
from ridgeline.count.result import CountResult
from ridgeline.count.settings import Settings
from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import torch_needed
from ridgeline.onnx.compare import SEQUENCE, OnnxComparison, check_comparable, compare_with_onnx
from ridgeline.records import CountRequest, WorkloadSpec
from ridgeline.store import ResultsFolder
from ridgeline.workloads.sources import file_digest, is_onnx

OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """What to count, at which sizes, and what else to find out."""

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...] | None = None  # None: 1, and what an ONNX file says
    mode: str = "infer"
    precision: str = "fp32"
    optimizer: str = "sgd"
    causal: str = "full"
    input_size: tuple[int, ...] | None = None
    seq_len: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)  # of ONNX files
    growth: bool = False
    limit_bytes: int | None = None  # find the largest batch within it
    compare_onnx: Path | None = None

    @property
    def steps(self) -> int:
        """Counts that are certain to be made."""
        of_growth = len(BATCHES) + SIZES_TRIED if self.growth else 0
        return len(self.models) * (len(self.batch_sizes or (1,)) + of_growth)

    @property
    def settings(self) -> Settings:
        return Settings(
            mode=self.mode, precision=self.precision, optimizer=self.optimizer, causal=self.causal
        )

    def spec(self, model: str, batch_size: int = 1) -> WorkloadSpec:
        return WorkloadSpec(
            model=model,
            batch_size=batch_size,
            input_size=self.input_size,
            seq_len=self.seq_len,
            config=self.config,
        )


@dataclass(slots=True)
class CountOutcome:
    """Everything that was counted, also if a model failed or Ctrl-C came."""

    results: list[CountResult] = field(default_factory=list)
    growths: dict[str, Growth] = field(default_factory=dict)
    max_batches: dict[str, int] = field(default_factory=dict)
    comparisons: list[OnnxComparison] = field(default_factory=list)
    errors: list[tuple[str, RidgelineError]] = field(default_factory=list)
    is_interrupted: bool = False


def import_counting(models: tuple[str, ...]) -> None:
    """Import torch, which takes seconds, unless all models are ONNX files."""
    if not all(map(is_onnx, models)):
        with torch_needed():
            import ridgeline.count.counting  # noqa: F401


def check_options(options: CountOptions) -> None:
    """Refuse what cannot be counted before any work."""
    if not options.models:
        raise RidgelineError(
            "no model was named",
            hint="for example: ridgeline count resnet50; --list shows all names",
        )
    _ = options.settings  # refuses an unknown mode, precision or optimizer
    if options.compare_onnx is not None:
        _check_comparison(options, options.compare_onnx)
    files = [model for model in options.models if is_onnx(model)]
    if files:
        _check_file_options(options, files[0])
    elif options.dims and options.compare_onnx is None:
        raise RidgelineError(
            "--dim is for .onnx files",
            hint="PyTorch models take --batch-size, --input-size and --seq-len",
        )


def _check_comparison(options: CountOptions, file: Path) -> None:
    if len(options.models) != 1 or is_onnx(options.models[0]):
        raise RidgelineError(
            "--compare-onnx compares one PyTorch model with its file",
            hint="for example: ridgeline count resnet50 --compare-onnx resnet50.onnx",
        )
    check_comparable(file, mode=options.mode, precision=options.precision)
    length = options.dims.get(SEQUENCE, options.seq_len)
    if options.seq_len is not None and length != options.seq_len:
        raise RidgelineError(
            f"--seq-len {options.seq_len} and --dim {SEQUENCE}={length} name the same dimension",
            hint="give one of them",
        )


def _check_file_options(options: CountOptions, file: str) -> None:
    """Refuse options that mean nothing for an ONNX file."""
    sizes = "the file has its own; open dimensions are given as --dim NAME=N"
    meaningless = {
        "--input-size": (options.input_size is not None, sizes),
        "--seq-len": (options.seq_len is not None, sizes),
        "--config": (bool(options.config), "a file is as it was exported; export it again"),
        "--precision": (options.precision != "fp32", "a file has the precision it was exported in"),
        "--growth": (options.growth, "count several batches instead: -b 1,2,4"),
    }
    for option, (is_set, hint) in meaningless.items():
        if is_set:
            raise RidgelineError(f"{option} means nothing for {file}", hint=hint)


def count_models(options: CountOptions, on_progress: OnProgress) -> CountOutcome:
    """Count all models; one that fails, or Ctrl-C, leaves what was counted before."""
    outcome = CountOutcome()
    try:
        for model in options.models:
            try:
                _count_model(options, outcome, model, on_progress)
            except RidgelineError as error:
                outcome.errors.append((model, error))
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    return outcome


def _count_model(
    options: CountOptions, outcome: CountOutcome, model: str, on_progress: OnProgress
) -> None:
    for batch_size in options.batch_sizes or (1,):
        on_progress(f"{model}, batch {batch_size}")
        result = _count(options, model, batch_size)
        outcome.results.append(result)
        if options.compare_onnx is not None:
            spec = options.spec(model, result.batch_size)
            onnx, comparison = compare_with_onnx(
                result, options.compare_onnx, spec=spec, dims=options.dims
            )
            outcome.results.append(onnx)
            outcome.comparisons.append(comparison)
    if options.growth:
        outcome.growths[model] = find_growth(
            options.spec(model), options.settings, progress=lambda: on_progress(f"{model}, growth")
        )
    if options.limit_bytes is not None:
        outcome.max_batches[model] = _find_max_batch(options, model, on_progress)


def _count(options: CountOptions, model: str, batch_size: int) -> CountResult:
    if is_onnx(model):
        from ridgeline.onnx import count_onnx

        return count_onnx(
            Path(model),
            batch_size=batch_size if options.batch_sizes else None,
            dims=options.dims,
            mode=options.mode,
            optimizer=options.optimizer,
            causal=options.causal,
        )
    from ridgeline.count.counting import count_workload

    return count_workload(options.spec(model, batch_size), options.settings)


def _find_max_batch(options: CountOptions, model: str, on_progress: OnProgress) -> int:
    def peak_bytes(batch_size: int) -> int:
        on_progress(f"{model}, does batch {batch_size} fit?")
        return _count(options, model, batch_size).memory.peak_bytes

    return max_batch(peak_bytes, options.limit_bytes or 0)


def save_counts(options: CountOptions, outcome: CountOutcome, folder: Path) -> list[Path]:
    """Store each count as a run, with what it takes to count the same again."""
    from ridgeline.provenance import collect

    store = ResultsFolder(folder)
    made = collect()
    paths = []
    for result in outcome.results:
        request = CountRequest(
            model=result.model,
            batch_size=result.batch_size,
            mode=result.mode,
            precision=result.precision,
            optimizer=result.optimizer,
            digest=file_digest(result.model),
            input_size=options.input_size,
            seq_len=options.seq_len,
            config=options.config,
            causal=options.causal,
        )
        run_id = store.save_run(
            f"count-{result.model}-bs{result.batch_size}",
            request,
            {"provenance": "static", **result.to_dict()},
            made,
            tables={"ops": result.ops, "layers": result.layers()},
        )
        paths.append(store.runs_path / run_id)
    return paths

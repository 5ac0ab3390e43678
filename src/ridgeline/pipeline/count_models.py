"""Counts: of `ridgeline count`, of runs that nobody counted yet, and to choose a batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.count.capacity import max_batch
from ridgeline.count.growth import BATCHES, SIZES_TRIED, Growth
from ridgeline.count.growth import growth as find_growth
from ridgeline.count.records import Settings
from ridgeline.count.result import CountResult
from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.measure.isolation import Work
from ridgeline.measure.worker import ignore_message, torch_needed
from ridgeline.onnx.compare import OnnxComparison, check_comparable, compare_with_onnx
from ridgeline.pipeline.cases import Selection
from ridgeline.records import CountRequest, RunRequest, WorkloadSpec
from ridgeline.store import MeasuredRun, ResultsFolder, run_label
from ridgeline.workloads.sources import file_digest, is_file, is_onnx, resolve
from ridgeline.workloads.workload import size_text

if TYPE_CHECKING:
    from ridgeline.measure.backends import Backend

OnProgress = Callable[[str], None]
Counter = Callable[[WorkloadSpec, Settings], CountResult]
LARGEST = {"cpu": 8, "cuda": 64, "mps": 32}  # a processor is full with few samples
LONGEST_STEP_S = 0.5  # at the roof; real steps take longer
SAFE_SHARE = 0.7  # of the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """What `ridgeline count` counts, at which sizes, and what else it finds out."""

    models: tuple[str, ...]
    batch_sizes: tuple[int, ...] | None = None  # None: 1, and what an ONNX file says
    mode: str = "infer"
    precision: str = "fp32"
    optimizer: str = "sgd"
    causal: str = "full"
    input_sizes: tuple[tuple[int, ...] | None, ...] = (None,)
    seq_len: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)  # of ONNX files
    growth: bool = False
    limit_bytes: int | None = None  # find the largest batch within it
    compare_onnx: Path | None = None
    table: str = "layers"  # what is shown: layers or ops
    depth: int | None = None  # of the layers
    formulas: bool = False

    @property
    def breaks_down(self) -> bool:
        """Whether the phases, memory and layers of each of several counts are asked for."""
        return self.depth is not None or self.formulas or self.table == "ops"

    @property
    def steps(self) -> int:
        """Counts that are certain to be made."""
        of_growth = len(BATCHES) + SIZES_TRIED if self.growth else 0
        of_a_size = len(self.batch_sizes or (1,)) + of_growth
        return len(self.models) * len(self.input_sizes) * of_a_size

    @property
    def settings(self) -> Settings:
        return Settings(
            mode=self.mode, precision=self.precision, optimizer=self.optimizer, causal=self.causal
        )

    def spec(self, model: str, batch_size: int = 1) -> WorkloadSpec:
        return WorkloadSpec(
            model=model,
            batch_size=batch_size,
            input_size=self.input_sizes[0],
            seq_len=self.seq_len,
            config=self.config,
        )

    def without(self, size: str) -> CountOptions:
        """The same without one size: a field of a WorkloadSpec, or a dimension of a file."""
        if size in self.dims:
            return replace(self, dims={name: n for name, n in self.dims.items() if name != size})
        return replace(self, **{"input_sizes": (None,)} if size == "input_size" else {size: None})


@dataclass(slots=True)
class CountOutcome:
    """Everything that was counted, also if a model failed or Ctrl-C came."""

    results: list[CountResult] = field(default_factory=list)
    specs: list[WorkloadSpec] = field(default_factory=list)  # of the results
    missing: dict[str, dict[str, RidgelineError]] = field(default_factory=dict)  # size → model
    notes: list[str] = field(default_factory=list)
    growths: dict[str, Growth] = field(default_factory=dict)
    max_batches: dict[str, int] = field(default_factory=dict)
    comparisons: list[OnnxComparison] = field(default_factory=list)
    errors: list[tuple[str, RidgelineError]] = field(default_factory=list)


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
    files = [model for model in options.models if is_onnx(model)]
    if options.compare_onnx is not None:
        if len(options.models) != 1 or files:
            raise RidgelineError(
                "--compare-onnx compares one PyTorch model with its file",
                hint="for example: ridgeline count resnet50 --compare-onnx resnet50.onnx",
            )
        check_comparable(options.compare_onnx, mode=options.mode, precision=options.precision)
    elif options.dims and not files:
        raise RidgelineError(
            "--dim is for .onnx files",
            hint="PyTorch models take --batch-size, --input-size and --seq-len",
        )
    only_files = len(files) == len(options.models)
    meaningless = {
        "--input-size": only_files and options.input_sizes != (None,),
        "--seq-len": only_files and options.seq_len is not None,
        "--config": bool(options.config),
        "--precision": options.precision != "fp32",
        "--growth": options.growth,
    }
    for name in (name for name, is_set in meaningless.items() if files and is_set):
        raise RidgelineError(
            f"{name} means nothing for {files[0]}",
            hint="a file is as it was exported; its open dimensions are given as --dim NAME=N",
        )


def count_models(options: CountOptions, outcome: CountOutcome, on_progress: OnProgress) -> None:
    """Count all models; one that fails, or Ctrl-C, leaves in `outcome` what was counted before."""
    several = len(options.input_sizes) > 1
    for model in options.models:
        try:
            for size in options.input_sizes:
                one = _fit_sizes(replace(options, input_sizes=(size,)), outcome, model)
                _count_sizes(one, outcome, model, on_progress, several=several)
                if one.input_sizes != (size,):  # the model has no such size
                    break
        except RidgelineError as error:
            outcome.errors.append((model, error))
    for missing_size, errors in outcome.missing.items():
        is_named = missing_size in options.dims  # of an ONNX file alone
        users = [m for m in options.models if is_onnx(m) or not is_named]
        if len(errors) == len(set(users)):  # nobody has it
            outcome.errors.append(next(iter(errors.items())))
        else:
            for name, missing in errors.items():
                of_file = "" if name in missing.problem else f"{name}: "
                outcome.notes.append(f"{of_file}{missing.problem}: it is left out there")


def _fit_sizes(options: CountOptions, outcome: CountOutcome, model: str) -> CountOptions:
    """Without sizes that the model does not have, if they may be for others."""
    if len(options.models) == 1:
        return options
    try:
        if is_onnx(model) and options.dims:
            count_one(options, model, 1)
        elif not is_onnx(model):
            resolve(options.spec(model))
    except MissingSizeError as error:
        outcome.missing.setdefault(error.name, {})[model] = error
        return _fit_sizes(options.without(error.name), outcome, model)
    return options


def _count_sizes(
    options: CountOptions,
    outcome: CountOutcome,
    model: str,
    on_progress: OnProgress,
    *,
    several: bool,
) -> None:
    """Count one model at one input size."""
    size = options.input_sizes[0]
    name = f"{model}, input {size_text(size)}" if several and size else model
    for batch_size in options.batch_sizes or (1,):
        on_progress(f"{name}, batch {batch_size}")
        result = count_one(options, model, batch_size)
        outcome.results.append(result)
        outcome.specs.append(options.spec(result.model, result.batch_size))
        if options.compare_onnx is not None:
            spec = options.spec(model, result.batch_size)
            onnx, comparison = compare_with_onnx(
                result, options.compare_onnx, spec=spec, dims=options.dims
            )
            outcome.results.append(onnx)
            outcome.specs.append(options.spec(onnx.model, onnx.batch_size))
            outcome.comparisons.append(comparison)
    if options.growth:
        outcome.growths[name] = find_growth(
            options.spec(model), options.settings, progress=lambda: on_progress(f"{name}, growth")
        )

    def peak_bytes(batch_size: int) -> int:
        on_progress(f"{name}, does batch {batch_size} fit?")
        return count_one(options, model, batch_size).memory.peak_bytes

    if options.limit_bytes is not None:
        outcome.max_batches[name] = max_batch(peak_bytes, options.limit_bytes)


def count_one(options: CountOptions, model: str, batch_size: int) -> CountResult:
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


def save_counts(options: CountOptions, outcome: CountOutcome, folder: Path) -> list[Path]:
    """Store each count as a run, with what it takes to count the same again."""
    results = ResultsFolder(folder)
    paths = []
    for spec, result in zip(outcome.specs, outcome.results, strict=True):
        request = CountRequest(
            **vars(spec),
            digest=file_digest(result.model),
            causal=options.causal,
        )
        run_id = _save_count(results, request, result)
        paths.append(results.runs_path / run_id)
    return paths


def _save_count(results: ResultsFolder, request: CountRequest, result: CountResult) -> str:
    from ridgeline.provenance import collect

    return results.save_run(
        run_label("count", request.model, request.batch_size),
        replace(request, mode=result.mode, precision=result.precision, optimizer=result.optimizer),
        {"provenance": "static", **result.to_dict()},
        collect(),
        tables={"ops": result.ops, "layers": result.layers()},
    )


# ---------------------------------------------------------------- of runs that are stored


def count_missing(
    results: ResultsFolder,
    run_ids: Sequence[str] | None = None,
    on_progress: OnProgress = ignore_message,
    *,
    with_files: bool = False,
) -> tuple[int, list[str]]:
    """Count what runs did and nobody has counted; how many, and what went wrong.

    Counting a network from a Python file runs that file, and a results folder may be somebody
    else's: that is done only if asked for, and if the file is still the one that was run.
    """
    from ridgeline.report.stored import uncounted

    problems: list[str] = []
    done = 0
    for run in uncounted(results.index(), run_ids):
        request = run.request
        on_progress(f"{request.model}, batch {request.batch_size}")
        try:
            check_countable(run, with_files=with_files)
            needed = CountRequest(
                **vars(request.workload),
                digest=request.digest,
                precision=run.result.precision,
                optimizer=request.optimizer,
            )
            count_request(results, needed)
            done += 1
        except RidgelineError as error:
            problems.append(f"{request.model} was not counted: {error.problem}")
    return done, list(dict.fromkeys(problems))


def count_run_task(task: tuple[Path, str], send: OnProgress) -> list[str]:
    """Count what one run did, in a process of its own; what went wrong."""
    results, run_id = task
    return count_missing(ResultsFolder(results), [run_id], with_files=True)[1]


def check_countable(run: MeasuredRun, *, with_files: bool) -> None:
    """Refuse a run whose model is left alone."""
    model, reason = run.request.model, ""
    if run.result.source == "object":
        reason = "it was a module of a Python program, which ridgeline.analyze counts"
    elif is_file(model) and not with_files:
        reason = "that would run its file; --count does, if you trust this folder"
    elif is_file(model) and file_digest(model) != run.request.digest:
        reason = "its file has changed since it was run, or is not here"
    if reason:
        raise RidgelineError(reason, hint="")


def count_settings(request: CountRequest | RunRequest, precision: str | None = None) -> Settings:
    """How the step of a request is counted, perhaps in the precision that was used."""
    return Settings(
        mode=request.mode,
        precision=precision or request.precision,
        optimizer=request.optimizer or "sgd",
    )


def count_request(
    results: ResultsFolder, request: CountRequest, counter: Counter | None = None
) -> None:
    """Count one configuration and store it."""
    from ridgeline.count.counting import count_workload

    result = (counter or count_workload)(request.workload, count_settings(request))
    _save_count(results, request, result)


# ---------------------------------------------------------------- before an analysis runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleWork:
    """A module of the calling program: how it is counted and measured in this process."""

    digest: str
    counter: Counter
    measure: Work[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAnswer:
    """The batches of each model, and what went wrong with counting."""

    batch_sizes: dict[str, tuple[int, ...]]
    counted: int
    problems: tuple[str, ...]


def count_task(
    folder: Path,
    send: OnProgress,
    *,
    selection: Selection,
    machine: str | None = None,
    is_quick: bool = False,
    module: ModuleWork | None = None,
) -> CountAnswer:
    """Choose batch sizes where none is named, count every configuration and store it.

    `machine` is the passport of this machine; `module` is what is counted instead of names.
    """
    from ridgeline.measure.backends import choose_backend, choose_precision
    from ridgeline.report.stored import count_key, stored_counts

    first = selection.settings[0]
    backend = choose_backend(first.backend, first.device)
    used = sorted({choose_precision(one.precision, backend).used for one in selection.settings})
    results = ResultsFolder(folder)
    known = set(stored_counts(results.index()))
    chosen: dict[str, tuple[int, ...]] = {}
    problems: list[str] = []
    counted = 0
    for spec in selection.specs():
        chosen[spec.model] = selection.batch_sizes or (1,)
        digest = module.digest if module else file_digest(spec.model)
        request = CountRequest(**vars(spec), digest=digest, optimizer=first.optimizer)

        try:
            if not selection.batch_sizes:
                limits = read_limits(results, machine, backend, first.device)
                batch = choose_batch(partial(_find_need, request), backend.kind, *limits)
                chosen[spec.model] = (batch,) if is_quick or batch < 4 else (batch // 4, batch)
            for batch_size, precision in product(chosen[spec.model], used):
                send(f"{spec.model}, batch {batch_size}")
                sized = replace(request, batch_size=batch_size, precision=precision)
                if (key := count_key(sized, precision)) not in known:
                    count_request(results, sized, module.counter if module else None)
                    known.add(key)
                    counted += 1
        except RidgelineError as error:
            problems.append(f"{spec.model} was not counted: {error.problem}")
    return CountAnswer(batch_sizes=chosen, counted=counted, problems=tuple(problems))


def _find_need(request: CountRequest, batch_size: int) -> tuple[float, float]:
    """The FLOPs and the peak bytes of a step of this batch."""
    from ridgeline.count.counting import count_workload

    sized = replace(request.workload, batch_size=batch_size)
    result = count_workload(sized, count_settings(request))
    return result.total.flops, result.memory.peak_bytes


def choose_batch(
    need: Callable[[int], tuple[float, float]],
    kind: str,
    flops_per_s: float | None,
    memory_bytes: float | None,
) -> int:
    """The largest power of two whose step fits the memory and does not take too long.

    `need` has the FLOPs and the peak bytes of a step of a batch.
    """
    batch = LARGEST.get(kind, 8)
    while batch > 1:
        flops, peak_bytes = need(batch)
        fits = memory_bytes is None or peak_bytes <= SAFE_SHARE * memory_bytes
        is_short = flops_per_s is None or flops / flops_per_s <= LONGEST_STEP_S
        if fits and is_short:
            break
        batch //= 2
    return batch


def read_limits(
    results: ResultsFolder, machine: str | None, backend: Backend, number: int
) -> tuple[float | None, float | None]:
    """FLOP/s in fp32 and memory of a device, as far as this machine's passport tells."""
    import psutil

    from ridgeline.machine.passport import Passports
    from ridgeline.roofline.roofs import measured_roofs

    memory = float(psutil.virtual_memory().available) if backend.kind == "cpu" else None
    if machine is None:
        return None, memory
    device = f"cuda:{number}" if backend.kind == "cuda" else backend.kind
    passport = Passports(results.path).read(machine)
    gpu = passport.description.find_gpu(device)
    size = gpu.memory_bytes if gpu else None
    peak = measured_roofs(passport, device).peak("fp32", "matrix")
    return peak, memory or (float(size) if size else None)

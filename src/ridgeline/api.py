"""The public functions. Each imports what is heavy, such as torch, when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.settings import DEFAULT_BATCH, Settings, as_arguments
from ridgeline.store import DEFAULT_RESULTS, ResultsFolder
from ridgeline.units import parse_bytes
from ridgeline.workloads.sources import is_onnx, workload_spec

if TYPE_CHECKING:
    from ridgeline.captures.capture import Capture
    from ridgeline.count.growth import Growth
    from ridgeline.count.result import CountResult
    from ridgeline.measure.result import MeasureResult
    from ridgeline.onnx.export import Exported
    from ridgeline.pipeline.analyze import AnalyzeResult
    from ridgeline.pipeline.cases import Selection
    from ridgeline.pipeline.predict import Predictions
    from ridgeline.profile.profiling import ProfileResult
    from ridgeline.report.comparison import Comparison
    from ridgeline.report.convolutions import Convolutions
    from ridgeline.report.study import Study
    from ridgeline.sweep.status import StageStatus

CostFunction = Callable[[Any], Any]  # OpCall → Cost or Work
InputSize = int | Sequence[int] | None
Config = Mapping[str, Any] | None
Loss = Callable[[Any], Any] | None  # of a module's output


@contextmanager
def _errors_name_arguments() -> Iterator[None]:
    """Errors name arguments where those of the command line name options."""
    try:
        yield
    except RidgelineError as error:
        raise RidgelineError(as_arguments(error.problem), hint=as_arguments(error.hint)) from error


def count(
    model: Any, inputs: Any = None, *, mode: str = "infer", precision: str = "fp32",
    optimizer: str = "sgd", optimizer_options: Mapping[str, Any] | None = None,
    batch_size: int | None = None, input_size: InputSize = None, seq_len: int | None = None,
    config: Config = None, dims: Mapping[str, int] | None = None, loss: Loss = None,
    causal: str = "full",
) -> CountResult:  # fmt: skip
    """Count what one step of a model must do, without running any arithmetic.

    `model` is a name (`"resnet50"`, `"timm:…"`, `"net.py:make"`), a module, or any function of
    tensors. A module or function needs `inputs`: a tensor, a tuple of arguments, a dictionary
    of keyword arguments, or a shape. A name takes `batch_size`, `input_size`, `seq_len` and
    `config` instead. `loss` turns a module's output into a scalar in train mode; without one,
    backward starts at the outputs. `causal="half"` counts only unmasked pairs of causal
    attention. A name that ends in `.onnx` is a file, with sizes of its open dimensions in `dims`.
    """
    if isinstance(model, str | Path) and is_onnx(model):
        from ridgeline.onnx import count_onnx

        options: dict[str, Any] = {"mode": mode, "optimizer": optimizer, "causal": causal}
        return count_onnx(Path(model), batch_size=batch_size, dims=dims or {}, **options)
    if dims:
        raise RidgelineError("dims are for .onnx files", hint="pass input_size or seq_len instead")
    from ridgeline.count.counting import Settings, count_module, count_workload

    settings = Settings(
        mode=mode, precision=precision, optimizer=optimizer, causal=causal,
        optimizer_options=optimizer_options or {},
    )  # fmt: skip
    if not isinstance(model, str | Path):
        return count_module(model, inputs, settings, loss=loss)
    size = 1 if batch_size is None else batch_size
    return count_workload(workload_spec(str(model), size, input_size, seq_len, config), settings)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """One or several, as people write them."""
    return (value,) if value is None or isinstance(value, str | int) else tuple(value)


@_errors_name_arguments()
def measure(
    model: Any, inputs: Any = None, *, mode: str = "train", batch_size: int | None = None,
    input_size: InputSize = None, seq_len: int | None = None, config: Config = None,
    loss: Loss = None, **settings: Any,
) -> MeasureResult:  # fmt: skip
    """Run a model for a fixed number of steps and measure time, energy and memory.

    `model` is a name, as for `count`, with a `batch_size` (32 if left out); or a module with
    `inputs`, which carry their batch: a tensor, a tuple of arguments or a dictionary of keyword
    arguments. A module is copied first. `settings` are the fields of
    `ridgeline.settings.Settings`: backend, precision, iters, optimizer, layers, energy, …
    """
    from ridgeline.measure.result import measure_module, measure_named

    chosen = _settings("measure", settings)
    if not isinstance(model, str | Path):
        return measure_module(model, inputs, chosen, mode=mode, batch_size=batch_size, loss=loss)
    size = DEFAULT_BATCH if batch_size is None else batch_size
    spec = workload_spec(str(model), size, input_size, seq_len, config, mode=mode)
    return measure_named(spec, chosen)


@_errors_name_arguments()
def analyze(
    model: Any, inputs: Any = None, *, mode: str = "train", batch_size: int | None = None,
    input_size: InputSize = None, seq_len: int | None = None, config: Config = None,
    loss: Loss = None, results: str | Path = "results", quick: bool = False,
    remeasure: bool = False, title: str | None = None, notebook: bool = False, **settings: Any,
) -> AnalyzeResult:  # fmt: skip
    """Tell how fast a model could be here, how fast it is and what holds it back; write the report.

    `model` is a name, with a `batch_size` (chosen if left out, as `ridgeline analyze` does); or any
    module with `inputs`, which carry their batch. The machine is measured once and kept in
    `results`, unless `remeasure`. `settings` are those of `measure`: backend, precision, iters, …
    """
    from ridgeline.pipeline.analyze import Analysis, analyze_in_process, module_work
    from ridgeline.pipeline.cases import CaseRunner, Executor

    chosen = replace(_settings("analyze", settings), layers=True)
    name, size, module = str(model), batch_size, None
    if not isinstance(model, str | Path):
        module, name, size = module_work(model, inputs, mode=mode, batch_size=batch_size, loss=loss)
    selection = _select(
        name, chosen, () if size is None else (size,), mode, input_size, seq_len, config
    )
    runner = CaseRunner(
        results=ResultsFolder(Path(results)), reraises=True,
        executor=Executor(in_process=True, keeps_stdout=True),
    )  # fmt: skip
    return analyze_in_process(
        Analysis(
            selection=selection, runner=runner, is_quick=quick, remeasure=remeasure, title=title,
            notebook=notebook, module=module,
        )
    )  # fmt: skip


@_errors_name_arguments()
def profile(
    model: str, *, mode: str = "train", batch_size: int = DEFAULT_BATCH,
    input_size: InputSize = None, seq_len: int | None = None, config: Config = None,
    results: str | Path = "results", tier: str = "counters", level: str = "dram",
    tool: str = "auto", **settings: Any,
) -> ProfileResult:  # fmt: skip
    """Count what the GPU executes in one step of a model: FLOPs, bytes and time of every kernel.

    The step is measured unwatched first, and what the model must do is counted last; all of it is
    stored in `results`. `settings` are those of `measure`. A step of your own program is counted by
    `ridgeline profile -- python …`, with `ridgeline.profile_step()` around it.
    """
    from ridgeline.pipeline.profile import profile_one

    chosen = _settings("profile", {"backend": "cuda", "energy": False, **settings})
    selection = _select(str(model), chosen, (batch_size,), mode, input_size, seq_len, config)
    options = {"tier": tier, "level": level, "tool": tool}
    return profile_one(selection, ResultsFolder(Path(results)), options)


@_errors_name_arguments()
def load_trained(
    path: str | Path, *, model: str | None = None, image_size: int | None = None
) -> Any:
    """The network that `ridgeline train` saved, with its weights: in eval mode, on the CPU.

    `path` is a checkpoint (`NAME_best.pt`) or weights alone (`NAME_final_weights.pt`). These do not
    say of which network they are: `model` does where the file's name is another, and `image_size`
    where the training had one.
    """
    from ridgeline.pipeline.train_model import load_trained as load

    return load(Path(path), model, image_size)


def profile_step() -> AbstractContextManager[None]:
    """Mark a step of your own loop: `with ridgeline.profile_step(): …`.

    Alone it does nothing. Under `ridgeline profile -- python …` the first three marked steps are
    warm-up, the fourth is looked at, and the program ends.
    """
    from ridgeline.profile.profile_step import profile_step as marked

    return marked()


def roofline(results: str | Path = "results", *, runs: Sequence[str] | None = None) -> Study:
    """What a results folder holds, joined: runs, roofs, points and findings as tables.

    `runs` are ids of runs; all if none is named. Nothing is run and nothing is written.
    """
    from ridgeline.report.study import read_study

    return read_study(ResultsFolder(Path(results)), run_ids=runs)


def report(
    results: str | Path = "results", *, runs: Sequence[str] | None = None,
    title: str | None = None, notebook: bool = False,
) -> Path:  # fmt: skip
    """Write the page, report.md, figures and tables of a results folder; the page's path."""
    from ridgeline.pipeline.outputs import write_points, write_report

    study = roofline(results, runs=runs)
    outputs = write_points(study)
    write_report(study, outputs, title=title, notebook=notebook)
    assert outputs.page is not None
    return outputs.page


def compare(
    a: str, b: str, results: str | Path = "results", *, layers: bool | None = None,
    sweep: str | None = None,
) -> Comparison:  # fmt: skip
    """Two runs, labels, models, commits or folders, with intervals and a test.

    `a` and `b` are what `ridgeline compare` takes; of a `sweep`, two values of a setting:
    `"precision=fp32"` and `"precision=amp"`.
    """
    from ridgeline.report.compare import compare as compare_sides
    from ridgeline.report.compare import compare_values

    if sweep is not None:
        return compare_values(sweep, a, b, results=Path(results), layers=layers)
    return compare_sides(a, b, results=Path(results), layers=layers)


def sweep(
    matrix: Mapping[str, Any] | str | Path, *, results: str | Path = "results",
    stage: str | None = None, executor: str = "local", parallel: int = 1,
    retry_failed: bool = False, set_power: bool = False,
) -> list[StageStatus]:  # fmt: skip
    """Run every combination of a matrix, stage by stage; how far each stage is then.

    `matrix` is a dictionary with the keys of a sweep's YAML file and perhaps a `name`; or such a
    file, a stored sweep or a ready matrix. What is done already is not run again. `set_power`: it
    may change power limits and modes of this machine.
    """
    from ridgeline.sweep.run import open_sweep, run_sweep

    opened = open_sweep(matrix, ResultsFolder(Path(results)))
    return run_sweep(
        opened, stage=stage, executor=executor, parallel=parallel, retry_failed=retry_failed,
        set_power=set_power,
    )  # fmt: skip


def import_capture(
    *files: str | Path,
    label: str | None = None,
    results: str | Path | None = None,
    device: str | None = None,
) -> list[Capture]:
    """Read captures of profilers: Nsight Compute's tables, text and reports, traces, nsys tables.

    Files that tell different things of the same kernels are one capture. With `results`, each is
    also stored there, under `label`. `device` is that of files that do not name one. A capture has
    its kernels as a table, and `warnings`.
    """
    from ridgeline.captures import read_captures
    from ridgeline.captures.capture import store_capture

    captures = read_captures([Path(file) for file in files], device=device)
    if results is not None:
        for capture in captures:
            store_capture(ResultsFolder(Path(results)), capture, label=label)
    return captures


@_errors_name_arguments()
def conv(
    models: str | Sequence[str] = (), *, shapes: Sequence[Sequence[int]] = (),
    batch_size: int | Sequence[int] = 1,
    input_size: int | Sequence[int | Sequence[int]] | None = None,
    algorithm: str | Sequence[str] = "all", mode: str = "infer", layers: str = "",
    engines: bool = False, network: bool = True, again: bool = False,
    results: str | Path = "results", **settings: Any,
) -> Convolutions:  # fmt: skip
    """Measure convolutions under every algorithm, verified against float64, and whole models.

    A shape is n, c, h, w, k, r, s and, as far as they are given, stride, padding, dilation and
    groups. `input_size` is one size or several: 224, or [64, 224], or [(3, 64, 64)]. What is stored
    in `results` is not measured again, unless `again`. The answer has tables: `rows`, `losses`,
    `totals` and `networks`. `settings` are those of `measure`.
    """
    from ridgeline.pipeline.convolutions import ConvSelection, ConvStudy, make_shape

    study = ConvStudy(results=ResultsFolder(Path(results)), selection=ConvSelection(
        models=_as_tuple(models),
        shapes=tuple(make_shape(numbers) for numbers in shapes),
        batch_sizes=_as_tuple(batch_size),
        input_sizes=tuple(size and _as_tuple(size) for size in _as_tuple(input_size)),
        algorithms=_as_tuple(algorithm),
        mode=mode, settings=_settings("conv", settings), layers=layers, engines=engines,
        in_network=network, again=again,
    ))  # fmt: skip
    study.prepare()
    study.run()
    study.check_possible()
    return study.answer()


def _select(
    model: str, settings: Settings, batch_sizes: tuple[int, ...], mode: str, input_size: InputSize,
    seq_len: int | None, config: Config,
) -> Selection:  # fmt: skip
    from ridgeline.pipeline.cases import Selection

    return Selection(
        models=(model,), settings=(settings,), batch_sizes=batch_sizes, mode=mode,
        input_sizes=(None if input_size is None else _as_tuple(input_size),), seq_len=seq_len,
        config=dict(config or {}),
    )  # fmt: skip


def _settings(function: str, options: Mapping[str, Any]) -> Settings:
    unknown = sorted(set(options) - set(Settings.__dataclass_fields__))
    if unknown:
        raise RidgelineError(
            f"{function} takes no {', '.join(unknown)}",
            hint=f"the settings are {', '.join(Settings.__dataclass_fields__)}",
        )
    return Settings(**options)


def export(
    model: Any, path: str | Path, inputs: Any = None, *, batch_size: int = 1,
    input_size: InputSize = None, seq_len: int | None = None, config: Config = None,
    opset: int | None = None, static: bool = False, check: bool = True,
    external_above: int | str = "1GB", force: bool = False,
) -> Exported:  # fmt: skip
    """Write a model as an ONNX file, and check that onnxruntime computes what torch does.

    `model` is a name, or a module with `inputs`, as for `count`. Batch and sequence are left open
    unless `static`; the batch of a module is the first axis of its inputs. Weights of more than
    `external_above` bytes go to a file beside it.
    """
    from ridgeline.onnx.export import ExportSettings, check_packages, destination

    settings = ExportSettings(
        opset=opset, is_static=static, is_checked=check,
        external_above_bytes=parse_bytes(external_above),
    )  # fmt: skip
    check_packages(settings)
    from ridgeline.onnx.export.checked import export_model
    from ridgeline.onnx.export.model_inputs import model_by_name, model_of_module

    if isinstance(model, str | Path):
        spec = workload_spec(str(model), batch_size, input_size, seq_len, config)
        source = model_by_name(spec)
    else:
        source = model_of_module(model, inputs)
    with destination(Path(path), force=force) as place:
        done = export_model(source, settings, place.draft, lambda step: None)
        place.commit()
    return done.at(Path(path))


def predict(
    model: Any, inputs: Any = None, *, batch_size: int | Sequence[int] | None = None,
    on: str | Sequence[str] = (), compile_mode: str | None = None, refine_s: float = 0.0,
    layers: bool = False, results: str | Path = DEFAULT_RESULTS, **counting: Any,
) -> Predictions:  # fmt: skip
    """How long a step would take that was not run, with an interval, on one or several machines.

    `model`, `inputs` and `counting` (mode, precision, optimizer, input_size, …) are those of
    `count`. `on` names machines with a calibration or a passport in `results`, or with a
    datasheet; without it, this one. `refine_s` times the operators that matter most, here.
    """
    from ridgeline.pipeline.predict import Predictions, open_predictor

    with _errors_name_arguments():
        predictor = open_predictor(
            Path(results), _as_tuple(on),
            compile_mode=compile_mode, refine_s=refine_s, with_layers=layers,
        )  # fmt: skip
        sizes = _as_tuple(batch_size)
        counts = [count(model, inputs, batch_size=size, **counting) for size in sizes]
        steps = [step for counted in counts for step, _ in predictor.predict(counted)]
        return Predictions(steps=tuple(steps), notes=tuple(predictor.notes))


def growth(
    model: str, *, mode: str = "infer", precision: str = "fp32", input_size: InputSize = None,
    seq_len: int | None = None, config: Config = None,
) -> Growth:  # fmt: skip
    """How the cost of a named model grows with batch and input size, as formulas."""
    from ridgeline.count.counting import Settings
    from ridgeline.count.growth import growth as find_growth

    settings = Settings(mode=mode, precision=precision)
    return find_growth(workload_spec(model, 1, input_size, seq_len, config), settings)


def max_batch(
    model: str, limit_bytes: int | str, *, mode: str = "train", precision: str = "fp32",
    optimizer: str = "sgd", **where: Any,
) -> int:  # fmt: skip
    """The largest batch of a named model whose peak memory stays within the limit.

    `where` takes `input_size`, `seq_len`, `config` and the rest of what `count` does.
    """
    from ridgeline.count.capacity import max_batch as find_max_batch

    settings: dict[str, Any] = {"mode": mode, "precision": precision, "optimizer": optimizer}

    def peak_bytes(batch_size: int) -> int:
        return count(model, batch_size=batch_size, **settings, **where).memory.peak_bytes

    return find_max_batch(peak_bytes, parse_bytes(limit_bytes))


def formula(operator: str, kind: str = "custom") -> Callable[[CostFunction], CostFunction]:
    """Register the decorated function as the cost of an operator, such as `"mylib::myop"`.

    The function gets the call (`call.inputs`, `call.outputs`, `call.get("argument")`) and
    returns a `Cost`, or a `Work` that leaves the bytes to ridgeline. It replaces any formula
    that the operator had.
    """
    from ridgeline.costs.work import Entry
    from ridgeline.count.call import operator_of
    from ridgeline.count.formulas import FORMULAS

    def register(function: CostFunction) -> CostFunction:
        FORMULAS[operator] = Entry(kind, function)
        operator_of.cache_clear()
        return function

    return register


def list_models(pattern: str | None = None) -> list[tuple[str, str, str]]:
    """Names that `count` takes, with their source and a line of description."""
    from ridgeline.workloads import list_models as find_models

    return find_models(pattern)


def make_callable(package: ModuleType, function: Callable[..., Any]) -> None:
    """Let a package be called like its main function, which importing the package would hide."""

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    package.__class__ = CallablePackage

"""Counts, stored with the runs; and a batch size where none is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Passports
from ridgeline.measure.worker import ignore_message
from ridgeline.records import CountRequest, WorkloadSpec
from ridgeline.report.stored import count_key, stored_counts, uncounted
from ridgeline.roofline.roofs import measured_roofs
from ridgeline.store import MeasuredRun, ResultsFolder, run_label
from ridgeline.workloads.sources import file_digest, is_file

if TYPE_CHECKING:
    from ridgeline.count.counting import Settings as CountSettings
    from ridgeline.count.result import CountResult

OnProgress = Callable[[str], None]
Counter = Callable[["WorkloadSpec", "CountSettings"], "CountResult"]
LARGEST = {"cpu": 8, "cuda": 64, "mps": 32}  # a processor is full with few samples
LONGEST_STEP_S = 0.5  # at the roof; real steps take longer
SAFE_SHARE = 0.7  # of the memory


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
    problems: list[str] = []
    done = 0
    for run in uncounted(results.index(), run_ids):
        model = run.request.model
        on_progress(f"{model}, batch {run.request.batch_size}")
        try:
            _check_countable(run, with_files=with_files)
            count_request(results, _request_for(run))
            done += 1
        except RidgelineError as error:
            problems.append(f"{model} was not counted: {error.problem}")
    return done, list(dict.fromkeys(problems))


def count_run_task(task: tuple[Path, str], send: OnProgress) -> list[str]:
    """Count what one run did, in a process of its own; what went wrong."""
    results, run_id = task
    return count_missing(ResultsFolder(results), [run_id], with_files=True)[1]


def _check_countable(run: MeasuredRun, *, with_files: bool) -> None:
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


def _request_for(run: MeasuredRun) -> CountRequest:
    """The count that a run needs."""
    request = run.request
    return CountRequest(
        **vars(request.workload),
        digest=request.digest,
        precision=run.result.precision,
        optimizer=request.optimizer,
    )


def count_request(
    results: ResultsFolder, request: CountRequest, counter: Counter | None = None
) -> None:
    """Count one configuration and store it."""
    from ridgeline.count.counting import Settings, count_workload
    from ridgeline.provenance import collect

    settings = Settings(
        mode=request.mode, precision=request.precision, optimizer=request.optimizer or "sgd"
    )
    result = (counter or count_workload)(request.workload, settings)
    results.save_run(
        run_label("count", request.model, request.batch_size),
        replace(request, precision=result.precision, optimizer=result.optimizer),
        {"provenance": "static", **result.to_dict()},
        collect(),
        tables={"ops": result.ops, "layers": result.layers()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask:
    """What to count before anything runs, for a process of its own."""

    results: Path
    specs: tuple[WorkloadSpec, ...]  # one per model; their batch size is not used
    batch_sizes: tuple[int, ...]  # none: to be chosen
    backend: str
    device: int
    precisions: tuple[str, ...]
    optimizer: str
    machine: str | None = None  # the passport of this machine
    is_quick: bool = False
    digest: str | None = None  # of a module in this process …
    counter: Counter | None = None  # … and what counts it


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAnswer:
    """The batches of each model, and what went wrong with counting."""

    batch_sizes: dict[str, tuple[int, ...]]
    counted: int
    problems: tuple[str, ...]


def count_task(task: CountTask, send: OnProgress) -> CountAnswer:
    """Choose batch sizes where none is named, count every configuration and store it."""
    from ridgeline.measure.backends import choose_backend
    from ridgeline.measure.precision import choose_precision

    backend = choose_backend(task.backend, task.device)
    used = {choose_precision(name, backend).used for name in task.precisions}
    results = ResultsFolder(task.results)
    known = set(stored_counts(results.index()))
    chosen: dict[str, tuple[int, ...]] = {}
    problems: list[str] = []
    counted = 0
    for spec in task.specs:
        try:
            chosen[spec.model] = task.batch_sizes or _choose(task, spec, backend.kind)
            for batch_size in chosen[spec.model]:
                for precision in sorted(used):
                    send(f"{spec.model}, batch {batch_size}")
                    sized = replace(spec, batch_size=batch_size)
                    counted += _count_once(results, sized, precision, task, known)
        except RidgelineError as error:
            chosen.setdefault(spec.model, task.batch_sizes or (1,))
            problems.append(f"{spec.model} was not counted: {error.problem}")
    return CountAnswer(batch_sizes=chosen, counted=counted, problems=tuple(problems))


def _count_once(
    results: ResultsFolder, spec: WorkloadSpec, precision: str, task: CountTask, known: set[str]
) -> bool:
    """Count and store one configuration, unless that was done before."""
    digest = task.digest or file_digest(spec.model)
    request = CountRequest(
        **vars(spec), digest=digest, precision=precision, optimizer=task.optimizer
    )
    key = count_key(request, precision)
    if key in known:
        return False
    count_request(results, request, task.counter)
    known.add(key)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """What a step of a certain batch needs."""

    flops: float
    peak_bytes: float


def choose_batch(
    need: Callable[[int], OneStep],
    *,
    kind: str,
    flops_per_s: float | None,
    memory_bytes: float | None,
) -> int:
    """The largest power of two whose step fits the memory and does not take too long."""
    batch = LARGEST.get(kind, 8)
    while batch > 1:
        step = need(batch)
        fits = memory_bytes is None or step.peak_bytes <= SAFE_SHARE * memory_bytes
        is_short = flops_per_s is None or step.flops / flops_per_s <= LONGEST_STEP_S
        if fits and is_short:
            return batch
        batch //= 2
    return 1


def _choose(task: CountTask, spec: WorkloadSpec, kind: str) -> tuple[int, ...]:
    """A batch size that suits the device, and a quarter of it, to see how things move."""
    from ridgeline.count.counting import Settings, count_workload

    settings = Settings(mode=spec.mode, precision="fp32", optimizer=task.optimizer)

    def need(batch_size: int) -> OneStep:
        result = count_workload(replace(spec, batch_size=batch_size), settings)
        return OneStep(flops=result.total.flops, peak_bytes=result.memory.peak_bytes)

    device = f"cuda:{task.device}" if kind == "cuda" else kind
    flops_per_s, memory_bytes = limits(ResultsFolder(task.results), task.machine, device)
    batch = choose_batch(need, kind=kind, flops_per_s=flops_per_s, memory_bytes=memory_bytes)
    small = batch // 4
    return (batch,) if task.is_quick or not small else (small, batch)


def limits(
    results: ResultsFolder, machine: str | None, device: str
) -> tuple[float | None, float | None]:
    """FLOP/s in fp32 and memory of a device, as far as this machine's passport tells."""
    import psutil

    memory = float(psutil.virtual_memory().available) if device == "cpu" else None
    if machine is None:
        return None, memory
    try:
        passport = Passports(results.path).read(machine)
    except RidgelineError:
        return None, memory
    gpu = passport.description.find_gpu(device)
    size = gpu.memory_bytes if gpu else None
    peak = measured_roofs(passport, device).peak("fp32", "matrix")
    return peak, memory or (float(size) if size else None)

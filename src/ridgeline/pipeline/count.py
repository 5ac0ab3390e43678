"""What models must do, stored beside the runs: the other half of every point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Passports
from ridgeline.records import CountRequest, WorkloadSpec
from ridgeline.report.stored import count_key, stored_counts, uncounted
from ridgeline.roofline.roofs import measured_roofs
from ridgeline.store import ResultsFolder, Run
from ridgeline.workloads.sources import file_digest, is_file

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult

Tell = Callable[[str], None]
LARGEST = {"cpu": 8, "cuda": 64, "mps": 32}  # a processor is full with few samples
LONGEST_STEP_S = 0.5  # at the roof; real steps take longer
SAFE_SHARE = 0.7  # of the memory


def count_missing(
    results: ResultsFolder,
    run_ids: Sequence[str] | None = None,
    tell: Tell = lambda what: None,
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
        model = str(run.asked["model"])
        tell(f"{model}, batch {run.asked['batch_size']}")
        why_not = _why_not(run, with_files=with_files)
        if why_not is not None:
            problems.append(f"{model} was not counted: {why_not}")
            continue
        try:
            store_count(results, _count(run), run.asked)
            done += 1
        except RidgelineError as error:
            problems.append(f"{model} was not counted: {error.problem}")
    return done, list(dict.fromkeys(problems))


def _why_not(run: Run, *, with_files: bool) -> str | None:
    """Why a run's model is left alone; None if it can be counted."""
    model = str(run.asked["model"])
    if run.found.get("source") == "object":
        return "it was a module of a Python program, which ridgeline.analyze counts"
    if not is_file(model):
        return None
    if not with_files:
        return "that would run its file; --count does, if you trust this folder"
    if file_digest(model) != run.asked.get("digest"):
        return "its file has changed since it was run, or is not here"
    return None


def _count(run: Run) -> CountResult:
    from ridgeline.count.counting import Settings, count_workload

    asked = run.asked
    settings = Settings(
        mode=str(asked["mode"]),
        precision=str(run.found["precision"]),
        optimizer=str(asked.get("optimizer") or "sgd"),
    )
    return count_workload(spec_of(asked), settings)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFound:
    """The batches of each model, and what went wrong with counting."""

    batch_sizes: dict[str, tuple[int, ...]]
    counted: int
    problems: tuple[str, ...]


def count_task(task: CountTask, send: Tell) -> CountFound:
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
                    one = replace(spec, batch_size=batch_size)
                    counted += _count_once(results, one, precision, task.optimizer, known)
        except RidgelineError as error:
            chosen.setdefault(spec.model, task.batch_sizes or (1,))
            problems.append(f"{spec.model} was not counted: {error.problem}")
    return CountFound(batch_sizes=chosen, counted=counted, problems=tuple(problems))


def _count_once(
    results: ResultsFolder, spec: WorkloadSpec, precision: str, optimizer: str, known: set[str]
) -> bool:
    """Count and store one configuration, unless that was done before."""
    from ridgeline.count.counting import Settings, count_workload

    request = CountRequest(
        **vars(spec), digest=file_digest(spec.model), precision=precision, optimizer=optimizer
    )
    key = count_key(request, precision)
    if key in known:
        return False
    settings = Settings(mode=spec.mode, precision=precision, optimizer=optimizer)
    store_count(results, count_workload(spec, settings), vars(request))
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


def spec_of(asked: Mapping[str, Any]) -> WorkloadSpec:
    """The workload that a stored run asked for."""
    size = asked.get("input_size")
    return WorkloadSpec(
        model=str(asked["model"]),
        batch_size=int(asked["batch_size"]),
        mode=str(asked["mode"]),
        input_size=tuple(size) if size else None,
        seq_len=asked.get("seq_len"),
        config=dict(asked.get("config") or {}),
    )


def store_count(results: ResultsFolder, result: CountResult, asked: Mapping[str, Any]) -> Run:
    """Keep a count as a run that the measured one finds again."""
    from ridgeline.provenance import collect

    question = {
        "command": "count",
        "model": asked["model"],
        "digest": asked.get("digest"),
        "batch_size": asked["batch_size"],
        "mode": asked["mode"],
        "precision": result.precision,
        "optimizer": result.optimizer,
        "input_size": asked.get("input_size"),
        "seq_len": asked.get("seq_len"),
        "config": dict(asked.get("config") or {}),
        "causal": "full",
    }
    return results.write_run(
        label=f"count-{question['model']}-bs{question['batch_size']}",
        asked=question,
        found={"provenance": "static", **result.to_dict()},
        provenance=collect(),
        tables={"ops": result.ops, "layers": result.layers()},
    )

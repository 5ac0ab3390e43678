"""`ridgeline import`: files of profilers read, joined and stored; runs of a metrics.csv."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

from ridgeline.captures.capture import (
    Capture,
    files_of,
    find_devices,
    store_capture,
    sums,
)
from ridgeline.captures.read import join_captures, read_part
from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import ignore_message
from ridgeline.plain import plain_text
from ridgeline.profile.profiling import average_kernels
from ridgeline.provenance import collect
from ridgeline.records import (
    EnergyResult,
    Host,
    ProfileRequest,
    ProfileSummary,
    RunRequest,
    RunResult,
    StepTime,
    WarmUp,
)
from ridgeline.serialize import from_dict, to_dict
from ridgeline.settings import STEP_SETTINGS, SYNTHETIC, Settings
from ridgeline.signals import interrupts_later
from ridgeline.store import MeasuredRun, ResultsFolder, Run, run_label
from ridgeline.units import format_time

NEEDED_COLUMNS = ("arch", "backend", "batch_size", "precision", "elapsed_sec", "measured_iters")
SWITCHES, COUNTS = (  # settings of a step: yes or no, and whole numbers
    tuple(name for name in STEP_SETTINGS if type(getattr(Settings, name)) is kind)
    for kind in (bool, int)
)
IMPORTED = "imported"
NEEDED = object()  # no default


@dataclass(slots=True)
class ImportOutcome:
    """The captures that could be read, and where they are stored."""

    captures: list[Capture] = field(default_factory=list)
    errors: list[RidgelineError] = field(default_factory=list)  # of the other files
    paths: list[Path] = field(default_factory=list)


READ_BYTES_PER_S, UNPACKED = 20e6, 20  # of text; a .gz holds about so many times its size
MOST_NAMES = 3  # in a line


def describe_reading(files: Sequence[Path]) -> str:
    """What an import will do, and about how long it takes."""
    sizes = [file.stat().st_size * (UNPACKED if file.suffix == ".gz" else 1)
             for file in files if file.is_file()]  # fmt: skip
    names = ", ".join(file.name for file in files[:MOST_NAMES])
    more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
    time_s = max(1, round(sum(sizes) / READ_BYTES_PER_S))
    return plain_text(f"reading and joining {names}{more}: about {format_time(time_s)}")


def import_captures(
    files: Sequence[Path],
    on_progress: Callable[[str], None] = ignore_message,
    *,
    device: str | None = None,
) -> ImportOutcome:
    """Read all files and join those of one capture; `device` is that of files that name none."""
    devices = find_devices(device) if device else []
    parts, errors = [], []
    for file in files:
        on_progress(file.name)
        try:
            parts.append(read_part(file, devices))
        except RidgelineError as error:
            errors.append(error)
    captures, refusals = join_captures(parts)
    return ImportOutcome(captures, errors + refusals)


def store_captures(
    outcome: ImportOutcome,
    results: ResultsFolder,
    label: str | None,
    of_run: MeasuredRun | None = None,
    steps: int = 1,
) -> None:
    """Store all of them or none; `of_run` is the run whose step they hold, `steps` times."""
    if of_run is not None and len(outcome.captures) > 1:
        raise RidgelineError(
            f"these files are {len(outcome.captures)} captures, and a run has one",
            hint="name files with metrics of the same kernels together; others one by one",
        )
    with interrupts_later():
        for capture in outcome.captures:
            if of_run is not None:
                outcome.paths.append(attach_capture(results, capture, of_run, steps))
            else:
                outcome.paths.append(store_capture(results, capture, label=label).path)


def attach_capture(results: ResultsFolder, capture: Capture, run: MeasuredRun, steps: int) -> Path:
    """Store a capture of the step of a run as its profile; it may hold several such steps."""
    kernels = average_kernels(capture.kernels, steps)
    known_s = kernels["time_s"].dropna()
    ours, theirs = run.result.device_name, capture.device
    other = (
        [f"it was captured on {theirs}, the run is of {ours}"] if theirs not in (None, ours) else []
    )
    summary = ProfileSummary(
        status="ok",
        provenance=IMPORTED,
        device_name=run.result.device_name,
        compute_capability=capture.compute_capability,
        backend=run.result.backend,
        precision=run.result.precision,
        kind=capture.kind,
        tier="counters",
        iters=steps,
        kernel_time_s=float(known_s.sum()) if len(known_s) else None,
        step_time_s=run.result.step_time_s.median,
        launches=float(kernels["launches"].sum()),
        totals=sums(kernels),
        warnings=(f"its kernels are from {name_files(capture)}", *other, *capture.warnings),
    )
    request = ProfileRequest(**{**vars(run.request), "command": "profile", "of_run": run.run_id})
    label = run_label("profile", run.request.model, run.request.batch_size)
    run_id = results.save_run(label, request, summary, collect(), tables={"kernels": kernels})
    return results.runs_path / run_id


# ---------------------------------------------------------------- runs of a metrics.csv


@dataclass(slots=True)
class ImportedRuns:
    """The runs of a metrics.csv, and what is to be known about them."""

    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    known: int = 0  # rows that were imported before


def is_metrics_file(path: Path) -> bool:
    """Whether the first line of a CSV file has the columns of runs."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return set(NEEDED_COLUMNS) <= set(header)


def import_metrics(path: Path, results: ResultsFolder, label: str | None = None) -> ImportedRuns:
    """Store each row of a metrics.csv as a run with the provenance `imported`.

    A row that was stored before is not stored again, so a file that grew can be imported again.
    """
    found = ImportedRuns()
    before = {_identity(run.request, run.result, run.made.time) for run in results.index().runs}
    made = collect()
    for line, row in _read_rows(path):
        try:
            request = _request_of(row, label)
            result = _result_of(row, request)
        except (RidgelineError, ValueError) as error:
            problem = error.problem if isinstance(error, RidgelineError) else str(error)
            found.notes.append(f"{path.name}, line {line} is left out: {problem}")
            continue
        time = row.get("timestamp", "")
        if _identity(request, result, time) in before:
            found.known += 1
            continue
        versions = {"torch": row["torch_version"]} if row.get("torch_version") else {}
        host = Host(name=row.get("hostname", ""))
        then = replace(
            made, time=time, host=host, libraries=versions, backends={},
            command=("ridgeline", "import", str(path)),
        )  # fmt: skip
        name = run_label(IMPORTED, request.model, request.batch_size, label=request.label)
        with interrupts_later():
            found.runs.append(results.read_run(results.save_run(name, request, result, then)))
    return found


def _identity(request: RunRequest, result: RunResult, time: str) -> tuple[object, ...]:
    return (result.provenance, time, request.model, request.batch_size, result.precision,
            result.elapsed_s, result.device_name)  # fmt: skip


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line, and its cells by column; empty cells are left out."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, {k: v.strip() for k, v in row.items() if k and v and v.strip()}


def _request_of(row: Mapping[str, str], label: str | None) -> RunRequest:
    cell = partial(_read_cell, row)
    known = [name for name in ("lr", "momentum", "weight_decay", *COUNTS) if name in row]
    settings: dict[str, Any] = {
        **{name: row.get(name, "").lower() in ("1", "true", "yes") for name in SWITCHES},
        **{name: cell(name, int if name in COUNTS else float) for name in known},
    }
    return RunRequest(
        model=cell("arch"),
        batch_size=cell("batch_size", int),
        mode=cell("mode", default="train"),
        input_size=tuple(map(int, row["input_size"].split("x"))) if "input_size" in row else None,
        seq_len=cell("seq_len", int, None),
        backend=cell("backend"),
        precision=cell("precision"),
        warmup_iters=cell("warmup_iters", int, None),
        iters=cell("measured_iters", int),
        optimizer=cell("optimizer", default="sgd"),
        data=cell("data_root", default=SYNTHETIC),
        label=label or cell("label", default=""),
        **settings,
    )


def _result_of(row: Mapping[str, str], request: RunRequest) -> RunResult:
    """What a row tells: the time of all steps, so a mean and no median, and no sample."""
    cell = partial(_read_cell, row)
    elapsed_s, steps = cell("elapsed_sec", float), cell("measured_iters", int)
    samples = request.batch_size * request.batches_per_step
    if elapsed_s <= 0 or steps < 1:
        raise ValueError(f"{steps} steps in {elapsed_s:g} s cannot be")
    step_s = cell("step_median_s", float, elapsed_s / steps)
    result = RunResult(
        provenance=IMPORTED,
        model=request.model,
        source=IMPORTED,
        backend=str(request.backend),
        device_name=cell("device_name", default=request.backend),
        precision=request.precision,
        iters=steps,
        samples_per_step=samples,
        samples_processed=cell("images_processed", float, samples * steps),
        elapsed_s=elapsed_s,
        step_time_s=StepTime(median=step_s, mean=elapsed_s / steps, min=step_s, max=step_s),
        warmup=WarmUp(times_s=()),
        energy=_energy_of(row, step_s, samples),
    )
    return from_dict(RunResult, to_dict(result), "")  # refuses what no stored run may have


def _energy_of(row: Mapping[str, str], step_s: float, samples: int) -> EnergyResult | None:
    power_w = _read_cell(row, "mean_power_w", float, None)
    step_j = _read_cell(row, "energy_j_per_step", float, power_w and power_w * step_s)
    if step_j is None:
        return None
    return EnergyResult(
        meter=row.get("energy_meter", IMPORTED),
        provenance=IMPORTED,
        energy_j_per_step=step_j,
        energy_j_per_sample=step_j / samples,
        mean_power_w=step_j / step_s if power_w is None else power_w,
        step_time_s=step_s,
        samples_per_step=samples,
    )


def _read_cell(row: Mapping[str, str], name: str, kind: type = str, default: Any = NEEDED) -> Any:
    """A cell as a text, a finite number or a whole one; or its default, if it has one."""
    if name not in row and default is not NEEDED:
        return default
    if name not in row:
        raise ValueError(f"it has no {name}")
    text = row[name]
    if kind is str:
        return text
    try:
        number = float(text)
    except ValueError:
        number = inf
    if not isfinite(number):
        raise ValueError(f"{name} is {text!r}, no number")
    if kind is int and number != int(number):
        raise ValueError(f"{name} is {text!r}, no whole number")
    return kind(number)


def name_files(capture: Capture) -> str:
    """The names of its files, without their folders."""
    return " + ".join(Path(file).name for file in files_of(capture))

"""A sweep from its plan to its end: stages in order, here or on Slurm; cancelling; its tables.

    sweeps/NAME/STAGE/MODEL_ALGORITHM_GPU/MODEL_ALGORITHM_overall.csv and _layers.csv

have the columns of the results folder's own views. The output of the jobs is beside them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import MeasuredCase, measure_task
from ridgeline.pipeline.cases import NoProgress, ProgressListener
from ridgeline.pipeline.predict import predict_sweep
from ridgeline.records import CountRequest
from ridgeline.report import views
from ridgeline.report.stored import run_key
from ridgeline.report.text import counted
from ridgeline.settings import one_of
from ridgeline.store import MeasuredRun, ResultsFolder, ResultsIndex, atomic_write_text
from ridgeline.sweep.ledger import CaseRecord, Ledger, slurm_task
from ridgeline.sweep.matrix import Matrix, Stage, matrix_from_dict, parse_matrix, read_matrix
from ridgeline.sweep.plan import SweepCase, plan_stage, split_into_shards
from ridgeline.sweep.shard import JOB_TIME_ENDS, Interrupt, Shard, ended_by_signals
from ridgeline.sweep.slurm import (
    Job,
    Slurm,
    format_tasks,
    job_name,
    make_script,
    read_jobs,
    write_job,
)
from ridgeline.sweep.status import StageStatus, read_stages
from ridgeline.workloads.sources import check_model, file_digest

if TYPE_CHECKING:
    import pandas as pd

EXECUTORS = ("local", "slurm")
LONGEST_NAME = 80
PREDICTING_S = 20.0  # of a dry run
ENDING_S = 20.0  # for a process to end the case that it is at
NOT_BACK = "the job could not be put back into the queue; start the sweep again"
TASK_ID = "$SLURM_ARRAY_TASK_ID"
OnMessage = Callable[[str], None]
OnRecord = Callable[[SweepCase, CaseRecord], None]


@dataclass(slots=True, kw_only=True)
class Sweep:
    """A matrix, planned, in its results folder."""

    matrix: Matrix
    results: ResultsFolder
    ledger: Ledger = field(init=False)
    plans: dict[str, list[SweepCase]] = field(init=False)
    stopped: str = ""  # why a later stage was not begun

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.results, self.matrix.name)
        stored = self.ledger.read_digests()  # for files that cannot be seen from this folder
        missing = {model: stored[model] for model in stored if file_digest(model) is None}
        self.plans = {stage.name: plan_stage(stage, missing) for stage in self.matrix.stages}

    def check_models(self) -> None:
        """Refuse open cases of models that cannot be found, before any of them runs."""
        for stage in self.matrix.stages:
            for model in dict.fromkeys(case.spec.model for case in self.open_cases(stage.name)):
                try:
                    check_model(model)
                except RidgelineError as error:
                    problem = f"{stage.place}: {error.problem}"
                    raise RidgelineError(problem, hint=error.hint) from error

    def save(self) -> None:
        """Keep the plan, and take over what is stored already."""
        self.results.check_writable()
        self.ledger.write_plan(self.matrix, self.plans)
        self.ledger.adopt([case for cases in self.plans.values() for case in cases])

    def status(self, *, with_stored: bool = False) -> list[StageStatus]:
        """How far each stage is; `with_stored`, what is stored or predicted says how long."""
        if not with_stored:
            return read_stages(self.ledger, self.plans)
        index = self.results.index()
        return read_stages(self.ledger, self.plans, index=index, predicted=self._predict(index))

    def _predict(self, index: ResultsIndex) -> dict[str, float]:
        """Seconds of steps that were not run, where this machine was calibrated."""
        measured = {run_key(run) for run in index.runs}
        requests: dict[str, dict[str, CountRequest]] = {}
        for case in (case for name in self.plans for case in self.open_cases(name)):
            if case.settings.compile is None and case.step_key not in measured:
                backend = case.settings.backend
                device = f"cuda:{case.settings.device}" if backend == "cuda" else backend
                requests.setdefault(device, {})[case.step_key] = case.count_request
        times: dict[str, float] = {}
        for device, cases in requests.items():
            with suppress(RidgelineError):
                times |= predict_sweep(self.results.path, device, cases, PREDICTING_S)
        return times

    def open_cases(self, stage: str) -> list[SweepCase]:
        records = self.ledger.records()
        return [case for case in self.plans[stage] if case.case_id not in records]

    def stages_from(self, name: str | None) -> list[Stage]:
        """The stages to run: one by its name, or all."""
        return [self.matrix.stage(name)] if name else list(self.matrix.stages)

    def open_stages(self, name: str | None = None) -> Iterator[Stage]:
        """The stages with open cases, each when those before it allow; or one by its name."""
        self.stopped = ""
        stages = self.stages_from(name)
        for stage in stages:
            if self.open_cases(stage.name):
                yield stage
            status = next(one for one in self.status() if one.stage == stage.name)
            if stage is not stages[-1] and not status.may_promote(stage):
                self.stopped = describe_stop(stage, status)
                return

    def retry_failed(self, stage: str | None = None) -> int:
        """Have failed cases tried again; how many."""
        plans = [self.plans[one.name] for one in self.stages_from(stage)]
        return self.ledger.forget_failures(case.case_id for plan in plans for case in plan)

    def write_tables(self) -> list[Path]:
        """Write what is done so far as tables."""
        return write_tables(self.ledger, self.plans)


def check_power(sweep: Sweep, *, set_power: bool, is_alone: bool) -> None:
    """Refuse a sweep that sets power limits or modes, unless that was asked for and can be done."""
    cases = [case for stage in sweep.matrix.stages for case in sweep.open_cases(stage.name)]
    keys = ", ".join(dict.fromkeys(key for case in cases for key in case.power))
    if not keys:
        return
    problem = f"the sweep {sweep.matrix.name} sets {keys}, for everyone who uses the device"
    if not set_power:
        raise RidgelineError(problem, hint="add --set-power; what was set before is put back")
    if not is_alone:
        raise RidgelineError(problem, hint="leave --parallel and --executor slurm out: it does so "
                             "on this machine only, one case at a time")  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        raise RidgelineError(f"{problem}; only root may", hint="run it as root")


def describe_stop(stage: Stage, status: StageStatus) -> str:
    """Why the stage after this one does not start."""
    if not status.is_finished:
        return f"{status.pending + status.running} cases of the stage {stage.name} are not finished"
    return (
        f"{status.failed} of {status.total} cases of the stage {stage.name} failed, and the next"
        f" stage starts when {stage.promote:.0%} succeed (promote)"
    )


def open_sweep(source: str | Path | Mapping[str, Any], results: ResultsFolder) -> Sweep:
    """A sweep from a YAML file, a dictionary, the name of a stored sweep or of a ready matrix."""
    if isinstance(source, Mapping):
        return Sweep(matrix=matrix_from_dict(source, name="sweep"), results=results)
    text = str(source)
    if Path(text).is_file():
        return Sweep(matrix=read_matrix(Path(text)), results=results)
    if (Ledger(results, text).path / "sweep.yaml").is_file():
        return Sweep(matrix=Ledger(results, text).read_matrix(), results=results)
    ready = read_all_ready()
    if text in ready:
        return Sweep(matrix=parse_matrix(ready[text], name=text, file=text), results=results)
    if text.endswith((".yaml", ".yml")) or "/" in text:
        raise RidgelineError(
            f"no such file: {text}", hint="`ridgeline sweep --list` shows ready matrices"
        )
    raise RidgelineError(
        f"there is no sweep {text!r} in {results.path}, and no ready matrix of that name",
        hint=f"name a YAML file, or one of {', '.join(ready)}",
    )


def run_sweep(
    sweep: Sweep, *, stage: str | None, executor: str, parallel: int, retry_failed: bool,
    set_power: bool = False,
) -> list[StageStatus]:  # fmt: skip
    """Run a sweep here to its end, or submit it; with its tables. How far it is then."""
    one_of("executor", executor, EXECUTORS)
    sweep.check_models()
    check_power(sweep, set_power=set_power, is_alone=executor == "local" and parallel == 1)
    sweep.save()
    if retry_failed:
        sweep.retry_failed(stage)
    if executor == "slurm":
        SlurmRun(sweep=sweep).run(stage)
    else:
        LocalRun(sweep=sweep, parallel=parallel).run(stage)
        sweep.write_tables()
    return sweep.status()


# ---------------------------------------------------------------- ready matrices


def read_all_ready() -> dict[str, str]:
    """The text of every ready matrix, by its name."""
    folder = resources.files("ridgeline.sweep") / "ready"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): (folder / name).read_text("utf-8") for name in files}


def copy_ready(name: str, folder: Path) -> Path:
    """Write a ready matrix to a file of one's own."""
    ready, path = read_all_ready(), folder / f"{name}.yaml"
    if name not in ready:
        raise RidgelineError(f"no ready matrix is called {name!r}",
                             hint=f"there are {', '.join(ready)}")  # fmt: skip
    if path.exists():
        raise RidgelineError(f"{path} exists already", hint="remove it, or go to another folder")
    atomic_write_text(path, ready[name], elsewhere="another folder")
    return path


# ---------------------------------------------------------------- here


@dataclass(slots=True, kw_only=True)
class LocalRun:
    """Runs stages on this machine."""

    sweep: Sweep
    parallel: int = 1
    progress: ProgressListener = field(default_factory=NoProgress)
    on_record: OnRecord = lambda case, record: None
    work: Callable[..., MeasuredCase] = measure_task
    in_process: bool = False
    stdout: int | None = subprocess.DEVNULL  # of parallel processes; None: where ours goes

    def run(self, stage_name: str | None = None) -> None:
        for stage in self.sweep.open_stages(stage_name):
            self._run_stage(stage)

    def _run_stage(self, stage: Stage) -> None:
        cases = self.sweep.open_cases(stage.name)
        if any(case.gpu for case in cases):
            raise RidgelineError("the sweep names kinds of GPU, and only Slurm chooses among them",
                                 hint="leave `gpu` out, or use --executor slurm")  # fmt: skip
        shards = split_into_shards(cases, self.parallel) if self.parallel > 1 else [cases]
        with ended_by_signals():
            if len(shards) > 1:
                self._run_processes(stage, len(shards))
                return
            Shard(
                ledger=self.sweep.ledger, stage=stage.name, progress=self.progress,
                on_record=self.on_record, work=self.work,
                in_process=self.in_process,
            ).run(cases)  # fmt: skip

    def _run_processes(self, stage: Stage, count: int) -> None:
        """A process for each shard, each with a GPU of its own where there are several."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(count):
                command = shard_command(self.sweep, stage.name, str(number), count)
                environment = {**os.environ, **choose_gpu(number)}
                processes.append(subprocess.Popen(command, env=environment, stdout=self.stdout))
            for process in processes:
                process.wait()
        finally:
            _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()  # not SIGINT, which a shell's `&` makes them ignore
    for process in processes:
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def choose_gpu(number: int) -> dict[str, str]:
    """One of the visible GPUs for a shard, by turns; nothing where there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [one for one in visible.split(",") if one] if visible else _list_gpu_uuids()
    return {"CUDA_VISIBLE_DEVICES": names[number % len(names)]} if names else {}


def _list_gpu_uuids() -> list[str]:
    from ridgeline.sensors.nvidia import load_nvml, read_gpus

    nvml = load_nvml()
    return [gpu.uuid for gpu in read_gpus(nvml) if gpu.uuid] if nvml else []


def ridgeline_command(sweep: Sweep) -> list[str]:
    """The command that goes on with a sweep, on any machine that sees its folder."""
    folder = str(sweep.results.path.resolve())
    return [sys.executable, "-m", "ridgeline", "sweep", sweep.matrix.name, "--results", folder]


def shard_command(sweep: Sweep, stage: str, number: str, count: int) -> list[str]:
    """The command that runs one shard of a stage."""
    shard = ["--stage", stage, "--shard", number, "--shards", str(count)]
    return [*ridgeline_command(sweep), *shard]


def run_shard(
    sweep: Sweep,
    stage: str,
    number: int,
    count: int,
    *,
    on_message: OnMessage,
    on_record: OnRecord,
) -> Shard:
    """One of `count` shards of a stage. In a job of Slurm whose time ends, it is put back."""
    shards = split_into_shards(sweep.plans[stage], count)
    if not 0 <= number < len(shards):
        raise RidgelineError(
            f"the stage {stage} has no shard {number}", hint=f"it has {len(shards)}"
        )
    shard = Shard(ledger=sweep.ledger, stage=stage, on_record=on_record)
    with ended_by_signals():
        try:
            shard.run(shards[number])
        except KeyboardInterrupt:
            if Interrupt.reason == JOB_TIME_ENDS:
                is_back = Slurm().requeue(slurm_task(os.environ))
                on_message("put back into the queue" if is_back else NOT_BACK)
            raise
    return shard


# ---------------------------------------------------------------- on Slurm


@dataclass(slots=True, kw_only=True)
class SlurmRun:
    """Submits the stage that is next; a small job after it submits the one that follows."""

    sweep: Sweep
    slurm: Slurm = field(default_factory=Slurm)
    on_message: OnMessage = lambda text: None
    submitted: list[Job] = field(default_factory=list)

    def run(self, stage_name: str | None = None) -> None:
        self.slurm.check()
        self.slurm.check_options(self.sweep.matrix.slurm)
        stage = next(self.sweep.open_stages(stage_name), None)
        if stage is None:
            return
        self._submit_stage(stage)
        is_last = stage.name == self.sweep.matrix.stages[-1].name
        if self.submitted and stage_name is None and not is_last:
            self._submit_follower(stage)

    def _submit_stage(self, stage: Stage) -> None:
        """An array for each kind of GPU and each part that MaxArraySize allows."""
        busy = self._find_busy_shards(stage)
        if busy is None:
            raise RidgelineError(
                "squeue does not answer, so nothing was submitted",
                hint="`scontrol ping` says whether Slurm's controller runs; try again later",
            )
        for numbers, gpu, offset in self._list_arrays(stage, busy):
            name = "-".join(filter(None, (stage.name, gpu, str(offset) if offset else "")))
            script = self._write_script(name, self.script(stage, numbers, gpu, offset))
            job = Job(
                job_id=self.slurm.submit(script),
                stage=stage.name,
                shards=tuple(numbers),
                offset=offset,
                script=str(script),
                submitted=datetime.now().astimezone().isoformat(timespec="seconds"),
            )
            write_job(self.sweep.ledger, job)
            self.submitted.append(job)

    def _find_busy_shards(self, stage: Stage) -> set[int] | None:
        """Shards of this stage that jobs wait for or work on already."""
        queue = self.slurm.queue([job_name(self.sweep.matrix.name, stage.name)])
        if queue is None:
            return None
        jobs = {job.job_id: job for job in read_jobs(self.sweep.ledger) if job.stage == stage.name}
        return {jobs[task.job_id].offset + int(task.task) for task in queue
                if task.job_id in jobs and task.task.isdecimal()}  # fmt: skip

    def shards(self, stage: Stage) -> list[list[SweepCase]]:
        return split_into_shards(self.sweep.plans[stage.name], self.sweep.matrix.slurm.array_size)

    def _list_arrays(self, stage: Stage, busy: set[int]) -> list[tuple[list[int], str, int]]:
        """Numbers of shards with open cases, their kind of GPU, and what task 0 stands for."""
        open_ids = {case.case_id for case in self.sweep.open_cases(stage.name)}
        largest = self.slurm.largest_array()
        arrays: dict[tuple[str, int], list[int]] = {}
        for number, shard in enumerate(self.shards(stage)):
            if number not in busy and any(case.case_id in open_ids for case in shard):
                key = (shard[0].gpu, number // largest * largest)
                arrays.setdefault(key, []).append(number)
        return [(numbers, gpu, offset) for (gpu, offset), numbers in arrays.items()]

    def script(self, stage: Stage, numbers: Sequence[int], gpu: str = "", offset: int = 0) -> str:
        """The job script of an array."""
        shards = self.shards(stage)
        task = f"$(({offset} + SLURM_ARRAY_TASK_ID))" if offset else TASK_ID
        cases = sum(len(shards[number]) for number in numbers)
        return make_script(
            name=job_name(self.sweep.matrix.name, stage.name),
            tasks=format_tasks(number - offset for number in numbers),
            command=shard_command(self.sweep, stage.name, task, len(shards)),
            options=self.sweep.matrix.slurm,
            output=self._jobs_folder,
            about=f"ridgeline: stage {stage.name} of the sweep {self.sweep.matrix.name},"
            f" {counted(cases, 'case')} in {counted(len(numbers), 'shard')}",
            gpu=gpu,
        )

    @property
    def _jobs_folder(self) -> Path:
        return (self.sweep.ledger.path / "jobs").resolve()

    def _write_script(self, name: str, text: str) -> Path:
        path = self._jobs_folder / f"{name}.sh"
        atomic_write_text(path, text)
        return path

    def _submit_follower(self, stage: Stage) -> None:
        """A job that looks, when this stage has ended, whether the next may start.

        It needs no GPU; where a partition refuses jobs without one, it takes what the cases take.
        """
        options = self.sweep.matrix.slurm
        small = replace(options, gpus="", gres="", constraint="", exclusive=False, cpus=1, mem="")
        for chosen in (small, options):
            text = make_script(
                name=f"{job_name(self.sweep.matrix.name, stage.name)}-next",
                tasks="",
                command=[*ridgeline_command(self.sweep), "--executor", "slurm"],
                options=replace(chosen, time="10"),
                output=self._jobs_folder,
                dependency=f"afterany:{':'.join(job.job_id for job in self.submitted)}",
                about=f"ridgeline: starts the stage after {stage.name}, if its rule is met",
            )
            path = self._write_script(f"{stage.name}-next", text)
            with suppress(RidgelineError):
                job_id = self.slurm.submit(path)
                self.on_message(f"job {job_id} starts the next stage when these have ended")
                return
        self.on_message(f"the next stage has to be started by hand: Slurm refuses {path}")


def cancel(sweep: Sweep, slurm: Slurm | None = None) -> tuple[int, int]:
    """End what runs and keep what is done; how many cases were at work, and how many still are."""
    ledger, slurm = sweep.ledger, slurm or Slurm()
    running = ledger.running()
    if slurm.has("scancel"):
        names = [f"{job_name(sweep.matrix.name, stage.name)}{end}"
                 for stage in sweep.matrix.stages for end in ("-next", "")]  # fmt: skip
        for name in names:  # the job that would start the next stage first
            slurm.run(("scancel", "--name", name))
    for holder in running.values():
        if holder.host == socket.gethostname() and not holder.job:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(holder.pid, signal.SIGTERM)
    until_s = monotonic() + ENDING_S
    while (left := running.keys() & ledger.running()) and monotonic() < until_s:
        sleep(0.2)
    return len(running), len(left)


# ---------------------------------------------------------------- tables of each stage


def write_tables(ledger: Ledger, plans: Mapping[str, Iterable[SweepCase]]) -> list[Path]:
    """Write the views of the results folder and the tables of each stage; paths of the latter."""
    views.write_views(ledger.results)
    records = ledger.records()
    return [path for stage, cases in plans.items()
            for path in _write_stage(ledger, stage, cases, records)]  # fmt: skip


def _write_stage(
    ledger: Ledger, stage: str, cases: Iterable[SweepCase], records: Mapping[str, CaseRecord]
) -> list[Path]:
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    shards: dict[tuple[str, str], set[str]] = {}
    for case in cases:
        record = records.get(case.case_id)
        run = _read_run(ledger.results, record)
        if record is not None and run is not None:
            model = case.spec.model.rpartition("/")[2]  # of a file, without the folders before it
            name = f"{_safe(model)}_{_safe(run.request.algorithm)}"
            key = (name, _safe(run.result.device_name or run.result.backend))
            groups.setdefault(key, []).append(run)
            shards.setdefault(key, set()).add(record.shard)
    written = []
    for (name, device), runs in groups.items():
        folder = ledger.path / stage / f"{name}_{device}"
        written.append(_write(folder / f"{name}_overall.csv", views.overall(runs)))
        layers = views.all_layers(runs, problems=[])
        if len(layers):
            written.append(_write(folder / f"{name}_layers.csv", layers))
        _copy_outputs(ledger, shards[name, device], folder)
    return written


def _copy_outputs(ledger: Ledger, shards: Iterable[str], folder: Path) -> None:
    """What the jobs printed that ran these cases, as far as they are."""
    for shard in shards:
        job = shard.removeprefix("job-")
        for output in (ledger.path / "jobs").glob(f"*-{job}.out") if job else ():
            with suppress(OSError):
                shutil.copyfile(output, folder / output.name)


def _read_run(results: ResultsFolder, record: CaseRecord | None) -> MeasuredRun | None:
    if record is None or not record.is_done or not record.run_ids:
        return None
    with suppress(RidgelineError):
        return results.read_run(record.run_ids[0])
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:LONGEST_NAME].strip("-.") or "model"


def _write(path: Path, table: pd.DataFrame) -> Path:
    atomic_write_text(path, table.to_csv(index=False))
    return path

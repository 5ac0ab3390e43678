"""Slurm, as text: the job script that sbatch gets, what squeue, sinfo, scontrol and sacct answer.

Slurm runs the shards; the results folder is the truth. What Slurm says of a job is a hint: an empty
answer means that nothing is known, never that something failed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.store import atomic_write_text, to_json
from ridgeline.sweep.ledger import Ledger, read_record
from ridgeline.sweep.matrix import SlurmOptions

ANSWER_S = 60.0  # that a command of Slurm may take; a busy controller is slow
BEFORE_END_S = 120  # SIGUSR2 comes so long before the end of a job's time …
SHORT_JOB = 5  # … or, in a short job, when this part of it is left
DEFAULT_ARRAY = 1001  # MaxArraySize, where the cluster does not tell
REASONS = {  # of waiting
    "Resources": "no node that fits is free",
    "Priority": "others are before it",
    "JobArrayTaskLimit": "as many run as slurm.parallel allows",
    "Dependency": "it waits for the stage before",
    # those that do not end by themselves
    "PartitionTimeLimit": "the time asked for is beyond the partition's limit: lower slurm.time",
    "PartitionNodeLimit": "more nodes are asked for than the partition has",
    "BadConstraints": "no node has what is asked for: check slurm.constraint, gpus and gres",
    "ReqNodeNotAvail": "the nodes that fit are down or reserved",
    "AssocGrpGRES": "your account may not use so many GPUs",
    "QOSMaxGRESPerUser": "your QOS allows fewer GPUs",
    "QOSMaxJobsPerUserLimit": "your QOS allows fewer jobs at once; the others follow",
    "QOSMaxWallDurationPerJobLimit": "your QOS allows less time: lower slurm.time",
    "AssocMaxWallDurationPerJobLimit": "your account allows less time: lower slurm.time",
    "DependencyNeverSatisfied": "the job that it waits for did not end well",
    "JobHeldUser": "it is held: `scontrol release JOB`",
    "JobHeldAdmin": "an administrator holds it",
}  # fmt: skip

RunCommand = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]


def run_command(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job array that was submitted."""

    job_id: str
    stage: str
    shards: tuple[int, ...]  # of the stage
    offset: int = 0  # the shard that task 0 stands for
    script: str = ""
    submitted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task of an array, as squeue or sacct tells."""

    job_id: str
    task: str
    state: str
    reason: str = ""


# ---------------------------------------------------------------- the job script


def make_script(
    *,
    name: str,
    tasks: str,
    command: Sequence[str],
    options: SlurmOptions,
    output: Path,
    about: str,
    gpu: str = "",
    dependency: str = "",
) -> str:
    """The whole batch file. `tasks` is the array (`0-7`, `2,5`); without it, one job."""
    gpus = _merge_gpu_kind(options, gpu)
    parallel = f"%{options.parallel}" if options.parallel and tasks else ""
    values: dict[str, Any] = {
        "job-name": name,
        "array": f"{tasks}{parallel}" if tasks else "",
        "output": f"{output}/%x-%A_%a.out" if tasks else f"{output}/%x-%j.out",
        "open-mode": "append",
        "partition": options.partition,
        **gpus,
        "constraint": options.constraint,
        "time": options.time,
        "mem": options.mem,
        "cpus-per-task": options.cpus or "",
        "account": options.account,
        "qos": options.qos,
        "dependency": dependency,
        "signal": f"B:USR2@{_seconds_before_end(options)}",
    }
    lines = [f"#SBATCH --{key}={value}" for key, value in values.items() if value != ""]
    lines += ["#SBATCH --requeue"]
    lines += ["#SBATCH --exclusive"] if options.exclusive else []
    words = [one if one.startswith("$") else shlex.quote(one) for one in command]
    run = "exec " + " ".join(f'"{w}"' if w.startswith("$") else w for w in words)
    return "\n".join(["#!/bin/bash", f"# {about}", *lines, "", *options.setup, run, ""])


def _seconds_before_end(options: SlurmOptions) -> int:
    time_s = parse_time_s(options.time) if options.time else None
    return min(BEFORE_END_S, int(time_s / SHORT_JOB)) if time_s else BEFORE_END_S


def _merge_gpu_kind(options: SlurmOptions, gpu: str) -> dict[str, str]:
    """`--gres` and `--gpus`; a kind of GPU from the matrix goes into them."""
    if not gpu:
        return {"gres": options.gres, "gpus": options.gpus}
    count = re.search(r"(\d+)$", options.gpus or options.gres)
    return {"gres": f"gpu:{gpu}:{count[1] if count else 1}", "gpus": ""}


def format_tasks(numbers: Iterable[int]) -> str:
    """`0-3,7` of 0, 1, 2, 3 and 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


# ---------------------------------------------------------------- what Slurm answers


def parse_squeue(text: str) -> list[TaskState]:
    """From `squeue -h -r -o '%A|%F|%K|%T|%r'`."""
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 5:
            job, array, task, state, reason = parts
            task = "" if task == "N/A" else task
            reason = "" if reason == "None" else reason
            found.append(TaskState(job_id=array if task else job, task=task, state=state,
                                   reason=reason))  # fmt: skip
    return found


def parse_sacct(text: str) -> list[TaskState]:
    """From `sacct -n -P --format=JobID,State`; the last line of a task is its last start."""
    found: dict[str, TaskState] = {}
    for line in text.splitlines():
        name, _, state = line.strip().partition("|")
        if not name or "." in name or "[" in name or not state:
            continue  # steps of a job, and tasks that have not begun
        job, _, task = name.partition("_")
        found[name] = TaskState(job_id=job, task=task, state=state.split()[0])
    return list(found.values())


def parse_time_s(text: str) -> float | None:
    """Slurm's durations: `30` (minutes), `30:00`, `02:00:00`, `1-12`, `1-12:00:00`; or no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if found is None:
        return None
    days, first, second, third = (int(one) if one else 0 for one in found.groups())
    if found[1]:
        return days * 86400.0 + first * 3600 + second * 60 + third
    if found[4]:
        return first * 3600.0 + second * 60 + third
    return first * 60.0 + second


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A line of sinfo: some nodes of a partition in one state."""

    name: str
    is_default: bool
    time_limit: str
    nodes: int
    state: str
    gres: str


def parse_sinfo(text: str) -> list[Partition]:
    """From `sinfo -h -o '%P|%l|%D|%t|%G'`."""
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 5 and parts[2].isdecimal():
            name, limit, nodes, state, gres = parts
            found.append(Partition(name=name.rstrip("*"), is_default=name.endswith("*"),
                                   time_limit=limit, nodes=int(nodes), state=state.rstrip("*~#$@"),
                                   gres="" if gres == "(null)" else gres))  # fmt: skip
    return found


# ---------------------------------------------------------------- the cluster


@dataclass(frozen=True, slots=True)
class Slurm:
    """The commands of Slurm on this machine."""

    run: RunCommand = run_command
    has: Callable[[str], bool] = field(default=lambda program: shutil.which(program) is not None)

    def check(self) -> None:
        if not self.has("sbatch"):
            raise RidgelineError(
                "sbatch is not on this machine, so there is no Slurm to submit to",
                hint="log in to a node of a cluster, or use --executor local",
            )

    def ask(self, *command: str) -> str | None:
        """The answer of a command; None where there is none."""
        if not self.has(command[0]):
            return None
        try:
            done = self.run(command)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def largest_array(self) -> int:
        """How many tasks an array may have; their numbers stay below MaxArraySize."""
        config = self.ask("scontrol", "show", "config") or ""
        size = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
        return max(1, (int(size[1]) if size else DEFAULT_ARRAY) - 1)

    def partitions(self) -> list[Partition]:
        return parse_sinfo(self.ask("sinfo", "-h", "-o", "%P|%l|%D|%t|%G") or "")

    def check_options(self, options: SlurmOptions) -> None:
        """Refuse what sbatch would accept and never start."""
        known = self.partitions()
        names = list(dict.fromkeys(one.name for one in known))
        chosen = options.partition.split(",") if options.partition else []
        if unknown := [name for name in chosen if known and name not in names]:
            raise RidgelineError(f"slurm.partition: there is no partition {unknown[0]!r}",
                                 hint=f"there are {', '.join(names)}")  # fmt: skip
        time_s = parse_time_s(options.time)
        if options.time and time_s is None:
            raise RidgelineError(f"slurm.time: {options.time!r} is no time",
                                 hint="minutes, 02:00:00 or 1-12:00:00")  # fmt: skip
        mine = [p for p in known if p.name in chosen or (not chosen and p.is_default)]
        limits_s = [parse_time_s(p.time_limit) or inf for p in mine]
        if time_s and limits_s and time_s > max(limits_s):
            shown = ", ".join(f"{p.name} {p.time_limit}" for p in mine)
            raise RidgelineError(
                f"slurm.time: {options.time} is beyond the limit, so the job would wait for ever",
                hint=f"limits: {shown}",
            )

    def submit(self, script: Path) -> str:
        """The id of the job."""
        command = ("sbatch", "--parsable", str(script))
        try:
            done = self.run(command)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RidgelineError(f"sbatch did not answer: {error}", hint="try again") from error
        job_id = done.stdout.strip().partition(";")[0]
        if done.returncode != 0 or not job_id.isdecimal():
            problem = " ".join((done.stderr or done.stdout).split()) or "no answer"
            raise RidgelineError(
                f"sbatch refused the job: {problem}",
                hint=f"change slurm: in the sweep's file; the script is {script}",
            )
        return job_id

    def queue(self, job_names: Iterable[str]) -> list[TaskState] | None:
        """The tasks that wait or run; None if squeue did not answer."""
        names = ",".join(job_names)
        text = self.ask("squeue", "-h", "-r", "--name", names, "-o", "%A|%F|%K|%T|%r")
        return None if text is None else parse_squeue(text)

    def history(self, job_ids: Sequence[str]) -> list[TaskState]:
        """How tasks ended, where the cluster keeps accounts."""
        if not job_ids:
            return []
        jobs = ("--starttime", "now-30days", "-j", ",".join(job_ids))
        return parse_sacct(self.ask("sacct", "-n", "-P", "--format=JobID,State", *jobs) or "")

    def requeue(self, task: str) -> bool:
        """Have a task of an array start again."""
        return bool(task) and self.run(("scontrol", "requeue", task)).returncode == 0


# ---------------------------------------------------------------- jobs of a sweep


def job_name(sweep: str, stage: str) -> str:
    return f"ridgeline-{sweep}-{stage}"


def write_job(ledger: Ledger, job: Job) -> None:
    atomic_write_text(ledger.path / "jobs" / f"{job.job_id}.json", to_json(job))


def read_jobs(ledger: Ledger) -> list[Job]:
    """The jobs that were submitted for a sweep, oldest first."""
    paths = sorted((ledger.path / "jobs").glob("*.json"), key=lambda path: path.stem.zfill(12))
    found = (read_record(Job, path) for path in paths)
    return [job for job in found if job is not None]


def describe_reason(reason: str) -> str:
    """Why a task waits, and what helps where it will not end by itself."""
    name = reason.partition(",")[0].strip()
    return f"{name}: {REASONS[name]}" if name in REASONS else reason

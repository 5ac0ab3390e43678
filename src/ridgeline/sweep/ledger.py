"""The folder of a sweep: its plan, which cases are finished, and who works on which.

    sweeps/NAME/
      sweep.yaml             the matrix as its author wrote it
      cases.csv              the plan: a row per case of every stage, in order
      finished/CASE_ID.json  how a case ended; written after its runs are stored
      leases/CASE_ID.json    who works on a case; its time of change is the heartbeat
      jobs/                  job scripts, their output, and the ids that Slurm gave
      shards/                what each shard ran on

The runs in the results folder are the truth: the name of a run holds the id of its case, so a case
whose run was stored by a process that was then killed is found again, and not measured twice. No
two writers share a file, so shards on several machines need a common file system and no locks.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.records import RunResult
from ridgeline.report.sweeps import list_sweeps
from ridgeline.serialize import FieldError, Record, from_dict
from ridgeline.store import MeasuredRun, ResultsFolder, atomic_write_text, to_json, writing
from ridgeline.sweep.matrix import Matrix, parse_matrix
from ridgeline.sweep.plan import ID_LENGTH, SweepCase, plan_stage

HEARTBEAT_S = 10.0
STALE_S = 90.0  # without a heartbeat: file systems of clusters show changes late
_CASE_IN_RUN = re.compile(rf"Z-([0-9a-f]{{{ID_LENGTH}}})-")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """How a case ended."""

    case_id: str
    status: str  # "done", or one of FAILED
    reason: str = ""
    hint: str = ""
    run_ids: tuple[str, ...] = ()
    time_s: float | None = None  # that the case took, its start included
    shard: str = ""  # the name of a file in shards/
    ended: str = ""  # ISO 8601

    @property
    def is_done(self) -> bool:
        return self.status == DONE

    @property
    def detail(self) -> str:
        """The reason without the status, with which some reasons begin."""
        lead, _, rest = self.reason.partition(": ")
        return rest if lead == self.status else self.reason


DONE = "done"
OUT_OF_MEMORY, NOT_SUPPORTED, TIMED_OUT, BROKEN = (
    "out of memory", "not supported", "timeout", "failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """What a shard ran on: results of unlike devices are never compared as if they were alike."""

    name: str
    host: str
    job: str = ""
    stage: str = ""
    cpu: str = ""
    gpus: tuple[str, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    max_clocks_hz: tuple[float, ...] = ()
    drivers: tuple[str, ...] = ()
    is_exclusive: bool | None = None  # None: not known, as outside of Slurm
    started: str = ""
    drift: str = ""  # a ceiling of the machine's passport, sampled again; empty without a passport
    has_drifted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who works on a case."""

    token: str
    host: str
    pid: int
    started_s: float = 0.0  # of the process, by its system's clock: ids of processes come again
    job: str = ""  # of Slurm


@dataclass(frozen=True, slots=True)
class Ledger:
    """Reads and writes the folder of one sweep."""

    results: ResultsFolder
    name: str

    @property
    def path(self) -> Path:
        return self.results.path / "sweeps" / self.name

    # ------------------------------------------------------------ the plan

    def write_plan(self, matrix: Matrix, plan: Mapping[str, Iterable[SweepCase]]) -> None:
        """Keep the matrix and its cases. A changed matrix takes the place of the old one."""
        rows = [{"stage": stage, "case_id": case.case_id, **case.definition}
                for stage, cases in plan.items() for case in cases]  # fmt: skip
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: format_cell(value) for key, value in row.items()} for row in rows)
        atomic_write_text(self.path / "sweep.yaml", matrix.text)
        atomic_write_text(self.path / "cases.csv", text.getvalue())

    def read_matrix(self) -> Matrix:
        file = self.path / "sweep.yaml"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            names = ", ".join(list_sweeps(self.results.path))
            raise RidgelineError(
                f"there is no sweep {self.name!r} in {self.results.path}",
                hint=f"there are {names}" if names else "start one: `ridgeline sweep FILE.yaml`",
            ) from error
        return parse_matrix(text, name=self.name, file=str(file))

    def read_digests(self) -> dict[str, str]:
        """What the Python files were from which models of the plan come."""
        try:
            text = (self.path / "cases.csv").read_text(encoding="utf-8")
        except OSError:
            return {}
        rows = csv.DictReader(io.StringIO(text))
        return {row["model"]: row["digest"] for row in rows if row.get("digest")}

    # ------------------------------------------------------------ how cases ended

    def record(self, record: CaseRecord) -> None:
        atomic_write_text(self.path / "finished" / f"{record.case_id}.json", to_json(record))

    def record_of(self, case_id: str) -> CaseRecord | None:
        return read_record(CaseRecord, self.path / "finished" / f"{case_id}.json")

    def records(self) -> dict[str, CaseRecord]:
        """Every case that ended, by its id. A file that cannot be read counts as none."""
        paths = sorted((self.path / "finished").glob("*.json"))
        found = (read_record(CaseRecord, path) for path in paths)
        return {record.case_id: record for record in found if record is not None}

    def record_shard(self, record: ShardRecord) -> None:
        atomic_write_text(self.path / "shards" / f"{record.name}.json", to_json(record))

    def list_drifts(self, stage: str) -> tuple[str, ...]:
        """Machines that ran cases of a stage, and are no longer as fast as their passports say."""
        found = (read_record(ShardRecord, path) for path in (self.path / "shards").glob("*.json"))
        known = sorted((one for one in found if one), key=lambda one: one.started)
        latest = {one.host: one.drift for one in known if one.has_drifted and one.stage == stage}
        return tuple(f"{host}: {drift}" for host, drift in latest.items())

    def forget_failures(self, case_ids: Iterable[str]) -> int:
        """Have failed cases tried again; how many."""
        failed = [one for one in case_ids if (r := self.record_of(one)) and not r.is_done]
        for case_id in failed:
            (self.path / "finished" / f"{case_id}.json").unlink(missing_ok=True)
        return len(failed)

    def adopt(self, cases: Iterable[SweepCase]) -> None:
        """Record cases whose runs are stored already."""
        for record in self.find_stored(cases).values():
            self.record(record)

    def find_stored(self, cases: Iterable[SweepCase]) -> dict[str, CaseRecord]:
        """Open cases whose runs are stored already: by a killed shard, or by another sweep."""
        missing = {case.case_id: case for case in cases}
        known = self.records()
        stored = stored_runs(self.results, missing.keys() - known.keys())
        found = {}
        for case_id, run_ids in stored.items():
            case = missing[case_id]
            if len(case.what) > 1 and set(case.what) & {"profile", "count"}:
                continue  # the shard looks which parts are missing
            done = find_completed(self.results, run_ids)
            if done and done.result.precision == done.request.precision:
                found[case_id] = CaseRecord(case_id=case_id, status=DONE, run_ids=(done.run_id,))
        return found

    # ------------------------------------------------------------ leases

    def claim(self, case_id: str) -> Lease | None:
        """The right to work on a case; None if somebody else has it, or it is finished."""
        folder = self.path / "leases"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{case_id}.json"
            holder = _describe_self()
            if not _create(path, holder) and not (_is_stale(path) and _take_over(path, holder)):
                return None
        if self.record_of(case_id) is not None:  # it ended between our look and our claim
            path.unlink(missing_ok=True)
            return None
        return Lease(path=path, holder=holder)

    def running(self) -> dict[str, Holder]:
        """Cases that somebody works on, by their ids."""
        found = {}
        for path in (self.path / "leases").glob("*.json"):
            holder = read_record(Holder, path)
            if holder is not None and not _is_stale(path):
                found[path.stem] = holder
        return found


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a case."""

    path: Path
    holder: Holder

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the block runs, a thread keeps it fresh; then it ends."""
        ended = threading.Event()
        threading.Thread(target=self._beat, args=(ended,), daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            if self.is_ours():
                with suppress(OSError):
                    self.path.unlink()

    def is_ours(self) -> bool:
        """False if somebody took it over, because our heartbeat had stopped."""
        return read_record(Holder, self.path) == self.holder

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            with suppress(OSError):
                os.utime(self.path)


def _describe_self() -> Holder:
    import psutil

    return Holder(
        token=secrets.token_hex(8),
        host=socket.gethostname(),
        pid=os.getpid(),
        started_s=psutil.Process().create_time(),
        job=slurm_task(os.environ),
    )


def slurm_task(environment: Mapping[str, str]) -> str:
    """`1234_5` in a task of a job array; empty outside of Slurm."""
    job, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{job}_{task}" if job and task else environment.get("SLURM_JOB_ID", "")


def _create(path: Path, holder: Holder) -> bool:
    """Whether the file is ours: made with its whole content, if there was none."""
    ready = path.with_name(f".{path.name}-{holder.token}")
    ready.write_text(to_json(holder), encoding="utf-8")
    try:
        os.link(ready, path)  # atomic, and refused where the name is taken; also on NFS
    except FileExistsError:
        return False
    finally:
        ready.unlink(missing_ok=True)
    return True


def _take_over(path: Path, holder: Holder) -> bool:
    """Replace a stale lease; of several that try at once, one succeeds."""
    lock = path.with_suffix(".takeover")
    with suppress(OSError):
        if _age_s(lock) > STALE_S:  # whoever held it was killed meanwhile
            lock.unlink()
    if not _create(lock, holder):
        return False
    try:
        if not _is_stale(path):
            return False
        path.unlink(missing_ok=True)
        return _create(path, holder)
    finally:
        lock.unlink(missing_ok=True)


def _is_stale(path: Path) -> bool:
    """Whether nobody works by this lease any more."""
    holder = read_record(Holder, path)
    if holder is not None and holder.host == socket.gethostname():
        return not _is_running(holder)
    try:
        return _age_s(path) > STALE_S
    except OSError:
        return True


def _is_running(holder: Holder) -> bool:
    import psutil

    try:
        return abs(psutil.Process(holder.pid).create_time() - holder.started_s) < 1.0
    except psutil.Error:
        return False


def _age_s(path: Path) -> float:
    """Since the last change, by the clock of the file system: those of machines differ."""
    then = path.stat().st_mtime
    probe = path.with_name(f".clock-{os.getpid()}-{threading.get_ident()}")
    try:
        probe.touch()
        return probe.stat().st_mtime - then
    except OSError:  # a folder that we may only read
        return time.time() - then
    finally:
        with suppress(OSError):
            probe.unlink()


def read_record(kind: type[Record], path: Path) -> Record | None:
    """A record in a file; None where it cannot be read."""
    try:
        return from_dict(kind, json.loads(path.read_text(encoding="utf-8")), path.stem)
    except (OSError, ValueError, TypeError, FieldError):
        return None


def format_cell(value: Any) -> Any:
    """A value in cases.csv: `224x320`, `run layers`, a mapping as JSON."""
    if isinstance(value, list):
        return ("x" if isinstance(value[0], int) else " ").join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else value


# ---------------------------------------------------------------- runs of cases


def stored_runs(results: ResultsFolder, case_ids: Iterable[str]) -> dict[str, list[str]]:
    """The stored runs of these cases, oldest first, by what their names say."""
    known_ids = set(case_ids)
    found: dict[str, list[str]] = {}
    if not known_ids:
        return found
    for run_id in results.run_ids():
        named = _CASE_IN_RUN.search(run_id)
        if named and named[1] in known_ids:
            found.setdefault(named[1], []).append(run_id)
    return found


def find_completed(results: ResultsFolder, run_ids: Iterable[str]) -> MeasuredRun | None:
    """The last of these runs that was completed."""
    for run_id in reversed(list(run_ids)):
        with suppress(RidgelineError):
            run = results.read_run(run_id)
            if isinstance(run.result, RunResult):
                return run
    return None


# ---------------------------------------------------------------- all sweeps of a folder


def read_plan(ledger: Ledger) -> dict[str, list[SweepCase]]:
    """The cases of every stage of a stored sweep, as they were planned."""
    digests = ledger.read_digests()
    return {stage.name: plan_stage(stage, digests) for stage in ledger.read_matrix().stages}

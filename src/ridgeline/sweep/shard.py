"""A shard: cases of a sweep run one after another, on one device.

Each case is measured in a process of its own. It is claimed first, so that two shards never run the
same one; its runs are stored, then how it ended is recorded. A shard that is killed leaves cases
that another one takes up.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Passports
from ridgeline.measure.isolation import Failure, run_isolated
from ridgeline.measure.worker import MeasuredCase, measure_task
from ridgeline.pipeline.cases import Case, CaseRunner, Executor, NoProgress, ProgressListener
from ridgeline.pipeline.machine import drift_task
from ridgeline.records import CountRequest
from ridgeline.sensors.power_mode import find_power_mode, hold_power_mode
from ridgeline.store import MeasuredRun, ResultsFolder
from ridgeline.sweep.ledger import (
    BROKEN,
    DONE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    TIMED_OUT,
    CaseRecord,
    Lease,
    Ledger,
    ShardRecord,
    find_completed,
    slurm_task,
    stored_runs,
)
from ridgeline.sweep.plan import SweepCase

JOB_TIME_ENDS = "the job's time is nearly over"
MOST_STARTS = 3  # of a job that is put back, and in which no case ended the last time


@dataclass(slots=True, kw_only=True)
class Shard:
    """Runs cases; `ended` and `failed` count those that it ran itself."""

    ledger: Ledger
    stage: str
    name: str = ""
    progress: ProgressListener = field(default_factory=NoProgress)
    on_record: Callable[[SweepCase, CaseRecord], None] = lambda case, record: None
    work: Callable[..., MeasuredCase] = measure_task
    in_process: bool = False
    ended: int = 0
    failed: int = 0

    def run(self, cases: Sequence[SweepCase]) -> None:
        """Run what is neither finished nor claimed by another shard."""
        task = slurm_task(os.environ)
        self.name = f"job-{task}" if task else f"{socket.gethostname()}-{os.getpid()}"
        known = self.ledger.records()
        mine = [case for case in cases if case.case_id not in known]
        if mine:
            record = describe_shard(self.name, self.stage)
            self.ledger.record_shard(replace(record, **self._check_drift(mine[0])))
        for case in mine:
            self.progress.start(case.name)
            lease = self.ledger.claim(case.case_id)
            if lease is not None:
                self._run_claimed(case, lease)

    def _run_claimed(self, case: SweepCase, lease: Lease) -> None:
        with lease.held():
            record = self._run_case(case)
            if lease.is_ours():  # else another shard has begun it again, and will tell
                self.ledger.record(record)
        self.ended += 1
        self.failed += not record.is_done
        self.on_record(case, record)

    def _check_drift(self, case: SweepCase) -> dict[str, Any]:
        """Whether the machine is as fast as its passport says; a second, where there is one."""
        folder, settings = self.ledger.results.path, case.settings
        if not Passports(folder).names():
            return {}
        outcome = run_isolated(drift_task, (folder, settings.backend, settings.device))
        if outcome.answer is None:  # also where torch is not there
            return {}
        text, has_drifted = outcome.answer
        return {"drift": text, "has_drifted": has_drifted}

    def _run_case(self, case: SweepCase) -> CaseRecord:
        start_s, results = monotonic(), self.ledger.results
        stored = find_completed(results, stored_runs(results, [case.case_id]).get(case.case_id, []))
        try:
            with hold_power_modes(case):
                run_ids, failure = self._do_parts(case, stored)
        except RidgelineError as error:  # an input that is wrong
            run_ids, failure = [], Failure(reason=error.problem, hint=error.hint, is_input=True)
        except KeyboardInterrupt:
            self._record_endless(case)
            raise
        return CaseRecord(
            case_id=case.case_id,
            status=_name_status(failure),
            reason=failure.reason if failure else "",
            hint=failure.hint if failure else "",
            run_ids=tuple(run_ids),
            time_s=None if stored else monotonic() - start_s,
            shard=self.name,
            ended=datetime.now().astimezone().isoformat(timespec="seconds"),
        )

    def _do_parts(
        self, case: SweepCase, stored: MeasuredRun | None
    ) -> tuple[list[str], Failure | None]:
        """The parts of a case, each unless it is stored already."""
        if "run" not in case.what and not set(case.what) & {"layers", "energy"}:
            task = (self.ledger.results.path, case.count_request)
            return [], run_isolated(count_case_task, task).failure
        run, failure = (stored, None) if stored else self._measure(case)
        if run is None:
            return [], failure
        if run.result.precision != case.settings.precision:  # such as amp on a CPU
            reason = f"{case.settings.precision} is not used on this device: {run.result.precision}"
            hint = "leave it out, or choose another backend"
            return [], Failure(reason=f"{reason} ran", hint=hint, is_input=True)
        run_ids = [run.run_id]
        if "profile" in case.what:
            failure = self._profile(run) or failure
        if "count" in case.what:
            failure = self._count_run(run) or failure
        return run_ids, failure

    def _measure(self, case: SweepCase) -> tuple[MeasuredRun | None, Failure | None]:
        failures: list[Failure] = []
        runner = CaseRunner(
            results=self.ledger.results,
            executor=Executor(timeout_s=case.timeout_s, in_process=self.in_process),
            on_failure=failures.append,
            progress=_Parts(self.progress),
            work=self.work,
        )
        runner.run([
            Case(spec=case.spec, settings=case.settings, repeat=case.repeat,
                 label=self.ledger.name, case_id=case.case_id)
        ])  # fmt: skip
        if runner.completed:
            return runner.completed[-1], None
        if failures:
            return None, failures[-1]
        error = runner.errors[-1]
        return None, Failure(reason=error.problem, hint=error.hint, is_input=True)

    def _profile(self, run: MeasuredRun) -> Failure | None:
        """Counters of the run's step, unless they are stored."""
        from ridgeline.pipeline.profile import profile_runs, reason_to_skip

        results = self.ledger.results
        if any(profile.request.of_run == run.run_id for profile in results.index().profiles):
            return None
        reason = reason_to_skip(run.result.backend, is_requested=True)
        is_impossible = bool(reason)
        if not reason:
            _, failures = profile_runs(
                results, [run], on_progress=lambda what: self.progress.update(what, 0, 0)
            )
            reason = "; ".join(failures)
        hint = "`ridgeline doctor` says why"
        if not reason:
            return None
        return Failure(reason=f"no counters: {reason}", hint=hint, is_input=is_impossible)

    def _count_run(self, run: MeasuredRun) -> Failure | None:
        from ridgeline.pipeline.count_models import count_run_task

        outcome = run_isolated(count_run_task, (self.ledger.results.path, run.run_id))
        if outcome.failure is not None:
            return outcome.failure
        problems = outcome.value()
        return Failure(reason=problems[0], hint="", is_input=True) if problems else None

    def _record_endless(self, case: SweepCase) -> None:
        """A case that does not fit into a whole job must not be begun for ever."""
        starts = int(os.environ.get("SLURM_RESTART_COUNT") or 0) + 1
        if Interrupt.reason == JOB_TIME_ENDS and not self.ended and starts >= MOST_STARTS:
            record = CaseRecord(
                case_id=case.case_id, status=TIMED_OUT, shard=self.name,
                reason=f"did not end within the time of its job, which began {starts} times",
                hint="give the job more time (slurm.time), or the case less to do",
            )  # fmt: skip
            self.ledger.record(record)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A listener for the parts of a case: the case itself has been announced."""

    progress: ProgressListener

    def start(self, what: str, seconds: float = 0.0, *, advance: bool = True) -> None: ...

    def update(self, what: str, done: int, total: int) -> None:
        self.progress.update(what, done, total)


@contextmanager
def hold_power_modes(case: SweepCase) -> Iterator[None]:
    """Set what the case says of power; it is put back at the end."""
    with ExitStack() as stack:
        uuid = _find_gpu_uuid(case.settings.device) if case.power else ""
        for key, value in case.power.items():
            stack.enter_context(hold_power_mode(find_power_mode(key, uuid), value))
        yield


def _find_gpu_uuid(index: int) -> str:
    """Of the GPU that CUDA numbers so; empty without one."""
    from ridgeline.machine.describe import describe_gpus
    from ridgeline.machine.system import SystemIO

    gpus = describe_gpus(SystemIO(), ram_bytes=None).gpus
    return next((gpu.uuid or "" for gpu in gpus if gpu.index == index), "")


def count_case_task(task: tuple[Path, CountRequest], send: Any) -> None:
    """Count a configuration that is not run, in a process of its own."""
    from ridgeline.pipeline.count_models import count_request

    count_request(ResultsFolder(task[0]), task[1])


def _name_status(failure: Failure | None) -> str:
    if failure is None:
        return DONE
    if failure.is_timeout:
        return TIMED_OUT
    if failure.is_out_of_memory:
        return OUT_OF_MEMORY
    return NOT_SUPPORTED if failure.is_input else BROKEN


def describe_shard(name: str, stage: str) -> ShardRecord:
    """The node and its devices; nothing is started on them."""
    from ridgeline.machine.describe import describe_gpus
    from ridgeline.machine.system import SystemIO
    from ridgeline.provenance import collect

    host = collect().host
    gpus = [gpu for gpu in describe_gpus(SystemIO(), ram_bytes=None).gpus if gpu.index is not None]
    return ShardRecord(
        name=name,
        host=socket.gethostname(),
        job=slurm_task(os.environ),
        stage=stage,
        cpu=host.cpu,
        gpus=tuple(gpu.name for gpu in gpus),
        gpu_uuids=tuple(gpu.uuid or "" for gpu in gpus),
        max_clocks_hz=tuple(gpu.max_clock_hz or 0.0 for gpu in gpus),
        drivers=tuple(dict.fromkeys(gpu.driver or "" for gpu in gpus)),
        is_exclusive=_is_exclusive(os.environ),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _is_exclusive(environment: Mapping[str, str]) -> bool | None:
    """Whether the job has all cores of its node; None outside of Slurm."""
    cores = environment.get("SLURM_CPUS_ON_NODE", "")
    return int(cores) >= (os.cpu_count() or 1) if cores.isdecimal() else None


# ---------------------------------------------------------------- being ended


class Interrupt:
    """Why the shard was told to end, if it was; empty for Ctrl-C."""

    reason = ""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGUSR2, which Slurm sends some time before a job's end, and SIGTERM act like Ctrl-C.

    Also where Ctrl-C is ignored, as in a process that a script starts with `&`.
    """

    def end(number: int, frame: object) -> None:
        Interrupt.reason = JOB_TIME_ENDS if number == signal.SIGUSR2 else "the job is ended"
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    if sys.platform == "win32":
        yield
        return
    signals = (signal.SIGUSR2, signal.SIGTERM)
    before = [signal.signal(number, end) for number in signals]
    Interrupt.reason = ""
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)

"""How far sweeps are, from their folders; and what Slurm says of jobs that wait.

Works from any machine that sees the file system, and while shards run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.report.stored import run_key, stored_counts
from ridgeline.report.sweeps import list_sweeps
from ridgeline.store import ResultsFolder, ResultsIndex
from ridgeline.sweep.ledger import CaseRecord, Ledger, read_plan
from ridgeline.sweep.matrix import Stage
from ridgeline.sweep.plan import SweepCase
from ridgeline.sweep.slurm import Slurm, describe_reason, job_name, read_jobs

GUESS_S = {"run": 25.0, "layers": 5.0, "energy": 10.0, "profile": 15.0, "count": 5.0}  # of a case
STILL_OR_WELL = ("PENDING", "RUNNING", "COMPLETED")  # of a task that left the queue just now
START_S = 10.0  # of a process and its model
WARM_UP = 10  # steps before those that are timed …
FEWEST, TIMED_S, MOST = 6, 10.0, 100  # … which are as many as last so long, within these limits


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """How far one stage of a sweep is."""

    name: str  # of the sweep
    stage: str
    total: int = 0
    done: int = 0
    running: int = 0
    failed: int = 0
    remaining_s: float = 0.0
    is_guess: bool = False  # no case like these has ended yet
    failures: tuple[tuple[SweepCase, CaseRecord], ...] = ()
    waits: tuple[str, ...] = ()  # what Slurm says of jobs that wait or ended
    notes: tuple[str, ...] = ()  # on the machines that ran cases

    @property
    def pending(self) -> int:
        return self.total - self.done - self.running - self.failed

    @property
    def is_finished(self) -> bool:
        return self.done + self.failed == self.total

    def may_promote(self, stage: Stage) -> bool:
        """Whether the next stage may start: all cases ended, and enough of them well."""
        return self.is_finished and self.done >= stage.promote * self.total

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "stage": self.stage, "total": self.total, "done": self.done,
            "running": self.running, "pending": self.pending, "failed": self.failed,
            "remaining_s": self.remaining_s,
            "failures": [{"case_id": case.case_id, "settings": case.definition,
                          "status": record.status, "reason": record.reason}
                         for case, record in self.failures],
            "waits": list(self.waits), "notes": list(self.notes),
        }  # fmt: skip


@dataclass(slots=True)
class Expectation:
    """How long cases will take: from those that ended, else from stored runs and counts."""

    times: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    all_times: list[float] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)  # seconds, by what was counted
    flops: dict[str, float] = field(default_factory=dict)  # of a step
    rates: list[float] = field(default_factory=list)  # FLOP/s of stored runs
    predicted: Mapping[str, float] = field(default_factory=dict)  # seconds of steps

    def learn(self, cases: Iterable[SweepCase], records: Mapping[str, CaseRecord]) -> None:
        for case in cases:
            record = records.get(case.case_id)
            if record is not None and record.is_done and record.time_s:
                self.times.setdefault((case.spec.model, *case.what), []).append(record.time_s)
                self.all_times.append(record.time_s)

    def learn_stored(self, index: ResultsIndex) -> None:
        """Take runs and counts of the results folder into account, whatever made them."""
        counts = {key: count.result.flops for key, count in stored_counts(index).items()}
        self.flops = {key: flops for key, flops in counts.items() if flops}
        self.steps = {run_key(run): run.result.step_time_s.median for run in index.runs}
        self.rates = [self.flops[key] / time_s for key, time_s in self.steps.items()
                      if key in self.flops]  # fmt: skip

    def expect(self, case: SweepCase) -> tuple[float, bool]:
        """Seconds, and whether they are a guess: nothing like it has ended or is stored."""
        if like := self.times.get((case.spec.model, *case.what)):
            return median(like), False
        guess_s = sum(GUESS_S[what] for what in case.what)
        step_s = self._expect_step(case)
        if step_s is not None:
            iters = case.settings.iters or min(max(TIMED_S / step_s, FEWEST), MOST)
            more_s = guess_s - GUESS_S["run"] if "run" in case.what else guess_s
            return START_S + (WARM_UP + iters) * step_s + more_s, False
        if self.all_times:
            return median(self.all_times), False
        return min(guess_s, case.timeout_s or guess_s), True

    def _expect_step(self, case: SweepCase) -> float | None:
        """A step as it was measured or predicted, or its FLOPs at the rate of other runs."""
        key = case.step_key
        known = self.steps.get(key) or self.predicted.get(key)
        if known or key not in self.flops or not self.rates:
            return known
        return self.flops[key] / median(self.rates)


def read_status(
    results: ResultsFolder, name: str | None = None, *, slurm: Slurm | None = None
) -> list[StageStatus]:
    """Every stage of one sweep, or of all."""
    names = [name] if name else list_sweeps(results.path)
    if not names:
        raise RidgelineError(
            f"there is no sweep in {results.path}",
            hint="`ridgeline sweep FILE.yaml` starts one",
        )
    stages: list[StageStatus] = []
    for ledger in (Ledger(results, one) for one in names):
        try:
            stages += read_stages(ledger, read_plan(ledger), slurm=slurm)
        except RidgelineError as error:  # one broken file says nothing about the others
            if len(names) == 1:
                raise
            stages.append(StageStatus(name=ledger.name, stage="", notes=(error.problem,)))
    return stages


def read_stages(
    ledger: Ledger,
    plans: Mapping[str, Sequence[SweepCase]],
    *,
    slurm: Slurm | None = None,
    index: ResultsIndex | None = None,
    predicted: Mapping[str, float] | None = None,
) -> list[StageStatus]:
    """The status of every stage. Stored runs and predictions help to tell the time to go."""
    records, running = ledger.records(), ledger.running()
    expectation = Expectation(predicted=predicted or {})
    if index is not None:
        expectation.learn_stored(index)
        records |= ledger.find_stored(case for cases in plans.values() for case in cases)
    for cases in plans.values():
        expectation.learn(cases, records)
    waits = describe_jobs(ledger, slurm) if slurm else {}
    stages = []
    for stage, cases in plans.items():
        known = [(case, records[case.case_id]) for case in cases if case.case_id in records]
        failures = tuple((case, record) for case, record in known if not record.is_done)
        open_cases = [case for case in cases if case.case_id not in records]
        expected = [expectation.expect(case) for case in open_cases]
        stages.append(StageStatus(
            name=ledger.name,
            stage=stage,
            total=len(cases),
            done=len(known) - len(failures),
            failed=len(failures),
            running=sum(case.case_id in running for case in open_cases),
            remaining_s=sum(seconds for seconds, _ in expected),
            is_guess=any(guess for _, guess in expected),
            failures=failures,
            waits=tuple(waits.get(stage, ())) if open_cases else (),
            notes=ledger.list_drifts(stage),
        ))  # fmt: skip
    return stages


def describe_jobs(ledger: Ledger, slurm: Slurm) -> dict[str, list[str]]:
    """What Slurm says of the jobs of each stage: how many wait and why, how others ended."""
    jobs = read_jobs(ledger)
    if not jobs:
        return {}
    stages = list(dict.fromkeys(job.stage for job in jobs))
    queue = slurm.queue(job_name(ledger.name, stage) for stage in stages)
    if queue is None:
        return {stage: ["squeue does not answer: what jobs do is not known"] for stage in stages}
    by_job = {job.job_id: job.stage for job in jobs}
    lines: dict[str, list[str]] = {stage: [] for stage in stages}
    waiting: Counter[tuple[str, str]] = Counter()
    for task in queue:
        if task.state == "PENDING":
            waiting[by_job.get(task.job_id, stages[-1]), task.reason] += 1
    for (stage, reason), count in waiting.items():
        lines[stage].append(f"{count} waiting: {describe_reason(reason)}")
    if waiting:
        free = describe_free(slurm)
        for stage in {stage for stage, _ in waiting}:
            lines[stage] += [free] if free else []
    _add_ended(lines, by_job, {task.job_id for task in queue}, slurm)
    return lines


def _add_ended(
    lines: dict[str, list[str]], by_job: Mapping[str, str], queued: set[str], slurm: Slurm
) -> None:
    """Jobs that left the queue, where the cluster keeps accounts of them."""
    gone = [job_id for job_id in by_job if job_id not in queued]
    ended = Counter((by_job.get(task.job_id, ""), task.state) for task in slurm.history(gone)
                    if task.state not in STILL_OR_WELL)  # fmt: skip
    for (stage, state), count in ended.items():
        if stage:
            lines[stage].append(f"{count} tasks ended: {state}")


def describe_free(slurm: Slurm) -> str:
    """Which nodes are idle, by sinfo."""
    idle = [p for p in slurm.partitions() if p.state in ("idle", "mix")]
    parts = [f"{p.name} {p.nodes} {p.state}{f' ({p.gres})' if p.gres else ''}" for p in idle]
    return f"free by sinfo: {', '.join(parts)}" if parts else "free by sinfo: no node"

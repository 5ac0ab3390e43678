"""The processes of one profile: one that is traced, and one for each group of counters.

They load what they need side by side, without the device, and wait. Told to begin, they build the
model and warm up, side by side again, and take their steps one after the other: while one is
profiled, the others leave the device alone.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ridgeline.captures.ncu_messages import WITHOUT, explain_failure
from ridgeline.errors import RidgelineError
from ridgeline.profile.profile_step import JOB, REFUSED, Job
from ridgeline.profile.request import KINDS, Request

POLL_S = 0.02
READY_S = 900.0  # for building and warming up a large model
LEAST_LIMIT_S = 900.0  # for counting
LIMIT_TIMES = 10  # what was planned, if that is more
ENDING_S = 300.0  # for a program to end after its step, and for ncu to write
LOG_KEPT = 2000  # characters
GRAPHS = (2023, 1)  # the first ncu that can count CUDA graphs as a whole
MOST_MEMORY = 0.8  # of the device's, for all processes together
OnProgress = Callable[[str], None]  # gets what is going on


@dataclass(frozen=True, slots=True)
class Ncu:
    """The program."""

    path: str
    version: str

    def command(self, metrics: Sequence[str], log: Path) -> list[str]:
        """The start of a command line that counts `metrics` as the step runs in earnest.

        Clocks stay as they are and caches are not emptied, so that traffic is that of the step.
        Kernels of a CUDA graph are counted one by one; older versions know no other way.
        """
        has_graphs = version_numbers(self.version) >= GRAPHS
        return [
            self.path, "--csv", "--page", "raw", "--print-units", "base", "--nvtx",
            "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
            *(("--graph-profiling", "node") if has_graphs else ()),
            "--metrics", ",".join(metrics), "--log-file", str(log),
        ]  # fmt: skip


def version_numbers(text: str) -> tuple[int, ...]:
    """(2025, 3, 1) of 2025.3.1."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


@dataclass(slots=True)
class Session:
    """One process at work."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path | None = None  # what ncu writes

    def has_reached(self, *states: str) -> bool:
        """Whether it has reported one of these."""
        return any(self.job.path(state).exists() for state in states)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def output(self) -> str:
        """The end of what the program and ncu printed."""
        texts = []
        for path in (self.job.path("out"), self.log):
            if path is not None:
                with suppress(OSError):
                    texts.append(path.read_text(encoding="utf-8", errors="replace")[-LOG_KEPT:])
        return "\n".join(texts)

    def begin(self) -> None:
        """It may use the device from now on, if it does not already."""
        if not self.has_reached("begin"):
            self.job.path("begin").touch()

    def go(self, what: str = "") -> None:
        """Its turn."""
        waiting = self.job.path("go.new")
        waiting.write_text(what, encoding="utf-8")
        waiting.rename(self.job.path("go"))

    def wait_done(self, planned_s: float = 0.0, *, least_limit_s: float | None = None) -> None:
        """Until its step is counted; it may still be writing."""
        limit_s = max(least_limit_s or LEAST_LIMIT_S, LIMIT_TIMES * planned_s)
        end_s = time.monotonic() + limit_s
        while not self.has_reached("done"):
            if self.has_ended:
                if self.process.returncode != 0:
                    raise self.failure()
                return
            if time.monotonic() > end_s:
                raise RidgelineError(
                    f"the step was not counted within {limit_s / 60:.0f} minutes",
                    hint="another ncu may hold the counters; kernels that wait for one another "
                    "(NCCL) cannot be counted one by one; "
                    f"otherwise try a smaller batch; {WITHOUT}",
                )
            time.sleep(POLL_S)

    def wait(self) -> None:
        """Until it has ended, which it must do without an error."""
        end_s: float | None = None
        while not self.has_ended:
            if end_s is None and self.has_reached("done"):
                end_s = time.monotonic() + ENDING_S
            if end_s is not None and time.monotonic() > end_s:
                raise RidgelineError(
                    f"the program went on for {ENDING_S:.0f} s after its marked step",
                    hint="profile_step ends it by SystemExit: do not catch that, and mark the step "
                    "in the main thread",
                )
            time.sleep(POLL_S)
        if self.process.returncode != 0:
            raise self.failure()

    def end(self) -> None:
        """It goes on no longer, nor does what it has started."""
        if not self.has_ended:
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def failure(self) -> RidgelineError:
        """Why it ended too early."""
        output = self.output
        if self.log is not None and "==ERROR==" in output:
            return explain_failure(output, "ncu failed")
        lines = [line for line in output.splitlines() if line.strip() and not line.startswith("==")]
        last = lines[-1].strip() if lines else "it said nothing"
        return RidgelineError(
            f"the program under the profiler ended with code {self.process.returncode}: {last}",
            hint="see that it runs without the profiler (a model: by `ridgeline run`)",
        )


def start_session(
    program: Sequence[str], job: Job, ncu: Ncu | None = None, metrics: Sequence[str] = ()
) -> Session:
    """Start a program for a job, under ncu if there are metrics to count."""
    log = job.path("csv") if ncu is not None else None
    command = list(program)
    if ncu is not None and log is not None:
        command = [*ncu.command(metrics, log), *program]
    environment = {**os.environ, JOB: str(job.write())}
    with job.path("out").open("wb") as out:
        try:
            process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise RidgelineError(
                f"cannot start {command[0]}: {error.strerror or error}",
                hint="check the program's name and its permissions",
            ) from error
    return Session(job, process, log)


@contextmanager
def all_ended(sessions: Sequence[Session]) -> Iterator[None]:
    """However the block ends, no process of it goes on."""
    try:
        yield
    finally:
        for session in sessions:
            session.end()


def wait_until(state: str, sessions: Sequence[Session]) -> None:
    """Until all are loaded or ready, or have refused; one that ends before has failed."""
    end_s = time.monotonic() + READY_S
    while waiting := [one for one in sessions if not one.has_reached(state, REFUSED)]:
        for session in waiting:
            if session.has_ended and not session.has_reached(state, REFUSED):
                if session.process.returncode == 0:
                    raise RidgelineError(
                        "the program ended without a marked step",
                        hint="put `with ridgeline.profile_step():` around the step in its loop, "
                        f"which has to run at least {session.job.warmup + session.job.steps} times",
                    )
                raise session.failure()
        if time.monotonic() > end_s:
            raise RidgelineError(
                f"the program was not {state} within {READY_S / 60:.0f} minutes",
                hint="try a smaller model or batch",
            )
        time.sleep(POLL_S)


def target_program(task: Path) -> list[str]:
    """The program that takes the step of a model."""
    return [sys.executable, "-m", "ridgeline.profile.model_process", str(task)]


@dataclass(slots=True)
class Workspace:
    """Where the processes of one profile work: their folder, and all of them."""

    request: Request
    folder: Path
    on_progress: OnProgress
    sessions: list[Session] = field(default_factory=list)  # all, for their end
    warnings: list[str] = field(default_factory=list)
    program: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.request.program
        if self.request.task is not None:
            path = self.folder / "task.pickle"
            path.write_bytes(pickle.dumps(self.request.task))
            self.program = tuple(target_program(path))

    def start(
        self, name: str, role: str, ncu: Ncu | None = None, metrics: Sequence[str] = ()
    ) -> Session:
        """A process for one job, under ncu if it counts metrics."""
        request = self.request
        job = Job(
            name=name,
            role=role,
            folder=str(self.folder),
            warmup=request.warmup,
            steps=request.steps,
            has_marks=request.has_marks,
            kinds=tuple(kind for kind in KINDS[request.precision] if kind != "fp8"),
            precision=request.precision,
            level=request.level,
            metrics=request.metrics,
        )
        session = start_session(self.program, job, ncu, metrics)
        self.sessions.append(session)
        return session

    def has_memory_for(self, processes: int) -> bool:
        """Whether so many fit side by side; a user's program runs alone."""
        request = self.request
        needed = processes * request.memory_bytes
        return request.task is not None and 0 < needed < MOST_MEMORY * request.device_bytes

"""Runs that survive: `ridgeline run` and its writer of runs killed at random moments."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.report import Report, Table
from ridgeline.errors import RidgelineError
from ridgeline.records import Failure
from ridgeline.store import ResultsFolder

COMMAND_KILLS = 60
WRITER_KILLS = 500
CHECKED_EVERY = 100  # kills of a writer
SEED = 0
PATIENCE_S = 120.0  # a loaded machine may take long to import torch
LEAVE_S = 20.0  # for the processes of a command that was killed to end by themselves
NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""
MOMENTS = ("starting", "measuring", "writing a run", "writing views")


def run() -> Report:
    """Both parts, each into a folder of its own."""
    with TemporaryDirectory() as folder:
        commands = kill_commands(Path(folder), COMMAND_KILLS, random.Random(SEED))
    with TemporaryDirectory() as folder:
        writers = kill_writers(Path(folder), WRITER_KILLS, random.Random(SEED))
    parts = {"`ridgeline run`": commands, "a loop of `write_run`": writers}
    broken = sum(part.broken for part in parts.values())
    kills = sum(part.kills for part in parts.values())
    return Report(
        title="Runs that survive",
        summary=[
            f"**{kills} kills, {sum(part.completed for part in parts.values())} completed runs, "
            f"{broken} lost, changed or half-written.** What a killed writer leaves "
            "behind has a name that no reader takes for a run."
        ],
        tables=[_table(parts), _moments(commands)],
        notes=[
            "SIGKILL to the command, which cannot be caught, by turns: after a random time since "
            "it was started; a random time after its first run was stored; as soon as a folder "
            "that is being written is seen; as soon as a view (`metrics.csv` and its kin) is. All "
            "into one results folder, with a network of two layers and up to 40 configurations. "
            "After each kill every run that is visible is read back with its tables, every run "
            "that was ever seen is compared with what it was (SHA-256 of its files), "
            "`metrics.csv` is read, and the processes of the command have to be gone. A command "
            "that had ended before it could be killed does not count.",
            "The second part has no torch in it, only the function that stores a run (with a table "
            "of 200 rows and a log), in a process that is killed up to 60 ms after its first run. "
            "It tells of every run that it has stored; each of these has to be there. All runs are "
            f"read back and compared after every {CHECKED_EVERY} kills.",
            f"The random moments are those of seed {SEED}.",
        ],
    )


def _table(parts: dict[str, Tally]) -> Table:
    columns = ("killed", "kills", "runs completed", "runs lost", "runs changed", "half-written",
               "views that cannot be read", "processes left", "leftovers ignored")  # fmt: skip
    rows = [
        (name, part.kills, part.completed, part.lost, part.changed, part.half_written,
         part.broken_views, part.strays, part.leftovers)
        for name, part in parts.items()
    ]  # fmt: skip
    return Table(columns=columns, rows=rows)


def _moments(part: Tally) -> Table:
    names = {"measuring": "measuring, or between two writes"}
    rows = [(names.get(moment, moment), part.moments[moment]) for moment in MOMENTS]
    return Table(title="Where the kills of the command hit", columns=("while", "kills"), rows=rows)


# ---------------------------------------------------------------- what is kept


@dataclass(slots=True)
class Tally:
    """What became of the runs in a folder whose writers are killed."""

    results: ResultsFolder
    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    seen: dict[str, str] = field(default_factory=dict)  # every run that was there, and its hash
    lost: int = 0
    changed: int = 0
    half_written: int = 0
    broken_views: int = 0
    strays: int = 0
    leftovers: int = 0  # of killed writers, under names that no reader takes for a run

    @property
    def completed(self) -> int:
        return len(self.seen)

    @property
    def broken(self) -> int:
        return self.lost + self.changed + self.half_written + self.broken_views

    def check(self) -> None:
        """Look at everything after a kill."""
        there = set(self.results.run_ids())
        self.lost += len(set(self.seen) - there)
        self.seen = {run_id: content for run_id, content in self.seen.items() if run_id in there}
        for run_id in there:
            content = hash_of(self.results.runs_path / run_id)
            self.changed += self.seen.setdefault(run_id, content) != content
        self.half_written += sum(not is_whole(self.results, path) for path in self._visible())
        self.broken_views += not views_are_whole(self.results)
        self.leftovers = len(list(temporaries(self.results)))

    def _visible(self) -> list[Path]:
        if not self.results.runs_path.is_dir():
            return []
        return [path for path in self.results.runs_path.iterdir() if path.name[0] != "."]


def hash_of(run_path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(run_path.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def is_whole(results: ResultsFolder, run_path: Path) -> bool:
    """Whether a run reads back with all its tables."""
    try:
        run = results.read_run(run_path.name)
        for table in run_path.glob("*.parquet"):
            results.read_table(run_path.name, table.stem)
    except RidgelineError:
        return False
    return not isinstance(run.result, Failure)


def views_are_whole(results: ResultsFolder) -> bool:
    """Whether metrics.csv is absent, or has all its columns in every row."""
    import pandas as pd

    path = results.path / "metrics.csv"
    if not path.exists():
        return True
    if not path.read_text().endswith("\n"):
        return False
    return set(pd.read_csv(path)["run_id"]) <= set(results.run_ids())


# ---------------------------------------------------------------- the command


def kill_commands(folder: Path, kills: int, chance: random.Random) -> Tally:
    """Start `ridgeline run` and kill it, again and again, into one results folder."""
    (folder / "net.py").write_text(NET)
    tally = Tally(ResultsFolder(folder / "results"))
    for moment in cycle(MOMENTS):
        if tally.kills == kills:
            break
        batches = "1" if moment == "writing views" else ",".join(map(str, range(1, 41)))
        before = set(temporaries(tally.results))
        stored = set(tally.results.run_ids())
        command = start_command(folder, batches)
        wait_for(moment, command, tally.results, before, stored, chance)
        command.kill()  # not its children: they have to notice
        was_killed = command.wait() == -signal.SIGKILL  # else it had ended before
        tally.strays += count_strays(command.pid)
        if was_killed:
            tally.kills += 1
            tally.moments[what_was_hit(tally.results, before, stored)] += 1
        tally.check()
    return tally


def start_command(folder: Path, batches: str) -> subprocess.Popen[bytes]:
    options = ["--input-size", "4", "--batch-size", batches, "--iters", "2", "--warmup-iters", "0",
               "--no-energy", "--quiet", "--layers"]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "ridgeline", "run", "net.py:make", *options],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_for(
    moment: str,
    command: subprocess.Popen[bytes],
    results: ResultsFolder,
    before: set[Path],
    stored: set[str],
    chance: random.Random,
) -> None:
    """Wait for the moment to kill in; the end of the command ends the waiting too."""
    reached: dict[str, Callable[[], bool]] = {
        "starting": lambda: True,
        "measuring": lambda: bool(set(results.run_ids()) - stored),
        "writing a run": lambda: any(p.parent == results.runs_path for p in new(results, before)),
        "writing views": lambda: any(p.parent == results.path for p in new(results, before)),
    }
    end_s = time.monotonic() + PATIENCE_S
    while not reached[moment]() and command.poll() is None and time.monotonic() < end_s:
        time.sleep(0.0005)
    longest_s = {"starting": 5.0, "measuring": 2.0}.get(moment, 0.002)
    time.sleep(chance.uniform(0, longest_s))


def temporaries(results: ResultsFolder) -> Iterator[Path]:
    """What is being written, or was when its writer was killed."""
    for folder in (results.path, results.runs_path):
        yield from folder.glob(".tmp-*")


def new(results: ResultsFolder, before: set[Path]) -> set[Path]:
    return set(temporaries(results)) - before


def what_was_hit(results: ResultsFolder, before: set[Path], stored: set[str]) -> str:
    """By what the command left behind."""
    places = {path.parent for path in new(results, before)}
    if results.runs_path in places:
        return "writing a run"
    if results.path in places:
        return "writing views"
    return "measuring" if set(results.run_ids()) - stored else "starting"


def count_strays(session: int) -> int:
    """Processes of the session that are still there after a while; they are ended."""
    end_s = time.monotonic() + LEAVE_S
    while (left := living(session)) and time.monotonic() < end_s:
        time.sleep(0.02)
    for process in left:
        process.kill()
    return len(left)


def living(session: int) -> list[psutil.Process]:
    """The processes of a session; those that have ended and wait for their parent are not."""
    found = []
    for process in psutil.process_iter():
        try:
            is_own = os.getsid(process.pid) == session
            if is_own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


# ---------------------------------------------------------------- the writer alone


def kill_writers(folder: Path, kills: int, chance: random.Random) -> Tally:
    """Kill a process that does nothing but store runs."""
    tally = Tally(ResultsFolder(folder / "results"))
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pandas", "pyarrow.parquet", "benchmarks.kills"])
    for number in range(kills):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=write_forever, args=(tally.results.path, theirs))
        process.start()
        theirs.close()
        told = [ours.recv()]
        time.sleep(chance.uniform(0, 0.06))
        process.kill()
        process.join()
        told += rest_of(ours)
        tally.kills += 1
        tally.lost += len(set(told) - set(tally.results.run_ids()))
        if (number + 1) % CHECKED_EVERY == 0 or number + 1 == kills:
            tally.check()
    return tally


def write_forever(path: Path, tell: Connection) -> None:
    """Store one run after another and tell of each."""
    import pandas as pd

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    table = pd.DataFrame({"layer": [f"layer.{n}" for n in range(200)], "time_s": 1e-3})
    results = ResultsFolder(path)
    while True:
        run_id = results.save_run(
            label="killed", request={"command": "train"},
            result={"history": [{"n": [0.1] * 500}]},
            provenance={}, tables={"layers": table}, log="a line\n" * 100,
        )  # fmt: skip
        tell.send(run_id)


def rest_of(ours: Connection) -> list[str]:
    """What was told and not yet heard; a message that was cut off tells of nothing."""
    told = []
    try:
        while True:
            told.append(ours.recv())
    except (EOFError, OSError):
        ours.close()
        return told

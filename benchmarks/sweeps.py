"""Sweeps: killed at random moments; how long planning and status take."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.sweep.quick_sweep import make_sweep, run_sweep

from benchmarks.report import Report, Table
from ridgeline.store import ResultsFolder
from ridgeline.sweep.ledger import DONE, CaseRecord, Ledger
from ridgeline.sweep.matrix import matrix_from_dict
from ridgeline.sweep.plan import plan_stage
from ridgeline.sweep.run import Sweep
from ridgeline.sweep.status import read_status

KILLS = 200
LONGEST_S = 0.25  # from the start of a sweep to its kill; a whole one takes about this long
FINISHED, PLANNED = 2_000, 10_000
SEED = 0
COMMAND = [sys.executable, "-m", "tests.sweep.quick_sweep"]


def run() -> Report:
    with TemporaryDirectory() as folder:
        kills = kill_sweeps(Path(folder), random.Random(SEED))
    with TemporaryDirectory() as folder:
        plan_s, status_s = time_plan(), time_status(Path(folder))
    lost, twice = kills["lost"], kills["twice"]
    return Report(
        title="Sweeps that survive, and what they cost",
        summary=[
            f"**{KILLS} kills over {kills['sweeps']} sweeps: {lost} completed cases lost, {twice}"
            f" measured twice, {kills['different']} sweeps that ended otherwise than an undisturbed"
            " one.**"
        ],
        tables=[
            Table(columns=("", "time"), rows=[
                (f"plan {PLANNED:,} cases", f"{plan_s:.2f} s"),
                (f"status over {FINISHED:,} finished cases", f"{status_s:.2f} s"),
            ]),
        ],
        notes=[
            "A sweep of 21 cases in two stages, each of which stands for a measurement and takes"
            " 10 ms; one runs out of memory. SIGKILL to its process at a random moment of up to"
            f" {LONGEST_S:g} s after it began, then the same sweep again, until it has ended five"
            " times over; then a new folder. After each kill every run is read back. The random"
            f" moments are those of seed {SEED}.",
        ],
    )  # fmt: skip


def kill_sweeps(folder: Path, chance: random.Random) -> Counter[str]:
    """Kill sweeps at random moments; what was lost, done twice or ended otherwise."""
    undisturbed = endings(run_sweep(folder / "undisturbed"))
    found: Counter[str] = Counter(lost=0, twice=0, different=0)
    kills, number = 0, 0
    while kills < KILLS:
        number += 1
        results, seen, ended = folder / str(number), Counter[str](), 0
        while ended < 5 and kills < KILLS:
            process = subprocess.Popen([*COMMAND, str(results)], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0, LONGEST_S))
            was_over = process.poll() is not None
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += not was_over
            ended += was_over
            now = measured(results)
            found["lost"] += sum((seen - now).values())
            seen = now
        subprocess.run([*COMMAND, str(results)], check=True, stdout=subprocess.DEVNULL)
        found["sweeps"] += 1
        found["twice"] += sum(count - 1 for count in measured(results).values())
        found["different"] += endings(make_sweep(results)) != undisturbed
    return found


def endings(sweep: Sweep) -> dict[str, str]:
    return {case_id: record.status for case_id, record in sweep.ledger.records().items()}


def measured(folder: Path) -> Counter[str]:
    """How often each case was measured, by the names of the completed runs."""
    return Counter(run.run_id.split("Z-")[1][:12] for run in ResultsFolder(folder).index().runs)


def time_plan() -> float:
    matrix = matrix_from_dict(
        {"models": ["resnet50", "vgg16"], "batch_size": "1:50", "input_size": "224:1214:10"},
        name="large",
    )
    assert len(plan_stage(matrix.stages[0])) == PLANNED
    return least_time(lambda: plan_stage(matrix.stages[0]))


def time_status(folder: Path) -> float:
    matrix = matrix_from_dict(
        {"models": ["resnet50", "vgg16"], "batch_size": f"1:{FINISHED // 2}"}, name="large"
    )
    sweep = Sweep(matrix=matrix, results=ResultsFolder(folder))
    sweep.save()
    ledger = Ledger(ResultsFolder(folder), "large")
    for case in sweep.plans["full"]:
        ledger.record(CaseRecord(case_id=case.case_id, status=DONE, time_s=20.0))
    return least_time(lambda: read_status(ResultsFolder(folder)))


def least_time(do: Callable[[], Any]) -> float:
    """Of three."""
    times = []
    for _ in range(3):
        start_s = time.perf_counter()
        do()
        times.append(time.perf_counter() - start_s)
    return min(times)

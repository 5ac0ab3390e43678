"""Count many models by name, each with a time limit, in a few processes, resumable.

What is done is kept, a line of JSON per model, in build/bench/. The file's name holds a digest of
ridgeline's source and the versions of what it traces: killed and started again it goes on where it
was, and after a change of the code it starts afresh.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, Report, Table, one_line, without_folders

CACHE = ROOT / "build" / "bench"
PROCESSES = 2
TOO_LONG = "took longer than"
MODELS_PER_PROCESS = 100  # then a new one, so that nothing piles up


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One model, counted or not."""

    name: str
    time_s: float
    traced_on: str = ""
    macs: int = 0
    params: int = 0
    coverage: float = 0.0
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""  # empty when it was counted
    trace: list[str] = field(default_factory=list)  # the last lines of the traceback

    @property
    def is_counted(self) -> bool:
        return not self.error


def sweep(title: str, names: Sequence[str], *, limit_s: float) -> list[Outcome]:
    """An outcome for every name, in their order; progress on the terminal."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cache = CACHE / f"{title}-{digest()}.jsonl"
    done = {outcome.name: outcome for outcome in read(cache)}
    todo = [name for name in names if name not in done]
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[model]}")) as bar:
        task = bar.add_task(title, total=len(names), completed=len(names) - len(todo), model="")
        for outcome in count_all(todo, limit_s):
            append(cache, outcome)
            done[outcome.name] = outcome
            bar.update(task, advance=1, model=outcome.name)
    return [done[name] for name in names]


def digest() -> str:
    """Changes with ridgeline's source and with the libraries whose models are counted."""
    import ridgeline

    source = Path(str(ridgeline.__file__)).parent
    seen = hashlib.sha256()
    for room in ("count", "workloads"):
        for path in sorted((source / room).rglob("*.py")):
            seen.update(path.read_bytes())
    for library in ("torch", "timm", "transformers"):
        seen.update(metadata.version(library).encode())
    return seen.hexdigest()[:12]


def read(cache: Path) -> Iterator[Outcome]:
    """What an earlier run has finished. Lines cut off by a kill and timeouts are tried again."""
    for line in cache.read_text(encoding="utf-8").splitlines() if cache.exists() else []:
        try:
            outcome = Outcome(**json.loads(line))
        except ValueError:
            continue
        if not outcome.error.startswith(TOO_LONG):
            yield outcome


def append(cache: Path, outcome: Outcome) -> None:
    """Keep one outcome at once: the next model may be the last."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


# ---------------------------------------------------------------- processes


class Worker:
    """A process that counts one model after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.name, self.start_s, self.given = "", 0.0, 0

    def give(self, name: str) -> None:
        self.name, self.start_s, self.given = name, time.monotonic(), self.given + 1
        self.connection.send(name)

    def result(self) -> Outcome:
        """What it found; an outcome that says so if the process died."""
        try:
            return Outcome(**self.connection.recv())
        except (EOFError, OSError):
            self._process.join()
            return self.failed(f"the process ended with code {self._process.exitcode}")

    def failed(self, why: str) -> Outcome:
        return Outcome(name=self.name, time_s=time.monotonic() - self.start_s, error=why)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def count_all(names: Sequence[str], limit_s: float) -> Iterator[Outcome]:
    """Outcomes as they come, from a few processes."""
    todo = deque(names)
    workers: list[Worker] = []
    try:
        while todo or workers:
            while todo and len(workers) < PROCESSES:
                workers.append(start(todo.popleft()))
            for worker, outcome in finished(workers, limit_s):
                yield outcome
                reuse = outcome.is_counted or bool(outcome.trace)
                if todo and reuse and worker.given < MODELS_PER_PROCESS:
                    worker.give(todo.popleft())
                else:
                    worker.stop()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


def start(name: str) -> Worker:
    worker = Worker()
    worker.give(name)
    return worker


def finished(workers: Sequence[Worker], limit_s: float) -> list[tuple[Worker, Outcome]]:
    """Those that have answered, died or run out of time within the next moment."""
    ready = wait([worker.connection for worker in workers], timeout=0.5)
    found = [(worker, worker.result()) for worker in workers if worker.connection in ready]
    late = [
        (worker, worker.failed(f"{TOO_LONG} {limit_s:.0f} s"))
        for worker in workers
        if worker.connection not in ready and time.monotonic() - worker.start_s > limit_s
    ]
    return found + late


def serve(connection: Connection) -> None:
    """In the worker: count what comes, until nobody asks any more."""
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            name = connection.recv()
        except EOFError:
            os._exit(0)
        connection.send(asdict(count_one(name)))


def count_one(name: str) -> Outcome:
    """One model in infer mode at batch 1."""
    import ridgeline

    start_s = time.perf_counter()
    try:
        found = ridgeline.count(name)
        facts = measured(found)
    except Exception as error:
        last = traceback.format_exc().strip().splitlines()[-6:]
        facts = {"error": reason(error), "trace": [without_folders(line) for line in last]}
    return Outcome(name=name, time_s=time.perf_counter() - start_s, **facts)


def measured(found: Any) -> dict[str, Any]:
    """The fields of an Outcome that a CountResult gives."""
    return {
        "traced_on": found.traced_on,
        "macs": found.total.macs,
        "params": found.params,
        "coverage": found.coverage,
        "unknown": list(found.unknown),
        "notes": list(found.notes),
    }


def reason(error: BaseException) -> str:
    """The problem in one line, for people."""
    text = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
    return one_line(without_folders(text), 240)


# ---------------------------------------------------------------- the report


def report(title: str, outcomes: Sequence[Outcome], *, limit_s: float, what: str) -> Report:
    """Totals, what failed and why, what is not covered."""
    counted = [o for o in outcomes if o.is_counted]
    whole = [o for o in counted if o.coverage == 1.0]
    total_s = sum(o.time_s for o in outcomes)
    return Report(
        title=title,
        summary=[
            f"**{len(counted)} of {len(outcomes)} {what} counted, {len(whole)} of them with every "
            f"operator covered**, in {total_s:.0f} s summed over models."
        ],
        tables=[
            totals(outcomes, total_s),
            failures(outcomes),
            uncovered(counted),
            odd_ways(counted),
            slowest(outcomes),
        ],
        notes=[
            f"`ridgeline.count(name)` at batch 1 in infer mode, {PROCESSES} processes of one "
            f"thread each, at most {limit_s:.0f} s per model. Times are of building and counting, "
            "with whatever else ran on the machine."
        ],
    )


def totals(outcomes: Sequence[Outcome], total_s: float) -> Table:
    counted = [o for o in outcomes if o.is_counted]
    on = Counter(o.traced_on for o in counted)
    rows = [
        ("models", len(outcomes)),
        ("counted", len(counted)),
        *((f"traced on {where} tensors", number) for where, number in sorted(on.items())),
        ("counted with an assumption", sum(any("assumed" in n for n in o.notes) for o in counted)),
        ("coverage below 100 %", sum(o.coverage < 1 for o in counted)),
        ("no MACs found", sum(o.macs == 0 for o in counted)),
        ("not counted", len(outcomes) - len(counted)),
        ("time summed over models, s", f"{total_s:.0f}"),
        ("median time, s", f"{sorted(o.time_s for o in outcomes)[len(outcomes) // 2]:.2f}"),
    ]
    return Table(title="Totals", columns=("", "number"), rows=rows)


def failures(outcomes: Sequence[Outcome]) -> Table:
    """By reason, most common first."""
    rows = [(o.name, o.error) for o in outcomes if not o.is_counted]
    common = Counter(error for _, error in rows)
    rows.sort(key=lambda row: (-common[row[1]], row[1], row[0]))
    return _or_none("Not counted", ("model", "reason"), rows)


def uncovered(counted: Sequence[Outcome]) -> Table:
    rows = [
        (o.name, ", ".join(f"`{op}`" for op in o.unknown), f"{100 * o.coverage:.2f} %")
        for o in counted
        if o.coverage < 1
    ]
    return _or_none(
        "Coverage below 100 %", ("model", "operators without a formula", "covered"), rows
    )


def odd_ways(counted: Sequence[Outcome]) -> Table:
    """Models that were not simply traced without data."""
    rows = [(o.name, o.traced_on, "; ".join(o.notes)) for o in counted if o.notes]
    return _or_none("Not by shapes alone", ("model", "tensors", "note"), rows)


def slowest(outcomes: Sequence[Outcome]) -> Table:
    ranked = sorted(outcomes, key=lambda o: -o.time_s)[:10]
    rows = [(o.name, f"{o.time_s:.1f}") for o in ranked]
    return Table(title="The ten slowest", columns=("model", "s"), rows=rows)


def _or_none(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    empty = ("none", *[""] * (len(columns) - 1))
    return Table(title=title, columns=columns, rows=rows or [empty], text_columns=len(columns))

"""`ridgeline sweep`, an experiment matrix in stages, here or on Slurm; `ridgeline status`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.cli.messages import (
    SOME_FAILED,
    end_interrupted,
    messages_unless,
    print_json,
    show_message,
)
from ridgeline.cli.options import Output, argument, option, takes_groups
from ridgeline.cli.tables import NOT_KNOWN, Columns, make_grid, print_grid
from ridgeline.errors import RidgelineError
from ridgeline.settings import one_of
from ridgeline.units import format_time

if TYPE_CHECKING:
    from ridgeline.sweep.ledger import CaseRecord
    from ridgeline.sweep.plan import SweepCase
    from ridgeline.sweep.run import Sweep
    from ridgeline.sweep.status import StageStatus

EXECUTORS = ("local", "slurm")
EXAMPLES = """
[bold]Examples[/]

  ridgeline sweep --list                                   # ready matrices
  ridgeline sweep --copy laptop-cpu                        # a file to change
  ridgeline sweep laptop-cpu.yaml --dry-run                # how many cases, how long
  ridgeline sweep laptop-cpu.yaml
  ridgeline sweep study.yaml --executor slurm              # one job array a stage
  ridgeline sweep cancel study

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 cases failed (their
reasons: `ridgeline status`); 130 interrupted. What was completed is kept in every case; the same
command goes on where it ended.
"""
STATUS_EXAMPLES = """
[bold]Examples[/]

  ridgeline status
  ridgeline status study --watch
  ridgeline status --json | jq '.sweeps[] | {name, stage, done, total}'
"""
WATCH_S = 30.0  # squeue is a burden for a cluster: not more often
MOST_REASONS = 5


@takes_groups
def sweep(
    words: list[str] | None = argument(
        None, "FILE|NAME", "A YAML file, a stored sweep or a ready matrix; `cancel NAME` ends one."
    ),
    stage: str | None = option(None, "Run this stage only."),
    dry_run: bool = option(False, "Show the cases and the time; run nothing.", "--dry-run"),
    markdown: bool = option(
        False, "With --dry-run: the run matrix with done and open cases.", "--markdown"
    ),
    executor: str = option("local", "local or slurm.", choices=EXECUTORS),
    parallel: int = option(
        1, "Processes that run cases at once; each has a GPU of its own.", min=1
    ),
    retry_failed: bool = option(False, "Try failed cases again.", "--retry-failed"),
    set_power: bool = option(
        False,
        "Let the matrix change power_limit_w or nvpmodel of this machine; needs root.",
        "--set-power",
    ),
    list_ready: bool = option(False, "List ready matrices.", "--list"),
    copy: str | None = option(None, "Copy a ready matrix to NAME.yaml here.", metavar="NAME"),
    shard: int | None = option(None, "", hidden=True),
    shards: int = option(1, "", hidden=True),
    *,
    output: Output,
) -> None:
    """Run every combination of a matrix, stage by stage; resumes where it ended."""
    from ridgeline.store import ResultsFolder
    from ridgeline.sweep import run as sweeps

    if list_ready or copy:
        _show_ready(copy, as_json=output.as_json)
        return
    one_of("--executor", executor, EXECUTORS)
    if markdown and not dry_run:
        raise RidgelineError("--markdown shows a plan", hint="add --dry-run")
    folder = ResultsFolder(output.results)
    name, is_cancel = _parse_argument(words or [])
    plan = sweeps.open_sweep(name, folder)
    if stage is not None:
        plan.matrix.stage(stage)
    if is_cancel:
        _cancel(plan)
        return
    if shard is None:
        plan.check_models()
    if dry_run and markdown:
        _print_matrix(plan, stage)
    elif dry_run:
        _show_plan(plan, stage, executor, as_json=output.as_json)
    elif shard is not None:
        first = stage or plan.matrix.stages[0].name
        done = sweeps.run_shard(
            plan, first, shard, shards, on_message=show_message, on_record=_print_record
        )
        plan.write_tables()
        sys.exit(SOME_FAILED if done.failed else 0)
    else:
        is_alone = executor == "local" and parallel == 1
        sweeps.check_power(plan, set_power=set_power, is_alone=is_alone)
        plan.save()
        if retry_failed:
            show_message(f"{plan.retry_failed(stage)} failed cases will be tried again")
        run = _run_on_slurm if executor == "slurm" else _run_here
        run(plan, stage, parallel, as_json=output.as_json, quiet=output.quiet)


def _parse_argument(words: list[str]) -> tuple[str, bool]:
    if words[:1] == ["cancel"] and len(words) == 2:
        return words[1], True
    if len(words) != 1 or words == ["cancel"]:
        problem = "no matrix was named" if not words else f"cannot read {' '.join(words)!r}"
        raise RidgelineError(
            problem, hint="ridgeline sweep FILE.yaml, or ridgeline sweep cancel NAME;"
            " `ridgeline sweep --list` shows ready matrices",
        )  # fmt: skip
    return words[0], False


def _show_ready(copy: str | None, *, as_json: bool) -> None:
    from ridgeline.sweep.run import copy_ready, read_all_ready

    if copy:
        print(copy_ready(copy.removesuffix(".yaml"), Path()))
        return
    ready = {name: text.splitlines()[0].lstrip("# ") for name, text in read_all_ready().items()}
    if as_json:
        print_json({"ready": [{"name": n, "about": a} for n, a in ready.items()]})
        return
    width = max(map(len, ready))
    for name, about in ready.items():
        print(f"{name:{width}}  {about}")
    show_message("run one by its name, or `ridgeline sweep --copy NAME` and change it")


def _cancel(plan: Sweep) -> None:
    from ridgeline.report.text import counted
    from ridgeline.sweep.run import cancel

    count, left = cancel(plan)
    still = f", {left} of them still: try again in a minute" if left else ""
    print(f"{plan.matrix.name}: {counted(count, 'case')} at work{still}; what is done is kept")


# ---------------------------------------------------------------- a dry run


def _show_plan(plan: Sweep, stage: str | None, executor: str, *, as_json: bool) -> None:
    from ridgeline.sweep.slurm import Slurm

    chosen = [s for s in plan.status(with_stored=True) if stage in (None, s.stage)]
    if as_json:
        content = {
            "name": plan.matrix.name,
            "stages": [
                {
                    "name": status.stage,
                    "cases": [{"case_id": case.case_id, **case.definition}
                              for case in plan.plans[status.stage]],
                    "done": status.done,
                    "expected_s": status.remaining_s,
                }
                for status in chosen
            ],
        }  # fmt: skip
        print_json(content)
        return
    for status in chosen:
        print(f"stage {status.stage}: {_describe_plan(status)}")
    if executor == "slurm":
        from ridgeline.sweep.run import SlurmRun

        run = SlurmRun(sweep=plan, slurm=Slurm())
        first = next((s for s in chosen if not s.is_finished), chosen[-1])
        part = plan.matrix.stage(first.stage)
        numbers = range(len(run.shards(part)))
        print(f"\n{run.script(part, list(numbers), run.shards(part)[0][0].gpu)}", end="")


def _print_matrix(plan: Sweep, stage: str | None) -> None:
    """The run matrix as Markdown: a table for each stage, a row for each case."""
    from ridgeline.report.sweeps import read_default
    from ridgeline.report.text import markdown_table
    from ridgeline.sweep.ledger import format_cell

    every = [case for cases in plan.plans.values() for case in cases]
    records = plan.ledger.records() | plan.ledger.find_stored(every)
    print(f"# {plan.matrix.name}")
    for status in plan.status(with_stored=True):
        if stage not in (None, status.stage):
            continue
        cases = plan.plans[status.stage]
        names = dict.fromkeys(name for case in cases for name in case.definition if name != "what")
        rows = []
        for case in cases:
            record = records.get(case.case_id)
            known = case.definition
            cells = [str(format_cell(known[name])) if name in known else read_default(name)
                     for name in names]  # fmt: skip
            rows.append([*cells, record.status if record else "open"])
        print(f"\n## {status.stage}\n\n{_describe_plan(status)}\n")
        print(markdown_table([*names, "status"], rows))


def _describe_plan(status: StageStatus) -> str:
    guess = ", a guess: nothing like it has been run yet" if status.is_guess else ""
    return (
        f"{status.total} cases, {status.done} done, {status.failed} failed;"
        f" about {format_time(status.remaining_s)} to go{guess}"
    )


# ---------------------------------------------------------------- runs


def _run_here(plan: Sweep, stage: str | None, parallel: int, *, as_json: bool, quiet: bool) -> None:
    from ridgeline.cli.progress import progress_bar
    from ridgeline.signals import interrupts_later, interrupts_noted
    from ridgeline.sweep.run import LocalRun

    total = sum(len(plan.open_cases(s.name)) for s in plan.stages_from(stage))
    interrupts, is_silent = list[int](), quiet or as_json
    stdout = subprocess.DEVNULL if is_silent else None
    run = LocalRun(sweep=plan, parallel=parallel, stdout=stdout)
    with (
        interrupts_noted(interrupts),
        progress_bar(total, quiet=quiet or parallel > 1) as progress,
    ):
        run.progress = progress

        def show(case: SweepCase, record: CaseRecord) -> None:
            if not is_silent:
                with progress.aside():
                    _print_record(case, record)

        run.on_record = show
        run.run(stage)
    with interrupts_later():  # views, tables and the status
        plan.write_tables()
        stages = plan.status()
        print_stages(stages, as_json=as_json)
        if plan.stopped:
            show_message(f"note: stopped: {plan.stopped}")
    if interrupts:
        end_interrupted("; the same command goes on where this ended")
    advice = {
        f"report {plan.matrix.name}": any(status.done for status in stages),
        f"sweep {plan.matrix.name} --retry-failed": any(status.failed for status in stages),
    }
    for words in (words for words, is_useful in advice.items() if is_useful and not is_silent):
        show_message(f"next: ridgeline {words} --results {plan.results.path}")
    if any(status.failed for status in stages):
        sys.exit(SOME_FAILED)


def _print_record(case: SweepCase, record: CaseRecord) -> None:
    took = f" ({format_time(record.time_s)})" if record.time_s else ""
    why = f": {record.detail}" if record.detail else ""
    print(f"{record.status}: {case.name}{took}{why}", flush=True)


def _run_on_slurm(
    plan: Sweep, stage: str | None, parallel: int, *, as_json: bool, quiet: bool
) -> None:
    from ridgeline.report.text import counted
    from ridgeline.sweep.run import SlurmRun

    say = messages_unless(quiet)

    run = SlurmRun(sweep=plan, on_message=say)
    run.run(stage)
    if as_json:
        jobs = [{"job_id": job.job_id, "stage": job.stage, "shards": list(job.shards)}
                for job in run.submitted]  # fmt: skip
        print_json({"name": plan.matrix.name, "jobs": jobs, "stopped": plan.stopped})
    else:
        for job in run.submitted:
            shards = counted(len(job.shards), "shard")
            print(f"job {job.job_id}: stage {job.stage}, {shards}; {job.script}")
        if plan.stopped:
            print(plan.stopped)
        elif not run.submitted:
            print("nothing was submitted: every case is done, failed, or waits in a job already")
    say(f"how far it is: ridgeline status {plan.matrix.name} --results {plan.results.path}")


# ---------------------------------------------------------------- how far sweeps are


@takes_groups
def status(
    name: str | None = argument(None, "NAME", "One sweep; all if none."),
    watch: bool = option(False, "Show it again until it is over.", "--watch"),
    *,
    output: Output,
) -> None:
    """Show how far sweeps are: done, running, waiting, failed and why, and the time to go."""
    from ridgeline.store import ResultsFolder
    from ridgeline.sweep.slurm import Slurm
    from ridgeline.sweep.status import read_status

    folder, slurm = ResultsFolder(output.results), Slurm()
    while True:
        stages = read_status(folder, name, slurm=slurm)
        print_stages(stages, as_json=output.as_json)
        if not watch or not any(one.running or one.pending for one in stages):
            return
        time.sleep(WATCH_S)


STAGES: Columns = {
    "sweep": lambda one: one.name,
    "stage": lambda one: one.stage,
    "cases": lambda one: str(one.total),
    "done": lambda one: str(one.done),
    "running": lambda one: str(one.running),
    "pending": lambda one: str(one.pending),
    "failed": lambda one: str(one.failed),
    "to go": lambda one: (
        "~" * one.is_guess + format_time(one.remaining_s) if not one.is_finished else NOT_KNOWN
    ),
}


def print_stages(stages: list[StageStatus], *, as_json: bool) -> None:
    """The stages of sweeps as a table, with the reasons of what failed or waits."""
    if as_json:
        print_json({"sweeps": [one.to_dict() for one in stages]})
        return
    print_grid(make_grid(stages, STAGES, names=2))
    for one in stages:
        reasons = Counter(f"{r.status}: {r.detail}" if r.detail else r.status
                          for _, r in one.failures)  # fmt: skip
        for reason, count in reasons.most_common(MOST_REASONS):
            print(f"{one.name} {one.stage}: {count} × {reason}")
        if len(reasons) > MOST_REASONS:
            print(
                f"{one.name} {one.stage}: {len(reasons) - MOST_REASONS} more reasons, with --json"
            )
        for line in (*one.waits, *one.notes):
            print(f"{one.name} {one.stage}: {line}")
    sys.stdout.flush()

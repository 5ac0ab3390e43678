"""`ridgeline sweep`: an experiment matrix, in stages, here or on Slurm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.options import check_choice, complete, parse_folder
from ridgeline.cli.step_options import Debug, Json, Quiet
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from ridgeline.sweep.ledger import CaseRecord
    from ridgeline.sweep.plan import SweepCase
    from ridgeline.sweep.run import SlurmRun, Sweep
    from ridgeline.sweep.status import StageStatus

SOME_FAILED = 3
EXECUTORS = ("local", "slurm")
EXAMPLES = """
[bold]Examples[/]

  ridgeline sweep --list                                   # ready matrices
  ridgeline sweep --copy laptop-cpu                        # a file to change
  ridgeline sweep laptop-cpu.yaml --dry-run                # how many cases, how long
  ridgeline sweep laptop-cpu.yaml
  ridgeline sweep laptop-cpu --stage quick --retry-failed
  ridgeline sweep study.yaml --executor slurm              # one job array a stage
  ridgeline sweep cancel study

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 cases failed (their
reasons: `ridgeline status`); 130 interrupted. What was completed is kept in every case; the same
command goes on where it ended.
"""


def sweep(
    file: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|NAME",
            show_default=False,
            help="A YAML file, a stored sweep or a ready matrix; `cancel NAME` ends one.",
        ),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Run this stage only.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cases and the time; run nothing.")
    ] = False,
    executor: Annotated[
        str, typer.Option(help="local or slurm.", autocompletion=complete(EXECUTORS))
    ] = "local",
    parallel: Annotated[
        int,
        typer.Option(min=1, help="Processes that run cases at once; each has a GPU of its own."),
    ] = 1,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try failed cases again.")
    ] = False,
    list_ready: Annotated[bool, typer.Option("--list", help="List ready matrices.")] = False,
    copy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Copy a ready matrix to NAME.yaml here.")
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", parser=parse_folder, help="Where everything is kept.")
    ] = Path("results"),
    shard: Annotated[int | None, typer.Option(hidden=True)] = None,
    shards: Annotated[int, typer.Option(hidden=True)] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run every combination of a matrix, stage by stage; resumes where it ended."""
    from ridgeline.store import ResultsFolder
    from ridgeline.sweep import run as sweeps

    if list_ready or copy:
        _show_ready(copy, as_json=as_json)
        return
    check_choice("--executor", executor, EXECUTORS)
    folder = ResultsFolder(results)
    name, is_cancel = _parse_argument(file)
    plan = sweeps.open_sweep(name, folder)
    if stage is not None:
        plan.matrix.stage(stage)
    if is_cancel:
        _cancel(plan)
    elif dry_run:
        _show_plan(plan, stage, executor, as_json=as_json)
    elif shard is not None:
        first = stage or plan.matrix.stages[0].name
        done = sweeps.run_shard(plan, first, shard, shards, on_message=_say)
        _write_tables(plan)
        sys.exit(SOME_FAILED if done.failed else 0)
    else:
        plan.save()
        if retry_failed:
            _retry(plan, stage)
        run = _run_on_slurm if executor == "slurm" else _run_here
        run(plan, stage, parallel, as_json=as_json, quiet=quiet)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _parse_argument(file: list[str] | None) -> tuple[str, bool]:
    words = file or []
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
    from ridgeline.sweep.run import copy_ready, list_ready

    if copy:
        print(copy_ready(copy.removesuffix(".yaml"), Path()))
        return
    ready = list_ready()
    if as_json:
        print(json.dumps({"ready": [{"name": n, "about": a} for n, a in ready.items()]}, indent=2))
        return
    width = max(map(len, ready))
    for name, about in ready.items():
        print(f"{name:{width}}  {about}")
    print("run one by its name, or `ridgeline sweep --copy NAME` and change it", file=sys.stderr)


def _cancel(plan: Sweep) -> None:
    from ridgeline.sweep.run import cancel

    count = cancel(plan)
    print(f"{plan.matrix.name}: {count} cases were at work and are ended; what is done is kept")


def _retry(plan: Sweep, stage: str | None) -> None:
    chosen = [stage] if stage else list(plan.plans)
    ids = [case.case_id for name in chosen for case in plan.plans[name]]
    count = plan.ledger.forget_failures(ids)
    print(f"{count} failed cases will be tried again", file=sys.stderr)


# ---------------------------------------------------------------- a dry run


def _show_plan(plan: Sweep, stage: str | None, executor: str, *, as_json: bool) -> None:
    from ridgeline.sweep.slurm import Slurm
    from ridgeline.units import format_time

    chosen = [s for s in plan.status() if stage in (None, s.stage)]
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
        print(json.dumps(content, indent=2, default=str))
        return
    for status in chosen:
        guess = ", a guess: no such case has been run yet" if status.is_guess else ""
        print(
            f"stage {status.stage}: {status.total} cases, {status.done} done,"
            f" {status.failed} failed; about {format_time(status.remaining_s)} to go{guess}"
        )
    if executor == "slurm":
        from ridgeline.sweep.run import SlurmRun

        run = SlurmRun(sweep=plan, slurm=Slurm())
        first = next((s for s in chosen if not s.is_finished), chosen[-1])
        part = plan.matrix.stage(first.stage)
        numbers = range(len(run.shards(part)))
        print(f"\n{run.script(part, list(numbers), run.shards(part)[0][0].gpu)}", end="")


# ---------------------------------------------------------------- runs


def _run_here(plan: Sweep, stage: str | None, parallel: int, *, as_json: bool, quiet: bool) -> None:
    from ridgeline.cli.progress import progress_bar
    from ridgeline.sweep.run import LocalRun

    total = sum(len(plan.open_cases(s.name)) for s in plan.stages_from(stage))
    interrupted = False
    run = LocalRun(sweep=plan, parallel=parallel)
    try:
        with progress_bar(total, quiet=quiet) as progress:
            run.progress = progress

            def show(case: SweepCase, record: CaseRecord) -> None:
                if not quiet and not as_json:
                    with progress.aside():
                        print(_describe_record(case, record), flush=True)

            run.on_record = show
            run.run(stage)
    except KeyboardInterrupt:
        interrupted = True
    _finish(plan, run.stopped, as_json=as_json, quiet=quiet, interrupted=interrupted)


def _describe_record(case: SweepCase, record: CaseRecord) -> str:
    from ridgeline.units import format_time

    took = f" ({format_time(record.time_s)})" if record.time_s else ""
    why = f": {record.reason}" if record.reason else ""
    return f"{record.status}: {case.name}{took}{why}"


def _finish(plan: Sweep, stopped: str, *, as_json: bool, quiet: bool, interrupted: bool) -> None:
    """Views, tables and the status; the exit code."""
    from ridgeline.cli.status import print_stages
    from ridgeline.signals import INTERRUPTED, interrupts_later

    with interrupts_later():
        _write_tables(plan)
        stages = plan.status()
        print_stages(stages, as_json=as_json)
        if stopped:
            print(f"note: stopped: {stopped}", file=sys.stderr)
    if interrupted:
        print("ridgeline: interrupted; the same command goes on where this ended", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if not quiet and not as_json:
        _advise(plan, stages)
    if any(status.failed for status in stages):
        sys.exit(SOME_FAILED)


def _write_tables(plan: Sweep) -> None:
    """The views of the results folder, and the tables of each stage."""
    from ridgeline.report.views import write_views
    from ridgeline.sweep.tables import write_stage

    write_views(plan.results)
    for name, cases in plan.plans.items():
        write_stage(plan.ledger, name, cases)


def _advise(plan: Sweep, stages: list[StageStatus]) -> None:
    folder = plan.results.path
    if any(status.done for status in stages):
        print(f"next: ridgeline report {plan.matrix.name} --results {folder}", file=sys.stderr)
    if any(status.failed for status in stages):
        print(f"next: ridgeline sweep {plan.matrix.name} --retry-failed --results {folder}",
              file=sys.stderr)  # fmt: skip


def _run_on_slurm(
    plan: Sweep, stage: str | None, parallel: int, *, as_json: bool, quiet: bool
) -> None:
    from ridgeline.sweep.run import SlurmRun

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    run = SlurmRun(sweep=plan, on_message=say)
    run.run(stage)
    if as_json:
        print(json.dumps(_describe_jobs(run), indent=2))
    else:
        for job in run.submitted:
            print(f"job {job.job_id}: stage {job.stage}, {len(job.shards)} shards; {job.script}")
        if run.stopped:
            print(run.stopped)
        elif not run.submitted:
            print("nothing was submitted: every case is done, failed, or waits in a job already")
    say(f"how far it is: ridgeline status {plan.matrix.name} --results {plan.results.path}")


def _describe_jobs(run: SlurmRun) -> dict[str, Any]:
    jobs = [{"job_id": job.job_id, "stage": job.stage, "shards": list(job.shards)}
            for job in run.submitted]  # fmt: skip
    return {"name": run.sweep.matrix.name, "jobs": jobs, "stopped": run.stopped}

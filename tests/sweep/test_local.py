"""Sweeps on this machine: stages, endings, kills, leases."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.predict.calibrations import store_own
from tests.sweep import networks
from tests.sweep.quick_sweep import MATRIX, make_sweep, measure, run_sweep

import ridgeline
from ridgeline.cli import main
from ridgeline.errors import RidgelineError
from ridgeline.pipeline.count_models import count_request
from ridgeline.records import CountRequest
from ridgeline.store import ResultsFolder
from ridgeline.sweep.ledger import CaseRecord, Holder, Ledger, ShardRecord
from ridgeline.sweep.run import LocalRun, Sweep, cancel, open_sweep, write_tables
from ridgeline.sweep.shard import ended_by_signals
from ridgeline.sweep.status import read_status

COMMAND = [sys.executable, "-m", "tests.sweep.quick_sweep"]
CASES = 21  # of both stages together: batch 1 of each network is in both


def endings(sweep: Sweep) -> dict[str, str]:
    return {case_id: record.status for case_id, record in sweep.ledger.records().items()}


def runs_of_cases(folder: Path) -> Counter[str]:
    """How often each case was measured, by the names of the completed runs."""
    index = ResultsFolder(folder).index()
    assert index.problems == ()
    return Counter(run.run_id.split("Z-")[1][:12] for run in index.runs)


def test_a_sweep_from_its_first_stage_to_its_last(tmp_path: Path) -> None:
    sweep = run_sweep(tmp_path)

    quick, full = read_status(ResultsFolder(tmp_path))
    assert (quick.total, quick.done, quick.failed, quick.is_finished) == (6, 6, 0, True)
    assert (full.total, full.done, full.failed, full.is_finished) == (18, 17, 1, True)
    ((case, record),) = full.failures
    assert (case.spec.batch_size, record.status) == (6, "out of memory")
    assert Counter(runs_of_cases(tmp_path).values()) == {1: CASES - 1}
    assert len(endings(sweep)) == CASES
    assert not list((sweep.ledger.path / "leases").iterdir())


def test_what_is_done_is_not_run_again_but_failures_are_on_request(tmp_path: Path) -> None:
    sweep = run_sweep(tmp_path)
    before = runs_of_cases(tmp_path)

    run_sweep(tmp_path)
    assert runs_of_cases(tmp_path) == before

    ids = [case.case_id for cases in sweep.plans.values() for case in cases]
    assert sweep.ledger.forget_failures(ids) == 1
    run_sweep(tmp_path)
    assert runs_of_cases(tmp_path) == before
    assert Counter(endings(sweep).values()) == {"done": CASES - 1, "out of memory": 1}


def test_a_stage_that_fails_holds_back_the_next(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path)
    sweep.save()

    def fail(task: object, send: object = None) -> None:
        raise MemoryError

    run = LocalRun(sweep=sweep, work=fail, in_process=True)  # type: ignore[arg-type]
    run.run()

    assert sweep.stopped.startswith("6 of 6 cases of the stage quick failed")
    assert [(s.stage, s.failed) for s in sweep.status()] == [("quick", 6), ("full", 3)]


@pytest.mark.parametrize(("restarts", "ended"), [("0", {}), ("2", {"timeout": 1})])
def test_a_case_that_fits_into_no_job_is_not_begun_for_ever(
    restarts: str, ended: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a job of Slurm whose time ends in its first case
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    sweep = make_sweep(tmp_path)
    sweep.save()

    def last(task: object, send: object = None) -> None:
        signal.raise_signal(signal.SIGUSR2)

    with pytest.raises(KeyboardInterrupt):
        LocalRun(sweep=sweep, work=last, in_process=True).run()  # type: ignore[arg-type]

    assert Counter(endings(sweep).values()) == ended


def test_the_same_case_in_another_sweep_is_taken_over(tmp_path: Path) -> None:
    first = run_sweep(tmp_path)
    other = Sweep(matrix=first.matrix, results=first.results)
    object.__setattr__(other.ledger, "name", "another")
    other.save()

    assert set(endings(other).values()) == {"done"}
    assert len(endings(other)) == CASES - 1
    assert runs_of_cases(tmp_path) == runs_of_cases(first.results.path)


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    chance = random.Random(0)
    undisturbed = endings(run_sweep(tmp_path / "undisturbed"))
    folder = tmp_path / "killed"
    seen: Counter[str] = Counter()

    for _ in range(12):
        process = subprocess.Popen([*COMMAND, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = runs_of_cases(folder)
        assert seen <= now  # nothing that was completed is lost
        seen = now
    subprocess.run([*COMMAND, str(folder)], check=True, stdout=subprocess.DEVNULL)

    assert endings(make_sweep(folder)) == undisturbed
    assert Counter(runs_of_cases(folder).values()) == {1: CASES - 1}


def test_sigterm_ends_a_sweep_also_where_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a script, with `&`
    try:
        with ended_by_signals(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_cancel_waits_until_nobody_is_at_work(tmp_path: Path) -> None:
    process = subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.DEVNULL)
    sweep = make_sweep(tmp_path)
    while not sweep.ledger.running() and process.poll() is None:
        time.sleep(0.001)

    assert cancel(sweep) == (1, 0)

    assert process.wait(20) != 0
    assert len(endings(sweep)) < CASES
    assert sweep.ledger.running() == {}


def test_the_status_of_a_network_in_a_file_is_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    network = Path("net.py")
    network.write_text("one")
    sweep = open_sweep({"name": "mine", "models": "net.py:make"}, ResultsFolder(tmp_path))
    sweep.save()
    (case,) = sweep.plans["full"]
    sweep.ledger.record(CaseRecord(case_id=case.case_id, status="done"))

    network.write_text("another")  # is another network when the sweep goes on …
    (status,) = read_status(ResultsFolder(tmp_path))
    assert status.done == 1
    assert open_sweep("mine", ResultsFolder(tmp_path)).status()[0].done == 0
    network.unlink()  # … but a file that is elsewhere is the same
    assert open_sweep("mine", ResultsFolder(tmp_path)).status()[0].done == 1


def test_two_shards_share_a_sweep_and_run_each_case_once(tmp_path: Path) -> None:
    both = [subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.DEVNULL) for _ in "ab"]
    assert [process.wait() for process in both] == [0, 0]

    assert Counter(runs_of_cases(tmp_path).values()) == {1: CASES - 1}


def test_the_time_to_go_is_told_by_stored_runs_and_counts(tmp_path: Path) -> None:
    # given runs of lstm at 1 ms a sample, and counts of batch 1 and of batch 7, which was never run
    results = run_sweep(tmp_path).results
    for batch_size in (1, 7):
        count_request(results, CountRequest(model="lstm", batch_size=batch_size, mode="train"))
    matrix = {"name": "next", "models": "lstm", "backend": "cpu", "batch_size": 7}
    sweep = open_sweep(matrix, results)

    (guess,), (told,) = sweep.status(), sweep.status(with_stored=True)

    assert (guess.is_guess, guess.remaining_s) == (True, 25.0)
    assert not told.is_guess
    steps = 10 + 100  # of 7 ms each, after 10 s in which the process starts
    assert told.remaining_s == pytest.approx(10 + steps * 0.007, rel=0.02)


def test_a_machine_that_became_slower_is_named(tmp_path: Path) -> None:
    sweep = run_sweep(tmp_path)
    sweep.ledger.record_shard(
        ShardRecord(name="s", host="node7", stage="full", has_drifted=True, drift="9 % slower")
    )

    quick, full = read_status(ResultsFolder(tmp_path))

    assert (quick.notes, full.notes) == ((), ("node7: 9 % slower",))
    assert full.to_dict()["notes"] == ["node7: 9 % slower"]


# ---------------------------------------------------------------- leases


def test_a_lease_is_for_one(tmp_path: Path) -> None:
    ledger = Ledger(ResultsFolder(tmp_path), "study")

    lease = ledger.claim("abc")

    assert lease is not None
    assert ledger.claim("abc") is None
    assert ledger.running()["abc"].pid == os.getpid()
    with lease.held():
        assert lease.is_ours()
    assert ledger.running() == {}


def test_the_lease_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    ledger = Ledger(ResultsFolder(tmp_path), "study")
    first = ledger.claim("abc")
    assert first is not None
    dead = Holder(token="t", host=first.holder.host, pid=2**22 + 1)
    first.path.write_text(json.dumps({"token": "t", "host": dead.host, "pid": dead.pid}))

    second = ledger.claim("abc")

    assert second is not None
    assert second.is_ours() and not first.is_ours()


def test_the_lease_of_another_machine_is_stale_without_a_heartbeat(tmp_path: Path) -> None:
    ledger = Ledger(ResultsFolder(tmp_path), "study")
    lease = ledger.claim("abc")
    assert lease is not None
    lease.path.write_text(json.dumps({"token": "t", "host": "elsewhere", "pid": 1}))

    assert ledger.claim("abc") is None  # its heart beats
    long_ago_s = time.time() - 1000
    os.utime(lease.path, (long_ago_s, long_ago_s))
    assert ledger.claim("abc") is not None


# ---------------------------------------------------------------- the command


@pytest.mark.slow
def test_every_ending_of_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(networks.__file__)
    matrix = tmp_path / "study.yaml"
    matrix.write_text(
        f"models: [{file}:good, {file}:broken, {file}:too_large, {file}:endless, {file}:absent]\n"
        "backend: cpu\nmode: infer\niters: 2\nbatch_size: 2\ntimeout: 20\n"
        f"include: [{{models: '{file}:good', batch_size: [1, 3, 4]}}]\n"
    )
    results = tmp_path / "results"

    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(matrix), "--results", str(results), "--json"])

    assert ended.value.code == 3
    (stage,) = json.loads(capsys.readouterr().out)["sweeps"]
    assert (stage["total"], stage["done"], stage["failed"]) == (8, 4, 4)
    reasons = {str(f["settings"]["model"]).rpartition(":")[2]: f for f in stage["failures"]}
    assert {name: failure["status"] for name, failure in reasons.items()} == {
        "broken": "failed", "too_large": "out of memory", "endless": "timeout",
        "absent": "not supported",
    }  # fmt: skip
    assert "this network cannot be run" in reasons["broken"]["reason"]
    assert "absent" in reasons["absent"]["reason"]
    folder = results / "sweeps" / "study"
    tables = sorted(path.name for path in (folder / "full").rglob("*.csv"))
    assert [name.partition("_")[2] for name in tables] == ["default_overall.csv"]


def test_a_case_that_another_sweep_has_run_is_done_in_a_plan(tmp_path: Path) -> None:
    first = run_sweep(tmp_path)

    other = open_sweep({**MATRIX, "name": "other"}, first.results)

    assert [stage.done for stage in first.status()] == [6, 17]
    assert [stage.done for stage in other.status(with_stored=True)] == [6, 17]
    assert other.ledger.records() == {}  # nothing is written by looking


def test_a_broken_sweep_does_not_hide_the_others(tmp_path: Path) -> None:
    first = run_sweep(tmp_path)
    folder = tmp_path / "sweeps" / "broken"
    folder.mkdir()
    (folder / "sweep.yaml").write_text("models: [")
    (folder / "cases.csv").write_text("stage,case_id\n")

    stages = read_status(first.results)

    assert [(one.name, one.stage, one.done) for one in stages] == [
        ("broken", "", 0), ("study", "quick", 6), ("study", "full", 17),
    ]  # fmt: skip
    assert "sweep.yaml" in stages[0].notes[0]


def test_a_precision_that_the_device_does_not_use_is_not_supported(tmp_path: Path) -> None:
    matrix = {"name": "half", "models": "lstm", "backend": "cpu", "precision": "amp"}
    sweep = open_sweep(matrix, ResultsFolder(tmp_path))
    sweep.save()

    LocalRun(sweep=sweep, work=measure, in_process=True).run()

    (record,) = sweep.ledger.records().values()
    assert (record.status, record.run_ids) == ("not supported", ())
    assert record.reason == "amp is not used on this device: fp32 ran"


def test_tables_of_a_stage_have_the_columns_of_the_views(tmp_path: Path) -> None:
    sweep = run_sweep(tmp_path)

    written = write_tables(sweep.ledger, {"quick": sweep.plans["quick"]})

    assert [path.relative_to(sweep.ledger.path).as_posix() for path in written] == [
        "quick/lstm_default_a-processor/lstm_default_overall.csv",
        "quick/yolo_default_a-processor/yolo_default_overall.csv",
        "quick/resnet18-cifar_default_a-processor/resnet18-cifar_default_overall.csv",
    ]
    header, *rows = written[0].read_text().splitlines()
    assert header.startswith("model,algorithm,batch_size,input_size,mean,std,min,max,median")
    assert len(rows) == 2


def test_a_dry_run_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("models: lstm\nbatch_size: [1, 2]\nstages: {quick: {batch_size: 1}, full: }\n")

    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(file), "--dry-run", "--json", "--results", str(tmp_path / "r")])

    assert ended.value.code == 0
    content = json.loads(capsys.readouterr().out)
    assert content["name"] == "study"
    assert [(s["name"], len(s["cases"]), s["done"]) for s in content["stages"]] == [
        ("quick", 1, 0), ("full", 2, 0),
    ]  # fmt: skip
    assert content["stages"][0]["cases"][0]["model"] == "lstm"
    assert content["stages"][0]["expected_s"] > 0
    assert not (tmp_path / "r").exists()


def test_the_run_matrix_as_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_sweep(tmp_path)

    with pytest.raises(SystemExit):
        main(["sweep", "study", "--stage", "quick", "--dry-run", "--markdown",
              "--results", str(tmp_path)])  # fmt: skip

    assert (
        capsys.readouterr().out
        == """\
# study

## quick

6 cases, 6 done, 0 failed; about 0 s to go

| model | batch_size | mode | backend | status |
| --- | --- | --- | --- | --- |
| lstm | 1 | train | cpu | done |
| lstm | 64 | train | cpu | done |
| yolo | 1 | train | cpu | done |
| yolo | 64 | train | cpu | done |
| resnet18_cifar | 1 | train | cpu | done |
| resnet18_cifar | 64 | train | cpu | done |
"""
    )


@pytest.mark.slow
def test_a_dictionary_in_python_does_what_a_file_does(tmp_path: Path) -> None:
    model = f"{networks.__file__}:good"
    matrix = {"name": "mine", "models": [model], "backend": "cpu", "mode": "infer", "iters": 2,
              "batch_size": [1, 2]}  # fmt: skip

    (stage,) = ridgeline.sweep(matrix, results=tmp_path)

    assert (stage.name, stage.total, stage.done) == ("mine", 2, 2)
    assert (tmp_path / "metrics.csv").is_file()
    assert len(list((tmp_path / "sweeps" / "mine" / "full").rglob("*_overall.csv"))) == 1
    ids = {case.case_id for case in open_sweep(matrix, ResultsFolder(tmp_path)).plans["full"]}
    file = tmp_path / "other.yaml"
    file.write_text(json.dumps(matrix))
    assert {case.case_id for case in open_sweep(file, ResultsFolder(tmp_path)).plans["full"]} == ids
    with pytest.raises(
        RidgelineError, match="the matrix: batch_size is 0, not a whole number above zero"
    ):
        ridgeline.sweep(matrix | {"batch_size": 0}, results=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep"], "no matrix was named"),
        (["sweep", "nowhere.yaml"], "no such file: nowhere.yaml"),
        (["sweep", "nothing"], "there is no sweep 'nothing'"),
        (["sweep", "laptop-cpu", "--stage", "x"], "has no stage 'x'"),
        (["sweep", "typo.yaml"], "typo.yaml, line 1: unknown model 'resnet19'"),
        (["sweep", "typo.yaml", "--dry-run"], "typo.yaml, line 1: unknown model 'resnet19'"),
        (["sweep", "lost.yaml"], "lost.yaml, line 1: no such file: lost.py:make"),
        (["sweep", "--copy", "x"], "no ready matrix is called 'x'"),
        (["sweep", "laptop-cpu", "--executor", "pbs"], "pbs"),
        (["sweep", "laptop-cpu", "--markdown"], "--markdown shows a plan"),
        (["status"], "there is no sweep in"),
        (["status", "x"], "there is no sweep 'x'"),
    ],
)
def test_wrong_calls_are_one_error(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typo.yaml").write_text("models: [resnet18, resnet19]")
    Path("lost.yaml").write_text("models: lost.py:make")

    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--results", str(tmp_path)])

    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in error
    assert error.count("\n") == 2


def test_the_time_to_go_is_predicted_on_a_calibrated_machine(tmp_path: Path) -> None:
    store_own(tmp_path)
    matrix = {"name": "next", "models": "lstm", "backend": "cpu", "batch_size": 7}
    sweep = open_sweep(matrix, ResultsFolder(tmp_path))

    (status,) = sweep.status(with_stored=True)

    count = ridgeline.count("lstm", batch_size=7, mode="train")
    (step,) = ridgeline.predict("lstm", batch_size=7, mode="train", results=tmp_path)
    assert count.batch_size == step.batch_size
    iters = min(max(10 / step.time_s, 6), 100)
    assert not status.is_guess
    assert status.remaining_s == pytest.approx(10 + (10 + iters) * step.time_s)

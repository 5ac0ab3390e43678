"""The runner of cases without the command line, as a sweep uses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.measure.measured import measured

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import MeasuredCase, Progress
from ridgeline.pipeline.cases import Case, CaseRunner, Executor, NoProgress, Selection
from ridgeline.records import Failure, RunResult
from ridgeline.settings import Settings
from ridgeline.store import ResultsFolder

SELECTION = Selection(
    models=("good", "bad"), settings=(Settings(), Settings(precision="amp")), batch_sizes=(1, 2),
    repeats=2, label="mine",
)  # fmt: skip
HERE = Executor(in_process=True, keeps_stdout=True)


def measure(task: Any, send: Any) -> MeasuredCase:
    """What a process would do for these models."""
    send(Progress(what="timing", done=1, total=2))
    if task.spec.model == "bad":
        raise ValueError("no way")
    if task.spec.model == "wrong":
        raise RidgelineError("unknown model 'wrong'", hint="name another")
    if task.spec.model == "interrupted":
        raise KeyboardInterrupt
    return MeasuredCase(result=replace(measured().result, model=task.spec.model), log="said")


def cases(*models: str) -> Iterator[Case]:
    for model in models:
        yield Case(spec=SELECTION.spec(model, 2), settings=Settings(), label="mine")


@pytest.fixture
def runner(tmp_path: Path) -> CaseRunner:
    return CaseRunner(results=ResultsFolder(tmp_path), executor=HERE, work=measure)


def test_a_selection_is_every_combination() -> None:
    each = [
        (case.spec.model, case.settings.precision, case.spec.batch_size, case.repeat)
        for model in SELECTION.models
        for settings in SELECTION.settings
        for case in SELECTION.cases(model, settings, SELECTION.batch_sizes)
    ]
    assert len(each) == len(set(each)) == SELECTION.case_count == 16
    assert each[:3] == [("good", "fp32", 1, 1), ("good", "fp32", 1, 2), ("good", "fp32", 2, 1)]


def test_each_case_is_stored_and_the_next_goes_on(runner: CaseRunner) -> None:
    seen: list[str] = []
    runner.on_result = lambda case, result: seen.append(result.model)
    runner.run(cases("good", "bad", "wrong", "wrong", "good"))
    # then a crash is a failed run, and an input that is wrong is noted once
    stored = runner.results.read_runs()
    assert stored == runner.runs
    kinds = [(run.request.model, type(run.result)) for run in stored]
    assert kinds == [("good", RunResult), ("bad", Failure), ("good", RunResult)]
    assert [error.problem for error in runner.errors] == ["unknown model 'wrong'"]
    assert (len(runner.completed), runner.failed[0].result.reason) == (2, "ValueError: no way")
    assert seen == ["good", "good"]
    assert all("-mine-" in run.run_id and run.request.label == "mine" for run in stored)
    assert runner.results.read_log(stored[0].run_id) == "said"
    assert runner.results.read_log(stored[1].run_id).startswith("Traceback")


def test_an_interrupt_keeps_what_is_done(runner: CaseRunner) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run(cases("good", "interrupted", "good"))
    assert [run.request.model for run in runner.runs] == ["good"]
    assert runner.results.read_runs() == runner.runs


def test_a_script_gets_what_a_case_raises(runner: CaseRunner) -> None:
    runner.reraises = True
    with pytest.raises(ValueError, match="no way"):
        runner.run(cases("bad"))
    assert runner.results.run_ids() == []


def test_progress_is_heard(runner: CaseRunner) -> None:
    heard: list[Any] = []

    class Listener(NoProgress):
        def start(self, what: str, seconds: float = 0.0, *, advance: bool = True) -> None:
            heard.append((what, seconds))

        def update(self, what: str, done: int, total: int) -> None:
            heard.append((what, done, total))

    runner.progress, runner.case_s = Listener(), 30.0
    runner.run(cases("good"))
    assert heard == [("good, batch 2, fp32", 30.0), ("timing", 1, 2)]


def test_each_model_has_the_sizes_that_it_can_have() -> None:
    sizes = replace(SELECTION, input_sizes=((64,), (96,)), seq_len=8)
    chosen = replace(sizes, without=frozenset({("good", "seq_len"), ("bad", "input_size")}))
    each = [one.spec(model) for model in chosen.models for one in chosen.sizes_of(model)]
    assert [(one.model, one.input_size, one.seq_len) for one in each] == [
        ("good", (64,), None), ("good", (96,), None), ("bad", None, 8),
    ]  # fmt: skip
    assert chosen.case_count == 3 * 2 * 2 * 2  # precisions, batch sizes, repeats

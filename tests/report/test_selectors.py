"""What a name stands for: runs, labels, models, commits, folders, passports; and when it is two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.report.compared import write

from ridgeline.errors import RidgelineError
from ridgeline.report.compare import select
from ridgeline.store import ResultsFolder, Run

PASSPORT = Path(__file__).parents[1] / "data" / "passport-h200.json"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsFolder:
    monkeypatch.chdir(tmp_path)
    return ResultsFolder(Path("results"))


def ids(text: str, results: ResultsFolder) -> tuple[str, list[str]]:
    side = select(text, results)
    return side.kind, [run.run_id for run in side.runs]


def of(*runs: Run) -> list[str]:
    return [run.run_id for run in runs]


def refusal(text: str, results: ResultsFolder) -> str:
    with pytest.raises(RidgelineError) as refused:
        select(text, results)
    return str(refused.value)


def test_runs_labels_and_models(results: ResultsFolder) -> None:
    first = write(results, label="before")
    second = write(results, label="after")
    third = write(results, label="after", model="resnet50")

    assert ids(first.run_id, results) == ("run", of(first))
    assert ids(first.run_id[-6:], results) == ("run", of(first))
    assert ids(f"run:{third.run_id[:-3]}", results) == ("run", of(third))
    assert ids(f"results/runs/{second.run_id}", results) == ("run", of(second))
    assert ids("after", results) == ("label", of(second, third))
    assert ids("vgg16", results) == ("model", of(first, second))
    assert str(select("after", results)) == "after (label, 2 runs)"


def test_commits(results: ResultsFolder) -> None:
    mine = write(results, provenance={"commit": {"sha": "abc123"}, "ridgeline_commit": None})
    own = write(results, provenance={"commit": None, "ridgeline_commit": {"sha": "abd456"}})

    assert ids("commit:abc", results) == ("commit", of(mine))
    assert ids("commit:abd4", results) == ("commit", of(own))
    assert refusal("commit:ab", results) == (
        "'ab' is the beginning of 2 commits\n  hint: write more of it: abc123, abd456"
    )
    assert "there is nothing called 'commit:ff'" in refusal("commit:ff", results)


def test_other_results_folders(results: ResultsFolder) -> None:
    other = ResultsFolder(Path("other"))
    write(results, label="x")
    one, two = write(other, label="x"), write(other, model="resnet50")

    assert ids("other", results) == ids("other/", results) == ("folder", of(one, two))
    assert ids("other:x", results) == ("label", of(one))
    assert ids("other:model:resnet50", results) == ("model", of(two))
    assert select("other:x", results).text == "other:x"


def test_machines(results: ResultsFolder) -> None:
    machines = results.path / "machines"
    machines.mkdir(parents=True)
    shutil.copy(PASSPORT, machines / "nvidia-h200.json")

    named, file = select("nvidia-h200", results), select(str(PASSPORT), results)

    assert named.passport == file.passport is not None
    assert str(named) == "nvidia-h200 (passport of 2026-11-15)"
    assert select("machine:nvidia-h200", results).kind == "machine"


def test_a_name_of_several_things(results: ResultsFolder) -> None:
    write(results, label="resnet50")
    write(results, model="resnet50")
    write(ResultsFolder(Path("resnet50")))

    assert refusal("resnet50", results) == (
        "'resnet50' may mean 3 things\n"
        "  hint: write one of label:resnet50, model:resnet50, resnet50/"
    )
    assert ids("label:resnet50", results)[0] == "label"


def test_a_name_of_one_thing_in_two_ways(results: ResultsFolder) -> None:
    run = write(results, model="resnet50", label="resnet50")

    assert ids("resnet50", results)[1] == of(run)


def test_a_beginning_of_several_runs(results: ResultsFolder) -> None:
    runs = [write(results), write(results)]

    assert refusal("20", results) == (
        f"'20' is the name of 2 runs\n  hint: write more of it: {', '.join(of(*runs))}"
    )


def test_a_name_of_nothing(results: ResultsFolder) -> None:
    assert refusal("x", results) == (
        "there is nothing called 'x' to compare in results\n"
        "  hint: there are no runs in this folder; name another one with --results DIR"
    )
    run = write(results, label="before")
    assert refusal("x", results).endswith(
        f"hint: labels: before; models: vgg16; newest runs: {run.run_id}"
    )
    assert "names no side" in refusal("", results)
    assert "names no side" in refusal("label:", results)
    assert "there are no completed runs in nowhere/" in refusal("nowhere/", results)
    Path("empty").mkdir()
    assert "empty is not a results folder" in refusal("empty", results)


def test_runs_without_step_times(results: ResultsFolder) -> None:
    failed = write(results, found={"status": "failed", "reason": "out of memory"})
    counted = write(results, command="count")
    bare = write(results, found={"step_time_s": {**write(results).found["step_time_s"],
                                                 "samples": [0.0, 1.0]}})  # fmt: skip

    assert "failed, so it has no times: out of memory" in refusal(failed.run_id, results)
    assert "is of `ridgeline count` and has no step times" in refusal(counted.run_id, results)
    assert select("vgg16", results).problems == (
        f"run {bare.run_id} is passed over: it has no step times",
    )


def test_a_damaged_run_is_passed_over_with_a_word(results: ResultsFolder) -> None:
    good, bad = write(results, label="x"), write(results, label="x")
    (bad.path / "run.json").write_text("{")
    later = write(results, label="x")
    (later.path / "run.json").write_text(json.dumps({"schema_version": 99}))

    side = select("x", results)

    assert [run.run_id for run in side.runs] == of(good)
    assert len(side.problems) == 2
    assert "cannot read" in refusal(bad.run_id, results)

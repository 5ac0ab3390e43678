"""Two sides: which configurations are matched, what is said about them, and in which form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.compared import BUSY, MEASURED, QUIET, layer_table, times, write

from ridgeline.errors import RidgelineError
from ridgeline.report.compare import compare, select
from ridgeline.report.comparison import Comparison, as_markdown, explanations, summary
from ridgeline.store import ResultsFolder, Run


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsFolder:
    monkeypatch.chdir(tmp_path)
    return ResultsFolder(Path("results"))


def of_runs(a: str, b: str, **options: Any) -> Comparison:
    found = compare(a, b, **options)
    assert isinstance(found, Comparison)
    return found


def rows(found: Comparison) -> list[tuple[str, str, float]]:
    return [(row.name, row.time.verdict, round(row.time.ratio, 3)) for row in found.rows]


def test_labels_are_matched_by_configuration(results: ResultsFolder) -> None:
    for batch_size, scale in ((16, 1.0), (32, 1.2), (64, 0.9)):
        write(results, batch_size=batch_size, label="before")
        write(results, times(scale), batch_size=batch_size, label="after")
    write(results, batch_size=128, label="before")
    write(results, batch_size=16, precision="amp", label="after")

    found = of_runs("before", "after")

    assert rows(found) == [  # shown differences first, the largest first
        ("vgg16, batch 32, train, tf32", "slower", 1.2),
        ("vgg16, batch 64, train, tf32", "faster", 0.9),
        ("vgg16, batch 16, train, tf32", "no difference shown", 1.0),
    ]
    assert found.only_before == ("vgg16, batch 128, train, tf32",)
    assert found.only_after == ("vgg16, batch 16, train, amp",)
    assert found.mean_ratio == pytest.approx((1.0 * 1.2 * 0.9) ** (1 / 3))
    assert found.slower_by_more_than(0.1) == ["vgg16, batch 32, train, tf32, +20.0 %"]
    assert found.slower_by_more_than(0.2 + 1e-9) == []
    assert found.table()["change"].tolist() == [row.time.share for row in found.rows]
    assert str(found) == as_markdown(found)


def test_whole_folders_are_matched_strictly(results: ResultsFolder) -> None:
    write(ResultsFolder(Path("one")), model="resnet50")
    write(ResultsFolder(Path("two")), model="resnet101")

    with pytest.raises(RidgelineError) as refused:
        compare("one/", "two/")

    assert str(refused.value) == (
        "one/ and two/ have no configuration in common\n"
        "  hint: one/ has resnet50, batch 128, train, tf32. "
        "two/ has resnet101, batch 128, train, tf32"
    )
    assert len(of_runs("one:resnet50", "two:resnet101").rows) == 1  # named, so it is meant


def test_runs_on_a_busy_machine_are_not_judged(results: ResultsFolder) -> None:
    for batch_size in (16, 32):
        write(results, batch_size=batch_size, label="before", found=QUIET)
    write(results, times(1.5), batch_size=16, label="after", found=BUSY)
    write(results, times(1.2), batch_size=32, label="after", found=QUIET)

    found = of_runs("before", "after")

    assert rows(found) == [
        ("vgg16, batch 32, train, tf32", "slower", 1.2),
        ("vgg16, batch 16, train, tf32", "not judged", 1.5),
    ]
    assert found.rows[1].others["peak_memory_bytes"].is_judged  # load does not change it
    assert summary(found) == (
        "2 configurations: 1 slower, 1 not judged; geometric mean +34.2 % time"
    )
    why = "not judged: the machine was busy during B (other programs had the processor)"
    assert f"vgg16, batch 16, train, tf32: {why}" in explanations(found)


def test_one_busy_run_of_three_is_outvoted(results: ResultsFolder) -> None:
    for scale, state in ((1.0, QUIET), (1.01, QUIET), (2.0, BUSY)):
        write(results, times(), label="before", found=QUIET)
        write(results, times(scale), label="after", found=state)

    assert of_runs("before", "after").rows[0].time.verdict == "no difference shown"
    write(results, times(2.0), label="after", found=BUSY)
    assert of_runs("before", "after").rows[0].time.verdict == "not judged"


# ---------------------------------------------------------------- in words


def test_markdown_has_everything(results: ResultsFolder) -> None:
    table = layer_table(**{"a|b": ([0.001] * 6, [0.002] * 6), "gone": ([0.003], [])})
    write(results, label="a", layers=table)
    write(results, times(1.5), label="b", layers=table[:1], seed=1)

    text = as_markdown(of_runs("a", "b"))

    assert text.startswith("### A: a (label, 1 run), B: b (label, 1 run)\n")
    assert "| configuration | verdict | A, step | B, step | change | 95 % interval |" in text
    assert "| 104 ms | 157 ms | +50.0 % |" in text
    assert "| **slower** | 104 ms |" in text
    assert "| a&#124;b | 3.00 ms | 3.00 ms | 0 s | 0 s … 0 s | 0.0 % |" in text
    assert "| gone | 3.00 ms | – | −3.00 ms | – |" in text
    assert "- differs: seed: 0 → 1" in text
    assert "> note: the interval is of one process" in text


# ---------------------------------------------------------------- what a name stands for


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
        "'ab' may be 2 commits\n  hint: write more of it: abc123, abd456"
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


def test_a_name_of_several_things(results: ResultsFolder) -> None:
    runs = [write(results, label="resnet50"), write(results, model="resnet50")]
    write(ResultsFolder(Path("resnet50")))

    assert refusal("resnet50", results) == (
        "'resnet50' may mean 3 things\n"
        "  hint: write one of label:resnet50, model:resnet50, resnet50/"
    )
    assert ids("label:resnet50", results) == ("label", of(runs[0]))
    assert refusal("20", results) == (
        f"'20' may be 2 runs\n  hint: write more of it: {', '.join(of(*runs))}"
    )


def test_a_name_of_nothing(results: ResultsFolder) -> None:
    assert refusal("x", results) == (
        "there is nothing called 'x' to compare in results\n"
        "  hint: there are no completed runs in this folder; name another one with --results DIR"
    )
    run = write(results, label="before")
    assert refusal("x", results).endswith(
        f"hint: labels: before; models: vgg16; newest runs: {run.run_id}"
    )
    assert "names no side" in refusal("", results)
    assert "names no side" in refusal("label:", results)
    assert "there are no completed runs in nowhere/" in refusal("nowhere/", results)


def test_runs_without_step_times(results: ResultsFolder) -> None:
    failed = write(results, found={"status": "failed", "reason": "out of memory"})
    counted = write(results, command="count")
    write(results)
    step = {**MEASURED["found"]["step_time_s"], "samples": [0.0, 1.0]}
    bare = write(results, found={"step_time_s": step})

    assert "has no step times: out of memory" in refusal(failed.run_id, results)
    assert f"run {counted.run_id} has no step times" in refusal(counted.run_id, results)
    assert select("vgg16", results).problems == (
        f"run {bare.run_id} is passed over: it has no step times",
    )

"""`ridgeline compare` as people call it: what it prints, writes and exits with."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command
from tests.report.compared import BUSY, QUIET, layer_table, times, write

from ridgeline.cli.compare import parse_percentage
from ridgeline.errors import RidgelineError
from ridgeline.store import ResultsFolder


@pytest.fixture
def results(tmp_path: Path, monkeypatch: MonkeyPatch) -> ResultsFolder:
    """Three runs a side: those with the label `after` take 20 % longer."""
    monkeypatch.chdir(tmp_path)
    folder = ResultsFolder(Path("results"))
    for scale in (1.0, 1.01, 1.02):
        write(folder, times(scale), label="before")
        write(folder, times(1.2 * scale), label="after")
    return folder


run = partial(command, "compare")


@pytest.mark.parametrize(
    ("sides", "limit", "code"),
    [
        (("before", "after"), "5%", 1),
        (("before", "after"), "5", 1),
        (("before", "after"), "0", 1),
        (("before", "after"), "20.1%", 0),
        (("after", "before"), "5%", 0),
        (("before", "before"), "0%", 0),
    ],
)
def test_the_exit_code_for_a_build(
    results: ResultsFolder, sides: tuple[str, str], limit: str, code: int, capsys: Printed
) -> None:
    assert run(*sides, "--fail-above", limit, "-q") == code
    reason = "slower than that: vgg16, batch 128, train, tf32, +20.0 %\n"
    message = f"ridgeline: --fail-above {limit}: {reason}" if code else ""
    assert capsys.readouterr().err == message


def test_a_busy_machine_does_not_fail_a_build_and_is_said_even_if_quiet(
    results: ResultsFolder, capsys: Printed
) -> None:
    for scale in (1.0, 1.01, 1.02):
        write(results, times(scale), label="quiet", found=QUIET)
        write(results, times(1.2 * scale), label="busy", found=BUSY)
    why = "the machine was busy during B (other programs had the processor)"
    assert run("quiet", "busy", "--fail-above", "5%", "-q", "--json") == 0
    said = capsys.readouterr()
    name = "vgg16, batch 128, train, tf32"
    assert said.err == f"ridgeline: --fail-above 5%: not judged: {name}, +20.0 %: {why}\n"
    answer = json.loads(said.out)
    assert (answer["too_slow"], answer["not_judged"]) == ([], [f"{name}, +20.0 %: {why}"])
    row = answer["configurations"][0]
    assert (row["verdict"], row["time_s"]["is_shown"]) == ("not judged", False)
    assert row["samples_per_s"]["is_shown"] is False


def test_too_few_steps_are_said_even_if_quiet(results: ResultsFolder, capsys: Printed) -> None:
    write(results, times()[:2], label="a")
    write(results, times(2)[:2], label="b")
    assert run("a", "b", "--fail-above", "5%", "-q") == 0
    assert "--fail-above 5%: cannot tell from so few steps: vgg16" in capsys.readouterr().err


def test_percentages() -> None:
    for text in ("five", "-5%", "5%%", "nan", "inf", "", "%", "1e3"):
        with pytest.raises(RidgelineError, match="is not a percentage"):
            parse_percentage(text)
    with pytest.raises(RidgelineError, match=r"0.05 may mean 0.05 % or 5 %"):
        parse_percentage("0.05")
    assert [parse_percentage(text) for text in ("0.5%", "5 %", " 5.5", "0")] == [
        0.005, 0.05, 0.055, 0.0,
    ]  # fmt: skip


def test_markdown(results: ResultsFolder, capsys: Printed) -> None:
    assert run("before", "after", "--format", "markdown") == 0
    said = capsys.readouterr()
    assert said.out.startswith("### A: before (label, 3 runs), B: after (label, 3 runs)\n")
    assert "| **slower** |" in said.out
    assert said.err == ""


def test_layers_and_how_many(results: ResultsFolder, capsys: Printed) -> None:
    layers = {f"layer{n}": ([0.001 * n] * 6, [0.001] * 6) for n in range(1, 6)}
    write(results, label="a", layers=layer_table(**layers))
    write(results, label="b", layers=layer_table(**layers))

    run("a", "b", "--top", "2")
    assert "layers by their share in the difference, 2 of 5" in capsys.readouterr().out
    run("a", "b", "--no-layers")
    assert "layers" not in capsys.readouterr().out
    run("before", "after", "--layers")
    assert "note: layers were not timed on both sides" in capsys.readouterr().err

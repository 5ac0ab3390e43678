"""Results folders that somebody damaged: what is bad is passed over with a word, the rest stays."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.report.hostile import (
    GONE,
    MEASURED,
    Folder,
    change,
    compared,
    make_folder,
    put,
    refusal,
    report,
)
from tests.stored import write_run

from ridgeline.cli import main
from ridgeline.report.compare import compare
from ridgeline.report.figures import write_figures
from ridgeline.report.page import write_page
from ridgeline.report.study import read_study

NEEDED = (  # fields that every run has, and items of lists and mappings
    r"^asked\.(command|model|batch_size|mode|precision|optimizer|data|label)$"
    r"|^found\.(status|backend|device_name|precision|iters|samples_\w+|elapsed_s|step_time_s)$"
    r"|^found\.warmup|^found\.step_time_s\.(median|mean|min|max)$|split_s\.\w+|\.windows\."
    r"|\.\d+$|^provenance\.(libraries|commit|ridgeline_commit|host\.devices)\."
)
HUGE = 10**400  # a whole number that no float can hold
RUN_FIELDS: list[tuple[str, Any]] = [
    ("found.step_time_s.median", None), ("found.step_time_s.median", float("nan")),
    ("found.step_time_s.median", HUGE), ("found.step_time_s.median", GONE),
    ("found.step_time_s", []), ("asked.batch_size", 1.5), ("asked.model", "net\udcff"),
    ("found.energy.windows.0.energy_j_per_step", "x"), ("provenance.host", "vm"),
]  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("sound") / "results")


@pytest.fixture
def folder(sound: Folder, tmp_path: Path) -> Folder:
    return sound.copy(tmp_path / "results")


def named(values: list[Any]) -> Iterator[str]:
    return (f"{name} {str(value)[:12]!a}" for name, value in values)


def only(texts: tuple[str, ...], about: str) -> str:
    """The one text that names something."""
    (found,) = [text for text in texts if about in text]
    return found


def test_the_folder_is_sound_at_first(sound: Folder, folder: Folder) -> None:
    study = report(folder)
    assert study.problems == ()
    assert study.runs["model"].tolist() == ["sound", "spoilt"]
    assert set(study.points["grain"]) == {"step", "phase", "layer", "kernel"}
    assert len(compared(folder, sound).rows) == 2


@pytest.mark.parametrize(("name", "value"), RUN_FIELDS, ids=named(RUN_FIELDS))
def test_a_run_with_a_bad_field_is_passed_over(
    sound: Folder, folder: Folder, tmp_path: Path, name: str, value: Any
) -> None:
    put(folder.run_json, name, value)

    study, comparison = read_study(folder.results), compared(folder, sound)
    write_page(study, tmp_path / "page.html")

    told = only(study.problems, folder.victim)
    assert told.startswith(f"run {folder.victim} is passed over: {name}")
    assert study.runs["run_id"].tolist() == [folder.healthy]
    assert set(study.points["run_id"]) == {folder.healthy}
    assert told in comparison.notes
    assert name in refusal(lambda: compare(folder.victim, "sound", results=folder.results.path))


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "3", ""])
def test_a_run_that_is_no_json_is_passed_over(folder: Folder, text: str) -> None:
    folder.run_json.write_text(text)
    assert "cannot read" in only(read_study(folder.results).problems, folder.victim)


def text_in(column: str, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{column: ["x"] * len(table)})


TABLES: list[tuple[str, str, Any]] = [
    ("layers", "no column 'forward_s'", lambda t: t.drop(columns="forward_s")),
    ("layers", "no column 'layer'", lambda t: t.drop(columns="layer")),
    ("layers", "Unable to parse", lambda t: text_in("time_s", t)),
    ("kernels", "no column 'time_s'", lambda t: t.drop(columns="time_s")),
    ("kernels", "Unable to parse", lambda t: text_in("flops_fp16_matrix", t)),
    ("ops", "no column 'macs'", lambda t: t.drop(columns="macs")),
    ("ops", "Invalid object type", lambda t: t.assign(flops=[[1]] * len(t))),
]


@pytest.mark.parametrize(("name", "words", "how"), TABLES, ids=[f"{t[0]} {t[1]}" for t in TABLES])
def test_a_bad_table_is_passed_over_and_its_run_stays(
    sound: Folder, folder: Folder, name: str, words: str, how: Any
) -> None:
    run_id = folder.count if name == "ops" else folder.victim
    change(folder.table(run_id, name), how)

    study, comparison = report(folder), compared(folder, sound)

    told = only(study.problems, run_id)
    assert told.startswith(f"the table {name} of run {run_id} is passed over: ")
    assert words in told
    assert study.runs["run_id"].tolist() == [folder.healthy, folder.victim]
    assert len(comparison.rows) == 2


@pytest.mark.parametrize("value", [None, GONE], ids=["null", "gone"])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_run_may_say_less(sound: Folder, folder: Folder, depth: int, value: Any) -> None:
    # given a run without all that is optional, among fields of one depth
    for name in sorted(leaves(MEASURED)):
        if name.count(".") == depth - 1 and not re.search(NEEDED, name):
            with suppress(KeyError):  # it went with what held it
                put(folder.run_json, name, value)
    study, comparison = report(folder), compared(folder, sound)
    told = [text for text in study.problems if "is passed over" in text]
    assert told == []
    assert study.runs["run_id"].tolist() == [folder.healthy, folder.victim]
    assert comparison.before.problems == () or depth == 3  # `samples` is such a field


# ---------------------------------------------------------------- anything at all

ODD: list[Any] = [None, "x", "", "\x1b[31m", "\ud800", [], ["x"], [0], {}, {"x": []}, True,
                          0, -1, -1.5, 1e-320, 1e308, 10**25, HUGE, float("inf")]  # fmt: skip


def leaves(content: Any, name: str = "") -> Iterator[str]:
    """The names of all fields; of a list, its own and that of its first item."""
    if name:
        yield name
    if isinstance(content, dict):
        items = list(content.items())
    else:
        items = list(enumerate(content))[:1] if isinstance(content, list) else []
    for key, value in items:
        yield from leaves(value, f"{name}.{key}".lstrip("."))


@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
@given(name=st.sampled_from(sorted(leaves(MEASURED))), value=st.sampled_from(ODD))
def test_anything_in_any_field(
    sound: Folder, tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    folder = sound.copy(tmp_path_factory.mktemp("any") / "results")
    if name == "found.layers":
        return
    put(folder.run_json, name, value)

    study = report(folder)
    compared(folder, sound)

    assert folder.healthy in study.runs["run_id"].tolist()
    shutil.rmtree(folder.results.path)


# ---------------------------------------------------------------- on its way out


def test_figures_of_odd_names_and_numbers(folder: Folder, tmp_path: Path) -> None:
    put(folder.run_json, "asked.model", "\x1b[31m$x_{$ %s <b>\n../..")
    put(folder.run_json, "found.step_time_s.median", 1e-30)
    put(folder.passport, "machine", "../\x1b[31m$^")
    study = report(folder)
    written = write_figures(study, tmp_path / "figures", kinds=["classic"], formats=["svg"])
    assert written
    for figure in written:
        ElementTree.parse(figure.path)
    assert {path.parent for figure in written for path in figure.paths} == {tmp_path / "figures"}
    assert sorted(p.suffix for p in (tmp_path / "figures").iterdir()) == sorted(
        path.suffix for figure in written for path in figure.paths
    )


@pytest.mark.parametrize("arguments", [["roofline", "--no-figures"], ["compare"]])
def test_names_do_not_move_the_cursor(
    folder: Folder, sound: Folder, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    # given names that a terminal would obey, in a run, a count and the reason of a failed run
    for path in (folder.run_json, folder.count_json):
        put(path, "asked.model", "net\x1b]0;title\x07\x9b31m\u202e")
    put(folder.run_json, "found.warnings", ["\x1b[2J"])
    failed = {"status": "failed", "reason": "no\x1b[2J"}
    asked = {**MEASURED["asked"], "model": "\x1b[2J"}
    write_run(folder.results, label="x", asked=asked, found=failed, provenance={})
    where = ["--results", str(folder.results.path)]
    if arguments == ["compare"]:
        side = f"{folder.results.path}/"
        where = [side, side, "--results", str(sound.results.path)]

    with pytest.raises(SystemExit) as ended:
        main([*arguments, *where])

    assert not ended.value.code
    told = "".join(capsys.readouterr())
    assert not [c for c in told if c in "\x1b\x07\x9b\u202e"]
    assert r"net\x1b]0;title\x07\x9b31m\u202e" in told

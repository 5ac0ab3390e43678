"""Results folders that somebody damaged: what is bad is passed over with a word, the rest stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.report.hostile import GONE, MEASURED, Folder, compared, make_folder, put, refusal, report
from tests.stored import write_run

from ridgeline.cli import main
from ridgeline.report.compare import compare
from ridgeline.report.page import write_page
from ridgeline.report.study import read_study

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

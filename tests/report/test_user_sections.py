"""What a user writes into a generated file is never lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.report.markdown import OLD_TITLE, own_section, read_words, write_with_own_sections

FIRST = f"# Title\n\ntext 1\n\n{own_section('analysis')}\n\nmore\n\n{own_section('appendix')}\n"
SECOND = FIRST.replace("text 1", "text 2")
BACKUP = "report.md.bak-20261115T120000Z"
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def fill(path: Path, name: str, words: str) -> None:
    text = path.read_bytes().decode()
    start = f"<!-- yours: {name} -->\n"
    path.write_bytes(text.replace(start, f"{start}{words}\n", 1).encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "report.md"
    assert write_with_own_sections(path, FIRST) == ""
    return path


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_words_survive_two_regenerations(words: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.md"
        write_with_own_sections(path, FIRST)
        fill(path, "analysis", words)

        write_with_own_sections(path, SECOND)
        write_with_own_sections(path, FIRST)

        expected = f"<!-- yours: analysis -->\n{words}\n<!-- /yours -->".replace("\r\n", "\n")
        files = [p.read_bytes().decode("utf-8") for p in Path(folder).iterdir()]
        assert any(expected in text for text in files)
        assert "/yours" in words or len(files) == 1


def test_a_change_outside_of_the_places_keeps_the_old_file_and_the_words(path: Path) -> None:
    fill(path, "analysis", "inside")
    path.write_text(path.read_text(encoding="utf-8").replace("more", "outside"), encoding="utf-8")

    note = write_with_own_sections(path, SECOND, now=NOW)

    assert note == (
        "report.md had been changed outside of the places for own words, or was not made by"
        f" ridgeline; as it was, it is kept as {BACKUP}"
    )
    assert "outside" in path.with_name(BACKUP).read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"> {note}\n") and "\ninside\n" in text
    assert write_with_own_sections(path, SECOND) == "", "the note belongs to what was generated"
    assert path.read_text(encoding="utf-8").startswith("# Title")


def test_words_of_a_place_that_is_no_more_come_at_the_end(path: Path) -> None:
    fill(path, "appendix", "old words")
    without = FIRST.replace(own_section("appendix"), "")

    for _ in range(2):
        assert write_with_own_sections(path, without) == ""
        text = path.read_text(encoding="utf-8")
        kept = f"{OLD_TITLE}\n\n<!-- yours: appendix -->\nold words\n<!-- /yours -->\n\n<!-- gen"
        assert kept in text
    assert write_with_own_sections(path, FIRST) == ""
    assert OLD_TITLE not in path.read_text(encoding="utf-8")
    assert read_words(path.read_text(encoding="utf-8"))["appendix"] == "old words\n"


def test_editors_that_change_line_ends_do_no_harm(path: Path) -> None:
    fill(path, "analysis", "größer")
    text = path.read_text(encoding="utf-8").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n")

    assert write_with_own_sections(path, SECOND) == ""
    assert "\ngrößer\n" in path.read_text(encoding="utf-8")
    before = path.read_bytes()
    assert write_with_own_sections(path, SECOND) == ""
    assert path.read_bytes() == before, "the same study makes the same file"


@pytest.mark.parametrize(
    ("damage", "is_read"),
    [
        (lambda content: content.replace(b"<!-- /yours -->", b"", 1), True),
        (lambda content: content.decode().encode("latin-1"), False),
        (lambda content: b"my thesis", False),
    ],
    ids=["mark", "encoding", "another file"],
)
def test_a_damaged_file_is_kept_beside(
    path: Path, damage: Callable[[bytes], bytes], is_read: bool
) -> None:
    fill(path, "analysis", "größer")
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)

    assert BACKUP in write_with_own_sections(path, SECOND, now=NOW)
    assert path.with_name(BACKUP).read_bytes() == damaged
    assert ("\ngrößer\n" in path.read_text(encoding="utf-8")) == is_read

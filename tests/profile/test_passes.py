"""Metrics in groups that one pass can count; answers that are remembered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ridgeline.profile.passes import Group, Remembered, cache_path, grouped, remembered_names

SASS = ("smsp__sass_add.sum", "smsp__sass_mul.sum")


class Chip:
    """Counts as many metrics in a pass as it has room for; each takes the room stated."""

    def __init__(self, room: int, **sizes: int) -> None:
        self.room, self.sizes, self.asked = room, sizes, list[tuple[str, ...]]()

    def __call__(self, metrics: Sequence[str]) -> int:
        self.asked.append(tuple(metrics))
        return -(-sum(self.sizes.get(name, 1) for name in metrics) // self.room)


# ---------------------------------------------------------------- groups


def test_all_that_fits_is_one_group_and_one_question() -> None:
    chip = Chip(room=3)
    assert grouped([("a", "b"), ("c",)], chip) == (Group(("a", "b", "c"), 1),)
    assert chip.asked == [("a", "b", "c")]


def test_instrumented_metrics_stay_alone() -> None:
    assert grouped([SASS, ("time",)], Chip(room=9)) == (Group(SASS, 1), Group(("time",), 1))


def test_the_first_group_with_room_takes_it() -> None:
    # given room for 4: a and b do not fit together, c goes to a, d to b
    chip = Chip(room=4, a=3, b=2, c=1, d=2)
    assert grouped([("a",), ("b",), ("c",), ("d",)], chip) == (
        Group(("a", "c"), 1),
        Group(("b", "d"), 1),
    )


def test_what_belongs_together_is_not_torn_apart() -> None:
    # given reads and writes that take two passes, and time that takes one
    chip = Chip(room=2, read=2, write=2)
    assert grouped([("read", "write"), ("time",)], chip) == (
        Group(("read", "write"), 2),
        Group(("time",), 1),  # which would not be cheap beside them
    )


def test_a_total_of_several_passes_is_counted_part_by_part() -> None:
    chip = Chip(room=2, total=5, part1=1, part2=1, part3=2)
    parts = {"total": ("part1", "part2", "part3")}
    assert grouped([("total",)], chip, parts) == (
        Group(("part1", "part2"), 1),
        Group(("part3",), 1),
    )


def test_a_total_of_one_pass_stays_whole() -> None:
    parts = {"total": ("part1", "part2")}
    assert grouped([("total",)], Chip(room=2), parts) == (Group(("total",), 1),)


def test_what_few_kernels_need_is_kept_from_what_all_do() -> None:
    # given an H200: hmma16 and hmma32 do not fit together, everything else does
    chip = Chip(room=9, hmma16=5, hmma32=5)
    atoms = [("read", "write"), ("time",), ("hgmma",), ("hmma16",), ("hmma32",)]
    # when tensor counters are of few kernels
    found = grouped(atoms, chip, is_of_few=lambda atom: "mma" in atom[0])
    # then all kernels are counted with as few of them as can be
    assert found == (
        Group(("hmma32", "read", "write", "time"), 1),
        Group(("hgmma", "hmma16"), 1),
    )


def test_what_few_kernels_need_gets_no_process_of_its_own_where_all_fits() -> None:
    found = grouped([("read",), ("hmma",)], Chip(room=2), is_of_few=lambda atom: "mma" in atom[0])
    assert found == (Group(("hmma", "read"), 1),)


def test_nothing_asked_is_no_group() -> None:
    assert grouped([], Chip(room=1)) == ()


# ---------------------------------------------------------------- remembered answers


def test_an_answer_is_asked_for_once(tmp_path: Path) -> None:
    path, chip = tmp_path / "deep" / "passes.json", Chip(room=1)
    ask = Remembered(path).asking(chip)
    assert [ask(["b", "a"]), ask(["a", "b"])] == [2, 2]
    # and not again by the next command
    assert Remembered(path).asking(chip)(["a", "b"]) == 2
    assert chip.asked == [("b", "a")]
    assert json.loads(path.read_text()) == {"a,b": 2}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"a": "many"}', b'{"a": 0}', b'{"a": -1}', b"\xff\xfe"]
)
def test_a_damaged_file_is_asked_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "passes.json"
    path.write_bytes(content)
    assert Remembered(path).asking(Chip(room=1))(["a"]) == 1
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_folder_that_takes_no_file_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "passes.json"  # a file is no folder
    assert Remembered(inside).asking(Chip(room=1))(["a"]) == 1
    assert remembered_names(inside, lambda: frozenset({"a__b"})) == {"a__b"}


def test_without_a_place_nothing_is_kept() -> None:
    assert Remembered(None).asking(Chip(room=1))(["a", "b"]) == 2
    assert remembered_names(None, lambda: frozenset({"a__b"})) == {"a__b"}


def test_names_are_asked_for_once(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    assert remembered_names(path, lambda: frozenset({"b__1", "a__1"})) == {"a__1", "b__1"}
    assert json.loads(path.read_text()) == ["a__1", "b__1"]
    assert remembered_names(path, lambda: frozenset({"other"})) == {"a__1", "b__1"}


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "[1"])
def test_damaged_names_are_asked_again(tmp_path: Path, content: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content)
    assert remembered_names(path, lambda: frozenset({"a__b"})) == {"a__b"}


def test_each_ncu_and_device_has_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = {
        cache_path("passes", version=version, device=device)
        for version in ("2024.1", "2025.3")
        for device in ("NVIDIA H200", "NVIDIA A100")
    }
    assert len(paths) == 4
    assert {path.parent for path in paths if path is not None} == {tmp_path / "ridgeline"}
    assert cache_path("passes", version="2025.3", device="") is None


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_path("passes", version="2025.3", device="NVIDIA H200") is None

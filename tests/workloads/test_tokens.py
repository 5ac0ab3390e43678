"""Tokens out of files, in stretches with what follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ridgeline.errors import RidgelineError
from ridgeline.workloads.tokens import TokenWindows, find_tokens, read_tokens


def saved(file: Path, tokens: list[int]) -> Path:
    """The tokens in the form that the file's ending stands for."""
    if file.suffix == ".bin":
        np.array(tokens, dtype="<u2").tofile(file)
    elif file.suffix == ".npy":
        np.save(file, np.array(tokens))
    else:
        file.write_bytes(bytes(tokens))
    return file


@pytest.mark.parametrize("ending", [".bin", ".npy", ".txt"])
def test_tokens_of_every_kind(tmp_path: Path, ending: str) -> None:
    assert list(read_tokens(saved(tmp_path / f"a{ending}", [7, 200, 1, 3]))) == [7, 200, 1, 3]


def test_sixteen_bits(tmp_path: Path) -> None:
    assert list(read_tokens(saved(tmp_path / "a.bin", [50_256, 65_535]))) == [50_256, 65_535]


def test_windows_follow_one_another_file_by_file(tmp_path: Path) -> None:
    one = saved(tmp_path / "1.bin", [0, 1, 2, 3, 4, 5, 6])  # two windows of three, and the next
    two = saved(tmp_path / "2.bin", [10, 11, 12])  # too short: there is no token that follows
    three = saved(tmp_path / "3.bin", [20, 21, 22, 23, 24])

    windows = TokenWindows([one, two, three], 3)

    assert len(windows) == 3
    found = [windows[number] for number in range(3)]
    assert [(ids.tolist(), following.tolist()) for ids, following in found] == [
        ([0, 1, 2], [1, 2, 3]),
        ([3, 4, 5], [4, 5, 6]),
        ([20, 21, 22], [21, 22, 23]),
    ]
    with pytest.raises(IndexError):
        windows[3]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["b.bin", "a.bin", "notes.txt", "c.npy"], ["a.bin", "b.bin"]),  # one kind only
        (["c.npy", "notes.txt"], ["c.npy"]),
        (["notes.txt"], ["notes.txt"]),
        (["README.md"], []),
        ([], []),
    ],
)
def test_what_is_in_a_folder(tmp_path: Path, names: list[str], found: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()

    assert [file.name for file in find_tokens(tmp_path)] == found


def test_a_file_by_its_ending(tmp_path: Path) -> None:
    tokens, other = tmp_path / "a.bin", tmp_path / "a.md"
    tokens.touch()
    other.touch()

    assert find_tokens(tokens) == [tokens]
    assert find_tokens(other) == []


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((2, 3), dtype=np.int64), "int64 of shape (2, 3)"),
        (np.zeros(4), "float64 of shape (4,)"),
        (np.int64(3), "int64 of shape ()"),
    ],
)
def test_an_array_that_is_no_row_of_tokens(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], what: str
) -> None:
    file = tmp_path / "a.npy"
    np.save(file, array)

    with pytest.raises(RidgelineError) as caught:
        read_tokens(file)

    assert caught.value.problem == f"{file} does not hold a row of tokens but {what}"
    assert caught.value.hint == "save them as a one-dimensional array of whole numbers"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("half.bin", b"abc"),  # one and a half tokens
        ("empty.bin", b""),
        ("empty.txt", b""),
        ("empty.npy", b""),
        ("other.npy", b"not an array"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)

    with pytest.raises(RidgelineError) as caught:
        read_tokens(file)

    assert caught.value.problem.startswith(f"cannot read tokens from {file}: ")
    assert caught.value.hint == (
        "a .bin file holds 16-bit numbers, a .npy file an array of whole numbers"
    )


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)

    with pytest.raises(RidgelineError, match="cannot read tokens from"):
        read_tokens(file)

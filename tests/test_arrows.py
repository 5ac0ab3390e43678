"""Data flows one way: a room may import only the rooms before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ridgeline

ROOT = Path(ridgeline.__file__).parent
ROOMS = [  # siblings on one line do not import each other
    ["version"],
    ["plain"],
    ["errors"],
    ["signals"],
    ["serialize"],
    ["settings"],
    ["records"],
    ["units"],
    ["store"],
    ["sensors"],
    ["provenance"],  # which GPU it was, by its sensors
    ["workloads"],
    ["costs"],  # formulas of shapes, for PyTorch and ONNX
    ["machine"],
    ["tracing"],  # which module runs, for all that follow
    ["count", "measure"],
    ["train"],
    ["onnx"],  # counts with the formulas of count, exports with the processes of measure
    ["captures"],  # files of profilers, whoever made them
    ["profile"],  # of the very step that measure takes
    ["conv"],
    ["roofline"],
    ["findings"],
    ["findings"],
    ["predict"],
    ["sweep"],
    ["report"],
    ["pipeline"],
    ["api"],
    ["cli"],
    ["__init__"],  # the public API: everything below may appear in it, nothing below may use it
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_rooms(source: str) -> set[str]:
    """Rooms named by the imports of a module, wherever in the module they stand."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            rooms |= {_room(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            rooms |= {_room([*module, alias.name]) for alias in node.names}
    return rooms - {""}


def _room(parts: list[str]) -> str:
    """`ridgeline.store.Run` is in store; `ridgeline.count` as a function is in __init__."""
    if parts[0] != "ridgeline":
        return ""
    if len(parts) > 1 and parts[1] in RANK:
        return parts[1]
    return "__init__"


def test_imports_are_found_in_every_form() -> None:
    source = """
import ridgeline.store as s
from ridgeline import units, Result
from ridgeline.count.trace import trace
def late():
    from ridgeline.cli import main
import numpy
"""
    assert imported_rooms(source) == {"store", "units", "__init__", "count", "cli"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_is_in_a_room(path: Path) -> None:
    assert room_of(path) in RANK, "give the new room a place in ROOMS and in docs/architecture.md"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_backwards(path: Path) -> None:
    here = room_of(path)
    rooms = imported_rooms(path.read_text(encoding="utf-8")) - {here}

    late = {room for room in rooms if RANK[room] >= RANK[here]}

    assert not late, f"{path.relative_to(ROOT)} imports {late}, which come later or beside it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_are_written_in_full(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    dots = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]

    assert not dots, f"relative imports hide the room they name: lines {dots}"

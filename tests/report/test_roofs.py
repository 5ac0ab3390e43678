"""Roofs as lines and pictures."""

from pathlib import Path

import pytest

from ridgeline.machine.ceiling import Ceiling
from ridgeline.report.roofs import Roof, compute_roofs, memory_roofs, ridge, span
from ridgeline.report.roofs_figure import save, spread_out
from ridgeline.report.roofs_text import draw

CEILINGS = [
    Ceiling(kind="compute", device="d", path="matrix", precision="bf16", samples=(8e14,), how=""),
    Ceiling(kind="compute", device="d", path="matrix", precision="bf16", samples=(7e14,), how=""),
    Ceiling(kind="compute", device="d", path="vector", precision="fp32", samples=(6e13,), how=""),
    Ceiling(kind="compute", device="d", path="matrix", precision="int8", samples=(1e15,), how=""),
    Ceiling(kind="bandwidth", device="d", level="l2", pattern="read", samples=(8e12,), how=""),
    Ceiling(kind="bandwidth", device="d", level="dram", pattern="copy", samples=(4e12,), how=""),
    Ceiling(kind="bandwidth", device="d", level="dram", pattern="read", samples=(4.4e12,), how=""),
    Ceiling(kind="bandwidth", device="d", level="dram", pattern="read", samples=(1e12,), how="",
            what="one core"),
]  # fmt: skip


def test_roofs_by_hand() -> None:
    # integer operations are no FLOPs; the best pattern is a level's roof
    assert compute_roofs(CEILINGS) == [
        Roof(label="bf16 matrix", flops_per_s=8e14),
        Roof(label="fp32 vector", flops_per_s=6e13),
    ]
    assert memory_roofs(CEILINGS) == [
        Roof(label="DRAM", bytes_per_s=4.4e12),
        Roof(label="L2", bytes_per_s=8e12),
    ]


def test_the_ridge_is_where_they_meet() -> None:
    compute, memory = compute_roofs(CEILINGS), memory_roofs(CEILINGS)
    assert ridge(compute[0], memory[1]) == 100.0
    low, high = span(compute, memory)
    assert low < 60 / 8 < 100 < high


def test_labels_are_moved_apart() -> None:
    assert spread_out([100.0, 99.0, 10.0], factor=2) == [100.0, 50.0, 10.0]


def test_the_terminal_shows_every_level_and_the_highest_roof() -> None:
    picture = draw(compute_roofs(CEILINGS), memory_roofs(CEILINGS))
    assert "bf16 matrix 800 TFLOP/s" in picture
    assert "DRAM 4.40 TB/s, L2 8.00 TB/s" in picture
    assert max(len(line) for line in picture.splitlines()) <= 78
    assert draw([], []) == ""


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_figure_is_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"roofs{suffix}"
    measured = (compute_roofs(CEILINGS), memory_roofs(CEILINGS))
    save(path, "machine", measured, datasheet=[Roof(label="bf16 matrix", flops_per_s=9.9e14)])
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<svg" in path.read_bytes()[:2000]

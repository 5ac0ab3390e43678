"""The roofs of a machine alone, as characters and as a picture."""

from pathlib import Path

import pytest

from ridgeline.report.figures import write_machine
from ridgeline.report.figures.rooflines import draw_machine
from ridgeline.report.figures.style import in_style
from ridgeline.report.roofs_text import draw_roofs
from ridgeline.roofline.roofs import Roofs

ROOFS = Roofs(
    env="gpu", device="cuda:0", integer={"int8 matrix": 1e15},
    compute={"fp32 vector": 6e13, "bf16 matrix": 8e14}, bandwidth={"l2": 8e12, "dram": 4.4e12},
)  # fmt: skip
SHEET = Roofs(env="gpu", device="cuda:0", source="datasheet", compute={"bf16 matrix": 9.9e14},
              bandwidth={"dram": 4.8e12})  # fmt: skip


def test_the_terminal_shows_every_level_and_the_highest_roof() -> None:
    picture = draw_roofs(ROOFS)

    assert "bf16 matrix 800 TFLOP/s" in picture
    assert "int8" not in picture  # integer operations are no FLOPs
    assert "DRAM 4.40 TB/s, L2 8.00 TB/s" in picture
    assert max(len(line) for line in picture.splitlines()) <= 78
    assert draw_roofs(Roofs(env="gpu", device="cuda:0")) == ""


def test_the_picture_names_every_roof_and_the_datasheet() -> None:
    with in_style():
        axes = draw_machine(ROOFS, SHEET, title="machine")

    assert {text.get_text() for text in axes.texts} >= {
        "bf16 matrix 800 (990) TFLOP/s", "fp32 vector 60.0 TFLOP/s", "DRAM 4.40 (4.80) TB/s",
        "L2 8.00 TB/s", "ridge 182",
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_figure_is_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"roofs{suffix}"

    write_machine(ROOFS, None, path, title="machine")

    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in content

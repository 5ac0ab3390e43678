"""The command that makes a stored run again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.small_runs import folder, run_here

from ridgeline.report.views import repeat_command
from ridgeline.store import ResultsFolder, Run, to_run

__all__ = ["folder"]  # a fixture

DATA = Path(__file__).parent.parent / "data"


def recorded(**changes: dict[str, Any]) -> Run:
    """A recorded run of VGG-16, with other `asked`, `found` or `provenance`."""
    content = json.loads((DATA / "run-h200-vgg16.json").read_text())
    content |= {name: {**content[name], **part} for name, part in changes.items()}
    return to_run(Path("r"), content)


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({}, "ridgeline run vgg16 -b 128 --mode train --precision tf32 --energy-time 10.0"),
        (
            {"layers": True, "compile": "reduce-overhead", "energy": False, "input_size": [3, 64]},
            "ridgeline run vgg16 -b 128 --mode train --precision tf32 --input-size 3,64"
            " --compile-mode reduce-overhead --energy-time 10.0 --layers --no-energy",
        ),
        (
            {"model": "my net.py:make", "lr": 0.1, "config": {"width": 8}},
            "ridgeline run 'my net.py:make' -b 128 --mode train --precision tf32 --config width=8"
            " --lr 0.1 --energy-time 10.0",
        ),
    ],
)
def test_only_what_is_not_usual_is_said(asked: dict[str, Any], command: str) -> None:
    assert repeat_command(recorded(asked=asked)) == command


def test_variables_that_change_speed_come_first() -> None:
    variables = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0", "HOME": "x; y"}

    again = repeat_command(recorded(provenance={"environment": variables}))

    assert again.startswith("OMP_NUM_THREADS=1 ridgeline run vgg16 ")


def test_a_module_of_a_program() -> None:
    run = recorded(found={"source": "object"}, provenance={"command": ["python", "my script.py"]})
    assert repeat_command(run) == "python 'my script.py'"


def test_the_command_makes_the_same_run_again(folder: Path) -> None:
    arguments = ("net.py:make", "--input-size", "4", "-b", "2", "--iters", "5", "--warmup-iters",
                 "1", "--no-energy", "--channels-last", "--lr", "0.5")  # fmt: skip
    assert run_here(*arguments) == 0
    (first,) = ResultsFolder().read_runs()
    assert run_here(*shlex.split(repeat_command(first))[2:]) == 0
    assert ResultsFolder().read_runs()[1].asked == first.asked

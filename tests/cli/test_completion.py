"""Tab completion: the right names, without the seconds that torch takes."""

import os
import subprocess
import sys

import pytest

from ridgeline.cli import options, profile


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("count --mode ", ["infer", "train"]),
        ("count --precision b", ["bf16"]),
        ("count --optimizer adam", ["adam", "adamw", "adamax"]),
        ("count --causal ", ["full", "half"]),
        ("count --format m", ["markdown"]),
        ("count --table ", ["layers", "ops"]),
        ("count resnet10", ["resnet101"]),
        ("export --opset 2", ["20", "21", "22", "23"]),
        ("import --la", ["--label"]),
    ],
)
def test_offered_names(typed: str, offered: list[str]) -> None:
    words = ["ridgeline", *typed.split(" ")]
    variables = {
        "_RIDGELINE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-X", "importtime", "-m", "ridgeline"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.stdout.split() == offered
    for heavy in ("pandas", "pyarrow", "numpy", "torch"):
        assert f"| {heavy}\n" not in done.stderr


def test_the_names_are_those_that_count_takes() -> None:
    from ridgeline.profile.request import LEVELS, TIERS, TOOLS
    from ridgeline.workloads import list_models

    assert (profile.TIERS, profile.LEVELS, profile.TOOLS) == (TIERS, LEVELS, TOOLS)
    assert set(options.MODELS) <= {name for name, _, _ in list_models()}

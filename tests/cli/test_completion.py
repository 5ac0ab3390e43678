"""Tab completion: the right names, without the seconds that torch takes."""

import os
import subprocess
import sys

import pytest

from ridgeline.cli import choices


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("--mode", ""), ["infer", "train"]),
        (("--precision", "b"), ["bf16"]),
        (("--optimizer", "adam"), ["adam", "adamw", "adamax"]),
        (("--causal", ""), ["full", "half"]),
        (("--format", "m"), ["markdown"]),
        (("--table", ""), ["layers", "ops"]),
        (("resnet10",), ["resnet101"]),
    ],
    ids=lambda value: "-".join(value),
)
def test_what_is_offered(typed: tuple[str, ...], offered: list[str]) -> None:
    words = ["ridgeline", "count", *typed]
    asked = {
        "_RIDGELINE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-X", "importtime", "-m", "ridgeline"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stdout.split() == offered
    assert "| torch\n" not in done.stderr


def test_the_names_are_those_that_count_takes() -> None:
    from ridgeline.count.counting import CAUSAL
    from ridgeline.settings import OPTIMIZERS
    from ridgeline.workloads import list_models

    assert tuple(OPTIMIZERS) == choices.OPTIMIZERS
    assert choices.CAUSAL == CAUSAL
    assert set(choices.MODELS) <= {name for name, _, _ in list_models()}

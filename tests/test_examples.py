"""Every example runs, and says something."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path) -> None:
    run = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) >= 3


def test_the_network_of_the_readme_counts() -> None:
    # given: Conv 1·32·3·3·28·28, grouped Conv 64·1·3·3·14·14, Linear 64·10
    import ridgeline

    result = ridgeline.count(f"{ROOT / 'examples' / 'your_network.py'}:make", batch_size=2)
    assert result.total.macs == 2 * (32 * 9 * 784 + 64 * 9 * 196 + 640)

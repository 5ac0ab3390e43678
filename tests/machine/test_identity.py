"""Two descriptions of one machine, of two, and of two devices of one kind."""

import json
from pathlib import Path

from ridgeline.machine.compare import another_device, another_machine

H200 = json.loads((Path(__file__).parents[1] / "data" / "passport-h200.json").read_text())
DESCRIPTION = H200["description"]


def test_the_same_machine() -> None:
    assert another_machine(DESCRIPTION, DESCRIPTION) is None
    assert another_device(DESCRIPTION, DESCRIPTION) is None


def test_another_kind_of_machine() -> None:
    without = {**DESCRIPTION, "gpus": []}
    assert another_machine(DESCRIPTION, without) == "GPUs: 1 × NVIDIA H200 before, none now"
    assert another_machine({}, DESCRIPTION) is None  # nothing is known: nothing is claimed


def test_another_device_of_the_same_kind() -> None:
    twin = {**DESCRIPTION, "gpus": [{**DESCRIPTION["gpus"][0], "uuid": "GPU-other"}]}
    assert another_machine(DESCRIPTION, twin) is None
    assert str(another_device(DESCRIPTION, twin)).endswith("and on GPU-other now")

"""ultralytics is not a dependency, so a package of the same shape stands in for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.workloads.running import error_text, run_on_meta, workload

from ridgeline.workloads.sources import models_of

FAKE = """
from torch import nn
class YOLO:
    def __init__(self, description):
        assert description == "yolov8n.yaml"
        self.model = nn.Conv2d(3, 2, 1)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "ultralytics" in sys.modules:
        pytest.skip("the real ultralytics is loaded")
    package = tmp_path / "ultralytics"
    (package / "cfg" / "models" / "v8").mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    for stem in ("yolov8", "yolov8-seg", "rtdetr-l"):
        (package / "cfg" / "models" / "v8" / f"{stem}.yaml").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("ultralytics", None)


@pytest.mark.usefixtures("installed")
def test_names_are_the_descriptions_in_every_scale() -> None:
    scales = "lmnsx"
    assert list(models_of("ultralytics")) == [
        "rtdetr-l",
        *[name for s in scales for name in (f"yolov8{s}", f"yolov8{s}-seg")],
    ]


@pytest.mark.usefixtures("installed")
def test_it_is_built_with_values_and_moved() -> None:
    made = workload("ultralytics:yolov8n", input_size=(64,))
    output, _ = run_on_meta(made)
    assert (tuple(output.shape), output.device) == ((2, 2, 64, 64), torch.device("meta"))


@pytest.mark.usefixtures("installed")
def test_unknown() -> None:
    assert error_text("ultralytics:yolov8t") == (
        "unknown ultralytics model 'yolov8t'\n  hint: did you mean yolov8x, yolov8s or yolov8n? "
        "`ridgeline count --list PATTERN` lists the models"
    )

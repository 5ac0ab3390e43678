"""Nothing is downloaded while a model is built, and everything is as before afterwards."""

from pathlib import Path

import pytest
import torch
from tests.workloads.running import error_text, workload

HINT = (
    "hint: pass local weights instead: from_pretrained('path/to/folder'), torch.load('weights.pt'),"
    " or none at all (weights=None, pretrained=False): counting needs only the shapes"
)
WANTS = """
import torch
from torch import nn

def from_url():
    torch.hub.load_state_dict_from_url("https://example.org/weights.pth", progress=False)

def from_hub():
    from transformers import AutoModel
    return AutoModel.from_pretrained("somebody/something")

def from_timm():
    import timm
    return timm.create_model("resnet18", pretrained=True)

def stubborn():
    import socket
    for _ in range(3):
        try:
            socket.create_connection(("example.org", 80))
        except Exception:
            pass
    return nn.Linear(1, 1)

def with_local_weights():
    layer = nn.Linear(1, 1)
    layer.load_state_dict(torch.load("local.pt"))
    return layer
"""


@pytest.fixture
def wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "wants.py").write_text(WANTS)
    return tmp_path


@pytest.mark.parametrize(
    ("factory", "address"),
    [
        ("from_url", "example.org"),
        ("from_hub", "the Hugging Face hub"),
        ("from_timm", "the Hugging Face hub"),
        ("stubborn", "example.org"),
    ],
)
def test_a_model_that_wants_to_download_is_refused(wants: Path, factory: str, address: str) -> None:
    assert error_text(f"wants.py:{factory}", input_size=(1,), build=True) == (
        f"wants.py wants to download from {address}; ridgeline does not download\n  {HINT}"
    )


def test_local_weights_are_read(wants: Path) -> None:
    torch.save({"weight": torch.tensor([[3.0]]), "bias": torch.tensor([4.0])}, wants / "local.pt")
    module = workload("wants.py:with_local_weights", input_size=(1,)).build()
    assert module.state_dict()["weight"].item() == 3.0

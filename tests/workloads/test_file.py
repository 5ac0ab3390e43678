"""Models out of a Python file, and what is said when the file is wrong."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.workloads.running import error_text, workload

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Linear(4, width)

    def forward(self, x):
        return self.body(x)
"""
TOKENS = """
import torch
from torch import nn

def small():
    return nn.Embedding(10, 4)

def inputs(batch_size, seq_len=3):
    return {"input": torch.arange(batch_size * seq_len).reshape(batch_size, seq_len)}

def small_loss(output):
    return output.sum() * 0 + 7
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_network_needs_no_name(here: Path) -> None:
    (here / "net.py").write_text(NET)
    made = workload("net.py", input_size=(4,), mode="train")
    with torch.device("meta"):
        output = made.build()(*made.inputs(3).args)
        assert made.loss is not None
        loss = made.loss(output, made.inputs(3))
    assert (made.name, made.source) == ("net.Net", "file")
    assert (tuple(output.shape), output.device.type, tuple(loss.shape)) == ((3, 8), "meta", ())
    assert made.describe == {"input_size": (4,), "loss": "mean of the outputs"}


def test_config_is_the_factory_s_arguments(here: Path) -> None:
    (here / "net.py").write_text(NET)
    module = workload("net.py:Net", input_size=(4,), config={"width": "16"}).build()
    assert tuple(module.state_dict()["body.weight"].shape) == (16, 4)


def test_a_file_brings_its_inputs_and_its_loss(here: Path) -> None:
    (here / "net.py").write_text(TOKENS)
    made = workload("net.py:small", mode="train", seq_len=2)
    with torch.device("meta"):
        inputs = made.inputs(2)
    assert inputs.kwargs["input"].tolist() == [[0, 1], [2, 3]]
    assert made.loss is not None
    assert made.loss(made.build()(**inputs.kwargs), inputs).item() == 7


def test_floats_of_a_file_follow_the_device(here: Path) -> None:
    feed = "def inputs(batch_size):\n    return torch.rand(batch_size, 4), torch.tensor([1])\n"
    (here / "net.py").write_text(NET + feed)
    with torch.device("meta"):
        x, index = workload("net.py").inputs(2).args
    assert (x.device.type, index.tolist()) == ("meta", [1])


def test_a_module_and_a_neighbour(here: Path) -> None:
    (here / "parts_beside.py").write_text("WIDTH = 5\n")
    (here / "net.py").write_text(
        "from torch import nn\nfrom parts_beside import WIDTH\nmodel = nn.Linear(4, WIDTH)\n"
    )
    made = workload("net.py", input_size=(4,))
    with torch.device("meta"):
        module = made.build()
    assert (module.weight.shape, module.weight.device.type) == ((5, 4), "meta")


@pytest.mark.parametrize(
    ("content", "model", "asked", "text"),
    [
        ("x = 1\nno_such_name\n", "net.py", {},
         "net.py:2: NameError: name 'no_such_name' is not defined"),
        ("def f(:\n", "net.py", {}, "net.py:1: SyntaxError: invalid syntax (net.py, line 1)"),
        ("import sys\nsys.exit(3)\n", "net.py", {}, "net.py:2: SystemExit: 3"),
        ("def make():\n    return 1 / 0\n", "net.py:make", {"build": True},
         "net.py:2: ZeroDivisionError: division by zero"),
        ("def make():\n    return 3\n", "net.py:make", {"build": True},
         "net.py:make returned int, not a torch.nn.Module"),
        (NET, "net.py:Nett", {}, "unknown factory in net.py: 'Nett'"),
        (NET + "class Other(Net):\n    pass\n", "net.py", {},
         "net.py has 2 models to choose from"),
        ("x = 1\n", "net.py", {},
         "net.py has no function or class that could make a model"),
        (NET, "net.py:Net", {"config": {"widht": "16"}, "build": True},
         "unknown --config key of net.py:Net 'widht'"),
        (TOKENS, "net.py:small", {"input_size": (3,)}, "inputs() in net.py takes no input_size"),
        (NET, "net.py:Net", {"input_size": None},
         "net.py:Net: the shape of the input is not known"),
        (None, "net.py:Net", {}, "no such file: net.py"),
    ],
)  # fmt: skip
def test_wrong_files(
    here: Path, content: str | None, model: str, asked: dict[str, Any], text: str
) -> None:
    if content is not None:
        (here / "net.py").write_text(content)
    sizes = {} if content == TOKENS else {"input_size": (4,)}
    assert error_text(model, **{**sizes, **asked}).startswith(f"{text}\n  hint: ")


def test_hints_name_the_choices(here: Path) -> None:
    (here / "net.py").write_text(NET + "class Other(Net):\n    pass\n")
    assert error_text("net.py").endswith("hint: say which: net.py:Net or net.py:Other")
    assert error_text("net.py:Nett").endswith("hint: did you mean Net? it has Net, Other")

"""What torch's older exporter fixes: ways and numbers that tensors decide."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ridgeline
from ridgeline.errors import RidgelineError

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

HERE = Path(__file__).name
OLDER = 17  # an opset that the older exporter alone writes


def line_of(words: str) -> int:
    """The line of this file that has the words in it."""
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if words in line)


class Branch(nn.Module):
    """x·2 where the sum is positive, and -x elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else -x  # by elements


class Unlikely(nn.Module):
    """x·2, but where the mean is above a million."""

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 1e6:  # by elements, far away
            return x
        return x * 2


class Number(nn.Module):
    """x over its largest element."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.max().item()  # a number


class Sized(nn.Module):
    """x·2 for a batch of more than 40."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 40 else -x  # by a size


class FixedSize(nn.Module):
    """Ways that sizes decide which are the same for every batch; and one that is not known to."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 4 and x.size(-1) == 4
        y = torch.cat((x, x), 1)
        return y if y.shape[1] > 4 else -y  # the size of what was made


class Weighted(nn.Module):
    """Which way is taken is decided by a weight, so it is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight if self.weight.sum() > 0 else -x


def test_a_file_with_one_of_two_ways_is_refused(tmp_path: Path) -> None:
    # given a model that the newer exporter refuses, of which the older one records one branch
    with pytest.raises(RidgelineError) as raised:
        ridgeline.export(Branch(), tmp_path / "net.onnx", torch.rand(2, 4))
    # then inputs that take the other branch tell, and the error names the line
    line = line_of("else -x  # by elements")
    assert "the file does not compute what the model does with negated inputs: " in str(
        raised.value
    )
    assert f"{HERE}:{line}: the values of a tensor decide which way the code goes" in str(
        raised.value
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_check_a_note_says_it(tmp_path: Path) -> None:
    done = ridgeline.export(Branch(), tmp_path / "net.onnx", torch.rand(2, 4), check=False)
    assert [note.split(": ", 1)[1] for note in done.notes if HERE in note] == [
        "the values of a tensor decide which way the code goes;"
        " the file has the way that was traced, and takes it for every input"
    ]


def test_a_way_that_no_other_input_takes_is_a_note(tmp_path: Path) -> None:
    done = ridgeline.export(Unlikely(), tmp_path / "net.onnx", torch.rand(2, 4), opset=OLDER)
    (note,) = done.notes
    line = line_of("# by elements, far away")
    assert note.split(": ", 1)[0].endswith(f"{HERE}:{line}")
    assert len(done.checks) == 2


def test_a_number_that_is_taken_from_a_tensor(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError) as raised:
        ridgeline.export(Number(), tmp_path / "net.onnx", torch.rand(2, 4), opset=OLDER)
    line = line_of("# a number")
    assert f"{HERE}:{line}: a number is taken from the values of a tensor" in str(raised.value)


@pytest.mark.parametrize("static", [False, True])
def test_a_way_that_a_size_decides(static: bool, tmp_path: Path) -> None:
    given = torch.rand(2, 4)
    done = ridgeline.export(Sized(), tmp_path / "net.onnx", given, opset=OLDER, static=static)
    # then it matters where that size is open
    line = line_of("# by a size")
    told = [] if static else [f"{HERE}:{line}"]
    assert [Path(note.split(": ", 1)[0]).name for note in done.notes] == told


def test_a_size_of_an_input_that_is_not_open_decides_nothing(tmp_path: Path) -> None:
    done = ridgeline.export(FixedSize(), tmp_path / "net.onnx", torch.rand(2, 4), opset=OLDER)
    line = line_of("# the size of what was made")
    assert [Path(note.split(": ", 1)[0]).name for note in done.notes] == [f"{HERE}:{line}"]


def test_a_way_that_weights_decide_is_always_the_same(tmp_path: Path) -> None:
    done = ridgeline.export(Weighted(), tmp_path / "net.onnx", torch.rand(2, 4), opset=OLDER)
    assert done.notes == ()


def test_tensors_are_as_they_were_afterwards() -> None:
    from ridgeline.onnx.export.recorded import READS, watched

    before = {name: getattr(Tensor, name) for name in READS}
    with watched([[True]]):
        assert bool(torch.ones(1))
    assert {name: getattr(Tensor, name) for name in READS} == before

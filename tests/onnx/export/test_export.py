"""`ridgeline.export`: small models of every kind, as files that compute the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ridgeline
from ridgeline.errors import RidgelineError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SMALL_LSTM = {"vocab_size": 40, "embedding_size": 8, "hidden_size": 8}


class Net(nn.Module):
    """A convolution, its batch norm, an average and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.conv(images)).relu().mean((2, 3)))
        return out


def graph_of(path: Path) -> Any:
    return onnx.load(str(path)).graph


def test_a_module_with_an_open_batch(tmp_path: Path) -> None:
    # given a module on three samples
    module, images = Net(), torch.rand(3, 3, 8, 8)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    # when it is exported
    done = ridgeline.export(module, tmp_path / "net.onnx", images)
    # then its batch is open, and the file was tried at two batch sizes
    assert [str(port) for port in done.inputs] == ["images float32[batch, 3, 8, 8]"]
    assert [str(port) for port in done.outputs] == ["output float32[batch, 5]"]
    assert [check.batch_size for check in done.checks] == [3, 5]
    assert all(check.relative < 1e-5 for check in done.checks)
    assert done.exporter == "dynamo"
    assert done.notes == ()
    # and it answers for a batch that nobody tried; the module is as it was
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    other = torch.rand(7, 3, 8, 8)
    (found,) = session.run(None, {"images": other.numpy()})
    expected = module.eval()(other).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


def test_lstm_with_open_batch_and_sequence(tmp_path: Path) -> None:
    done = ridgeline.export("lstm", tmp_path / "lstm.onnx", config=SMALL_LSTM, seq_len=10)
    assert str(done.inputs[0]) == "ids int64[batch, sequence]"
    assert str(done.outputs[0]) == "output float32[batch, sequence, 40]"
    assert [(check.batch_size, check.seq_len) for check in done.checks] == [(1, 10), (3, 5)]
    assert sum(node.op_type == "LSTM" for node in graph_of(done.path).node) == 2


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"opset": 5}, "opset 5 is too old"),
        ({"opset": 999}, "opset 999 is not known"),
    ],
)
def test_settings_that_are_refused(settings: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match=problem):
        ridgeline.export(Net(), tmp_path / "net.onnx", torch.rand(2, 3, 8, 8), **settings)


@pytest.mark.parametrize("is_on", [True, False])
def test_attention_in_an_opset_that_has_none(is_on: bool, tmp_path: Path) -> None:
    # given a layer that torch runs in one fused operator where it may
    layer = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    torch.backends.mha.set_fastpath_enabled(is_on)
    try:
        done = ridgeline.export(layer, tmp_path / "net.onnx", torch.rand(2, 5, 8), opset=17)
        # then it is written in parts, and torch runs as it did before
        assert (done.opset, len(done.checks), done.notes) == (17, 2, ())
        assert torch.backends.mha.get_fastpath_enabled() is is_on
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_norms_that_start_at_zero_do_not_hide_what_is_before_them() -> None:
    from ridgeline.onnx.export.model_inputs import _build
    from ridgeline.workloads import Inputs, Workload

    def build() -> nn.Module:
        module = Net()
        nn.init.zeros_(module.norm.weight)
        return module

    def made(source: str) -> nn.Module:
        return _build(
            Workload(name="net", source=source, mode="infer", make=build,
                     make_inputs=lambda _: Inputs())
        )  # fmt: skip

    # given a scale of zeros in a library: it is made one or so, and shifts are left alone
    weights = dict(made("timm").named_parameters())
    assert (weights["norm.weight"] - 1).abs().max() < 0.2
    assert len(set(weights["norm.weight"].tolist())) == 4
    assert weights["norm.bias"].tolist() == [0, 0, 0, 0]
    # and one of the user's own, which is his
    assert dict(made("file").named_parameters())["norm.weight"].tolist() == [0, 0, 0, 0]


def test_large_weights_get_a_file_of_their_own(tmp_path: Path) -> None:
    # given a product with 64 · 64 weights of 4 bytes
    module, given = nn.Linear(64, 64), torch.rand(2, 64)
    # when weights of more than 10 kB are to be apart
    done = ridgeline.export(module, tmp_path / "net.onnx", given, external_above="10kB")
    # then they are beside the file, which still passed its checks
    assert done.data_path == tmp_path / "net.onnx.data"
    assert done.data_bytes >= 4 * 64 * 64 > done.file_bytes
    assert len(done.checks) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]


def test_no_folder_of_this_machine_is_in_the_file(tmp_path: Path) -> None:
    done = ridgeline.export(Net(), tmp_path / "net.onnx", torch.rand(2, 3, 8, 8))
    assert str(Path(__file__).parent).encode() not in done.path.read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in done.path.read_bytes()


class Fixed(nn.Module):
    """A batch of four and no other."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(4.0)[:, None]


def test_a_batch_that_cannot_be_open_needs_static(tmp_path: Path) -> None:
    with pytest.raises(
        RidgelineError, match="cannot be exported: not by torch's exporter: "
    ) as got:
        ridgeline.export(Fixed(), tmp_path / "net.onnx", torch.rand(4, 6))
    assert got.value.hint.startswith(
        "--static (in Python static=True) makes all dimensions numbers"
    )
    done = ridgeline.export(Fixed(), tmp_path / "net.onnx", torch.rand(4, 6), static=True)
    assert done.inputs[0].shape == (4, 6)


def test_a_file_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ridgeline.onnx.export import checked

    monkeypatch.setattr(checked, "TOLERANCE", -1.0)
    with pytest.raises(RidgelineError, match=r"cannot be exported: .* differs by"):
        ridgeline.export(Net(), tmp_path / "net.onnx", torch.rand(2, 3, 8, 8))
    assert list(tmp_path.iterdir()) == []


def test_differences_by_hand() -> None:
    from ridgeline.onnx.export.checked import compare_outputs

    # 4.001 for 4: 0.001 apart, which is 1/4000 of the largest value; zeros are equal
    expected = {"a": torch.tensor([1.0, -4.0]), "b": torch.zeros(2)}
    found = [np.array([1.0, -4.001], np.float32), np.zeros(2, np.float32)]
    got = compare_outputs(expected, found, batch_size=2, seq_len=None)
    assert (got.outputs, got.batch_size) == (2, 2)
    assert got.absolute == pytest.approx(0.001, rel=1e-3)
    assert got.relative == pytest.approx(0.00025, rel=1e-3)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([np.zeros(3)], r"a is \[2\] in torch and \[3\] in onnxruntime at batch 2"),
        ([np.zeros(2), np.zeros(2)], "the file has 2 outputs, the model 1"),
        ([np.array([np.nan, 1.0])], "a has other NaN or infinities in onnxruntime"),
        ([np.array([1.0, 2.0])], "a differs by 1 of its largest value"),
        ([np.array([1.0, np.nan])], "a has other NaN or infinities in onnxruntime"),
    ],
)
def test_answers_that_are_not_the_same(found: list[Any], message: str) -> None:
    from ridgeline.onnx.export.checked import compare_outputs

    with pytest.raises(RidgelineError, match=message) as raised:
        compare_outputs({"a": torch.ones(2)}, found, batch_size=2, seq_len=None)
    # the way out is the same for a command and for Python
    assert raised.value.hint == "--no-check (in Python check=False) writes the file as it is"


class Silent(nn.Module):
    def forward(self, x: Tensor) -> None:
        return None


def test_a_model_that_returns_no_tensor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RidgelineError) as raised:
        ridgeline.export(Silent(), tmp_path / "net.onnx", torch.rand(2, 4))
    assert str(raised.value) == (
        "Silent returns no tensor\n"
        "  hint: its forward has to return a tensor, or a list or dictionary of tensors"
    )
    assert capfd.readouterr() == ("", "")

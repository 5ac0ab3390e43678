"""Number formats, and what is said where a device lacks one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ridgeline.measure import backends
from ridgeline.measure.backends import Backend, Precision, choose_precision
from ridgeline.measure.step import torch_settings
from ridgeline.settings import Settings

OLD, NEW = (7, 0), (9, 0)
PLAIN, MODERN = "flags : fpu sse avx2", "flags : fpu amx_bf16 avx512_fp16"
EMULATED = "this CPU has no {} arithmetic, and would emulate it over 100 times slower"
TENSOR_CORES = "TF32 is a format of NVIDIA's tensor cores, and this is a chip"


def backend(kind: str) -> Backend:
    return Backend(kind=kind, device=torch.device("cpu"), name="a chip")


@pytest.mark.parametrize(
    ("kind", "what", "asked", "lacking"),
    [
        ("cpu", PLAIN, "fp32", None),
        ("cpu", PLAIN, "tf32", TENSOR_CORES),
        ("cpu", PLAIN, "amp", "autocast to fp16 needs a GPU"),
        ("cpu", PLAIN, "bf16", EMULATED.format("bf16")),
        ("cpu", PLAIN, "fp16", EMULATED.format("fp16")),
        ("cpu", None, "bf16", EMULATED.format("bf16")),
        ("cpu", MODERN, "bf16", None),
        ("cpu", MODERN, "fp16", None),
        ("mps", PLAIN, "tf32", TENSOR_CORES),
        ("mps", PLAIN, "amp", None),
        ("mps", PLAIN, "bf16", None),
        ("cuda", OLD, "tf32", "a chip (compute capability 7.0) has no tf32"),
        ("cuda", OLD, "amp", None),
        ("cuda", OLD, "bf16", "a chip (compute capability 7.0) has no bf16"),
        ("cuda", OLD, "fp16", None),
        ("cuda", (8, 0), "tf32", None),
        ("cuda", NEW, "bf16", None),
    ],
)
def test_what_each_device_can(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    what: str | tuple[int, int] | None,
    asked: str,
    lacking: str | None,
) -> None:
    monkeypatch.setattr(backends, "read_text", lambda _path: what)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: what)

    chosen = choose_precision(asked, backend(kind))

    if lacking is None:
        assert chosen == Precision(requested=asked, used=asked)
    else:
        warning = f"{asked} is not used: {lacking}; this run is in fp32"
        assert chosen == Precision(requested=asked, used="fp32", warnings=(warning,))


def test_only_amp_on_cuda_scales_its_loss() -> None:
    amp = Precision(requested="amp", used="amp")

    assert isinstance(amp.scaler(backend("cuda")), torch.amp.GradScaler)
    assert amp.scaler(backend("mps")) is None
    assert Precision(requested="fp16", used="fp16").scaler(backend("cuda")) is None


def flags() -> tuple[bool, ...]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return (
        cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )  # fmt: skip


@pytest.fixture
def kept() -> Iterator[tuple[bool, ...]]:
    """The process's flags, put back afterwards."""
    before = flags()
    yield before
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[:2]
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before[2:4]
    torch.use_deterministic_algorithms(before[4], warn_only=before[5])


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(("used", "allowed"), [("tf32", True), ("fp32", False), ("amp", False)])
def test_tf32_is_allowed_when_asked_and_forbidden_else(used: str, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = not allowed
    torch.backends.cudnn.allow_tf32 = not allowed

    Precision(requested=used, used=used).apply()

    assert flags()[:2] == (allowed, allowed)


def test_what_torch_keeps_is_set_and_put_back(
    kept: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    tf32 = Precision(requested="tf32", used="tf32")

    with torch_settings(Settings(deterministic=True, cudnn_benchmark=True, seed=3), tf32):
        inside, number = flags(), torch.rand(())

    assert inside == (True, True, True, True, True, True)
    assert torch.equal(number, torch.rand((), generator=torch.Generator().manual_seed(3)))
    assert flags() == kept

"""One pass of a convolution under every algorithm: what is verified, refused, timed and kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ridgeline.conv import measuring
from ridgeline.conv.algorithms import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from ridgeline.conv.measuring import judge, measure_conv
from ridgeline.errors import RidgelineError
from ridgeline.records import AlgorithmResult, ConvRequest, ConvShape

CPU = torch.device("cpu")
SMALL = ConvShape(n=1, c=4, h=8, w=8, k=4, r=3, s=3, padding=(1, 1))
KNOWN = AlgorithmResult(algorithm="gemm")
RIGHT = torch.linspace(1, 2, 100, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SAMPLE_S", 1e-5)
    monkeypatch.setattr(measuring, "MOST_SETS", 2)


def scaled(by: float) -> Callable[[Tensor], Tensor]:
    return lambda right: right * (1 + by)


@pytest.mark.parametrize(
    ("precision", "change", "status", "reason", "computed"),
    [
        ("fp32", scaled(1e-6), "ok", "", "fp32"),
        ("fp16", scaled(1e-3), "ok", "", "fp16"),
        ("fp32", scaled(1e-3), "wrong", "its error of 1.0e-03 is above the bound of fp32, 1e-05",
         "fp32"),
        ("fp32", scaled(0.0), "other precision",
         "its error of 0.0e+00 is smaller than fp32 allows", "fp64"),
        ("tf32", scaled(1e-6), "other precision",
         "its error of 1.0e-06 is smaller than tf32 allows", "fp32"),
        ("fp32", lambda right: right * float("nan"), "wrong", "its result is not finite", ""),
        ("fp32", lambda right: right[:50], "wrong", "its result has the shape (50,)", ""),
    ],
)  # fmt: skip
def test_a_result_is_judged_by_its_error(
    precision: str, change: Callable[[Tensor], Tensor], status: str, reason: str, computed: str
) -> None:
    judged = judge(KNOWN, change(RIGHT), RIGHT, precision)

    assert (judged.status, judged.reason, judged.precision_computed) == (status, reason, computed)


def test_one_wrong_element_among_a_million_is_found() -> None:
    right = torch.ones(1_000_000, dtype=torch.float64)
    result = right * (1 + 1e-6)
    result[7] = 1.005  # the norm of the difference is within the bound of 1e-5

    judged = judge(KNOWN, result, right, "fp32")

    assert judged.rel_error == pytest.approx(5.1e-6, rel=0.01)
    assert judged.status == "wrong"


@pytest.mark.parametrize("phase", [FORWARD, INPUT_GRAD, WEIGHT_GRAD])
def test_every_pass_is_measured_with_its_samples(phase: str) -> None:
    names = ("default", "direct", "gemm", "fft", "winograd", "winograd 4x4", "find")
    request = ConvRequest(shape=SMALL, phase=phase, algorithms=names)

    result = measure_conv(request, CPU, "a processor")

    by_name = {one.algorithm: one for one in result.timings}
    assert tuple(by_name) == names
    refused = {"find"} if phase != FORWARD else set()
    assert {name for name, one in by_name.items() if one.status == "refused"} == refused
    for one in by_name.values():
        if one.status == "ok":
            assert len(one.samples_s) == measuring.SAMPLES
            assert one.time_s is not None
            assert one.rel_error is not None
            assert one.kernels
    assert (result.backend, result.device_name) == ("cpu", "a processor")


def test_too_little_memory_refuses_one_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 channels x 9 taps x 64 positions of 4 bytes are 9,216 bytes; direct needs 1,600
    monkeypatch.setattr(measuring, "free_bytes", lambda device: 5_000)
    request = ConvRequest(shape=SMALL, algorithms=("direct", "gemm"))

    direct, gemm = measure_conv(request, CPU, "").timings

    assert direct.status == "ok"
    assert (gemm.status, gemm.reason) == (
        "refused", "its workspace takes 9.22 kB, and 4.00 kB can be had",
    )  # fmt: skip


def test_an_algorithm_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Tensor:
        raise RuntimeError("no such\nkernel")

    monkeypatch.setattr("torch.nn.functional.unfold", fail)
    request = ConvRequest(shape=SMALL, algorithms=("gemm", "direct"))

    gemm, direct = measure_conv(request, CPU, "").timings

    assert (gemm.status, gemm.reason, gemm.samples_s) == ("failed", "no such kernel", ())
    assert direct.status == "ok"


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(RidgelineError, match="there is no algorithm 'fft tiling' on cpu"):
        measure_conv(ConvRequest(shape=SMALL, algorithms=("fft tiling",)), CPU, "")

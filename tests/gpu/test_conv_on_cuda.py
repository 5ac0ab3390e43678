"""Convolutions on a real GPU: cuDNN by name, our own kernel, counters, whole networks."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from tests.cli.analyzed_here import Printed, command

from ridgeline.conv.measuring import measure_conv
from ridgeline.conv.network import find_algorithms
from ridgeline.profile.count_calls import CallCounter
from ridgeline.records import AlgorithmResult, ConvRequest, ConvShape

pytestmark = pytest.mark.gpu
WIDE = ConvShape(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=(1, 1))
LEGACY = ("implicit gemm", "implicit precomp gemm", "gemm", "fft", "fft tiling",
          "winograd nonfused")  # fmt: skip


@pytest.fixture(autouse=True)
def _strict() -> None:
    torch.backends.cudnn.allow_tf32 = False


def measure(precision: str = "fp32", layout: str = "nchw", **changes: Any) -> dict[
    str, AlgorithmResult
]:  # fmt: skip
    names = tuple(name for name in find_algorithms("cuda") if name != "benchmark")
    request = ConvRequest(
        shape=WIDE, precision=precision, layout=layout, algorithms=names, **changes
    )
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    result = measure_conv(request, torch.device("cuda", 0), "")
    return {one.algorithm: one for one in result.timings}


def test_the_legacy_algorithms_run_and_agree_with_float64() -> None:
    found = measure()

    assert {name: found[name].status for name in (*LEGACY, "direct", "default")} == dict.fromkeys(
        (*LEGACY, "direct", "default"), "ok"
    )
    assert found["winograd"].status == "refused"
    assert "CUDNN_STATUS_NOT_SUPPORTED" in found["winograd"].reason
    assert found["guess"].implementation in LEGACY
    assert found["find"].implementation in (*LEGACY, "direct", "default")
    for name in LEGACY:
        assert found[name].clock == "CUDA graph, device events"
        assert found[name].kernels


def test_no_two_names_run_the_same_kernels() -> None:
    found = measure()

    kernels = [found[name].kernels for name in (*LEGACY, "direct")]
    assert len(set(kernels)) == len(kernels)
    assert "_direct_kernel" in found["direct"].kernels


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_other_precisions_are_what_they_say(precision: str) -> None:
    for one in measure(precision, layout="nhwc").values():
        if one.status == "ok":
            assert one.precision_computed == precision
        else:
            assert one.reason


def test_the_same_shape_twice_takes_the_same_time() -> None:
    first, second = measure(), measure()

    times = [(first[name].time_s, second[name].time_s) for name in LEGACY]
    changes = [abs(again / once - 1) for once, again in times if once and again]
    assert median(changes) < 0.03


def test_counters_see_the_saving_of_winograd() -> None:
    algorithms = find_algorithms("cuda")
    x = torch.randn(WIDE.input_shape, device="cuda")
    w = torch.randn(WIDE.weight_shape, device="cuda")
    calls = {
        name: (lambda one=algorithms[name]: one.forward(x, w, WIDE))
        for name in ("implicit gemm", "winograd nonfused")
    }

    flops = CallCounter(0, "fp32").flops(calls)

    assert flops["implicit gemm"] == pytest.approx(2 * WIDE.macs, rel=0.2)
    assert flops["winograd nonfused"] < 0.8 * flops["implicit gemm"]


def test_a_network_learns_under_an_algorithm_of_cudnn(tmp_path: Path, capsys: Printed) -> None:
    code = command(
        "run", "resnet18", "-b", "2", "--mode", "train", "--algorithm", "implicit gemm", "--iters",
        "3", "--no-energy", "--json", "--results", str(tmp_path),
    )  # fmt: skip

    assert code == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["status"] == "ok"


def test_the_command_answers(tmp_path: Path, capsys: Printed) -> None:
    code = command(
        "conv", "resnet18", "--input-size", "64", "--algorithm", "all", "--iters", "3",
        "--no-energy", "--json", "--results", str(tmp_path),
    )  # fmt: skip

    assert code == 0
    content = json.loads(capsys.readouterr().out)
    assert {one["chosen"] for one in content["losses"]} == {"default", "benchmark", "guess"}
    assert all(0 <= one["lost"] < 1 for one in content["losses"])

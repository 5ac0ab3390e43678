"""`ridgeline conv`: what is measured, stored, shown, kept and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.analyzed_here import Printed, command, store_passport

import ridgeline
from ridgeline.cli.conv import ABOUT
from ridgeline.cli.options import parse_sizes
from ridgeline.conv import measuring
from ridgeline.pipeline.convolutions import make_shape
from ridgeline.records import ConvShape
from ridgeline.settings import ALGORITHMS
from ridgeline.store import ResultsFolder

NET = """
from torch import nn

def make():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 1, stride=2), nn.Flatten(), nn.Linear(64, 2),
    )

def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
"""
SHAPE = "1,4,8,8,4,3,3,1,1"
SMALL = ("net.py:make", "--input-size", "3x8x8", "--algorithm", "default,gemm,winograd")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "SAMPLE_S", 1e-5)
    monkeypatch.setattr(measuring, "MOST_SETS", 2)
    monkeypatch.setattr("ridgeline.measure.timing.LEAST_WARMUP_S", 0)
    monkeypatch.setattr("ridgeline.measure.timing.STEADY", float("inf"))


def conv_here(*arguments: str) -> int:
    return command(
        "conv", *arguments, "--in-process", "--backend", "cpu", "--iters", "2", "--no-energy"
    )


def answer(capsys: Printed, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    assert conv_here(*arguments, "--json") == 0
    content: dict[str, list[dict[str, Any]]] = json.loads(capsys.readouterr().out)
    return content


def test_a_network_is_measured_and_answered(capsys: Printed) -> None:
    store_passport(Path("results"))

    content = answer(capsys, *SMALL)

    assert [(row["layer"], row["algorithm"], row["status"]) for row in content["layers"]] == [
        (layer, name, "refused" if (layer, name) == ("3", "winograd") else "ok")
        for layer in ("0", "1", "2", "3")
        for name in ("default", "gemm", "winograd")
    ]
    row = content["layers"][1]
    assert (row["model"], row["pass"], row["uses"]) == ("net.py:make", "forward", 1)
    assert row["shape"] == "1x3x8x8 to 4, 3x3, padding 1"
    assert row["flops_model"] == row["flops_executed"] == 2 * 64 * 4 * 3 * 9
    assert row["workspace_bytes"] == 4 * 3 * 9 * 64
    assert row["kernels"] == ["aten::im2col", "aten::bmm"]
    assert row["time_s"] > 0
    # 1 TFLOP/s, 100 GB/s: 4 · (192 + 108 + 256) bytes take 22 ns
    assert row["floor_s"] == pytest.approx(4 * (192 + 108 + 256) / 1e11)
    assert row["efficiency"] == pytest.approx(row["floor_s"] / row["time_s"])
    assert [one["algorithm"] for one in content["networks"]] == ["default", "gemm", "winograd"]
    for one in content["losses"]:
        assert (one["chosen"], one["pass"]) == ("default", "forward")
        assert one["chosen_kernels"]
        assert 0 <= one["lost"] < 1
    # two layers of one shape were measured once
    assert len(ResultsFolder(Path("results")).index().convolutions) == 3


def test_what_is_stored_is_not_measured_again(capsys: Printed) -> None:
    assert conv_here(*SMALL) == 0
    first = capsys.readouterr()
    assert conv_here(*SMALL) == 0
    second = capsys.readouterr()
    assert conv_here(*SMALL[:-1], "default,direct", "--no-network") == 0
    third = capsys.readouterr()

    assert "3 passes measured; runs" in first.err
    assert "0 passes measured, 3 were stored before" in second.err
    assert first.out == second.out
    assert "3 passes measured; runs" in third.err  # of which only `direct` was missing
    assert "gemm" not in third.out
    stored = ResultsFolder(Path("results")).index()
    assert [run.request.algorithms for run in stored.convolutions] == [
        *[("default", "gemm", "winograd")] * 3, *[("direct",)] * 3,
    ]  # fmt: skip
    assert len(stored.conv_networks) == 1
    assert len(stored.runs) == 3
    assert conv_here("--shape", SHAPE, "--algorithm", "gemm", "--again") == 0
    assert "1 passes measured; runs" in capsys.readouterr().err


def test_three_passes_of_training(capsys: Printed) -> None:
    content = answer(capsys, "--shape", SHAPE, "--mode", "train", "--algorithm", "gemm,find")

    assert [(row["pass"], row["algorithm"], row["status"]) for row in content["layers"]] == [
        ("forward", "gemm", "ok"), ("forward", "find", "ok"),
        ("input-grad", "gemm", "ok"), ("input-grad", "find", "refused"),
        ("weight-grad", "gemm", "ok"), ("weight-grad", "find", "refused"),
    ]  # fmt: skip


def test_an_interrupt_keeps_what_is_done(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline.pipeline import convolutions

    usual, calls = convolutions.conv_task, iter(range(10))

    def stop_at_the_second(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return usual(*arguments)

    monkeypatch.setattr(convolutions, "conv_task", stop_at_the_second)

    assert conv_here(*SMALL) == 130

    printed = capsys.readouterr()
    assert "interrupted; passes kept: 1" in printed.err
    assert "1x4x8x8 to 4, 1x1, stride 2" in printed.out
    monkeypatch.setattr(convolutions, "conv_task", usual)
    assert conv_here(*SMALL) == 0
    assert "2 passes measured, 1 were stored before" in capsys.readouterr().err


def test_a_pass_that_fails_leaves_the_others(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ridgeline.pipeline import convolutions

    usual, calls = convolutions.conv_task, iter(range(10))

    def fail_at_the_second(*arguments: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("CUDA error: misaligned address")
        return usual(*arguments)

    monkeypatch.setattr(convolutions, "conv_task", fail_at_the_second)

    assert conv_here(*SMALL, "--no-network") == 3

    printed = capsys.readouterr().err
    assert "misaligned address" in printed
    assert "2 passes measured" in printed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "no model and no shape was named"),
        (("net.py:flat", "--input-size", "3x8x8"), "net.flat has no 2-D convolution"),
        (("net.py:make", "--input-size", "3"), "net.make cannot be traced without computing"),
        (("--shape", "1,2,3"), "the shape '1,2,3' is not valid"),
        (("--shape", "1,3,8,8,4,3,3,1,0,1,2"), "2 groups do not divide 3 and 4 channels"),
        (("--shape", "1,3,2,2,4,5,5"), "the window of 1x3x2x2 to 4, 5x5 is larger than its padded"),
        (("--shape", SHAPE, "--algorithm", "winogard"), "unknown algorithm 'winogard'"),
        (("--shape", SHAPE, "--algorithm", "fft tiling"), "no algorithm 'fft tiling' on cpu"),
        (("--shape", SHAPE, "--precision", "amp"), "unknown precision 'amp' of a convolution"),
        (("--shape", SHAPE, "--precision", "tf32"), "tf32 is not used: TF32 is a format of NVIDIA"),
        ((*SMALL, "--layers", "head"), "no convolution has 'head' in its name"),
        (("--shape", SHAPE, "--input-size", "0:1:1"), "is not valid\n  hint: give whole numbers"),
    ],
)
def test_bad_input_is_an_error_and_nothing_is_stored(
    arguments: tuple[str, ...], problem: str, capsys: Printed
) -> None:
    assert conv_here(*arguments) == 2

    error = capsys.readouterr().err
    assert problem in error
    assert "hint: " in error
    assert not Path("results").exists()


def test_a_shape_that_no_chosen_algorithm_can_do_says_why(capsys: Printed) -> None:
    assert conv_here("--shape", "1,4,8,8,4,1,1", "--algorithm", "winograd") == 2

    error = capsys.readouterr().err
    assert "no chosen algorithm can do 1x4x8x8 to 4, 1x1" in error


def test_engines_are_skipped_with_their_reason(capsys: Printed) -> None:
    assert conv_here("--shape", SHAPE, "--algorithm", "gemm", "--engines") == 0

    assert "--engines is skipped: plans are cuDNN's, and this is a cpu" in capsys.readouterr().err


def test_no_gpu_is_an_error() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert command("conv", "--shape", SHAPE, "--backend", "cuda", "--in-process") == 2


def test_options_are_parsed() -> None:
    known = ConvShape(n=1, c=4, h=8, w=8, k=4, r=3, s=3, stride=(1, 1), padding=(1, 1))
    assert make_shape(SHAPE.split(",")) == known
    assert parse_sizes("64,3x8x9") == ((64,), (3, 8, 9))
    assert parse_sizes("64:128:32") == ((64,), (96,), (128,))


def test_the_lists(capsys: Printed) -> None:
    assert tuple(ABOUT) == ALGORITHMS
    assert command("conv", "--list-algorithms") == 0
    assert "winograd nonfused" in capsys.readouterr().out
    assert command("conv", "--list-models", "--json") == 0
    models = {one["model"] for one in json.loads(capsys.readouterr().out)}
    assert {"resnet18", "vgg16", "squeezenet1_1"} <= models


def test_from_python() -> None:
    quick: dict[str, Any] = {"backend": "cpu", "iters": 2, "energy": False}

    found = ridgeline.conv(
        "net.py:make", input_size=[(3, 8, 8)], algorithm=["default", "gemm"], network=False, **quick
    )

    assert list(found.rows["algorithm"]) == ["default", "gemm"] * 4
    assert set(found.losses["chosen"]) == {"default"}
    assert found.networks.empty
    with pytest.raises(ridgeline.RidgelineError, match="the shape '1,2' is not valid"):
        ridgeline.conv(shapes=[(1, 2)])

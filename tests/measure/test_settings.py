"""What can be asked of a measurement, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.settings import Settings, option

NAMES = "sgd, momentum, nesterov, adam, adamw, adamax, nadam, radam, rmsprop, adagrad, adadelta, "

BELOW_ONE = "it is 0 or more, and less than 1"


@pytest.mark.parametrize(
    ("wrong", "problem", "hint"),
    [
        ({"backend": "tpu"}, "unknown backend 'tpu'", "choose auto, cuda, mps, cpu"),
        ({"precision": "fp8"}, "unknown precision 'fp8'", "choose fp32, tf32, amp, bf16, fp16"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'", f"choose {NAMES}adafactor"),
        (
            {"compile": "fast"},
            "unknown compile mode 'fast'",
            "choose default, reduce-overhead, max-autotune",
        ),
        (
            {"algorithm": "winogard"},
            "unknown algorithm 'winogard'",
            "choose default, benchmark, direct, gemm, implicit gemm, implicit precomp gemm, fft, "
            "fft tiling, winograd, winograd 4x4, winograd nonfused, guess, find",
        ),
        ({"device": -1}, "--device -1 is not possible", "it is 0 or more"),
        ({"warmup_iters": -1}, "--warmup-iters -1 is not possible", "it is 0 or more"),
        ({"iters": 0}, "--iters 0 is not possible", "it is 1 or more"),
        ({"lr": -0.1}, "--lr -0.1 is not possible", "it is 0 or more"),
        ({"lr": float("nan")}, "--lr nan is not possible", "it is 0 or more"),
        ({"momentum": -0.1}, "--momentum -0.1 is not possible", BELOW_ONE),
        ({"momentum": 1.0}, "--momentum 1.0 is not possible", BELOW_ONE),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "the optimizer adam has no momentum",
            "leave --momentum out, or choose sgd, momentum, nesterov, rmsprop",
        ),
        ({"weight_decay": -1.0}, "--weight-decay -1.0 is not possible", "it is 0 or more"),
        ({"grad_accum_steps": 0}, "--grad-accum-steps 0 is not possible", "it is 1 or more"),
        ({"seed": -1}, "--seed -1 is not possible", "it is 0 or more"),
        ({"workers": -1}, "--workers -1 is not possible", "it is 0 or more"),
        (
            {"workers": 1, "prefetch_factor": 0},
            "--prefetch-factor 0 is not possible",
            "it is 1 or more",
        ),
        ({"energy_time_s": 0.0}, "--energy-time 0.0 is not possible", "it is 0.1 or more"),
        (
            {"prefetch_factor": 2},
            "--prefetch-factor needs workers that could fetch",
            "add --workers 2 or more",
        ),
    ],
)
def test_a_wrong_value_is_named_with_the_way_out(
    wrong: dict[str, Any], problem: str, hint: str
) -> None:
    with pytest.raises(RidgelineError) as caught:
        Settings(**wrong)

    assert (caught.value.problem, caught.value.hint) == (problem, hint)


def test_as_plain_values() -> None:
    assert vars(Settings(precision="amp", lr=0.1, layers=True)) == {
        "backend": "auto", "device": 0, "precision": "amp", "warmup_iters": None, "iters": None,
        "optimizer": "sgd", "lr": 0.1, "momentum": None, "weight_decay": None,
        "grad_accum_steps": 1, "channels_last": False, "deterministic": False,
        "cudnn_benchmark": False, "compile": None, "algorithm": "default", "weights": None,
        "nvtx": False, "seed": 0, "data": "synthetic", "workers": 0, "pin_memory": False,
        "prefetch_factor": None, "augment": True,
        "layers": True, "energy": None, "energy_time_s": 5.0, "layer_energy": False,
    }  # fmt: skip
    assert Settings(**vars(Settings(iters=3))) == Settings(iters=3)


def test_only_given_options_go_to_the_optimizer() -> None:
    assert Settings().optimizer_options == {}
    assert Settings(lr=0.0, weight_decay=1e-4).optimizer_options == {
        "lr": 0.0,
        "weight_decay": 1e-4,
    }


@pytest.mark.parametrize(
    ("data", "is_synthetic"),
    [("synthetic", True), ("synthetic-host", True), ("synthetic/", False), ("photos", False)],
)
def test_data_that_is_made_here(data: str, is_synthetic: bool) -> None:
    assert Settings(data=data).is_synthetic is is_synthetic


def test_the_option_behind_a_field() -> None:
    assert [option(name) for name in ("lr", "warmup_iters", "energy_time_s")] == [
        "--lr", "--warmup-iters", "--energy-time",
    ]  # fmt: skip

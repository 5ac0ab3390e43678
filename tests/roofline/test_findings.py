"""What to fix first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.roofline.hand_points import find, make_step

from ridgeline.findings import advise, describe_point, saving, saving_basis
from ridgeline.roofline.roofs import Roofs
from ridgeline.settings import as_arguments

GPU = Roofs(
    env="card", device="cuda:0", compute={"fp32 vector": 5e13, "fp16 matrix": 8e14},
    bandwidth={"dram": 4e12},
)  # fmt: skip
CPU = Roofs(env="pc", device="cpu", compute={"fp32 vector": 2e11})
WORK: dict[str, Any] = {
    "run_id": "r", "env": "card", "model": "net", "mode": "train", "precision": "fp32",
    "batch_size": 8, "grain": "layer", "layer": "conv", "phase": "all", "kind": "Conv2d",
    "provenance": "static", "bound": "compute", "time_s": 0.010, "floor_s": 0.004,
    "efficiency": 0.4, "headroom_s": 0.006, "compute_s": 0.004, "flops": 2e11,
    "flops_fp32_matrix": 2e11,
}  # fmt: skip
STEP = make_step()


def layers(*changes: dict[str, Any]) -> pd.DataFrame:
    step = {**WORK, "grain": "step", "layer": "", "time_s": 0.03, "headroom_s": 0.01}
    return pd.DataFrame([step, *({**WORK, **change} for change in changes)])


def test_the_largest_headroom_comes_first() -> None:
    points = layers(
        {"layer": "a", "headroom_s": 0.001},
        {"layer": "b", "headroom_s": 0.006},
        {"layer": "c", "headroom_s": 0.003},
        {"layer": "b", "phase": "forward", "headroom_s": 0.009},
    )
    found = find(points, STEP, GPU)
    assert found["layer"].to_list() == ["b", "c", "a"]
    assert found["share"].to_list() == pytest.approx([0.2, 0.1, 1 / 30])


def test_phases_stand_in_where_no_layer_was_timed() -> None:
    points = layers({"grain": "phase", "layer": "", "phase": "backward"})
    assert find(points, STEP, GPU)["layer"].to_list() == ["backward"]


def test_waiting_for_the_host_is_a_finding_of_its_own() -> None:
    step = make_step(precision="amp", kernel_time_s=0.012,
                      kernel_launches=800)  # fmt: skip
    first = find(layers({}), step, GPU).iloc[0]
    assert first["layer"] == "(host)"
    assert first["headroom_s"] == pytest.approx(0.018)
    assert first["meaning"] == (
        "for 18.0 ms of each step the GPU waits for the host, which launches 800 kernels"
    )
    assert "--compile-mode reduce-overhead" in first["advice"]


def test_meaning_in_words() -> None:
    assert describe_point(WORK) == (
        "takes 10.0 ms; the arithmetic alone would take 4.00 ms: 40.0 % of what is possible"
    )
    assert describe_point({**WORK, "bound": "dram"}).startswith(
        "takes 10.0 ms; moving its data (DRAM) alone would take 4.00 ms"
    )
    assert "nothing is known" in describe_point({**WORK, "bound": None, "floor_s": float("nan")})


@pytest.mark.parametrize(
    ("work", "step", "roofs", "says"),
    [
        # 2e11 FLOP at 8e14: 250 µs instead of 4 ms
        (
            {},
            {},
            GPU,
            "--precision tf32 or --precision amp (amp: floor of the arithmetic 4.00 ms → 250 µs)",
        ),
        ({}, {"precision": "amp"}, GPU, "--channels-last"),
        ({"bound": "dram", "kind": "ReLU"}, {}, GPU, "--compile"),
        ({"bound": "dram"}, {}, CPU, "--channels-last"),
        ({"bound": "dram", "layer": "(optimizer)"}, {}, GPU, "fused=True"),
        ({"bound": "launch"}, {}, GPU, "larger batch"),
        ({"kind": "Linear", "floor_s": 5e-5}, {"precision": "amp"}, GPU, "larger batch"),
        ({"kind": "Linear"}, {"precision": "amp"}, GPU, "--compile-mode max-autotune"),
        ({"kind": "Linear"}, {"precision": "amp", "is_compiled": True}, GPU, "another shape"),
        ({"efficiency": 0.95}, {"precision": "amp"}, GPU, "only less work helps"),
        ({"kind": "Linear"}, {"is_compiled": True}, CPU, "compare a few by --batch-size"),
        ({"bound": "launch"}, {}, CPU, "--compile-mode default"),
        ({"bound": None}, {}, CPU, "find out what it does"),
    ],
)
def test_advice_fits_the_bound_and_what_was_tried(
    work: dict[str, Any], step: dict[str, Any], roofs: Roofs, says: str
) -> None:
    chosen = make_step(**step)
    assert says in advise({**WORK, **work}, chosen, roofs)


def test_what_was_tried_is_not_advised_again() -> None:
    tried = make_step(precision="amp", is_compiled=True, is_channels_last=True)
    text = advise({**WORK, "bound": "dram"}, tried, GPU)
    assert "--compile" not in text
    assert "amp" not in text
    assert "--compile" not in advise({**WORK, "bound": "launch"}, tried, CPU)


@pytest.mark.parametrize(
    ("advice", "in_python"),
    [
        ("--channels-last, which spares copies", "channels_last=True, which spares copies"),
        ("fuse it: --compile-mode default", 'fuse it: compile="default"'),
        ("see with `ridgeline run … --repeats 3`", "see with `3 measurements`"),
        ("a larger batch", "a larger batch"),
    ],
)
def test_advice_of_a_python_function_is_in_python(advice: str, in_python: str) -> None:
    assert as_arguments(advice) == in_python


def test_what_the_operating_system_takes_is_a_finding_of_its_own() -> None:
    # given steps of 30 ms in which two cores spend 24 ms in the system
    step = make_step(system_s=0.024, cores=2.0)
    first = find(layers({}), step, CPU).iloc[0]
    assert (first["layer"], first["bound"]) == ("(system)", "system")
    assert first["headroom_s"] == pytest.approx(0.012)
    assert first["share"] == pytest.approx(0.4)
    assert first["advice"].startswith("a smaller batch, or let the C library")
    one = make_step(system_s=0.024, cores=2.0, batch_size=1)
    assert find(layers({}), one, CPU).iloc[0]["advice"].startswith("let the C library")
    assert first["meaning"].endswith(
        "; this time is also part of the layers' times, so the two do not add up"
    )


@pytest.mark.parametrize(
    ("layer", "share", "says"),
    [
        ("conv", 0.2, "about 6.00 ms, 20.0 % of the step, if it ran at its floor"),
        ("conv", float("nan"), "about 6.00 ms, if it ran at its floor"),
        ("(host)", 0.2, "about 6.00 ms, 20.0 % of the step, if the GPU never waited for the host"),
        ("(system)", 0.2,
         "about 6.00 ms, 20.0 % of the step, if the operating system had nothing to do"),
    ],
)  # fmt: skip
def test_what_could_be_saved_is_an_estimate_with_its_condition(
    layer: str, share: float, says: str
) -> None:
    finding = {**WORK, "layer": layer, "share": share}
    assert f"{saving(finding)}, {saving_basis(finding)}" == says


@pytest.mark.parametrize(
    ("sum_s", "kernel_time_s", "is_doubted", "saves"),
    [
        (0.030, None, False, "about 6.00 ms, 20.0 % of the step"),
        (0.033, None, False, "about 6.00 ms, 20.0 % of the step"),
        (0.045, None, True, "about 6.00 ms"),  # of 45 ms, so no share of a step of 30 ms
        (0.020, None, True, "about 6.00 ms, 20.0 % of the step"),
        (0.020, 0.02, False, "about 6.00 ms, 20.0 % of the step"),
        (0.027, 0.02, True, "about 6.00 ms, 20.0 % of the step"),
    ],
)
def test_layers_that_do_not_add_up_are_told_with_caution(
    sum_s: float, kernel_time_s: float | None, is_doubted: bool, saves: str
) -> None:
    step = make_step(layer_sum_s=sum_s,
                      kernel_time_s=kernel_time_s)  # fmt: skip
    found = find(layers({}), step, GPU).query("layer == 'conv'").iloc[0]
    assert ("with caution" in found["meaning"]) is is_doubted
    assert saving({str(key): value for key, value in found.items()}) == saves


@pytest.mark.parametrize(
    ("changes", "step", "roofs", "is_padded"),
    [
        ({}, {}, GPU, True),
        ({"bound": "compute"}, {"precision": "amp"}, GPU, True),
        ({}, {"precision": "tf32"}, GPU, True),
        ({"product_sides": "768x50260"}, {"precision": "tf32"}, GPU, False),  # a multiple of 4
        ({"product_sides": "768x50260"}, {}, GPU, True),  # and none of 8
        ({"product_sides": "768x50304"}, {}, GPU, False),
        ({"product_sides": "768x10"}, {}, GPU, False),  # padded, it would be six times the work
        ({"product_sides": ""}, {}, GPU, False),
        ({"efficiency": 0.6}, {}, GPU, False),  # it has found a good kernel
        ({}, {"is_compiled": True}, GPU, False),  # which pads
        ({}, {"precision": "fp32"}, GPU, False),  # no tensor cores
        ({}, {}, CPU, False),
    ],
)
def test_a_large_product_with_an_odd_side_is_to_be_padded(
    changes: dict[str, Any], step: dict[str, Any], roofs: Roofs, is_padded: bool
) -> None:
    head = {"layer": "lm_head", "kind": "Linear", "bound": "dram", "efficiency": 0.15,
            "product_sides": "768x50257"}  # fmt: skip
    chosen = make_step(**{"precision": "bf16", **step})
    text = advise({**WORK, **head, **changes}, chosen, roofs)
    assert text.startswith("pad its side of ") is is_padded
    if not changes and not step and roofs is GPU:
        assert text == (
            "pad its side of 50257 to 50304, a multiple of 64: for what is no multiple of 8 the"
            " library takes slow kernels; --compile-mode default pads by itself"
        )


def test_a_layer_that_counters_saw_has_the_sides_of_its_count() -> None:
    head = {"layer": "lm_head", "bound": "l1", "efficiency": 0.15}
    points = layers(
        {**head, "provenance": "counter", "product_sides": ""},
        {**head, "provenance": "static", "product_sides": "768x50257"},
    )
    (found,) = find(points, make_step(precision="bf16"), GPU)["advice"]
    assert found.startswith("pad its side of 50257")

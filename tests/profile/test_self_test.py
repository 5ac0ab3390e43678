"""Work of known size: what the counters make of it."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from ridgeline.profile.self_test import PRODUCT_FLOPS, compute_ratios, doubt_ratios, is_known_work

COPY = "ridgeline:test:copy:1000"  # read once, written once: 2000 bytes
FP32, FP16 = "ridgeline:test:product:fp32", "ridgeline:test:product:fp16"


def capture(*ranges: str, **counters: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"nvtx": list(ranges), **counters})


def test_the_product_is_that_of_2048() -> None:
    assert PRODUCT_FLOPS == 17_179_869_184


def test_counted_over_true() -> None:
    # given a group with FLOPs outside of tensor cores, and one with bytes and tensor cores
    whole = float(PRODUCT_FLOPS)
    vector = capture(COPY, FP32, FP16, "step", flops_fp32_vector=[0.0, whole, 0.0, 5.0])
    others = capture(
        COPY, FP32, FP16, "step",
        dram_bytes=[2100.0, 1.0, 1.0, 5.0], flops_fp16_matrix=[0.0, 0.0, whole / 2, 5.0],
    )  # fmt: skip
    assert compute_ratios([vector, others]) == {
        "copy": 1.05,
        "product fp32": 1.0,
        "product fp16": 0.5,
    }


def test_parts_of_a_product_in_several_groups_are_added_up() -> None:
    part = float(PRODUCT_FLOPS // 4)
    one = capture(FP16, FP16, flops_fp16_matrix=[part, part])  # two kernels of one product
    two = capture(FP16, flops_fp16_matrix=[2 * part])
    assert compute_ratios([one, two]) == {"product fp16": 1.0}


def test_what_nobody_counted_is_not_told() -> None:
    nothing = [nan, nan]
    assert (
        compute_ratios([capture(COPY, FP16, dram_bytes=nothing, flops_fp16_matrix=nothing)]) == {}
    )
    assert compute_ratios([capture("step", dram_bytes=[5.0])]) == {}
    assert compute_ratios([]) == {}


def test_known_work_is_not_of_the_step() -> None:
    rows = capture(f"outer/{COPY}", "ridgeline:op:1", "", FP16)
    assert is_known_work(rows).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"copy": 1.04, "product fp32": 1.0}, []),
        ({}, ["the counters were not tested: no work of known size was seen"]),
        (
            {"copy": 1.2, "product fp32": 1.0, "product fp16": 0.5},
            [
                "these counters are off by more than 5% on work of known size: "
                "copy: 1.200 of the truth, product fp16: 0.500 of the truth"
            ],
        ),
    ],
    ids=["good", "none", "off"],
)
def test_doubts(found: dict[str, float], said: list[str]) -> None:
    assert doubt_ratios(found) == said

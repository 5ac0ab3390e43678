"""Which counters of tensor cores are added up, for every chip there is."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from ridgeline.profile.tensor_counters import added, partition, remarks


def full(*names: str) -> list[str]:
    return [f"sm__ops_path_tensor_{name}.sum" for name in names]


def halves(*names: str) -> list[str]:
    return full(*(f"{name}_sparsity_{half}" for name in names for half in ("off", "on")))


def short(found: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    start, end = len("sm__ops_path_tensor_"), -len(".sum")
    return {kind: [name[start:end] for name in names] for kind, names in found.items()}


def test_turing() -> None:
    names = full("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16", "src_int8", "src_int4")
    assert short(partition(names)) == {
        "fp16": ["src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16"],
        "int4": ["src_int4"],
        "int8": ["src_int8"],
    }


def test_ampere_adds_results_and_halves() -> None:
    names = halves("src_fp16_dst_fp32", "src_fp16_dst_fp16", "src_int8") + full("src_fp64")
    assert short(partition(names)) == {
        "fp16": [
            "src_fp16_dst_fp32_sparsity_off",
            "src_fp16_dst_fp32_sparsity_on",
            "src_fp16_dst_fp16_sparsity_off",
            "src_fp16_dst_fp16_sparsity_on",
        ],
        "fp64": ["src_fp64"],
        "int8": ["src_int8_sparsity_off", "src_int8_sparsity_on"],
    }


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("src_fp16", "src_fp16_dst_fp32"), ["src_fp16"]),
        (("src_int8", "src_int8_sparsity_off", "src_int8_sparsity_on"), ["src_int8"]),
        (("src_bf16_dst_fp32", "op_hgmma_src_bf16_dst_fp32"), ["src_bf16_dst_fp32"]),
        (("op_hgmma_src_bf16", "op_hmma_src_bf16"), ["op_hgmma_src_bf16", "op_hmma_src_bf16"]),
        (("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp32"), ["src_fp16_bf16_tf32_dst_fp32"]),
    ],
)
def test_work_that_is_told_twice_counts_once(names: tuple[str, ...], taken: list[str]) -> None:
    (found,) = short(partition(full(*names))).values()
    assert found == taken


def test_what_is_told_by_operands_and_what_by_instruction_only_is_added() -> None:
    names = full("op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16")
    assert short(partition(names)) == {
        "fp16": ["op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16"]
    }


@pytest.mark.parametrize(
    ("rows", "work"),
    [
        # a part that nothing else tells
        ([{"src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": nan}], nan),
        ([{"src_fp8_sparsity_off": 7, "src_fp8_sparsity_on": nan}], nan),
        ([{"op_hmma_src_fp16": 7, "op_hgmma_src_fp16": nan}], nan),
        # what another counter tells: a total, its parts, the counter of another chip
        ([{"src_fp16": 9, "src_fp16_dst_fp32": nan}], 9),
        ([{"src_fp8": nan, "src_fp8_sparsity_off": 7, "src_fp8_sparsity_on": 2}], 9),
        ([{"src_fp16": nan, "src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": 2}], 9),
        ([{"src_fp8": nan, "src_fp4_fp6_fp8_dst_fp16": 7, "src_fp4_fp6_fp8_dst_fp32": 2}], 9),
        ([{"src_fp8": 9, "src_fp4_fp6_fp8_dst_fp16": nan, "src_fp4_fp6_fp8_dst_fp32": nan}], 9),
        ([{"src_fp8": nan, "op_utcqmma_src_fp8_dst_fp16": 7, "op_utcqmma_src_fp8_dst_fp32": 2}], 9),
        # a total that other kernels have, so that its work may be in parts which were not asked for
        ([{"src_fp16": nan, "op_hmma_src_fp16": 7}, {"src_fp16": 9, "op_hmma_src_fp16": 7}], nan),
        ([{"src_fp8": nan, "src_fp8_dst_fp16": 7}, {"src_fp8": 9, "src_fp8_dst_fp16": 7}], nan),
        ([{"src_fp16": nan, "src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": 2}, {"src_fp16": 5}], 9),
    ],
    ids=lambda value: "-".join(value[0]) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_counter_without_a_value_is_a_loss_if_no_other_tells_its_work(
    rows: list[dict[str, float]], work: float
) -> None:
    table = pd.DataFrame(rows).rename(columns=lambda name: full(name)[0])
    assert added(table)[0].tolist()[0] == pytest.approx(work, nan_ok=True)


def test_hopper_as_it_was_collected() -> None:
    names = full("src_bf16_dst_fp32", "src_fp16", "src_tf32_dst_fp32", "src_fp64", "src_fp8",
                 "src_int8")  # fmt: skip
    assert sorted(partition(names)) == ["bf16", "fp16", "fp64", "fp8", "int8", "tf32"]


def test_blackwell_mixes_small_types_and_says_so() -> None:
    names = full("src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32", "src_fp4_dst_fp32")
    used = partition(names)
    assert short(used) == {
        "fp4": ["src_fp4_dst_fp32"],
        "fp8": ["src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32"],
    }
    assert remarks(used) == [
        "this chip counts fp4, fp6, fp8 operands together; they are shown as tensor fp8"
    ]


def test_fp8_by_instruction_where_no_other_counter_tells_it() -> None:
    names = full("src_fp4_fp6_dst_fp32", "op_utcqmma_src_fp8_dst_fp16",
                 "op_utcqmma_src_fp8_dst_fp32")  # fmt: skip
    assert short(partition(names)) == {
        "fp6": ["src_fp4_fp6_dst_fp32"],
        "fp8": ["op_utcqmma_src_fp8_dst_fp16", "op_utcqmma_src_fp8_dst_fp32"],
    }


def test_half_a_total_is_a_lower_bound() -> None:
    used = partition(full("src_fp8_sparsity_off"))
    assert remarks(used) == [
        "tensor fp8 is a lower bound: the counter with sparsity on was not collected"
    ]


def test_other_names_are_left_alone() -> None:
    assert partition(["sm__ops_path_tensor_src_fp9.sum", "sm__ops_path_tensor_src_fp8.avg"]) == {}

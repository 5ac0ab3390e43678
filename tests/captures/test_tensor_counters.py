"""Which counters of tensor cores are added up, for every chip there is."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import pandas as pd
import pytest
from tests.profile.recorded import metrics_of

from ridgeline.captures.quantities import Quantities, derive_quantities, parse_tensor_counter


def full(*names: str) -> list[str]:
    return [f"sm__ops_path_tensor_{name}.sum" for name in names]


def halves(*names: str) -> list[str]:
    return full(*(f"{name}_sparsity_{half}" for name in names for half in ("off", "on")))


def derive(*rows: dict[str, float]) -> Quantities:
    return derive_quantities(pd.DataFrame(rows).rename(columns=lambda name: full(name)[0]))


def derive_ones(names: Iterable[str]) -> Quantities:
    """Where one kernel has a value in each of the counters."""
    return derive_quantities(pd.DataFrame(1.0, index=[0], columns=list(names)))


def tensor_notes(found: Quantities) -> list[str]:
    return [note for note in found.remarks if not note.startswith(("no time", "no bytes"))]


def used(names: list[str]) -> dict[str, list[str]]:
    """Those that are added up, by type, without what all names have."""
    start, end = len("sm__ops_path_tensor_"), -len(".sum")
    counters = [c for c in map(parse_tensor_counter, derive_ones(names).metrics) if c]
    kinds = sorted({counter.type for counter in counters})
    return {kind: [c.name[start:end] for c in counters if c.type == kind] for kind in kinds}


def test_turing() -> None:
    names = full("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16", "src_int8", "src_int4")
    assert used(names) == {
        "fp16": ["src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16"],
        "int4": ["src_int4"],
        "int8": ["src_int8"],
    }


def test_ampere_adds_results_and_halves() -> None:
    names = halves("src_fp16_dst_fp32", "src_fp16_dst_fp16", "src_int8") + full("src_fp64")
    assert used(names) == {
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
    (found,) = used(full(*names)).values()
    assert found == taken


def test_what_is_told_by_operands_and_what_by_instruction_only_is_added() -> None:
    names = full("op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16")
    assert used(names) == {"fp16": ["op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16"]}


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
        ([{"src_fp16": nan, "src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": 2}, {"src_fp16": 5}], nan),
        # one of more types, or of another result, that other kernels have
        ([{"src_fp4_fp6_fp8": nan, "src_fp8": 10}, {"src_fp4_fp6_fp8": 100, "src_fp8": 10}], nan),
        ([{"src_fp4_fp6": nan, "src_fp4_fp6_dst_fp32": 7}, {"src_fp4_fp6": 9}], nan),
    ],
    ids=lambda value: "-".join(value[0]) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_counter_without_a_value_is_a_loss_if_no_other_tells_its_work(
    rows: list[dict[str, float]], work: float
) -> None:
    found = list(derive(*rows).table.to_dict("list").values())
    assert (found[0][0] if found else nan) == pytest.approx(work, nan_ok=True)


def test_hopper_as_it_was_collected() -> None:
    names = full("src_bf16_dst_fp32", "src_fp16", "src_tf32_dst_fp32", "src_fp64", "src_fp8",
                 "src_int8")  # fmt: skip
    assert list(used(names)) == ["bf16", "fp16", "fp64", "fp8", "int8", "tf32"]


def test_blackwell_mixes_small_types_and_says_so() -> None:
    names = full("src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32", "src_fp4_dst_fp32")
    assert used(names) == {
        "fp4": ["src_fp4_dst_fp32"],
        "fp8": ["src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32"],
    }
    assert tensor_notes(derive_ones(names)) == [
        "this chip counts fp4, fp6, fp8 operands together; they are shown as tensor fp8"
    ]


def test_fp8_by_instruction_where_no_other_counter_tells_it() -> None:
    names = full("src_fp4_fp6_dst_fp32", "op_utcqmma_src_fp8_dst_fp16",
                 "op_utcqmma_src_fp8_dst_fp32")  # fmt: skip
    assert used(names) == {
        "fp6": ["src_fp4_fp6_dst_fp32"],
        "fp8": ["op_utcqmma_src_fp8_dst_fp16", "op_utcqmma_src_fp8_dst_fp32"],
    }


def test_half_a_total_is_a_lower_bound() -> None:
    assert tensor_notes(derive_ones(full("src_fp8_sparsity_off"))) == [
        "tensor fp8 is a lower bound: the counter with sparsity on was not collected"
    ]


def test_other_names_are_left_alone() -> None:
    for name in ("sm__ops_path_tensor_src_fp9.sum", "sm__ops_path_tensor_src_fp8.avg"):
        assert parse_tensor_counter(name) is None


def test_a_counter_that_is_left_out_with_work_of_its_own_makes_a_lower_bound() -> None:
    # given all work of one instruction, and that of any instruction which ends in fp16
    found = derive({"src_fp16_dst_fp16": 10, "op_hmma_src_fp16": 100})
    # then the first is not added, and a note says so
    result, instruction = full("src_fp16_dst_fp16", "op_hmma_src_fp16")
    assert found.table.to_dict("list") == {"flops_fp16_matrix": [10]}
    assert found.metrics == (result,)
    assert tensor_notes(found) == [
        f"tensor fp16 is a lower bound: {instruction} left out, with some of the same work and"
        " other work"
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"src_fp16_dst_fp16": 10, "op_hmma_src_fp16": 0},
        {"src_fp16_dst_fp16": 10, "op_hmma_src_fp16_dst_fp16": 10},
        {"src_fp16_dst_fp16": 10, "src_fp16_dst_fp32": 90, "op_hmma_src_fp16": 100},
        {"src_bf16_dst_fp32": 10, "op_hmma_src_bf16": 10},
    ],
    ids="-".join,
)
def test_one_that_is_left_out_without_is_no_loss(row: dict[str, float]) -> None:
    assert tensor_notes(derive(row)) == []


@pytest.mark.parametrize("chip", ["tu102", "ga100", "ad102", "gh100", "gb100", "gb202"])
def test_all_that_a_chip_has_tells_all_there_is(chip: str) -> None:
    found = derive_ones(tensor_names(chip))
    assert len(found.table.columns) >= 4
    assert not [
        note for note in tensor_notes(found) if "lower bound" in note or "by itself" in note
    ]


def tensor_names(chip: str) -> list[str]:
    return sorted(f"{name}.sum" for name in metrics_of(chip) if "ops_path_tensor" in name)


def test_what_a_counter_of_more_types_counts_too_is_told_once() -> None:
    found = derive({"src_fp4_fp6_fp8": 100.0, "src_fp4_fp6": 30.0, "src_fp4": 5.0})
    # then fp4 and fp6 are in the widest; fp4 by itself is another instruction's
    assert found.table.to_dict("list") == {"flops_fp4_matrix": [5], "flops_fp8_matrix": [100]}
    [wide] = full("src_fp4_fp6_fp8")
    assert f"tensor fp6 is not told by itself: {wide} counts it, too" in found.remarks


def test_what_is_left_of_a_counter_that_is_within_another() -> None:
    found = derive({"src_fp4_fp6_fp8_dst_fp32": 100, "src_fp4_fp6_dst_fp32": 30,
                    "src_fp4_fp6_dst_fp16": 3})  # fmt: skip
    assert found.table.to_dict("list") == {"flops_fp6_matrix": [3], "flops_fp8_matrix": [100]}

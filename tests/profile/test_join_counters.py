"""The trace and the counters of one step, joined by hand; names that profilers agree on."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import pandas as pd
import pytest

from ridgeline.profile import join_counters as names_module
from ridgeline.profile.join_counters import (
    Joined,
    demangled,
    index_of,
    join_counters,
    short_name,
    side_by_side,
    without_trace,
)
from ridgeline.profile.operators import NOWHERE


def trace_of(*kernels: tuple[str, int]) -> pd.DataFrame:
    """Kernels and the numbers of their operators, each a second long."""
    names, numbers = zip(*kernels, strict=True) if kernels else ((), ())
    return pd.DataFrame({"kernel": list(names), "time_s": 1.0, "start_s": 0.0,
                         "index": list(numbers)})  # fmt: skip


def capture_of(*kernels: tuple[str, int], **counters: list[float]) -> pd.DataFrame:
    ranges = ["" if n == NOWHERE else f"step/ridgeline:op:{n}" for _, n in kernels]
    return pd.DataFrame({"kernel": [name for name, _ in kernels], "nvtx": ranges, "launches": 1,
                         **counters})  # fmt: skip


def calls_of(*operators: str) -> list[dict[str, Any]]:
    """Operators by name."""
    return [
        {"index": index, "op": f"aten::{op}", "layer": f"layer{index}", "phase": "forward"}
        for index, op in enumerate(operators)
    ]


def values(found: Joined, name: str) -> list[float | None]:
    """A column, with None for what is not known."""
    return [None if isnan(value) else value for value in found.kernels[name]]


# ---------------------------------------------------------------- by number


def test_counters_beside_times_and_places() -> None:
    # given two operators, the second with two kernels
    trace = trace_of(("a", 0), ("b", 1), ("c", 1))
    capture = capture_of(("a", 0), ("b", 1), ("c", 1), dram_bytes=[10.0, 20.0, 30.0])
    found = join_counters(trace, [capture], calls_of("relu", "mm"))
    assert found.kernels.to_dict("list") == {
        "kernel": ["a", "b", "c"],
        "time_s": [1.0, 1.0, 1.0],
        "dram_bytes": [10.0, 20.0, 30.0],
        "layer": ["layer0", "layer1", "layer1"],
        "phase": ["forward"] * 3,
        "op": ["aten::relu", "aten::mm", "aten::mm"],
        "launches": [1, 1, 1],
        "time_source": ["profiler"] * 3,
    }
    assert found.extra == 0


def test_the_order_between_operators_does_not_matter() -> None:
    # given threads that took turns otherwise when the step was counted
    trace = trace_of(("a", 0), ("b", 1))
    capture = capture_of(("b", 1), ("a", 0), dram_bytes=[20.0, 10.0])
    assert values(join_counters(trace, [capture], calls_of("x", "y")), "dram_bytes") == [
        10,
        20,
    ]


def test_two_steps_are_joined_in_turn() -> None:
    # given two steps with the same numbers
    trace = trace_of(("a", 0), ("a", 1), ("a", 0), ("a", 1))
    capture = capture_of(
        ("a", 0), ("a", 1), ("a", 0), ("a", 1), dram_bytes=[10.0, 11.0, 12.0, 13.0]
    )
    found = join_counters(trace, [capture], calls_of("relu", "relu"))
    assert values(found, "dram_bytes") == [10, 11, 12, 13]


def test_a_kernel_more_and_a_kernel_less() -> None:
    # given an operator that launched b between a and c, and x instead when it was counted
    trace = trace_of(("a", 0), ("b", 0), ("c", 0))
    capture = capture_of(("a", 0), ("x", 0), ("c", 0), dram_bytes=[1.0, 2.0, 3.0])
    found = join_counters(trace, [capture], calls_of("mm"))
    assert values(found, "dram_bytes") == [1, None, 3]
    assert found.extra == 1


def test_kernels_outside_of_all_operators_are_joined_too() -> None:
    trace = trace_of(("a", 0), ("lost", NOWHERE))
    capture = capture_of(("a", 0), ("lost", NOWHERE), dram_bytes=[1.0, 2.0])
    found = join_counters(trace, [capture], calls_of("mm"))
    assert values(found, "dram_bytes") == [1, 2]
    assert found.kernels["phase"].tolist() == ["forward", ""]


def test_parts_of_a_sum_in_two_groups() -> None:
    # given FLOPs by two kinds of instruction, and time counted with both
    trace = trace_of(("a", 0), ("b", 1))
    one = capture_of(("a", 0), ("b", 1), flops_fp16_matrix=[1.0, 2.0], counter_time_s=[5.0, nan])
    two = capture_of(("a", 0), ("b", 1), flops_fp16_matrix=[10.0, 0.0], counter_time_s=[7.0, 8.0])
    found = join_counters(trace, [one, two], calls_of("mm", "mm"))
    # then FLOPs are added up, and of two times the first is taken
    assert values(found, "flops_fp16_matrix") == [11, 2]
    assert values(found, "counter_time_s") == [5, 8]


def test_half_a_sum_is_not_known() -> None:
    trace = trace_of(("a", 0), ("b", 0))
    one = capture_of(("a", 0), ("b", 0), flops_fp16_matrix=[1.0, 2.0])
    two = capture_of(("a", 0), flops_fp16_matrix=[10.0])
    found = join_counters(trace, [one, two], calls_of("mm"))
    assert values(found, "flops_fp16_matrix") == [11, None]


def test_nothing_counted_is_times_and_places_alone() -> None:
    found = join_counters(trace_of(("a", 0)), [], calls_of("mm"))
    assert list(found.kernels) == [
        "kernel", "time_s", "layer", "phase", "op", "launches", "time_source",
    ]  # fmt: skip


# ---------------------------------------------------------------- without numbers


def test_sequences_are_laid_side_by_side() -> None:
    # given compiled code, whose kernels have no numbers, and one kernel more when counted
    trace = trace_of(("a", NOWHERE), ("b", NOWHERE), ("a", NOWHERE))
    capture = capture_of(("a", 3), ("b", 4), ("z", 5), ("a", 6), dram_bytes=[1.0, 2.0, 9.0, 3.0])
    found = side_by_side(trace, [capture])
    assert values(found, "dram_bytes") == [1, 2, 3]
    assert found.extra == 1
    assert found.kernels["layer"].tolist() == ["", "", ""]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("nvtx", "number"),
    [("ridgeline:op:12", 12), ("step/ridgeline:op:3/inner", 3), ("step", NOWHERE), ("", NOWHERE)],
)
def test_the_number_in_a_range(nvtx: str, number: int) -> None:
    assert index_of(nvtx) == number


# ---------------------------------------------------------------- without a trace


def test_the_time_of_a_kernel_is_its_own() -> None:
    # given FLOPs of three kernels, and times of these after one that the first process did not have
    flops = capture_of(("a", NOWHERE), ("b", NOWHERE), ("c", NOWHERE), flops_fp32=[7.0, 8.0, 9.0])
    times = capture_of(("x", NOWHERE), ("a", NOWHERE), ("b", NOWHERE), ("c", NOWHERE),
                       counter_time_s=[100.0, 1.0, 2.0, 3.0])  # fmt: skip
    found = without_trace([flops, times])
    # then each has its time, and the one too many is told
    assert found.kernels["kernel"].tolist() == ["a", "b", "c"]
    assert values(found, "flops_fp32") == [7.0, 8.0, 9.0]
    assert values(found, "time_s") == [1.0, 2.0, 3.0]
    assert found.kernels["time_source"].unique().tolist() == ["counter"]
    assert found.extra == 1


def test_a_time_that_the_first_group_has() -> None:
    first = capture_of(("a", NOWHERE), ("b", NOWHERE), counter_time_s=[1.0, 2.0])
    second = capture_of(("b", NOWHERE), dram_bytes=[5.0], counter_time_s=[9.0])
    found = without_trace([first, second])
    assert values(found, "time_s") == [1.0, 2.0]
    assert values(found, "dram_bytes") == [None, 5.0]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("gemm", "gemm"),
        ("void at::native::elementwise_kernel<128, 4, (int)2>(int, float *)", "elementwise_kernel"),
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nhwc<float>(float const*)",
            "max_pool_forward_nhwc",
        ),
        (
            "void at::native::<unnamed>::max_pool_forward_nhwc<float>(const T1 *)",
            "max_pool_forward_nhwc",
        ),
        ("sm90_xmma_gemm_f16f16_tilesize64x64", "sm90_xmma_gemm_f16f16_tilesize64x64"),
        # names of cuDNN that a trace keeps as the compiler wrote them, being too long
        ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionE", "Kernel"),
        ("_ZN2at6native12_GLOBAL__N_110softmax_fwIfEEvPT_", "softmax_fw"),
        ("_Z6squarePfi", "square"),
        # what follows a name that is not nested are its arguments
        ("_Z8fmha_fwd6Params", "fmha_fwd"),
        ("fmha_fwd(Params)", "fmha_fwd"),
        # what it returns may be a template, too
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 2, f<3>>(Params)",
            "kernel",
        ),
        ("void outer<int>::inner<decltype(a->b)>(float)", "inner"),
        ("void cut_off_by_a_trace<int, std::array<float", "cut_off_by_a_trace"),
        ("_Zfoo", "_Zfoo"),
        ("<unnamed>::", "<unnamed>::"),
        ("", ""),
    ],
)
def test_the_name_that_both_profilers_agree_on(kernel: str, name: str) -> None:
    assert short_name(kernel) == name


def test_a_name_as_its_author_wrote_it() -> None:
    assert demangled("_Z1fIiEvT_") == "void f<int>(int)"
    assert demangled("_Znothing") == "_Znothing"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("_ZN2at6native12_GLOBAL__N_110softmax_fwIfEEvPT_", "softmax_fw"),
        ("_Z8fmha_fwd6Params", "fmha_fwd"),
    ],
)
def test_without_a_library_that_knows_names(
    monkeypatch: pytest.MonkeyPatch, kernel: str, name: str
) -> None:
    monkeypatch.setattr(names_module, "_library", lambda: None)
    assert short_name.__wrapped__(kernel) == name

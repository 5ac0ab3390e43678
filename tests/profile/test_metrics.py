"""The fewest metrics that answer the question, for chips as ncu describes them."""

from __future__ import annotations

import pytest
from tests.profile.recorded import metrics_of

from ridgeline.profile.request import (
    ChosenMetrics,
    choose_metrics,
    is_of_tensors,
)

VECTOR = tuple(
    f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"
    for name in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")
)
READ_WRITE = ("dram__bytes_read.sum", "dram__bytes_write.sum")
TIME = ("gpu__time_duration.sum",)
CACHES = ("lts__t_bytes.sum", "l1tex__t_bytes.sum")


def tensor(*names: str) -> tuple[str, ...]:
    return tuple(f"sm__ops_path_tensor_{name}.sum" for name in names)


HOPPER: dict[str, dict[str, tuple[str, ...]]] = {  # precision → totals, and the parts of each
    "fp32": {"src_tf32_dst_fp32": ("op_hgmma_src_tf32_dst_fp32", "op_hmma_src_tf32_dst_fp32")},
    "tf32": {"src_tf32_dst_fp32": ("op_hgmma_src_tf32_dst_fp32", "op_hmma_src_tf32_dst_fp32")},
    "amp": {"src_fp16": ("op_hgmma_src_fp16", "op_hmma_src_fp16_dst_fp16",
                         "op_hmma_src_fp16_dst_fp32")},
    "fp16": {"src_fp16": ("op_hgmma_src_fp16", "op_hmma_src_fp16_dst_fp16",
                          "op_hmma_src_fp16_dst_fp32")},
    "bf16": {"src_bf16_dst_fp32": ("op_hgmma_src_bf16_dst_fp32", "op_hmma_src_bf16_dst_fp32")},
}  # fmt: skip


@pytest.mark.parametrize("precision", HOPPER)
@pytest.mark.parametrize("level", ["dram", "hierarchical"])
def test_hopper_whole(precision: str, level: str) -> None:
    parts = HOPPER[precision]
    assert choose_metrics(metrics_of("gh100"), precision, level) == ChosenMetrics(
        metrics=VECTOR + READ_WRITE + TIME + tensor(*parts) + (CACHES if level != "dram" else ()),
        missing=(),
        parts={tensor(name)[0]: tensor(*members) for name, members in parts.items()},
    )


@pytest.mark.parametrize(
    ("chip", "precision", "pairs"),
    [
        # the total of an H200 takes three passes, its parts one each in these groups
        ("gh100", "amp", [("op_hgmma_src_fp16", "op_hmma_src_fp16_dst_fp16"),
                          ("op_hmma_src_fp16_dst_fp32",)]),
        ("gh100", "bf16", [("op_hgmma_src_bf16_dst_fp32", "op_hmma_src_bf16_dst_fp32")]),
        ("ga100", "amp", [("src_fp16_dst_fp16", "src_fp16_dst_fp32")]),
        ("tu102", "fp32", [("src_fp16_bf16_tf32_dst_fp32",)]),
        ("ad102", "", [("src_fp16_dst_fp16", "src_fp16_dst_fp32"),
                       ("src_bf16_dst_fp32", "src_tf32_dst_fp32"), ("src_fp8",)]),
    ],
)  # fmt: skip
def test_fixed_groups_of_nsight_compute(
    chip: str, precision: str, pairs: list[tuple[str, ...]]
) -> None:
    first, *others = [tensor(*pair) for pair in pairs]
    expected = (VECTOR, READ_WRITE + TIME + first, *others)
    assert choose_metrics(metrics_of(chip), precision).ncu_groups() == expected


@pytest.mark.parametrize(
    ("chip", "precision", "types"),
    [
        # the sum of both sparsities is there, so they are not asked apart
        ("ga100", "fp32", ("src_tf32_dst_fp32",)),
        ("ga100", "tf32", ("src_tf32_dst_fp32",)),
        ("ga100", "amp", ("src_fp16_dst_fp16", "src_fp16_dst_fp32")),
        ("ga100", "bf16", ("src_bf16_dst_fp32",)),
        ("ad102", "amp", ("src_fp16_dst_fp16", "src_fp16_dst_fp32")),
        ("ad102", "", ("src_fp16_dst_fp16", "src_fp16_dst_fp32", "src_bf16_dst_fp32",
                       "src_tf32_dst_fp32", "src_fp8")),
        # one counter for three types
        ("tu102", "fp32", ("src_fp16_bf16_tf32_dst_fp32",)),
        ("tu102", "amp", ("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16")),
        ("tu102", "", ("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16")),
        ("gb100", "amp", ("src_fp16_dst_fp16", "src_fp16_dst_fp32")),
        ("gb100", "bf16", ("src_bf16_dst_fp32",)),
        ("gb100", "", ("src_fp16_dst_fp16", "src_fp16_dst_fp32", "src_bf16_dst_fp32",
                       "src_tf32_dst_fp32", "src_fp4_fp6_fp8_dst_fp16",
                       "src_fp4_fp6_fp8_dst_fp32")),
        ("gb202", "tf32", ("src_tf32_dst_fp32",)),
        ("gb202", "", ("src_fp16_dst_fp16", "src_fp16_dst_fp32", "src_bf16_dst_fp32",
                       "src_tf32_dst_fp32", "src_fp8_dst_fp16", "src_fp8_dst_fp32")),
    ],
)  # fmt: skip
def test_tensor_work_of_other_chips(chip: str, precision: str, types: tuple[str, ...]) -> None:
    found = choose_metrics(metrics_of(chip), precision)
    assert tuple(m for m in found.metrics if is_of_tensors([m])) == tensor(*types)
    assert found.missing == ()


def test_what_a_chip_does_not_have_is_said() -> None:
    # given a chip with nothing but time and additions
    known = frozenset({"gpu__time_duration", "smsp__sass_thread_inst_executed_op_fadd_pred_on"})
    assert choose_metrics(known, "amp", "hierarchical") == ChosenMetrics(
        metrics=VECTOR[:1] + TIME,
        missing=("DRAM bytes", "tensor-core work in fp16", "L2 bytes", "L1 bytes"),
    )
    # and of a program nobody expects tensor cores
    assert choose_metrics(known, "").missing == ("DRAM bytes",)

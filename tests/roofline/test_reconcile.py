"""Model beside executed work: every cause by hand, and a recorded step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ridgeline.roofline.causes import (
    CAUSES,
    FEWER_OTHERS,
    FEWER_PRODUCTS,
    MORE_BYTES,
    MORE_OTHERS,
    MORE_PRODUCTS,
    LayerWork,
    find_bytes_cause,
    find_flops_cause,
)
from ridgeline.roofline.reconcile import reconcile
from ridgeline.roofline.work import family

DATA = Path(__file__).parent.parent / "data"
OP_COLUMNS = ["path", "phase", "kind", "macs", "other_flops", "read_bytes", "written_bytes"]
NAN = float("nan")


def kernel(name: str = "sgemm", **changes: Any) -> dict[str, Any]:
    """100 FLOP of fp16 products and 10 B in a kernel of `conv` forward."""
    return {"kernel": name, "launches": 1, "time_s": 1e-5, "layer": "conv", "phase": "forward",
            "flops_fp16_matrix": 100.0, "flops_fp32_vector": 0.0, "dram_bytes": 10.0,
            **changes}  # fmt: skip


def op(path: str = "conv", phase: str = "forward", **changes: Any) -> dict[str, Any]:
    """50 MACs, so 100 FLOP, that read 8 B and write 2."""
    row = dict(zip(OP_COLUMNS, (path, phase, "conv", 50, 0, 8, 2), strict=True))
    return {**row, **changes}


Rows = dict[tuple[str, str], dict[str, Any]]  # by grain and name


def joined(ops: list[dict[str, Any]], kernels: list[dict[str, Any]], **options: Any) -> Rows:
    options = {"precision": "amp", **options}
    return rows(reconcile(pd.DataFrame(ops), pd.DataFrame(kernels), **options))


def rows(table: pd.DataFrame) -> Rows:
    found = [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
    return {(row["grain"], row["name"]): row for row in found}


def test_what_agrees() -> None:
    # given 100 FLOP and 10 B, by the model and by the counters
    table = joined([op()], [kernel()])
    # then every grain says so
    assert [*table] == [("step", "step"), ("phase", "forward"), ("layer", "conv")]
    layer = table["layer", "conv"]
    assert (layer["model_flops"], layer["executed_flops"], layer["flops_ratio"]) == (100, 100, 1)
    assert (layer["model_bytes"], layer["dram_bytes"], layer["bytes_ratio"]) == (10, 10, 1)
    assert {row[why] for row in table.values() for why in ("cause", "bytes_cause")} == {"agrees"}


def work(**changes: Any) -> LayerWork:
    """100 FLOP of products by the model, and a kernel."""
    same = {"model_products": 100.0, "model_bytes": 100.0, "operators": 1, "launches": 1.0,
            "products": 100.0, "other": 0.0, "dram_bytes": 100.0, "precision": "fp32"}  # fmt: skip
    return LayerWork(**{**same, **changes})


NAMES = {"product": "sgemm", "direct": "depthwise"}  # a kernel of each family


def with_kernels(name: str, **changes: Any) -> LayerWork:
    return work(kernels={NAMES.get(name, name)}, **changes)


TENSOR = {"tensor_precisions": {"tf32"}}


FLOPS = [
    ("agrees", work(products=104.0)),
    ("Winograd", with_kernels("winograd", products=44.0)),
    ("FFT", with_kernels("fft", products=70.0)),
    ("causal skipping", with_kernels("attention", products=55.0)),
    ("causal skipping", with_kernels("attention", products=93.0, phase="backward")),
    ("not explained", with_kernels("attention", products=94.0, phase="backward")),
    ("borders skipped", with_kernels("direct", products=82.0)),
    ("precision split", work(products=300.0, **TENSOR)),
    ("precision split", work(products=200.0, kernels={"gemm_3xtf32"}, **TENSOR)),
    ("recompute", with_kernels("attention", products=125.0, phase="backward", **TENSOR)),
    ("recompute", with_kernels("product", products=150.0, phase="backward", **TENSOR,
                               is_forward_again=True)),
    ("tile padding", with_kernels("product", products=150.0, phase="backward", **TENSOR,
                                  is_forward_again=True, is_counted_again=True)),
    ("conversion", with_kernels("direct", products=250.0, converting=75.0, precision="fp16")),
    ("tile padding", with_kernels("direct", products=250.0, converting=74.0, precision="fp16")),
    ("not explained", with_kernels("direct", products=301.0, converting=100.0, precision="fp16")),
    ("moved constants", with_kernels("direct", products=250.0, converting=75.0)),
    ("moved constants", work(model_products=0.0, other=9.0, products=0.0, half=4.5)),
    ("conversion", work(model_products=0.0, other=9.0, products=0.0, half=9.0, precision="fp16")),
    ("no model work", work(model_products=0.0, model_bytes=0.0, other=9.0, half=9.0)),
    ("gradient sums", work(products=100.0, other=30.0, summed_flops=15.0)),
    ("elementwise", work(products=100.0, other=30.0, summed_flops=14.0)),
    ("tile padding", work(products=174.0, **TENSOR)),
    ("tile padding", with_kernels("direct", products=200.0)),
    ("not explained", with_kernels("direct", products=201.0)),
    ("elementwise", work(model_products=0.0, model_other=100.0, products=0.0, other=160.0)),
    ("loss scaling", work(products=100.0, other=30.0, has_loss_scaling=True)),
    ("no counter", work(model_products=0.0, model_other=100.0, products=0.0, other=0.0,
                         kind="pool")),
    ("no model work", work(model_products=0.0)),
    ("fused", work(launches=0.0, products=None, other=None, is_compiled=True)),
    ("not attributed", work(launches=0.0, products=None, other=None, copied_bytes=100.0)),
    ("not counted", work(products=None, other=None)),
    ("partly counted", work(products=70.0, uncounted=1, time_s=1.0, uncounted_s=0.16)),
    ("tile padding", with_kernels("product", products=170.0, uncounted=1, uncounted_s=0.0)),
    ("not explained", work(products=70.0)),  # fewer, and no kernel that would do with fewer
    ("not explained", work(products=140.0)),  # more, and no tensor core that would pad
    ("not explained", work(model_products=0.0, model_other=100.0, products=0.0, other=50.0,
                            kind="norm")),
]  # fmt: skip
BYTES = [
    ("agrees", work(dram_bytes=91.0)),
    ("cache reuse", work(dram_bytes=60.0)),
    ("fused", work(dram_bytes=60.0, is_compiled=True)),
    ("layout conversion", work(dram_bytes=160.0, bytes_by_family={"layout": 30.0})),
    ("workspace", work(dram_bytes=160.0, bytes_by_family={"split": 20.0, "winograd": 10.0})),
    ("two passes", work(dram_bytes=160.0, kind="norm", bytes_by_family={"norm": 160.0})),
    ("two passes", work(dram_bytes=112.0, kind="softmax", bytes_by_family={"norm": 70.0})),
    ("unfused intermediates", work(model_bytes=1e6, dram_bytes=1.6e6, launches=2.0)),
    ("not attributed", work(dram_bytes=None, launches=0.0)),
    ("memory copy", work(dram_bytes=None, launches=0.0, copied_bytes=100.0)),
    ("not attributed", work(dram_bytes=None, launches=0.0, copied_bytes=49.0)),
    ("memory copy", work(dram_bytes=40.0, copied_bytes=30.0)),
    ("cache reuse", work(dram_bytes=40.0, copied_bytes=29.0)),
    ("few bytes", work(model_bytes=2**17 - 1.0, dram_bytes=3e5)),
    (
        "read again",
        work(model_bytes=1e5, dram_bytes=2.0**20, bytes_by_family={"product": 1e6}),
    ),
    ("not explained", work(model_bytes=2.0**17, dram_bytes=3e5)),
    ("gradient sums", work(dram_bytes=160.0, summed_bytes=30.0)),
    ("not counted", work(dram_bytes=None)),
    ("partly counted", work(dram_bytes=60.0, uncounted=1, time_s=1.0, uncounted_s=0.2)),
    ("cache reuse", work(dram_bytes=60.0, uncounted=1, time_s=1.0, uncounted_s=0.19)),
    ("no model work", work(model_bytes=0.0)),
    (
        "not explained",
        work(model_bytes=2e6, dram_bytes=3.2e6, bytes_by_family={"layout": 5.9e5, "norm": 2.61e6}),
    ),
]


@pytest.mark.parametrize(("cause", "found"), FLOPS)
def test_causes_of_flops(cause: str, found: LayerWork) -> None:
    assert find_flops_cause(found) == cause


@pytest.mark.parametrize(("cause", "found"), BYTES)
def test_causes_of_bytes(cause: str, found: LayerWork) -> None:
    assert find_bytes_cause(found) == cause


def test_every_cause_is_documented() -> None:
    table = (DATA.parent.parent / "docs" / "roofline.md").read_text()
    assert [cause for cause in CAUSES if f"{cause}" not in table] == []


def test_copies_by_the_driver() -> None:
    # given a layer that the driver alone copies, one with a kernel beside a copy, and a host's copy
    ops = [
        op("cat", kind="move", macs=0, read_bytes=8, written_bytes=8),
        op("act", kind="pointwise", macs=0, other_flops=100, read_bytes=16, written_bytes=16),
    ]
    counted = [kernel("silu_kernel", layer="act", flops_fp16_matrix=0.0, flops_fp32_vector=100.0)]
    copies = pd.DataFrame({
        "layer": ["cat", "act", ""], "phase": ["forward", "forward", ""],
        "moved_bytes": [16.0, 16.0, 1e9],
    })  # fmt: skip

    def causes(table: Rows) -> dict[str, str]:
        return {
            name: row["bytes_cause"] for (grain, name), row in table.items() if grain == "layer"
        }

    # then the copies are why counters saw less, and what belongs nowhere makes no layer
    told = joined(ops, counted, copies=copies)
    assert causes(told) == {"cat": "memory copy", "act": "memory copy"}
    # which nobody can know without them
    assert causes(joined(ops, counted)) == {"cat": "not attributed", "act": "cache reuse"}


def test_every_cause_has_an_explanation_and_a_row_here() -> None:
    rules = {*FEWER_PRODUCTS, *FEWER_OTHERS, *MORE_PRODUCTS, *MORE_OTHERS, *MORE_BYTES}
    tested = {cause for cause, _ in [*FLOPS, *BYTES]}
    assert rules <= set(CAUSES)
    assert tested == set(CAUSES)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "winograd"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", "split"),
        ("nvjet_sm90_hsh_64x64_64x13_2x1_v_bz_splitK_NTT", "product"),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>", "layout"),
        ("void at::native::conv_depthwise2d_forward_kernel<3, float>", "direct"),
        ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "product"),
        ("void implicit_convolve_sgemm<float, float>", "product"),
        ("void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half>", "norm"),
        ("void at::vectorized_elementwise_kernel<8, at::CUDAFunctor_add<c10::Half>>", "pointwise"),
        ("void scal_kernel<float, 1>(cublasTransposeParams<float>, float const*)", "other"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8>(float*, int)", "norm"),
        # the function first: what is among the arguments of its template is not what it does
        ("void gemm_kernel<Tile<64>, layout::NoPermute, Padding>", "product"),
        ("void batch_norm_kernel<float, TransposedGemm<2>>", "norm"),
        # a frame is what its argument is, and not what the arguments of that are
        ("void cutlass::Kernel<cutlass::conv::ImplicitGemmConvolution<NoPermute>>", "product"),
        (
            "_ZN7cutlass6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_4gemm9NoPermuteEEEEE"
            "vNT_6ParamsE",
            "product",
        ),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<Gemm>>(Params)", "attention"),
        ("void cutlass::Kernel2<Unheard<layout::NoPermute>>(Params)", "product"),
        ("void at::reduce_kernel<512, 1, at::ReduceOp<float, at::NormTwoOps<float>>>", "norm"),
    ],
)
def test_families_by_name(name: str, wanted: str) -> None:
    assert family(name) == wanted


def test_products_of_fp32_run_on_the_vector_units() -> None:
    # given fp32: no tensor core, and an elementwise kernel beside the convolution
    kernels = [
        kernel("implicit_convolve_sgemm", flops_fp16_matrix=NAN, flops_fp32_vector=60.0),
        kernel("winograd_fwd", flops_fp16_matrix=NAN, flops_fp32_vector=20.0),
        kernel("at::vectorized_elementwise_kernel", flops_fp16_matrix=NAN, flops_fp32_vector=5.0),
    ]
    row = joined([op(other_flops=5)], kernels, precision="fp32")["layer", "conv"]
    assert (row["executed_products"], row["executed_other"]) == (80.0, 5.0)
    assert (row["products_ratio"], row["cause"]) == (0.8, "Winograd")


def test_the_cause_of_the_whole_is_that_of_its_largest_part() -> None:
    # given a stem that pads (174 for 100) and a head whose Winograd saves less (80 for 100)
    ops = [op("stem"), op("head")]
    kernels = [kernel(layer="stem", flops_fp16_matrix=174.0),
               kernel("winograd", layer="head", flops_fp16_matrix=80.0)]  # fmt: skip
    step = joined(ops, kernels)["step", "step"]
    assert (step["flops_ratio"], step["cause"], step["where"]) == (1.27, "tile padding", "stem")


def test_phases_layers_and_what_is_in_none() -> None:
    # given a training step: both gradients are backward's, the optimizer is no module's
    ops = [op(), op(phase="input-grad"), op(phase="weight-grad"), op("", "optimizer", macs=0),
           op("", kind="loss", macs=0),
           op("relu", kind="pointwise", macs=0, other_flops=7)]  # fmt: skip
    kernels = [kernel(), kernel("dgrad", phase="backward"), kernel("wgrad", phase="backward"),
               kernel("adam", layer="", phase="optimizer", flops_fp16_matrix=0.0),
               kernel("nll_loss", layer="(loss)", flops_fp16_matrix=0.0),
               kernel("memset", layer="", phase="", flops_fp16_matrix=0.0)]  # fmt: skip
    table = joined(ops, kernels)
    assert [name for grain, name in table if grain == "phase"] == [
        "forward", "backward", "optimizer", "(no phase)"]  # fmt: skip
    assert [name for grain, name in table if grain == "layer"] == [
        "conv", "(optimizer)", "(model)", "relu"]  # fmt: skip
    assert table["phase", "backward"]["flops_ratio"] == 1.0
    assert table["layer", "conv"]["executed_flops"] == 300.0
    assert table["layer", "relu"]["cause"] == "not attributed"
    assert table["layer", "relu"]["launches"] == 0
    assert table["step", "step"]["launches"] == 6


def test_batches_of_a_step_and_launches_of_a_row() -> None:
    # given two batches a step, and a deduplicated row that stands for both launches
    ops = [op(), op("", "optimizer", macs=0, other_flops=10)]
    kernels = [kernel(launches=2, flops_fp16_matrix=200.0, dram_bytes=20.0),
               kernel("sgd", layer="", phase="optimizer", flops_fp16_matrix=0.0,
                      flops_fp32_vector=10.0)]  # fmt: skip
    table = joined(ops, kernels, parts=2)
    assert table["layer", "conv"]["model_flops"] == 200.0
    assert table["layer", "(optimizer)"]["model_flops"] == 10.0
    assert table["step", "step"]["launches"] == 3
    assert table["step", "step"]["cause"] == "agrees"


@pytest.mark.parametrize(("is_counted", "cause"), [(True, "tile padding"), (False, "recompute")])
def test_what_is_counted_again_is_no_cause(is_counted: bool, cause: str) -> None:
    # given half more products in backward than the model has, by a kernel of forward
    more = op(phase="recompute" if is_counted else "input-grad")
    ops = [op(), more, op(phase="input-grad")]
    kernels = [kernel(), kernel(phase="backward", flops_fp16_matrix=300.0)]
    assert joined(ops, kernels)["phase", "backward"]["cause"] == cause


def test_times_alone_tell_nothing_about_work() -> None:
    # given kernels of the tier `time`: names, launches and seconds
    bare = [{"kernel": "sgemm", "launches": 3, "time_s": 1e-3, "layer": "conv", "phase": "forward"}]
    step = joined([op()], bare)["step", "step"]
    assert (step["launches"], step["time_s"]) == (3, 1e-3)
    assert (step["cause"], step["bytes_cause"]) == ("not counted", "not counted")
    unknown = [step[name] for name in ("executed_flops", "flops_ratio", "dram_bytes")]
    assert all(value is None or value != value for value in unknown)


def test_a_recorded_step_against_the_theory() -> None:
    # given the recorded step of ResNet-50 (amp, batch 32), and its products by theory: 778 GFLOP
    kernels = pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")
    ops = pd.DataFrame([op(macs=389e9)])
    step = rows(reconcile(ops, kernels, precision="amp"))["step", "step"]
    # then tensor cores did 2.5 % more, and the rest is elementwise work that this count leaves out
    assert step["executed_products"] == pytest.approx(797.7e9, rel=1e-3)
    assert step["products_ratio"] == pytest.approx(1.0253, rel=1e-3)
    assert step["executed_other"] == pytest.approx(21.9e9, rel=0.01)
    assert step["cause"] == "elementwise"
    assert step["launches"] == 637

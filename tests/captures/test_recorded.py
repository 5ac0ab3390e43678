"""Captures that were recorded on real devices, with totals that are known otherwise."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.captures.files import (
    NCU,
    NO_FLOPS,
    PRODUCTS,
    STEP,
    TRACES,
    read,
    read_totals,
    write_file,
)

from ridgeline.captures import read_captures
from ridgeline.captures.capture import totals
from ridgeline.errors import RidgelineError

PRODUCT = 2 * 2048**3
HAS_LIBRARY = importlib.util.find_spec("ncu_report") is not None


@pytest.mark.parametrize("page", ["raw", "details"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32", "fp8", "int8", "fp64"])
def test_a_product_on_tensor_cores_is_counted_exactly(page: str, dtype: str) -> None:
    # given products of 2048x2048x2048, each in an NVTX range with the name of its type
    kernels = read(NCU / f"h200_gemm_dtypes_{page}.csv").kernels
    # when the FLOPs in that range are added up, then they are 2·2048³
    inside = kernels[kernels["nvtx"].eq(dtype)]
    assert inside[f"flops_{dtype}_matrix"].sum() == PRODUCT


def test_a_product_in_fp32_is_counted_outside_tensor_cores() -> None:
    kernels = read(PRODUCTS).kernels
    (flops,) = kernels[kernels["nvtx"].eq("fp32")]["flops_fp32_vector"]
    assert flops == PRODUCT + 2048**2  # and a multiplication of each result


def test_backward_is_in_no_nvtx_range() -> None:
    assert read(STEP).kernels["nvtx"].value_counts().to_dict() == {
        "": 330,
        "step/forward": 288,
        "step/optimizer": 17,
        "step/backward": 2,
    }


def test_a_row_whole() -> None:
    first = read(STEP).kernels.iloc[0].to_dict()
    name = first.pop("kernel")
    assert name.startswith("void at::vectorized_elementwise_kernel<8, at::float16_copy_k")
    assert first == {
        "launches": 1, "time_s": 3.04e-6, "counter_time_s": 3.04e-6, "time_source": "counter",
        "layer": "", "phase": "", "op": "", "grid": "(10, 1, 1)", "block": "(128, 1, 1)",
        "stream": "7", "id": "0", "process_id": "658", "nvtx": "step/forward",
        "device": "NVIDIA H200",
        "flops_fp64_vector": 0, "flops_fp32_vector": 0, "flops_fp16_vector": 512,
        "flops_bf16_matrix": 0,
        "flops_fp16_matrix": 0, "flops_fp64_matrix": 0, "flops_fp8_matrix": 0,
        "flops_int8_matrix": 0, "flops_tf32_matrix": 0, "dram_read_bytes": 43264,
        "dram_write_bytes": 0, "dram_bytes": 43264, "l2_bytes": 244480, "l1_bytes": 93312,
    }  # fmt: skip


def test_scaled_units_of_a_long_table_agree_with_a_wide_one() -> None:
    wide, long = read_totals(PRODUCTS), read_totals(NCU / "h200_gemm_dtypes_details.csv")
    assert long["flops"] == wide["flops"]
    for name in ("dram_bytes", "l2_bytes", "l1_bytes", "kernel_time_s"):
        assert long[name] == pytest.approx(wide[name], rel=0.01)  # two decimals of a Gbyte


@pytest.mark.skipif(not HAS_LIBRARY, reason="the package ncu-report is not installed")
def test_a_binary_report() -> None:
    capture = read(NCU / "ada_cc89_gpp_v3.ncu-rep")
    assert (capture.kind, capture.compute_capability) == ("ncu-rep", "8.9")
    found = read_totals(NCU / "ada_cc89_gpp_v3.ncu-rep")
    assert found == {
        "kernels": 2,
        "flops": NO_FLOPS | {"fp64": 2_320_762_817_844},
        "dram_bytes": 538_027_896_704,
        "l2_bytes": 664_650_235_488,
        "l1_bytes": 1_488_318_063_104,
        "kernel_time_s": pytest.approx(26.544667136),
        "sm_peak_share": None,
        "dram_peak_share": None,
        "device": "NVIDIA GeForce RTX 4060 Laptop GPU",
        "warnings": [
            "fp64 FLOPs are made from rates per cycle",
            "from rates: dram__bytes.sum.per_second",
            "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes",
            "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes",
            "tensor cores were not counted: FLOPs are a lower bound if kernels use them; collect"
            " sm__ops_path_tensor_src_*",
        ],
    }


def test_a_report_that_nothing_can_read_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ridgeline.captures.read.find_spec", lambda name: None)
    monkeypatch.setattr("ridgeline.captures.read.ncu_path", lambda probe: None)
    why = r"nothing here can read the report .*: .* was not found\n  hint: pip install"
    with pytest.raises(RidgelineError, match=why):
        read(NCU / "ada_cc89_gpp_v3.ncu-rep")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ('echo "$@" > {folder}/arguments; cat {products}', ""),
        ("echo '==PROF== hello'; echo '==ERROR== Failed to load report file'; exit 1",
         "cannot be read: Failed to load report file"),
    ],
)  # fmt: skip
def test_an_installed_ncu_reads_a_report_where_its_library_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    # given a program ncu that prints a table or fails, and no library
    program = tmp_path / "ncu"
    program.write_text(f"#!/bin/sh\n{script.format(folder=tmp_path, products=PRODUCTS)}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("ridgeline.captures.read.find_spec", lambda name: None)
    report = NCU / "ada_cc89_gpp_v3.ncu-rep"
    if problem:
        with pytest.raises(RidgelineError, match=f"{report.name} {problem}"):
            read(report)
        return
    # then it got the request for base units, and what it printed is the capture
    capture = read(report)
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments == ["--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    assert (capture.file, capture.kind, capture.launches) == (str(report), "ncu-rep", 12)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ada_cc89_launchfailed_nan.csv", "has 1 kernel and no values: none is a number: a kernel"
         " could not be launched again for counting"),
        ("a100_rule_only_roofline.csv", "has 1 kernel with a rule and no metric"),
    ],
)  # fmt: skip
def test_files_that_are_refused(name: str, problem: str) -> None:
    with pytest.raises(RidgelineError) as refused:
        read(NCU / name)
    assert refused.value.problem == f"{NCU / name} {problem}"


def test_shares_of_the_peak_are_averaged_over_the_time_of_the_kernels() -> None:
    # given a product of 344.26 us at 91.20 % and a relu of 12.16 us at 40.11 %
    found = read_totals(NCU / "ui_export.csv")
    share = (0.9120 * 344.26 + 0.4011 * 12.16) / (344.26 + 12.16)
    assert (found["sm_peak_share"], found["dram_peak_share"]) == (pytest.approx(share), None)
    # and, of a text, one kernel that has both and one that has none
    found = read_totals(NCU / "sections.txt")
    assert (found["sm_peak_share"], found["dram_peak_share"]) == pytest.approx((0.0597, 0.0047))


# ---------------------------------------------------------------- a device that a user names

OTHER_PARTS = "Tesla V100 PCIe 32GB, Tesla V100 SXM2 16GB, Tesla V100 SXM2 32GB"


@pytest.mark.parametrize(
    ("file", "device", "name", "note"),
    [
        (NCU / "sections_2021_comma.txt", "Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16GB",
         "the device is taken to be Tesla V100 SXM2 16GB"),
        (NCU / "sections_2021_comma.txt", "v100", "Tesla V100 PCIe 16GB",
         "the device is taken to be Tesla V100 PCIe 16GB; --device may also name " + OTHER_PARTS),
        (NCU / "sections.txt", "t4", "Tesla T4", "the device is taken to be Tesla T4"),
        (TRACES / "nsys_cuda_gpu_kern_sum.csv", "h200", "NVIDIA H200 SXM",
         "the device is taken to be NVIDIA H200 SXM"),
        # what the file says itself stays
        (PRODUCTS, "h200", "NVIDIA H200", None),
        (TRACES / "kineto.json", "h100", "NVIDIA H100", None),
    ],
)  # fmt: skip
def test_a_device_that_the_user_names(file: Path, device: str, name: str, note: str | None) -> None:
    (capture,) = read_captures([file], device=device)
    assert capture.device == name
    assert capture.kernels["device"].eq(name).all()
    assert [text for text in capture.warnings if "is taken to be" in text] == [note] * bool(note)


def test_the_chip_of_a_named_device_tells_what_its_counters_mean(tmp_path: Path) -> None:
    # given tensor instructions of a file without the column CC
    text = "ID,Kernel Name,sm__inst_executed_pipe_tensor.sum [inst]\n0,gemm,10\n"
    path = write_file(tmp_path, "a.csv", text)
    # when the device is a V100, then each is taken for 512 FLOPs
    (capture,) = read_captures([path], device="v100")
    assert totals(capture)["flops"]["tensor_fp16"] == 5120


@pytest.mark.parametrize(
    ("device", "problem", "hint"),
    [
        (
            "v100",
            f"{PRODUCTS} is of NVIDIA H200 (CC 9.0), not of Tesla V100 PCIe 16GB",
            "leave --device",
        ),
        ("v1000", "there is no datasheet of a device 'v1000'", "close names: Tesla V100 PCIe 16GB"),
        ("zzz", "there is no datasheet of a device 'zzz'", "for example v100"),
    ],
)  # fmt: skip
def test_a_device_that_cannot_be_meant(device: str, problem: str, hint: str) -> None:
    with pytest.raises(RidgelineError) as refused:
        read_captures([PRODUCTS], device=device)
    assert refused.value.problem == problem
    assert refused.value.hint.startswith(hint)

"""What a capture leaves out, and what no GPU can have done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.profile.captures import told, written

from ridgeline.errors import RidgelineError
from ridgeline.captures import read_captures

FLOPS = [f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")]
TIME, DRAM = "gpu__time_duration.sum", "dram__bytes.sum"
TENSOR = "sm__ops_path_tensor_src_fp16_dst_fp32.sum"
NAME = "device__attribute_display_name"
COLLECT = "collect sm__ops_path_tensor_src_*"
HEAD = ["ID", "Process ID", "Host Name", "Kernel Name", "CC"]


def line(cells: Sequence[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def table(
    values: dict[str, object],
    *,
    kernel: str = "kern",
    chip: str = "8.0",
    ids: tuple[int, ...] = (0,),
) -> str:
    units = {TIME: "ns", DRAM: "byte", NAME: ""}
    text = line([*HEAD, *values]) + line([""] * 5 + [units.get(name, "inst") for name in values])
    return text + "".join(line([n, 1, "host", kernel, chip, *values.values()]) for n in ids)


def warnings(folder: Path, text: str) -> list[str]:
    found: list[str] = told(written(folder, "a.csv", text))["warnings"]
    return found


COUNTED: dict[str, object] = {**dict.fromkeys(FLOPS, 4), TIME: 1000, DRAM: 64}


def test_tensor_cores_that_nobody_counted(tmp_path: Path) -> None:
    # given fp32 instructions of an A100 alone
    assert warnings(tmp_path, table(COUNTED)) == [
        f"tensor cores were not counted: FLOPs are a lower bound if kernels use them; {COLLECT}"
    ]
    # and of a kernel that has tensor cores in its name, on whatever chip
    kernel = "ampere_fp16_s16816gemm_fp16_128x128"
    assert warnings(tmp_path, table(COUNTED, kernel=kernel, chip="")) == [
        f"tensor cores were not counted, and 1 of 1 kernels use them by their names ({kernel}):"
        f" FLOPs are a lower bound; {COLLECT}"
    ]
    # but not of a chip without them, nor where they were counted, nor where no FLOPs were
    assert warnings(tmp_path, table(COUNTED, chip="6.1")) == []
    assert warnings(tmp_path, table({**COUNTED, TENSOR: 0})) == []
    nothing = "no FLOPs: no counter of them was collected"
    assert warnings(tmp_path, table({TIME: 1000, DRAM: 64})) == [nothing]


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", True),
        ("nvjet_hsh_128x128_64x5_1x2_h_bz_TNT", True),
        ("turing_h1688gemm_128x128_ldg8_nn", True),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn>", False),
        ("void at::native::vectorized_elementwise_kernel<4, GammaFunctor>", False),
        ("ampere_sgemm_128x64_nn", False),
    ],
)
def test_kernels_that_use_tensor_cores_by_their_names(
    tmp_path: Path, name: str, uses: bool
) -> None:
    (said,) = warnings(tmp_path, table(COUNTED, kernel=name))
    assert said.startswith("tensor cores were not counted, and 1 of 1") is uses


def test_what_its_chip_cannot_do_is_refused(tmp_path: Path) -> None:
    # given 1 TFLOP in a microsecond on an A100
    values = {**dict.fromkeys(FLOPS, 25 * 10**10), TIME: 1000, TENSOR: 0,
              NAME: "NVIDIA A100-SXM4-80GB"}  # fmt: skip
    with pytest.raises(RidgelineError) as refused:
        told(written(tmp_path, "a.csv", table(values)))
    assert refused.value.problem.endswith(
        "a.csv cannot be right: 1 of 1 kernels are faster than possible: up to 1.00 EFLOP/s where"
        " NVIDIA A100-SXM4-80GB has 624 TFLOP/s; times or counters are in another unit than the"
        " file says"
    )
    assert refused.value.hint == "export it again with --print-units base"


def test_one_of_many_or_an_unknown_chip_is_a_warning(tmp_path: Path) -> None:
    # given 1 PB in a second by one short kernel of two
    fast = table({TIME: 1, DRAM: 10**6, NAME: "NVIDIA H200"}, chip="9.0")
    slow = line([1, 1, "host", "kern", "9.0", 10**9, 0, "NVIDIA H200"])
    why = "times or counters are in another unit than the file says"
    assert warnings(tmp_path, fast + slow)[-1] == (
        "1 of 2 kernels are faster than possible: up to 1.00 PB/s where NVIDIA H200 has"
        f" 4.80 TB/s; {why}"
    )
    # or by a chip that is not named
    assert warnings(tmp_path, table({TIME: 1, DRAM: 10**6}))[-1] == (
        "1 of 1 kernels are faster than possible: up to 1.00 PB/s where the fastest GPU with a"
        f" datasheet has 8.00 TB/s; {why}"
    )


def test_a_table_that_was_cut_between_its_rows_is_one(tmp_path: Path) -> None:
    # given the kernels 2 and 3 of a process in one file, 0 and 1 in another
    paths = [
        written(tmp_path, f"{ids[0]}.csv", table({TIME: ids[0] + 1}, ids=ids))
        for ids in ((2, 3), (0, 1))
    ]
    (capture,) = read_captures(paths)
    # then they are one capture, in the order of their numbers
    assert capture.kernels["id"].tolist() == ["0", "1", "2", "3"]
    assert capture.kernels["time_s"].tolist() == [1e-9, 1e-9, 3e-9, 3e-9]
    # but the same numbers again are another run
    again = written(tmp_path, "again.csv", table({TIME: 5}, ids=(0, 1)))
    assert [c.launches for c in read_captures([paths[1], again])] == [2, 2]

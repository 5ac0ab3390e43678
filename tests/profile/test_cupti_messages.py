"""What a process that counts inside of itself has told."""

from pathlib import Path

import pytest
from tests.profile.recorded import text

from ridgeline.profile.counting import (
    COUNTED,
    COUNTER_PLAN,
    CountedLaunches,
    CounterPlan,
    read_counted_table,
)
from ridgeline.profile.cupti import RefusedError
from ridgeline.profile.profile_step import INSIDE, REFUSED, Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(name="inside", role=INSIDE, folder=str(tmp_path))


def test_counters_become_quantities(job: Job) -> None:
    # given 3 additions, 4 products and 5 of both in one, 1000 bytes read and 24 written, 2 µs
    names = [f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul")]
    names += ["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"]
    names += ["dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"]
    CounterPlan(
        metrics=tuple(names), passes=2, missing=(), compute_capability="9.0", cupti_version=130001
    ).write(job)
    values = [[3.0, 4.0, 5.0, 1000.0, 24.0, 2000.0]]
    CountedLaunches(launches=[["gemm", "ridgeline:op:7"]], values=values).write(job)
    # when they are read
    table, _ = read_counted_table(job)
    # then the kernel has 3 + 4 + 2·5 FLOPs, all bytes, and seconds
    [row] = table.to_dict("records")
    assert row == {
        "kernel": "gemm",
        "nvtx": "ridgeline:op:7",
        "flops_fp32_vector": 17.0,
        "dram_bytes": 1024.0,
        "dram_read_bytes": 1000.0,
        "dram_write_bytes": 24.0,
        "counter_time_s": pytest.approx(2e-6),
    }


def test_what_an_h200_told(job: Job) -> None:
    job.path(COUNTER_PLAN).write_text(text("foretold.json"))
    job.path(COUNTED).write_text(text("counted.json"))
    table, _ = read_counted_table(job)
    is_of_step = table["nvtx"].str.startswith("ridgeline:op:")
    step, known = table[is_of_step], table[~is_of_step].set_index("nvtx")
    # then the step's tensor FLOPs are those that Nsight Compute counted, to the last one
    assert len(step) == 631
    assert step["flops_fp16_matrix"].sum() == 797_680_599_040
    assert step["flops_fp32_vector"].sum() == pytest.approx(13.5189e9, rel=1e-5)
    assert step["dram_bytes"].sum() == 9_925_320_448
    # and the product of 2048³ is what it is
    assert known.loc["ridgeline:test:product:fp16", "flops_fp16_matrix"] == 2 * 2048**3


@pytest.mark.parametrize(
    ("number", "version"), [(130001, "13.0.1"), (130202, "13.2.2"), (28, "28")]
)
def test_its_version_in_words(number: int, version: str) -> None:
    told = CounterPlan(
        metrics=(), passes=1, missing=(), compute_capability="9.0", cupti_version=number
    )
    assert told.version == version


def test_a_refusal_is_raised(job: Job) -> None:
    job.path(REFUSED).write_text("kernels of a CUDA graph cannot be told apart")
    for read in (CounterPlan.read, CountedLaunches.read):
        with pytest.raises(RefusedError, match="CUDA graph"):
            read(job)

"""From metrics to quantities, by rows that can be checked by hand."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from ridgeline.profile.quantities import find, is_needed, settled

OP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def quantities(metrics: pd.DataFrame) -> pd.DataFrame:
    return find(metrics).table


def counted(**ops: float) -> pd.DataFrame:
    return pd.DataFrame({OP.format(op): [float(count)] for op, count in ops.items()})


@pytest.mark.parametrize(
    ("ops", "column", "flops"),
    [
        ({"fadd": 3, "fmul": 5, "ffma": 7}, "flops_fp32_vector", 3 + 5 + 2 * 7),
        ({"dadd": 3, "dmul": 5, "dfma": 7}, "flops_fp64_vector", 3 + 5 + 2 * 7),
        ({"hadd": 3, "hmul": 5, "hfma": 7}, "flops_fp16_vector", 2 * 3 + 2 * 5 + 4 * 7),
        (  # two lanes an instruction, on Blackwell
            {"fadd": 3, "fmul": 5, "ffma": 7, "fadd2": 1, "fmul2": 10, "ffma2": 100},
            "flops_fp32_vector",
            22 + 2 * 1 + 2 * 10 + 4 * 100,
        ),
    ],
)
def test_flops_outside_tensor_cores(ops: dict[str, int], column: str, flops: float) -> None:
    assert quantities(counted(**ops)).to_dict("list") == {column: [flops]}


def test_one_prefix_is_used_never_both() -> None:
    # given the same counts by smsp and by sm
    both = counted(fadd=1, fmul=1, ffma=1)
    for name in list(both.columns):
        both[name.replace("smsp", "sm")] = both[name]
    # then they count once
    assert quantities(both).to_dict("list") == {"flops_fp32_vector": [4]}


def test_what_was_not_collected_is_absent_not_zero() -> None:
    found = quantities(pd.DataFrame({"gpu__time_duration.sum": [2e-6, 3e-6]}))
    assert found.to_dict("list") == {"counter_time_s": [2e-6, 3e-6]}


def test_a_sum_without_its_multiply_adds_is_no_sum() -> None:
    found = find(counted(fadd=1, fmul=1))
    assert found.table.columns.empty
    assert "fp32 FLOPs are not told: ffma not collected" in found.remarks


def test_a_sum_without_additions_is_a_lower_bound() -> None:
    found = find(counted(ffma=5))
    assert found.table.to_dict("list") == {"flops_fp32_vector": [10]}
    assert "fp32 FLOPs are a lower bound: no fadd, fmul" in found.remarks


def test_reads_and_writes_go_before_their_total() -> None:
    metrics = {"dram__bytes_read.sum": [30.0], "dram__bytes_write.sum": [4.0]}
    metrics["dram__bytes.sum"] = [35.0]
    assert quantities(pd.DataFrame(metrics)).to_dict("list") == {
        "dram_read_bytes": [30],
        "dram_write_bytes": [4],
        "dram_bytes": [34],
    }


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"dram__bytes.sum": 35.0}, {"dram_bytes": 35.0}),
        ({"lts__t_bytes.sum": 7.0}, {"l2_bytes": 7.0}),
        ({"lts__t_sectors.sum": 7.0}, {"l2_bytes": 224.0}),
        ({"lts__lts2xbar_cycles_active.sum": 2.0}, {"l2_bytes": 64.0}),
        ({"l1tex__t_bytes.sum": 7.0}, {"l1_bytes": 7.0}),
        ({"l1tex__lsu_writeback_active_mem_lg.sum": 2.0}, {"l1_bytes": 256.0}),
        (
            {"dram__bytes_op_read.sum": 1.0, "dram__bytes_op_write.sum": 2.0},
            {"dram_read_bytes": 1.0, "dram_write_bytes": 2.0, "dram_bytes": 3.0},
        ),
        (
            {"dram__sectors_read.sum": 1.0, "dram__sectors_write.sum": 2.0},
            {"dram_read_bytes": 32.0, "dram_write_bytes": 64.0, "dram_bytes": 96.0},
        ),
        (
            {"gpu__time_duration.avg": 0.5, "dram__bytes.sum.per_second": 8.0},
            {"counter_time_s": 0.5, "dram_bytes": 4.0},
        ),
        (
            {"sm__cycles_elapsed.avg": 600.0, "sm__cycles_elapsed.avg.per_second": 1200.0},
            {"counter_time_s": 0.5},
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_bytes_and_time(metrics: dict[str, float], expected: dict[str, float]) -> None:
    found = quantities(pd.DataFrame({name: [value] for name, value in metrics.items()}))
    assert found.to_dict("list") == {name: [value] for name, value in expected.items()}


def test_another_definition_of_a_level_is_said() -> None:
    found = find(pd.DataFrame({"lts__lts2xbar_cycles_active.sum": [2.0]}))
    assert any("own chart" in remark for remark in found.remarks)


def test_rates_per_cycle_become_counts() -> None:
    # given 2 s at 100 Hz with 3 additions, 0 multiplications and 5 multiply-adds a cycle
    metrics = {
        "gpu__time_duration.sum": [2.0],
        "smsp__cycles_elapsed.avg.per_second": [100.0],
        **{f"{OP.format(op)}.per_cycle_elapsed": [n] for op, n in
           (("dadd", 3.0), ("dmul", 0.0), ("dfma", 5.0))},
    }  # fmt: skip
    # then 200 cycles have 13 FLOPs each
    assert quantities(pd.DataFrame(metrics))["flops_fp64_vector"].tolist() == [2600]


@pytest.mark.parametrize(
    ("capability", "flops"), [("7.0", [5120.0]), ("7.2", [5120.0]), ("8.0", None), (None, None)]
)
def test_tensor_instructions_are_a_last_resort(
    capability: str | None, flops: list[float] | None
) -> None:
    metrics = pd.DataFrame({"sm__inst_executed_pipe_tensor.sum": [10.0]})
    found = find(metrics, compute_capability=capability)
    assert found.table.to_dict("list").get("flops_fp16_matrix") == flops
    said = "are a guess" if flops else "tensor-core FLOPs are not told"
    assert any(said in remark for remark in found.remarks)


def test_tensor_instructions_by_the_chip_of_each_row() -> None:
    # given a kernel of an old chip, one of a later one and one of which nothing is known
    metrics = pd.DataFrame({"sm__inst_executed_pipe_tensor.sum": [10.0, 10.0, 10.0]})
    found = find(metrics, compute_capability=pd.Series(["7.0", "8.0", ""]))
    # then only the first is guessed
    assert found.table["flops_fp16_matrix"].fillna(-1).tolist() == [5120, -1, -1]
    assert [remark.partition(":")[0] for remark in found.remarks[:2]] == [
        "tensor fp16 FLOPs are a guess",
        "tensor-core FLOPs are not told",
    ]


def test_bulk_copies_of_any_chip_are_said() -> None:
    metrics = pd.DataFrame({"l1tex__t_bytes.sum": [1.0, 2.0]})
    said = "L1 bytes leave out the bulk tensor copies of this chip"
    chips = {("8.0", "9.0"): True, ("8.0", "8.6"): False}
    for versions, is_said in chips.items():
        found = find(metrics, compute_capability=pd.Series(versions))
        assert (said in found.remarks) == is_said


def test_rates_are_settled_by_the_time_and_cycles_beside_them() -> None:
    metrics = {
        "gpu__time_duration.sum": [2.0],
        "sm__cycles_elapsed.max": [10.0],
        "dram__bytes.sum.per_second": [8.0],
        f"{OP.format('ffma')}.per_cycle_elapsed": [5.0],
        "lts__t_bytes.sum": [3.0],
        "lts__t_bytes.sum.per_second": [7.0],
    }
    table, said = settled(pd.DataFrame(metrics))
    assert table.to_dict("list") == {
        "gpu__time_duration.sum": [2],
        "sm__cycles_elapsed.max": [10],
        "lts__t_bytes.sum": [3],
        "lts__t_bytes.sum.per_second": [7],
        "dram__bytes.sum": [16],
        OP.format("ffma"): [50],
    }
    rate = f"{OP.format('ffma')}.per_cycle_elapsed"
    assert said == [f"from rates: dram__bytes.sum.per_second, {rate}"]


def test_a_kernel_without_a_value_has_none() -> None:
    # given a second kernel of which only the time is known
    metrics = counted(fadd=1, fmul=1, ffma=1)
    metrics = pd.concat([metrics, pd.DataFrame({OP.format("fadd"): [nan]})], ignore_index=True)
    # then its FLOPs are not a number
    found = quantities(metrics)["flops_fp32_vector"]
    assert found[0] == 4 and pd.isna(found[1])


def test_only_what_takes_part_is_needed() -> None:
    names = ["gpu__time_duration.sum", OP.format("ffma"), "sm__ops_path_tensor_src_fp8.sum",
             "launch__grid_size", "dram__bytes.sum.pct_of_peak_sustained_elapsed",
             OP.format("ffma").replace(".sum", ".avg"), OP.format("bar")]  # fmt: skip
    assert [name for name in names if is_needed(name)] == names[:3]


TENSOR = "sm__ops_path_tensor_src_fp16.sum"


@pytest.mark.parametrize(
    ("metrics", "flops"),
    [
        ({"gpu__time_duration.sum": 2.0, f"{TENSOR}.per_second": 50.0}, 100),
        ({"sm__cycles_elapsed.max": 10.0, f"{TENSOR}.per_cycle_elapsed": 5.0}, 50),
        ({"gpu__time_duration.sum": 2.0, f"{TENSOR}.per_second": 50.0, TENSOR: 7.0}, 7),
    ],
)
def test_tensor_rates_become_counts(metrics: dict[str, float], flops: float) -> None:
    found = find(pd.DataFrame({name: [value] for name, value in metrics.items()}))
    assert found.table["flops_fp16_matrix"].tolist() == [flops]
    assert any("made from rates" in said for said in found.remarks) == (TENSOR not in metrics)


def test_tensor_rates_alone_are_not_told() -> None:
    found = find(pd.DataFrame({f"{TENSOR}.per_second": [50.0]}))
    assert found.metrics == ()
    assert "tensor fp16 FLOPs are not told: rates without time" in found.remarks


RATE = "dram__bytes.sum.per_second"
TOO_SMALL = (
    f"not used: {RATE} of 1 of 3 kernels, which would make less than one; its unit is another than"
    " it says"
)


def rates() -> pd.DataFrame:
    return pd.DataFrame({"gpu__time_duration.sum": [1e-5] * 3, RATE: [1.5, 0.0, 3.2e6]})


def test_a_rate_of_less_than_one_byte_is_not_known() -> None:
    found = find(rates())
    assert found.table["dram_bytes"].isna().tolist() == [True, False, False]
    assert found.table["dram_bytes"].tolist()[1:] == [0, 32]
    assert TOO_SMALL in found.remarks


def test_nor_is_it_when_files_are_joined() -> None:
    table, said = settled(rates())
    assert table["dram__bytes.sum"].isna().tolist() == [True, False, False]
    assert said == [f"from rates: {RATE}", TOO_SMALL]

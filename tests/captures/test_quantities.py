"""From metrics to quantities, by rows that can be checked by hand."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest
from tests.profile.recorded import metrics_of

from ridgeline.captures.quantities import derive_quantities, is_needed

OP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def quantities(metrics: pd.DataFrame) -> pd.DataFrame:
    return derive_quantities(metrics).table


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


def test_parts_by_both_prefixes_are_one_sum() -> None:
    # given additions and multiplications by smsp, multiply-adds by sm
    mixed = counted(fadd=1, fmul=2, ffma=3).rename(columns=lambda name: sm_of_ffma(name))
    # then all of them count
    found = derive_quantities(mixed)
    assert found.table.to_dict("list") == {"flops_fp32_vector": [1 + 2 + 2 * 3]}
    assert found.remarks == (
        "no time: collect gpu__time_duration.sum",
        "no bytes: no counter of them was collected",
    )


def sm_of_ffma(name: str) -> str:
    return name.replace("smsp", "sm") if "ffma" in name else name


def test_what_was_not_collected_is_absent_not_zero() -> None:
    found = quantities(pd.DataFrame({"gpu__time_duration.sum": [2e-6, 3e-6]}))
    assert found.to_dict("list") == {"counter_time_s": [2e-6, 3e-6]}


def test_a_sum_without_its_multiply_adds_is_no_sum() -> None:
    found = derive_quantities(counted(fadd=1, fmul=1))
    assert found.table.columns.empty
    assert "fp32 FLOPs are not told: ffma not collected" in found.remarks


def test_a_sum_without_additions_is_a_lower_bound() -> None:
    found = derive_quantities(counted(ffma=5))
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


def test_a_rate_that_is_not_used_is_not_named() -> None:
    metrics = {"dram__bytes_read.sum": [30.0], "dram__bytes_write.sum": [4.0]}
    metrics |= {"gpu__time_duration.sum": [1.0], RATE: [35.0]}
    found = derive_quantities(pd.DataFrame(metrics))
    assert found.table["dram_bytes"].tolist() == [34]
    assert found.metrics == (
        "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
    )  # fmt: skip
    assert found.remarks == ("no FLOPs: no counter of them was collected",)


def test_bytes_of_each_kernel_by_the_first_way_that_tells_them() -> None:
    # given reads and writes, then a total beside writes alone, then a rate for half a second
    metrics = {
        "gpu__time_duration.sum": [1.0, 1.0, 0.5],
        "dram__bytes_read.sum": [1.0, nan, nan],
        "dram__bytes_write.sum": [2.0, 2.0, nan],
        "dram__bytes.sum": [4.0, 5.0, nan],
        RATE: [8.0, 8.0, 14.0],
        "lts__t_bytes.sum": [9.0, nan, nan],
        "lts__lts2xbar_cycles_active.sum": [9.0, 2.0, nan],
    }
    found = derive_quantities(pd.DataFrame(metrics))
    # then none is lost
    assert found.table["dram_bytes"].tolist() == [3, 5, 7]
    assert found.table["l2_bytes"].fillna(-1).tolist() == [9, 64, -1]
    assert found.remarks == (
        f"from rates: {RATE}, of 1 of 3 kernels",
        "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes, of 1 of 3"
        " kernels",
        "no FLOPs: no counter of them was collected",
    )


def test_time_of_each_kernel_by_the_first_way_that_tells_it() -> None:
    metrics = {
        "gpu__time_duration.sum": [2.0, nan],
        "sm__cycles_elapsed.avg": [nan, 600.0],
        "sm__cycles_elapsed.avg.per_second": [nan, 1200.0],
        "dram__bytes.sum": [1.0, 1.0],
    }
    found = derive_quantities(pd.DataFrame(metrics))
    assert found.table["counter_time_s"].tolist() == [2, 0.5]
    assert found.remarks[0] == (
        "time is cycles over their rate: sm__cycles_elapsed.avg /"
        " sm__cycles_elapsed.avg.per_second, of 1 of 2 kernels"
    )


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
    found = derive_quantities(pd.DataFrame({"lts__lts2xbar_cycles_active.sum": [2.0]}))
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


def test_rates_per_second_become_counts() -> None:
    # given 10 us with 1, 2 and 6000 instructions in a us
    rates = {f"{OP.format(op)}.per_second": [n * 1e6] for op, n in
             (("fadd", 1), ("fmul", 2), ("ffma", 6000))}  # fmt: skip
    found = derive_quantities(pd.DataFrame({"gpu__time_duration.sum": [1e-5], **rates}))
    # then
    assert found.table["flops_fp32_vector"].tolist() == [10 + 20 + 2 * 60_000]
    assert found.remarks == (
        "fp32 FLOPs are made from rates per second",
        "no bytes: no counter of them was collected",
    )


@pytest.mark.parametrize(
    ("per", "clock"), [("per_second", "time"), ("per_cycle_elapsed", "cycles")]
)
def test_rates_of_instructions_alone_are_not_told(per: str, clock: str) -> None:
    rates = counted(fadd=1, fmul=1, ffma=1).rename(columns=lambda name: f"{name}.{per}")
    found = derive_quantities(rates.assign(**{"dram__bytes.sum": [1.0]}))
    assert found.table.to_dict("list") == {"dram_bytes": [1]}
    assert found.remarks == (
        f"fp32 FLOPs are not told: rates without {clock}",
        "no time: collect gpu__time_duration.sum",
        "no FLOPs: there is no counter that can be used",
    )


@pytest.mark.parametrize(
    ("capability", "flops"), [("7.0", [5120.0]), ("7.2", [5120.0]), ("8.0", None), (None, None)]
)
def test_tensor_instructions_are_a_last_resort(
    capability: str | None, flops: list[float] | None
) -> None:
    metrics = pd.DataFrame({"sm__inst_executed_pipe_tensor.sum": [10.0]})
    found = derive_quantities(metrics, compute_capability=capability)
    assert found.table.to_dict("list").get("flops_fp16_matrix") == flops
    said = "are a guess" if flops else "tensor-core FLOPs are not told"
    assert any(said in remark for remark in found.remarks)


PIPE = "sm__inst_executed_pipe_tensor"
NOT_TOLD = "tensor-core FLOPs are not told: tensor instructions were counted"
CHIPS = {"tu102": "7.5", "ga100": "8.0", "ad102": "8.9", "gh100": "9.0", "gb100": "10.0",
         "gb202": "12.0"}  # fmt: skip


@pytest.mark.parametrize(("chip", "capability"), CHIPS.items())
def test_tensor_instructions_of_any_name_are_not_dropped(chip: str, capability: str) -> None:
    # given every counter of such instructions that a chip has
    names = [f"{name}.sum" for name in sorted(metrics_of(chip)) if name.startswith(PIPE)]
    assert f"{PIPE}.sum" in names
    for name in names:
        found = derive_quantities(pd.DataFrame({name: [5.0]}), compute_capability=capability)
        # then FLOPs are said to be missing, unless the instruction is none of tensor cores
        said = f"{NOT_TOLD}, which no factor turns into FLOPs; collect sm__ops_path_tensor_src_*"
        assert (said in found.remarks) == ("type_hfma2" not in name), name
        assert found.table.columns.empty


@pytest.mark.parametrize(
    ("metric", "capability", "said"),
    [
        ("_op_hmma.sum.per_second", "8.0", ", which no factor turns into FLOPs; collect"),
        ("_op_hmma.sum", "7.0", f" in part; collect {PIPE}.sum, from which they are guessed"),
        ("_op_hmma.sum", None, ", and the chip is not known; collect sm__ops_path_tensor_src_*,"
         f" or, before compute capability 7.5 (V100), {PIPE}.sum and export it with its column"),
    ],
)  # fmt: skip
def test_what_to_collect_depends_on_the_chip(
    metric: str, capability: str | None, said: str
) -> None:
    found = derive_quantities(pd.DataFrame({PIPE + metric: [5.0]}), compute_capability=capability)
    assert found.remarks[0].startswith(NOT_TOLD + said)


def test_tensor_instructions_beside_their_flops_are_no_loss() -> None:
    # given the FLOPs of the first kernel only, and no instructions in the last
    metrics = pd.DataFrame({TENSOR: [9.0, nan, nan], f"{PIPE}_op_hmma.sum": [1.0, 1.0, 0.0]})
    for rows, is_said in ((metrics[:1], False), (metrics, True), (metrics[::2], False)):
        found = derive_quantities(rows, compute_capability="8.0")
        assert any(remark.startswith(NOT_TOLD) for remark in found.remarks) == is_said


@pytest.mark.parametrize(("capability", "is_noted"), [("9.0", True), ("8.6", False)])
def test_bulk_copies_are_noted(capability: str, is_noted: bool) -> None:
    metrics = pd.DataFrame({"l1tex__t_bytes.sum": [1.0, 2.0]})
    found = derive_quantities(metrics, compute_capability=capability)
    assert ("L1 bytes leave out the bulk tensor copies of this chip" in found.remarks) == is_noted


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
HALF, SINGLE = (TENSOR.replace(".sum", f"_dst_{dst}.sum") for dst in ("fp16", "fp32"))


def test_a_tensor_sum_that_lacks_a_part_is_not_known() -> None:
    # given three kernels, the second without the work that ends in fp32
    found = derive_quantities(pd.DataFrame({HALF: [7.0, 7.0, 0.0], SINGLE: [100.0, nan, 9.0]}))
    # then only its sum is not known
    assert found.table["flops_fp16_matrix"].fillna(-1).tolist() == [107, -1, 9]


def test_a_tensor_part_that_no_kernel_has_is_named() -> None:
    metrics = {"gpu__time_duration.sum": [1.0], HALF: [7.0], SINGLE: [nan]}
    found = derive_quantities(pd.DataFrame(metrics))
    assert found.table.to_dict("list") == {"counter_time_s": [1]}
    assert found.remarks == (
        f"tensor fp16 FLOPs are not told: no kernel has all of {HALF}, {SINGLE}",
        "no FLOPs: there is no counter that can be used",
        "no bytes: no counter of them was collected",
    )


def test_a_rate_stands_in_for_a_tensor_count_that_a_kernel_lacks() -> None:
    metrics = {"gpu__time_duration.sum": [2.0, 2.0], HALF: [7.0, 7.0], SINGLE: [100.0, nan]}
    found = derive_quantities(pd.DataFrame({**metrics, f"{SINGLE}.per_second": [40.0, 40.0]}))
    assert found.table["flops_fp16_matrix"].tolist() == [107, 87]
    said = "tensor fp16 FLOPs are made from rates per second, of 1 of 2 kernels"
    assert found.remarks[0] == said


@pytest.mark.parametrize(
    ("metrics", "flops"),
    [
        ({"gpu__time_duration.sum": 2.0, f"{TENSOR}.per_second": 50.0}, 100),
        ({"sm__cycles_elapsed.max": 10.0, f"{TENSOR}.per_cycle_elapsed": 5.0}, 50),
        ({"gpu__time_duration.sum": 2.0, f"{TENSOR}.per_second": 50.0, TENSOR: 7.0}, 7),
    ],
)
def test_tensor_rates_become_counts(metrics: dict[str, float], flops: float) -> None:
    found = derive_quantities(pd.DataFrame({name: [value] for name, value in metrics.items()}))
    assert found.table["flops_fp16_matrix"].tolist() == [flops]
    assert any("made from rates" in said for said in found.remarks) == (TENSOR not in metrics)


def test_tensor_rates_alone_are_not_told() -> None:
    found = derive_quantities(pd.DataFrame({f"{TENSOR}.per_second": [50.0]}))
    assert found.metrics == ()
    assert "tensor fp16 FLOPs are not told: rates without time" in found.remarks


RATE = "dram__bytes.sum.per_second"


def test_a_rate_of_less_than_one_byte_is_not_known() -> None:
    metrics = {"gpu__time_duration.sum": [1e-5] * 3, RATE: [1.5, 0.0, 3.2e6]}
    found = derive_quantities(pd.DataFrame(metrics)).table["dram_bytes"]
    assert found.fillna(-1).tolist() == [-1, 0, 32]


def test_rates_per_second_go_before_those_per_cycle() -> None:
    # given 2 s and 10 cycles with both rates, the first for one kernel only
    metrics = {"gpu__time_duration.sum": [2.0, 2.0], "sm__cycles_elapsed.max": [10.0, 10.0]}
    of_rates = {f"{TENSOR}.per_cycle_elapsed": [5.0, 5.0], f"{TENSOR}.per_second": [50.0, nan]}
    found = derive_quantities(pd.DataFrame(metrics | of_rates)).table
    assert found["flops_fp16_matrix"].tolist() == [100, 50]


def test_bytes_per_cycle_are_of_another_clock() -> None:
    assert not is_needed("dram__bytes.sum.per_cycle_elapsed")


def test_tensor_work_of_several_types_is_told_once() -> None:
    # given fp4, fp6 and fp8 together, and fp4 and fp6 again
    wide, narrow = (f"sm__ops_path_tensor_src_{src}.sum" for src in ("fp4_fp6_fp8", "fp4_fp6"))
    found = derive_quantities(pd.DataFrame({wide: [100.0], narrow: [30.0]}))
    # then
    assert found.table.to_dict("list") == {"flops_fp8_matrix": [100]}
    assert found.metrics == (wide,)
    assert found.remarks[:2] == (
        f"tensor fp6 is not told by itself: {wide} counts it, too",
        "this chip counts fp4, fp6, fp8 operands together; they are shown as tensor fp8",
    )

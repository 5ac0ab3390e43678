"""From metrics to quantities, by rows that can be checked by hand; tensor counters of all chips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import pandas as pd
import pytest
from tests.profile.recorded import metrics_of

from ridgeline.captures.quantities import (
    Quantities,
    derive_quantities,
    is_needed,
)

OP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TIME, RATE = "gpu__time_duration.sum", "dram__bytes.sum.per_second"
SM_CYCLES, SM_RATE = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"
TENSOR = "sm__ops_path_tensor_src_fp16.sum"
HALF, SINGLE = (TENSOR.replace(".sum", f"_dst_{dst}.sum") for dst in ("fp16", "fp32"))
PIPE = "sm__inst_executed_pipe_tensor"
NO_TIME, NO_FLOPS, NO_BYTES = (
    "no time: collect gpu__time_duration.sum",
    "no FLOPs: no counter of them was collected",
    "no bytes: no counter of them was collected",
)
OVER_RATE = f"time is cycles over their rate: {SM_CYCLES} / {SM_RATE}"
L2_CHART = "L2 bytes are those of Nsight Compute's own chart (lts2xbar), not lts__t_bytes"
L1_CHART = "L1 bytes are those of Nsight Compute's own chart (writeback), not l1tex__t_bytes"
ONLY_INSTRUCTIONS = "tensor-core FLOPs are unavailable: only tensor instructions were counted"


def ops(end: str = "", unit: str = "smsp", **counts: float) -> dict[str, float]:
    """Instructions of threads by name."""
    return {OP.format(op).replace("smsp", unit) + end: n for op, n in counts.items()}


def derive(
    metrics: Mapping[str, float | Sequence[float]], capability: str | None = None
) -> Quantities:
    """The quantities of one kernel, or of each in the lists."""
    rows = {name: one if isinstance(one, list) else [one] for name, one in metrics.items()}
    return derive_quantities(pd.DataFrame(rows), compute_capability=capability)


def table_of(derived: Quantities) -> dict[str, list[float | None]]:
    """Columns, with None for what is not known."""
    columns = derived.table.to_dict("list")
    return {str(name): [None if v != v else v for v in values] for name, values in columns.items()}


VECTOR = [
    (ops(fadd=3, fmul=5, ffma=7), {"flops_fp32_vector": [3 + 5 + 2 * 7]}, (NO_TIME, NO_BYTES)),
    (ops(dadd=3, dmul=5, dfma=7), {"flops_fp64_vector": [3 + 5 + 2 * 7]}, (NO_TIME, NO_BYTES)),
    (ops(hadd=3, hmul=5, hfma=7), {"flops_fp16_vector": [6 + 10 + 28]}, (NO_TIME, NO_BYTES)),
    # two lanes an instruction, on Blackwell
    (ops(fadd=3, fmul=5, ffma=7, fadd2=1, fmul2=10, ffma2=100),
     {"flops_fp32_vector": [22 + 2 + 20 + 400]}, (NO_TIME, NO_BYTES)),
    # the same by smsp and by sm counts once; parts by both are one sum
    (ops(fadd=1, fmul=1, ffma=1) | ops(unit="sm", fadd=1, fmul=1, ffma=1),
     {"flops_fp32_vector": [4]}, (NO_TIME, NO_BYTES)),
    (ops(fadd=1, fmul=2) | ops(unit="sm", ffma=3), {"flops_fp32_vector": [9]},
     (NO_TIME, NO_BYTES)),
    (ops(fadd=1, fmul=1), {},
     ("fp32 FLOPs are unavailable: ffma not collected", NO_TIME, NO_BYTES)),
    (ops(ffma=5), {"flops_fp32_vector": [10]},
     ("fp32 FLOPs are a lower bound: no fadd, fmul", NO_TIME, NO_BYTES)),
    # a kernel without a value has no sum
    ({**ops(fmul=1, ffma=1), OP.format("fadd"): [1.0, nan], OP.format("fmul"): [1.0, 1.0],
      OP.format("ffma"): [1.0, 1.0]}, {"flops_fp32_vector": [4, None]}, (NO_TIME, NO_BYTES)),
    # 2 s at 100 Hz with 3 additions, 0 multiplications and 5 multiply-adds a cycle
    ({TIME: 2.0, "smsp__cycles_elapsed.avg.per_second": 100.0,
      **ops(".per_cycle_elapsed", dadd=3, dmul=0, dfma=5)},
     {"counter_time_s": [2], "flops_fp64_vector": [2600]},
     ("fp64 FLOPs are made from rates per cycle", NO_BYTES)),
    # 10 us with 1, 2 and 6000 instructions in a us
    ({TIME: 1e-5, **ops(".per_second", fadd=1e6, fmul=2e6, ffma=6e9)},
     {"counter_time_s": [1e-5], "flops_fp32_vector": [10 + 20 + 2 * 60_000]},
     ("fp32 FLOPs are made from rates per second", NO_BYTES)),
    # rates without time or cycles
    (ops(".per_second", fadd=1, fmul=1, ffma=1), {}, (NO_TIME, NO_FLOPS, NO_BYTES)),
    (ops(".per_cycle_elapsed", fadd=1, fmul=1, ffma=1), {}, (NO_TIME, NO_FLOPS, NO_BYTES)),
]  # fmt: skip
MEMORY = [
    ({TIME: [2e-6, 3e-6]}, {"counter_time_s": [2e-6, 3e-6]}, (NO_FLOPS, NO_BYTES)),
    ({"dram__bytes_read.sum": 30, "dram__bytes_write.sum": 4, "dram__bytes.sum": 35},
     {"dram_read_bytes": [30], "dram_write_bytes": [4], "dram_bytes": [34]}, (NO_TIME, NO_FLOPS)),
    ({"dram__bytes_op_read.sum": 1, "dram__bytes_op_write.sum": 2},
     {"dram_read_bytes": [1], "dram_write_bytes": [2], "dram_bytes": [3]}, (NO_TIME, NO_FLOPS)),
    ({"dram__sectors_read.sum": 1, "dram__sectors_write.sum": 2},
     {"dram_read_bytes": [32], "dram_write_bytes": [64], "dram_bytes": [96]}, (NO_TIME, NO_FLOPS)),
    ({"dram__bytes.sum": 35}, {"dram_bytes": [35]}, (NO_TIME, NO_FLOPS)),
    ({"lts__t_bytes.sum": 7}, {"l2_bytes": [7]}, (NO_TIME, NO_FLOPS)),
    ({"lts__t_sectors.sum": 7}, {"l2_bytes": [224]}, (NO_TIME, NO_FLOPS)),
    ({"lts__lts2xbar_cycles_active.sum": 2}, {"l2_bytes": [64]}, (L2_CHART, NO_TIME, NO_FLOPS)),
    ({"l1tex__t_bytes.sum": 7}, {"l1_bytes": [7]}, (NO_TIME, NO_FLOPS)),
    ({"l1tex__lsu_writeback_active_mem_lg.sum": 2}, {"l1_bytes": [256]},
     (L1_CHART, NO_TIME, NO_FLOPS)),
    ({"gpu__time_duration.avg": 0.5, RATE: 8}, {"counter_time_s": [0.5], "dram_bytes": [4]},
     (f"from rates: {RATE}", NO_FLOPS)),
    # less than one byte cannot be
    ({TIME: [1e-5] * 3, RATE: [1.5, 0.0, 3.2e6]},
     {"counter_time_s": [1e-5] * 3, "dram_bytes": [None, 0, 32]},
     (f"from rates: {RATE}", NO_FLOPS)),
    # each kernel by the first formula that has a value: time …
    ({TIME: [2.0, nan], SM_CYCLES: [nan, 600.0], SM_RATE: [nan, 1200.0]},
     {"counter_time_s": [2, 0.5]}, (OVER_RATE, NO_FLOPS, NO_BYTES)),
    # … and bytes: reads and writes, then a total beside writes alone, then a rate
    ({TIME: [1.0, 1.0, 0.5], "dram__bytes_read.sum": [1.0, nan, nan],
      "dram__bytes_write.sum": [2.0, 2.0, nan], "dram__bytes.sum": [4.0, 5.0, nan],
      RATE: [8.0, 8.0, 14.0], "lts__t_bytes.sum": [9.0, nan, nan],
      "lts__lts2xbar_cycles_active.sum": [9.0, 2.0, nan]},
     {"counter_time_s": [1, 1, 0.5], "dram_read_bytes": [1, None, None],
      "dram_write_bytes": [2, 2, None], "dram_bytes": [3, 5, 7], "l2_bytes": [9, 64, None]},
     (f"from rates: {RATE}", L2_CHART, NO_FLOPS)),
]  # fmt: skip
RATED = "tensor fp16 FLOPs are made from rates per "
TENSORS = [
    ({HALF: [7.0, 7.0, 0.0], SINGLE: [100.0, nan, 9.0]}, {"flops_fp16_matrix": [107, None, 9]},
     (NO_TIME, NO_BYTES)),
    ({HALF: 7.0, SINGLE: nan}, {}, (NO_TIME, NO_FLOPS, NO_BYTES)),
    ({TIME: [2.0, 2.0], HALF: [7.0, 7.0], SINGLE: [100.0, nan], f"{SINGLE}.per_second": [40.0] * 2},
     {"counter_time_s": [2, 2], "flops_fp16_matrix": [107, 87]},
     (f"{RATED}second", NO_BYTES)),
    ({TIME: 2.0, f"{TENSOR}.per_second": 50.0},
     {"counter_time_s": [2], "flops_fp16_matrix": [100]}, (f"{RATED}second", NO_BYTES)),
    ({"sm__cycles_elapsed.max": 10.0, f"{TENSOR}.per_cycle_elapsed": 5.0},
     {"flops_fp16_matrix": [50]}, (f"{RATED}cycle", NO_TIME, NO_BYTES)),
    ({TIME: 2.0, f"{TENSOR}.per_second": 50.0, TENSOR: 7.0},
     {"counter_time_s": [2], "flops_fp16_matrix": [7]}, (NO_BYTES,)),
    ({f"{TENSOR}.per_second": 50.0}, {}, (NO_TIME, NO_FLOPS, NO_BYTES)),
]  # fmt: skip


@pytest.mark.parametrize(("metrics", "table", "remarks"), [*VECTOR, *MEMORY, *TENSORS])
def test_quantities(
    metrics: dict[str, float], table: dict[str, list[float]], remarks: tuple[str, ...]
) -> None:
    derived = derive(metrics)
    assert table_of(derived) == table
    assert derived.remarks == remarks


def test_only_what_takes_part_is_needed() -> None:
    needed = [TIME, OP.format("ffma"), "sm__ops_path_tensor_src_fp8.sum"]
    others = ["launch__grid_size", "dram__bytes.sum.pct_of_peak_sustained_elapsed",
              OP.format("ffma").replace(".sum", ".avg"), OP.format("bar"),
              "dram__bytes.sum.per_cycle_elapsed"]  # fmt: skip
    assert list(filter(is_needed, [*needed, *others])) == needed


@pytest.mark.parametrize(("capability", "is_noted"), [("9.0", True), ("8.6", False)])
def test_bulk_copies_are_noted(capability: str, is_noted: bool) -> None:
    remarks = derive({"l1tex__t_bytes.sum": [1.0, 2.0]}, capability).remarks
    assert ("L1 bytes leave out the bulk tensor copies of this chip" in remarks) == is_noted


# ---------------------------------------------------------------- tensor instructions


@pytest.mark.parametrize(
    ("metrics", "capability", "flops", "remark"),
    [
        ({f"{PIPE}.sum": 10.0}, "7.0", [5120], "tensor fp16 FLOPs are a guess"),
        ({f"{PIPE}.sum": 10.0}, "8.0", None, ONLY_INSTRUCTIONS),
        ({f"{PIPE}_op_hmma.sum.per_second": 5.0}, "8.0", None, ONLY_INSTRUCTIONS),
        ({f"{PIPE}_op_hmma.sum": 5.0}, "7.0", None, ONLY_INSTRUCTIONS),
        ({f"{PIPE}_op_hmma.sum": 5.0}, None, None, ONLY_INSTRUCTIONS),
        # beside their FLOPs they are no loss, unless a kernel has none
        ({TENSOR: [9.0], f"{PIPE}_op_hmma.sum": [1.0]}, "8.0", [9], ""),
        ({TENSOR: [9.0, nan], f"{PIPE}_op_hmma.sum": [1.0, 0.0]}, "8.0", [9, None], ""),
        ({TENSOR: [9.0, nan], f"{PIPE}_op_hmma.sum": [1.0, 1.0]}, "8.0", [9, None],
         ONLY_INSTRUCTIONS),
    ],
)  # fmt: skip
def test_tensor_instructions_are_a_last_resort(
    metrics: dict[str, float], capability: str | None, flops: list[float] | None, remark: str
) -> None:
    derived = derive(metrics, capability)
    assert table_of(derived).get("flops_fp16_matrix") == flops
    notes = ("tensor fp16 FLOPs are a guess", ONLY_INSTRUCTIONS)
    found = [note for note in notes for text in derived.remarks if text.startswith(note)]
    assert found == [remark] * bool(remark)


CHIPS = {"tu102": "7.5", "ga100": "8.0", "ad102": "8.9", "gh100": "9.0", "gb100": "10.0",
         "gb202": "12.0"}  # fmt: skip


# ---------------------------------------------------------------- overlapping tensor counters


def full(name: str) -> str:
    return f"sm__ops_path_tensor_{name}.sum"


def halves(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}_sparsity_{half}" for name in names for half in ("off", "on"))


def used(*names: str) -> dict[str, list[str]]:
    """Those that are added up, by type: each counts another power of two."""
    derived = derive({full(name): float(2**n) for n, name in enumerate(names)})
    return {
        str(column).split("_")[1]: [name for n, name in enumerate(names) if int(total) >> n & 1]
        for column, (total,) in derived.table.to_dict("list").items()
    }


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        # Turing, Ampere, Hopper and Blackwell as they are collected
        (("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16", "src_int8", "src_int4"),
         {"fp16": ["src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp16"], "int4": ["src_int4"],
          "int8": ["src_int8"]}),
        ((*halves("src_fp16_dst_fp32", "src_fp16_dst_fp16", "src_int8"), "src_fp64"),
         {"fp16": [*halves("src_fp16_dst_fp32", "src_fp16_dst_fp16")], "fp64": ["src_fp64"],
          "int8": [*halves("src_int8")]}),
        (("src_bf16_dst_fp32", "src_fp16", "src_fp8"),
         {"bf16": ["src_bf16_dst_fp32"], "fp16": ["src_fp16"], "fp8": ["src_fp8"]}),
        (("src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32", "src_fp4_dst_fp32"),
         {"fp4": ["src_fp4_dst_fp32"],
          "fp8": ["src_fp4_fp6_fp8_dst_fp16", "src_fp4_fp6_fp8_dst_fp32"]}),
        (("src_fp4_fp6_dst_fp32", "op_utcqmma_src_fp8_dst_fp16", "op_utcqmma_src_fp8_dst_fp32"),
         {"fp6": ["src_fp4_fp6_dst_fp32"],
          "fp8": ["op_utcqmma_src_fp8_dst_fp16", "op_utcqmma_src_fp8_dst_fp32"]}),
        # work that is in two counters counts once
        (("src_fp16", "src_fp16_dst_fp32"), {"fp16": ["src_fp16"]}),
        (("src_int8", *halves("src_int8")), {"int8": ["src_int8"]}),
        (("src_bf16_dst_fp32", "op_hgmma_src_bf16_dst_fp32"), {"bf16": ["src_bf16_dst_fp32"]}),
        (("op_hgmma_src_bf16", "op_hmma_src_bf16"),
         {"bf16": ["op_hgmma_src_bf16", "op_hmma_src_bf16"]}),
        (("src_fp16_bf16_tf32_dst_fp32", "src_fp16_dst_fp32"),
         {"fp16": ["src_fp16_bf16_tf32_dst_fp32"]}),
        (("op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16"),
         {"fp16": ["op_hmma_src_fp16_dst_fp32_sparsity_off", "src_fp16_dst_fp16"]}),
        # other names are left alone
        (("src_fp9",), {}),
    ],
)  # fmt: skip
def test_counters_without_overlap_are_added_up(
    names: tuple[str, ...], taken: dict[str, list[str]]
) -> None:
    assert used(*names) == taken


@pytest.mark.parametrize(
    ("rows", "work"),
    [
        # a part that no other counter has
        ([{"src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": nan}], nan),
        ([{"src_fp8_sparsity_off": 7, "src_fp8_sparsity_on": nan}], nan),
        ([{"op_hmma_src_fp16": 7, "op_hgmma_src_fp16": nan}], nan),
        # what another counter has: a total, its parts, the counter of another chip
        ([{"src_fp16": 9, "src_fp16_dst_fp32": nan}], 9),
        ([{"src_fp8": nan, "src_fp8_sparsity_off": 7, "src_fp8_sparsity_on": 2}], 9),
        ([{"src_fp8": nan, "src_fp4_fp6_fp8_dst_fp16": 7, "src_fp4_fp6_fp8_dst_fp32": 2}], 9),
        ([{"src_fp8": 9, "src_fp4_fp6_fp8_dst_fp16": nan, "src_fp4_fp6_fp8_dst_fp32": nan}], 9),
        # a total that other kernels have, so that its work may be in parts without a counter
        ([{"src_fp16": nan, "op_hmma_src_fp16": 7}, {"src_fp16": 9, "op_hmma_src_fp16": 7}], nan),
        ([{"src_fp16": nan, "src_fp16_dst_fp16": 7, "src_fp16_dst_fp32": 2}, {"src_fp16": 5}], nan),
        # one of more types, or of another result, that other kernels have
        ([{"src_fp4_fp6_fp8": nan, "src_fp8": 10}, {"src_fp4_fp6_fp8": 100, "src_fp8": 10}], nan),
    ],
)
def test_a_counter_without_a_value_is_a_loss_if_no_other_has_its_work(
    rows: list[dict[str, float]], work: float
) -> None:
    derived = derive_quantities(pd.DataFrame(rows).rename(columns=full))
    first = [values[0] for values in derived.table.to_dict("list").values()]
    assert (first or [nan])[0] == pytest.approx(work, nan_ok=True)


PARTLY = "overlaps in part with others and is not added"


@pytest.mark.parametrize(
    ("counts", "table", "remarks"),
    [
        ({"src_fp4_fp6_fp8": 100, "src_fp4_fp6": 30, "src_fp4": 5},  # fp4 alone is other work
         {"flops_fp4_matrix": [5], "flops_fp8_matrix": [100]}, ()),
        ({"src_fp4_fp6_fp8_dst_fp32": 100, "src_fp4_fp6_dst_fp32": 30, "src_fp4_fp6_dst_fp16": 3},
         {"flops_fp6_matrix": [3], "flops_fp8_matrix": [100]}, ()),
        ({"src_fp8_sparsity_off": 7}, {"flops_fp8_matrix": [7]},
         ("tensor fp8 FLOPs are a lower bound: the counter with sparsity on was not collected",)),
        # products that write fp32 may be in the first alone, and are lost with it
        ({"op_hmma_src_fp16": 9, "src_fp16_dst_fp16": 7}, {"flops_fp16_matrix": [7]},
         (f"tensor fp16 FLOPs are a lower bound: {full('op_hmma_src_fp16')} {PARTLY}",)),
        ({"src_fp8": 9, "src_fp4_fp6_fp8_dst_fp32": 7}, {"flops_fp8_matrix": [7]},
         (f"tensor fp8 FLOPs are a lower bound: {full('src_fp8')} {PARTLY}",)),
        ({"op_hmma_src_fp16": 9, "src_fp16": 9}, {"flops_fp16_matrix": [9]}, ()),
    ],
)  # fmt: skip
def test_notes_on_tensor_counters(
    counts: dict[str, float], table: dict[str, list[float]], remarks: tuple[str, ...]
) -> None:
    derived = derive({full(name): value for name, value in counts.items()})
    assert table_of(derived) == table
    assert derived.remarks == (*remarks, NO_TIME, NO_BYTES)


@pytest.mark.parametrize("chip", CHIPS)
def test_all_counters_of_a_chip_leave_nothing_out(chip: str) -> None:
    names = sorted(f"{name}.sum" for name in metrics_of(chip) if "ops_path_tensor" in name)
    derived = derive(dict.fromkeys(names, 1.0))
    assert len(derived.table.columns) >= 4
    assert derived.remarks == (NO_TIME, NO_BYTES)

"""Tables without units: base units are taken for granted, unless values show that they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.profile.captures import read, told, written

from ridgeline.errors import RidgelineError

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
FADD, FMUL, FFMA = (
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")
)
RATE = "dram__bytes.sum.per_second"
NO_TIME = "no time: there is no counter that can be used"
Table = Callable[[dict[str, str]], str]
NO_BYTES = "no bytes: no counter of them was collected"


def wide(values: dict[str, str]) -> str:
    titles, cells = ",".join(values), ",".join(values.values())
    return f"ID,Process ID,Kernel Name,{titles}\n0,7,k,{cells}\n"


def long(values: dict[str, str]) -> str:
    rows = [f"0,7,k,{name},{value}\n" for name, value in values.items()]
    return "ID,Process ID,Kernel Name,Metric Name,Metric Value\n" + "".join(rows)


def left_out(names: str, which: str, value: str) -> str:
    return (
        f"not used without their units: {names}; {which} is {value} somewhere, which is not whole,"
        " so that the table is not in base units"
    )


@pytest.mark.parametrize("table", [wide, long])
def test_bytes_with_decimals_tell_that_the_table_is_scaled(tmp_path: Path, table: Table) -> None:
    # given Mbytes and microseconds of which the units were lost
    path = written(tmp_path, "a.csv", table({READ: "33.63", WRITE: "2", TIME: "344"}))
    # then nothing is known, and the file is refused
    with pytest.raises(RidgelineError) as refused:
        read(path)
    said = left_out(f"{READ}, {WRITE}, {TIME}", READ, "33.63")
    assert refused.value.problem == f"{path} has 1 kernel and nothing that can be used: {said}"
    assert refused.value.hint == "export it again with --print-units base"


@pytest.mark.parametrize("table", [wide, long])
def test_counts_that_are_whole_are_used_beside_them(tmp_path: Path, table: Table) -> None:
    values = {FADD: "1000", FMUL: "2", FFMA: "3", TIME: "12.5"}
    found = told(written(tmp_path, "a.csv", table(values)))
    assert (found["flops"]["fp32"], found["kernel_time_s"]) == (1008, None)
    assert found["warnings"] == [left_out(TIME, TIME, "12.5"), NO_TIME, NO_BYTES]


@pytest.mark.parametrize("table", [wide, long])
def test_counts_with_decimals_are_scaled(tmp_path: Path, table: Table) -> None:
    # given millions of instructions, of which one has decimals
    values = {FADD: "1.5", FMUL: "2", FFMA: "3", "lts__t_bytes.sum": "4", TIME: "12"}
    path = written(tmp_path, "a.csv", table(values))
    # then the others are no lower bound
    with pytest.raises(RidgelineError) as refused:
        read(path)
    names = f"{FADD}, {FMUL}, {FFMA}, lts__t_bytes.sum, {TIME}"
    assert left_out(names, FADD, "1.5") in refused.value.problem


def test_a_value_of_a_later_row_tells(tmp_path: Path) -> None:
    text = f"ID,Process ID,Kernel Name,{TIME},lts__t_bytes.sum\n0,7,a,1,2\n1,7,b,1.5,2\n"
    with pytest.raises(RidgelineError, match=r"is 1\.5 somewhere"):
        read(written(tmp_path, "a.csv", text))


def test_a_table_with_units_below_one_without_is_used(tmp_path: Path) -> None:
    text = wide({TIME: "1.5"}) + f"ID,Process ID,Kernel Name,{TIME}\n,,,us\n0,8,k,2.5\n"
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["time_s"].isna().tolist() == [True, False]
    assert capture.kernel_time_s == 2.5e-6


def test_whole_numbers_are_taken_for_base_units(tmp_path: Path) -> None:
    found = told(written(tmp_path, "a.csv", wide({READ: "33", WRITE: "2.0", TIME: "344"})))
    assert (found["dram_bytes"], found["kernel_time_s"]) == (35, pytest.approx(344e-9))
    assert found["warnings"][0].startswith("the table has no units")


def test_averages_of_counts_may_have_decimals(tmp_path: Path) -> None:
    header = "Kernel Name,Invocations,Metric Name,Metric Unit,Minimum,Maximum,Average\n"
    ops = "sm__ops_path_tensor_src_fp16_dst_fp32.sum"
    text = header + f"k,2,{ops},,1,2,1.5\n"
    assert told(written(tmp_path, "a.csv", text))["flops"]["tensor_fp16"] == 3


@pytest.mark.parametrize("table", [wide, long])
@pytest.mark.parametrize("rate", ["1.5", "500"])
def test_a_small_rate_tells_that_the_table_is_scaled(
    tmp_path: Path, table: Table, rate: str
) -> None:
    # given Tbytes or Gbytes per second of which the unit was lost
    values = {FADD: "1000", FMUL: "2", FFMA: "3", TIME: "12500", RATE: rate}
    found = told(written(tmp_path, "a.csv", table(values)))
    # then they are no bytes, and no 0 of them
    assert (found["flops"]["fp32"], found["dram_bytes"], found["kernel_time_s"]) == (
        1008,
        None,
        None,
    )
    said = left_out(f"{TIME}, {RATE}", RATE, rate)
    assert found["warnings"] == [
        said.replace("not whole", "less than 1000 a second"),
        NO_TIME,
        "no bytes: there is no counter that can be used",
    ]


@pytest.mark.parametrize("table", [wide, long])
def test_a_large_rate_is_taken_for_base_units(tmp_path: Path, table: Table) -> None:
    path = written(tmp_path, "a.csv", table({TIME: "12500", RATE: "1500000000.5"}))
    assert told(path)["dram_bytes"] == 18_750


@pytest.mark.parametrize("table", [wide, long])
def test_no_rate_is_no_sign(tmp_path: Path, table: Table) -> None:
    assert told(written(tmp_path, "a.csv", table({TIME: "12500", RATE: "0"})))["dram_bytes"] == 0

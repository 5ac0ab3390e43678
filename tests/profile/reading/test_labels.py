"""Names of metrics beside what they are called: `ncu --print-metric-name label-name`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.profile.captures import read, told, written

from ridgeline.profile.reading.display_names import without_label

HEADER = "ID,Process ID,Kernel Name,Section Name,Metric Name,Metric Unit,Metric Value\n"


@pytest.mark.parametrize(
    "name",
    [
        "Duration (gpu__time_duration.sum)",
        "gpu__time_duration.sum (Duration)",
        "Duration [gpu__time_duration.sum]",
        "Duration: gpu__time_duration.sum",
        "gpu__time_duration.sum (gpu__time_duration.sum)",
    ],
)
def test_a_metric_beside_its_label(tmp_path: Path, name: str) -> None:
    found = told(written(tmp_path, "a.csv", f"{HEADER}0,7,k,Speed,{name},us,187.42\n"))
    assert (found["kernels"], found["kernel_time_s"]) == (1, 187.42e-6)


def test_a_table_of_labels(tmp_path: Path) -> None:
    # given a time, a share of the peak, a rate of 100 bytes in a ns, and a sum of digits in groups
    rows = [
        ("Duration (gpu__time_duration.sum)", "us", "2"),
        ("Memory Throughput (gpu__compute_memory_throughput.avg.pct_of_peak_sustained)", "%", "9"),
        ("Memory Throughput (dram__bytes.sum.per_second)", "Gbyte/s", "100"),
        ("lts__t_bytes.sum (lts__t_bytes.sum)", "byte", '"1,234"'),
        ("Device Name (device__attribute_display_name)", "", "NVIDIA H200"),
    ]
    text = HEADER + "".join(f"0,7,k,Speed,{','.join(row)}\n" for row in rows)
    found = told(written(tmp_path, "a.csv", text))
    # then
    assert found["kernel_time_s"] == 2e-6
    assert (found["dram_bytes"], found["l2_bytes"]) == (200_000, 1234)
    assert found["device"] == "NVIDIA H200"
    assert found["warnings"] == [
        "from rates: dram__bytes.sum.per_second",
        "no FLOPs: no counter of them was collected",
    ]


def test_labels_in_a_text(tmp_path: Path) -> None:
    text = (
        "  k (1, 1, 1)x(2, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n"
        "    Section: GPU Speed Of Light\n"
        "    --------------------------------- ----------- ------------\n"
        "    Metric Name                       Metric Unit Metric Value\n"
        "    --------------------------------- ----------- ------------\n"
        "    Duration (gpu__time_duration.sum) us                 92.59\n"
        "    --------------------------------- ----------- ------------\n"
    )
    assert read(written(tmp_path, "a.txt", text)).kernels["time_s"].tolist() == [92.59e-6]


@pytest.mark.parametrize("prefix", ["pmsampling:", "TriageCompute.", "breakdown:"])
def test_a_metric_with_a_prefix_is_another_one(prefix: str) -> None:
    name = f"{prefix}dram__bytes_read.sum"
    assert without_label(name) == name
    assert without_label(f"Reads ({name})") == f"Reads ({name})"


def test_columns_with_a_prefix_do_not_hide_the_counter(tmp_path: Path) -> None:
    # given samples of the same name, before the reads and after the writes
    text = (
        "ID,Process ID,Kernel Name,pmsampling:dram__bytes_read.sum,dram__bytes_read.sum,"
        "dram__bytes_write.sum,TriageCompute.dram__bytes_write.sum,"
        "breakdown:sm__inst_executed_pipe_tensor.sum\n"
        ",,,byte,byte,byte,byte,inst\n"
        "0,7,k,3,1000,500,4,9\n"
    )
    found = told(written(tmp_path, "a.csv", text))
    # then
    assert found["dram_bytes"] == 1500
    assert found["warnings"] == [
        "no time: collect gpu__time_duration.sum",
        "no FLOPs: no counter of them was collected",
    ]

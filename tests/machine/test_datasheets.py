"""Datasheets: names find the right part or none, and every figure follows from units and clock."""

from __future__ import annotations

import runpy
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ridgeline.machine.datasheets import (
    KINDS,
    Datasheet,
    Peak,
    datasheet_for,
    list_datasheets,
)

SHEETS = list_datasheets()
RTX = [sheet for sheet in SHEETS if sheet.name.startswith("GeForce RTX")]
NVIDIA = [sheet for sheet in SHEETS if sheet.family.startswith("nvidia")]
GIB = 2**30
DOCS = Path(__file__).parents[2] / "docs"

# Dense fp16 FLOP per SM and cycle at the faster accumulator, from the architecture whitepapers.
# Apart from rates.toml, so that a sparse rate there is found too. Printed figures are rounded.
ROUNDING = 1.005
FP16_FLOPS_PER_SM_CYCLE = {
    "7.0": 1024, "7.2": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.7": 2048, "8.9": 1024,
    "9.0": 4096, "10.0": 8192, "10.3": 8192, "12.0": 1024,
}  # fmt: skip
OVER_FP16 = {"fp64": 0.0625, "tf32": 0.5, "fp16": 1, "bf16": 1, "fp8": 2, "int8": 2, "fp4": 4}


def sheet(name: str, **facts: int) -> Datasheet:
    found = datasheet_for(name, **facts)
    assert found is not None, name
    return found


def flops_per_s(name: str, path: str, precision: str, accumulator: str | None = None) -> float:
    peak = sheet(name).peak(path, precision, accumulator)
    assert peak is not None
    return peak.flops_per_s


def tomls() -> dict[str, dict[str, Any]]:
    folder = files("ridgeline.machine") / "datasheets"
    return {
        file.name: tomllib.loads(file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }


DEVICE_KEYS = {
    *("name", "driver_names", "kind", "rates", "units", "boost_clock_hz"),
    *("matrix_clock_hz", "base_clock_hz", "memory_bytes", "dram_bytes_per_s", "memory_channels"),
    *(
        "memory_transfers_per_s",
        "l2_bytes",
        "l3_bytes",
        "tdp_w",
        "variants",
        "assumes",
        "published",
    ),
    *("assumes", "confidence", "note", "source"),
}

# Names


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB"),
        ("A100-SXM4-40GB", "NVIDIA A100 SXM4 40GB"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("NVIDIA GeForce RTX 4090 D", "GeForce RTX 4090 D"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop GPU"),
        ("GeForce RTX 3080 Mobile", "GeForce RTX 3080 Laptop GPU"),
        ("AMD EPYC 7742 64-Core Processor", "AMD EPYC 7742"),
        ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", "Intel Xeon Gold 6148"),
        ("12th Gen Intel(R) Core(TM) i9-12900K", "Intel Core i9-12900K"),
    ],
)
def test_a_driver_name_finds_its_device(driver_name: str, name: str) -> None:
    assert sheet(driver_name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "A100",  # four of them
        "RTX 6000",  # Turing, Ada or Blackwell?
        "RTX 4090 Max-Q",
        "NVIDIA GeForce RTX 2080 with Max-Q Design",
        "NVIDIA GeForce RTX 4090 Ti",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "GRID V100D-8Q",
        "Orin",
        "Apple M2 Extreme",
        "Intel(R) Xeon(R) Processor @ 2.20GHz",
        "",
    ],
)
def test_an_ambiguous_or_unknown_name_finds_nothing(name: str) -> None:
    assert datasheet_for(name) is None


@pytest.mark.parametrize("entry", SHEETS, ids=lambda s: s.name)
def test_every_driver_name_leads_back_to_its_entry(entry: Datasheet) -> None:
    assert sheet(entry.name).name == entry.name
    for driver_name in entry.driver_names:
        found = datasheet_for(driver_name, units=entry.units, memory_bytes=entry.memory_bytes)
        shared_by = [s.name for s in SHEETS if driver_name in s.driver_names]
        assert (found is not None and found.name == entry.name) or len(shared_by) > 1


def test_units_and_memory_tell_parts_of_one_name_apart() -> None:
    assert "10 GiB" in (sheet("NVIDIA GeForce RTX 3080").assumes or "")
    small = sheet("NVIDIA GeForce RTX 3080", memory_bytes=int(9.8 * GIB))
    large = sheet("NVIDIA GeForce RTX 3080", memory_bytes=12 * GIB)
    assert (small.units, small.dram_bytes_per_s, small.assumes) == (68, 760e9, None)
    assert (large.units, large.dram_bytes_per_s, large.assumes) == (70, 912e9, None)
    assert large.peaks != small.peaks
    assert sheet("Apple M3 Max", units=30).dram_bytes_per_s == 300e9
    assert sheet("Orin", units=14).name == "Jetson AGX Orin 32GB"
    assert sheet("Orin", units=16, memory_bytes=30 * GIB).name == "Jetson AGX Orin 64GB"
    assert sheet("AMD Instinct MI250X / MI250", units=104).name == "AMD Instinct MI250"
    assert sheet("Neoverse-V2", units=72).name == "NVIDIA Grace"


# Figures


@pytest.mark.parametrize(
    ("name", "path", "precision", "accumulator", "tflops_per_s"),
    [
        ("NVIDIA H200", "matrix", "bf16", "fp32", 989.4),
        ("NVIDIA H200", "matrix", "fp8", "fp32", 1978.9),
        ("NVIDIA H100 80GB HBM3", "matrix", "bf16", "fp32", 989.4),
        ("NVIDIA H100 PCIe", "matrix", "bf16", "fp32", 756),
        ("NVIDIA B200", "matrix", "bf16", "fp32", 2250),
        ("NVIDIA A100-SXM4-80GB", "matrix", "fp16", "fp32", 312),
        ("NVIDIA A100-SXM4-80GB", "vector", "fp32", None, 19.5),
        ("NVIDIA L40S", "matrix", "bf16", "fp32", 362),
        ("NVIDIA A10G", "matrix", "bf16", "fp32", 70),
        ("NVIDIA GeForce RTX 4090", "matrix", "fp16", "fp16", 330.3),
        ("NVIDIA GeForce RTX 4090", "matrix", "fp16", None, 165.2),
        ("NVIDIA GeForce RTX 4090", "vector", "fp32", None, 82.6),
        ("Tesla V100-SXM2-16GB", "matrix", "fp16", "fp32", 125),
        ("Tesla T4", "matrix", "fp16", "fp32", 65),
        ("AMD Instinct MI300X", "matrix", "bf16", "fp32", 1307.4),
        ("Apple M2 Pro", "vector", "fp32", None, 6.8),
    ],
)
def test_known_peaks(
    name: str, path: str, precision: str, accumulator: str | None, tflops_per_s: float
) -> None:
    found = flops_per_s(name, path, precision, accumulator)
    assert found == pytest.approx(tflops_per_s * 1e12, rel=1e-3)


@pytest.mark.parametrize("entry", SHEETS, ids=lambda s: s.name)
def test_peaks_follow_from_units_rate_and_clock(entry: Datasheet) -> None:
    for peak in entry.peaks:
        if peak.flops_per_cycle is None:
            continue  # cores of two kinds
        assert entry.boost_clock_hz
        clocks_hz = {entry.boost_clock_hz, entry.matrix_clock_hz or entry.boost_clock_hz}
        formulas = [entry.units * peak.flops_per_cycle * clock_hz for clock_hz in clocks_hz]
        assert any(peak.flops_per_s == pytest.approx(f, rel=0.02) for f in formulas), peak


def dense_bound(entry: Datasheet, peak: Peak) -> float:
    assert entry.compute_capability and entry.boost_clock_hz
    per_cycle = FP16_FLOPS_PER_SM_CYCLE[entry.compute_capability] * OVER_FP16[peak.precision]
    return entry.units * per_cycle * entry.boost_clock_hz


@pytest.mark.parametrize("entry", NVIDIA, ids=lambda s: s.name)
def test_nvidia_matrix_peaks_are_dense(entry: Datasheet) -> None:
    for peak in entry.peaks:
        if peak.path == "matrix":
            assert peak.flops_per_s <= ROUNDING * dense_bound(entry, peak), peak


@pytest.mark.parametrize("entry", SHEETS, ids=lambda s: s.name)
def test_figures_are_in_si_units(entry: Datasheet) -> None:
    assert entry.kind in KINDS
    assert entry.source and entry.driver_names
    assert 10e9 <= entry.dram_bytes_per_s <= 20e12
    assert entry.boost_clock_hz is None or 0.5e9 <= entry.boost_clock_hz <= 6e9
    assert entry.memory_bytes is None or 4 * GIB <= entry.memory_bytes <= 512 * GIB
    assert entry.l2_bytes is None or 1e6 <= entry.l2_bytes <= 0.3e9
    assert entry.l3_bytes is None or 8e6 <= entry.l3_bytes <= 0.6e9
    assert entry.tdp_w is None or 5 <= entry.tdp_w <= 1500
    for peak in entry.peaks:
        assert 3e9 <= peak.flops_per_s <= 2e16
        assert peak.path in ("matrix", "vector")
        if peak.path == "matrix" and peak.precision in ("bf16", "tf32", "fp8", "int8"):
            assert peak.accumulator is not None


def peak_key(figure: dict[str, Any]) -> tuple[str, str, str]:
    return figure["path"], figure["precision"], figure.get("accumulator", "")


def test_files_hold_no_key_that_is_not_read() -> None:
    every = tomls()
    rates = every.pop("rates.toml")
    for content in every.values():
        assert content.keys() == {"device"}
        for device in content["device"]:
            assert device.keys() <= DEVICE_KEYS
            own = rates.get(device.get("rates", ""), {"flops_per_cycle": ()})
            known = {peak_key(rate) for rate in own["flops_per_cycle"]}
            assert {peak_key(peak) for peak in device.get("published", ())} <= known, device


# CPUs


def test_cpu_entries_by_hand() -> None:
    rome = sheet("AMD EPYC 7742 64-Core Processor")
    assert rome.dram_bytes_per_s == 8 * 3200e6 * 8
    assert flops_per_s(rome.name, "vector", "fp32") == 64 * 32 * 3.4e9
    hybrid = sheet("Intel Core i9-12900K")
    assert hybrid.units == 16
    assert flops_per_s(hybrid.name, "vector", "fp32") == 8 * 32 * 5.1e9 + 8 * 16 * 3.9e9
    assert flops_per_s("Intel Xeon Platinum 8480+", "matrix", "bf16") == 56 * 1024 * 3.8e9


# Ceilings


def test_ceilings_are_labelled() -> None:
    for entry in SHEETS:
        for ceiling in entry.ceilings("cuda:1"):
            assert ceiling["provenance"] == "datasheet"
            assert ceiling["device"] == "cuda:1"
            assert ceiling["source"] == entry.source
    kinds = [ceiling["kind"] for ceiling in sheet("NVIDIA H200").ceilings()]
    assert kinds == ["compute"] * 11 + ["bandwidth", "power"]
    assert "19 GPU cores" in sheet("Apple M2 Pro").ceilings("mps")[0]["assumes"]


# The page


def test_the_page_shows_the_table() -> None:
    script = runpy.run_path(str(DOCS / "datasheets_table.py"))
    page = (DOCS / "datasheets.md").read_text(encoding="utf-8")
    assert script["with_table"](page) == page, "run: python docs/datasheets_table.py"

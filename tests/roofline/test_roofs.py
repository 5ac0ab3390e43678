"""Roofs by measurement, from a datasheet, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import Cpu
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Passport, read_passport
from ridgeline.roofline.roofs import (
    GIGA,
    TERA,
    Roofs,
    env_of,
    measured_roofs,
    parse_rate,
    peaks_from_json,
    user_roofs,
)

PASSPORT = read_passport(Path(__file__).parent.parent / "data" / "passport-h200.json")


def test_roofs_of_a_measured_h200() -> None:
    # given the passport of an H200, when its roofs are taken
    roofs = measured_roofs(PASSPORT, "cuda:0")
    # then each is the best sample of its ceiling, at the clock that was seen
    assert roofs.env == "nvidia-h200"
    assert roofs.device_name == "NVIDIA H200"
    assert roofs.compute["bf16 matrix"] == max(
        c.best for c in PASSPORT.find(kind="compute", precision="bf16", path="matrix")
    )
    assert sorted(roofs.bandwidth) == ["dram", "l1", "l2"]
    assert "int8 matrix" not in roofs.compute
    assert roofs.peak("int8", "matrix") == roofs.integer["int8 matrix"] > 5e14
    assert (roofs.cache_level, roofs.cache_bytes) == ("l2", 62914560)
    assert sorted(roofs.launch_s) == ["eager dispatch", "graph replay", "kernel"]
    assert roofs.clock_hz == 1.98e9
    assert roofs.clock_of("fp32") == 1.98e9
    assert roofs.clocks_hz["dram"] == 1.98e9
    assert roofs.clock_of("amp") == roofs.clocks_hz["fp16 matrix"] < 1.6e9  # held down by power


def cpu_passport(*more: Ceiling) -> Passport:
    """Four cores: 400 GFLOP/s of fp32 vectors, of which one core does 160; 100 GB/s."""

    def rate(kind: str, threads: int, best: float, **fields: Any) -> Ceiling:
        what = "one core" if threads == 1 else None
        return Ceiling(kind=kind, device="cpu", threads=threads, what=what, samples=(best,),
                       how="by hand", **fields)  # fmt: skip

    ceilings = (
        rate("compute", 4, 4e11, path="vector", precision="fp32"),
        rate("compute", 1, 1.6e11, path="vector", precision="fp32"),
        rate("compute", 4, 3e11, path="matrix", precision="fp32"),
        rate("bandwidth", 4, 1e11, level="dram", pattern="read"),
        *more,
    )
    cpu = Cpu(model="Xeon", usable_cores=4)
    return replace(PASSPORT, name="xeon", ceilings=ceilings, description=Description(cpu=cpu))


@pytest.mark.parametrize(
    ("threads", "vector", "env", "source"),
    [
        (1, 1.6e11, "xeon-1-thread", "one core"),
        (2, 2.4e11, "xeon-2-threads", "interpolated"),  # 160 + 1/3 of the other 240
        (4, 4.0e11, "xeon", "measured"),
        (8, 4.0e11, "xeon", "measured"),
        (None, 4.0e11, "xeon", "measured"),
    ],
)
def test_a_run_with_fewer_threads_has_ceilings_of_its_own(
    threads: int | None, vector: float, env: str, source: str
) -> None:
    roofs = measured_roofs(cpu_passport(), "cpu", threads)
    assert roofs.compute["fp32 vector"] == pytest.approx(vector)
    assert roofs.compute["fp32 matrix"] == pytest.approx(0.75 * vector)  # as on all cores
    assert roofs.bandwidth == {"dram": 1e11}
    assert (roofs.env, roofs.source) == (env, source)


def test_it_is_said_how_ceilings_of_some_threads_were_found() -> None:
    assert measured_roofs(cpu_passport(), "cpu").basis == ""
    others = "; other precisions scaled in the same way, other memory as on all cores"
    assert [measured_roofs(cpu_passport(), "cpu", threads).basis for threads in (1, 2)] == [
        f"ceilings of 1 of 4 threads: fp32 vector as measured on one core{others}",
        "ceilings of 2 of 4 threads: fp32 vector between those of one core and of all" + others,
    ]


def test_memory_that_was_measured_on_one_core_is_that_of_one_thread() -> None:
    dram = Ceiling(kind="bandwidth", device="cpu", threads=1, what="one core", samples=(4e10,),
                   level="dram", pattern="read", how="by hand")  # fmt: skip
    one, two = (measured_roofs(cpu_passport(dram), "cpu", threads) for threads in (1, 2))
    assert one.bandwidth == {"dram": 4e10}
    assert two.bandwidth == {"dram": pytest.approx(6e10)}


def test_products_in_fp32_may_use_whatever_computes_fp32() -> None:
    roofs = Roofs(env="m", device="cpu", compute={"fp32 matrix": 5e13, "fp32 vector": 6e13})
    assert roofs.peak("fp32", "matrix") == 6e13


def test_a_missing_roof_is_replaced_by_one_that_is_not_too_low() -> None:
    roofs = Roofs(env="m", device="cpu", compute={"fp32 vector": 1e12, "bf16 matrix": 9e12})
    assert roofs.peak("bf16", "vector") == 9e12
    assert roofs.peak("fp16", "vector") == 9e12
    assert roofs.peak("fp8", "matrix") is None  # which could be faster than all that is known
    assert roofs.peak("int8", "matrix") is None
    assert Roofs(env="m", device="cpu").peak("fp32", "matrix") is None


@pytest.mark.parametrize("name", ["fp23", "tensor", "fp16 tensor"])
def test_a_roof_of_no_precision_is_refused(name: str) -> None:
    with pytest.raises(RidgelineError) as raised:
        user_roofs("m", "cpu", compute={name: 5e12}, dram_bytes_per_s=None)
    assert raised.value.problem == f"there is no roof called {name!r}"
    assert raised.value.hint.startswith("precisions are fp64, fp32, tf32, bf16, fp16, fp8")


@pytest.mark.parametrize(
    ("text", "plain", "rate"),
    [("8.1", TERA, 8.1e12), ("8.1T", TERA, 8.1e12), ("8100 GFLOP/s", TERA, 8.1e12),
     ("300", GIGA, 3e11), ("4.8TB/s", GIGA, 4.8e12), ("1e3", GIGA, 1e12)],
)  # fmt: skip
def test_rates_as_people_write_them(text: str, plain: float, rate: float) -> None:
    option = "--peak-bw" if plain == GIGA else "--peak-compute"
    assert parse_rate(text, option=option, plain=plain) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "1.2.3", "-4", "3 apples", "nan", "300TFLOP/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(RidgelineError, match="is not a rate"):
        parse_rate(text, option="--peak-bw", plain=1.0)


def test_peaks_json_as_other_tools_write_it() -> None:
    # given environment → peak_gbps and peak_gflops by precision
    peaks = {"fp32": 82600, "amp": 165000}
    content = {"rtx": {"description": "x", "peak_gbps": 1008, "peak_gflops": peaks}}
    roofs = peaks_from_json(content, where="peaks.json")["rtx"]
    assert roofs.bandwidth == {"dram": 1.008e12}
    assert roofs.compute == {
        "fp32 matrix": 8.26e13, "fp32 vector": 8.26e13,
        "fp16 matrix": 1.65e14,  # amp's products
    }  # fmt: skip
    assert roofs.source == "given"


@pytest.mark.parametrize(
    "content", ["[]", '{"a": 1}', '{"a": {"peak_gflops": "x"}}', '{"a": {"peak_gbps": 1}}', "3"]
)
def test_other_json_is_refused(content: str) -> None:
    with pytest.raises(RidgelineError, match="is not a file of peaks"):
        peaks_from_json(json.loads(content), where="peaks.json")


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf")])
def test_a_roof_is_above_zero(rate: float) -> None:
    with pytest.raises(RidgelineError, match="no roof"):
        user_roofs("m", "cpu", compute={"fp32": rate}, dram_bytes_per_s=None)


def test_the_processor_of_a_gpus_host_has_a_name_of_its_own() -> None:
    assert env_of(PASSPORT, "cuda:0") == "nvidia-h200"
    assert env_of(PASSPORT, "cpu") == "nvidia-h200-cpu"
    assert env_of(PASSPORT, "cuda:1") == "nvidia-h200-cuda1"
    assert env_of(replace(PASSPORT, name="nvidia-h200-cpu"), "cpu") == "nvidia-h200-cpu"
    assert env_of(replace(PASSPORT, name="epyc-2c", description=Description()), "cpu") == "epyc-2c"

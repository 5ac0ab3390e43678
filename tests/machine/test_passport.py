"""Passports: kept, read, compared, and refused when they are broken."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine import measure
from ridgeline.machine.compare import (
    another_device,
    another_machine,
    changed_settings,
    describe_drift,
    differences,
    drift,
    sample_product_again,
)
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Missing, Passport, Passports, peaks, read_passport
from ridgeline.records import Conditions
from ridgeline.sensors.nvidia import Gpu


def roof(rate: float, *, clock_hz: float = 2e9, reasons: tuple[str, ...] = ()) -> Ceiling:
    conditions = Conditions(clock_hz=clock_hz, throttle_reasons=reasons)
    return Ceiling(kind="bandwidth", device="cuda:0", level="dram", pattern="copy", samples=(rate,),
                   how="copy", conditions=conditions)  # fmt: skip


def product(rate: float, precision: str = "bf16") -> Ceiling:
    return Ceiling(kind="compute", device="cuda:0", path="matrix", precision=precision,
                   accumulator="fp32", samples=(rate,), how="product")  # fmt: skip


def passport(*ceilings: Ceiling, day: str = "2026-05-03", driver: str = "580") -> Passport:
    return Passport(
        name="box",
        measured_at=f"{day}T12:00:00+00:00",
        is_quick=False,
        ceilings=ceilings,
        description=Description(gpus=(Gpu(driver=driver, power_limit_w=700),)),
    )


def test_kept_and_read_again(tmp_path: Path) -> None:
    store = Passports(tmp_path)
    first = passport(roof(4e12), product(8e14))
    path = store.write(first)
    assert path == tmp_path / "machines" / "box.json"
    assert store.names() == ["box"]
    assert store.read("box") == first
    assert store.read(str(path)) == first


@pytest.mark.parametrize("damage", [None, b'{"schema_ver\xff'])
def test_the_one_before_is_kept(tmp_path: Path, damage: bytes | None) -> None:
    # given a passport, or one that was cut off, in bytes that are no text either
    store = Passports(tmp_path)
    path = store.write(passport(roof(4e12)))
    path.write_bytes(damage or path.read_bytes())
    os.utime(path, (0, datetime(2026, 5, 3, 12).timestamp()))
    before = path.read_bytes()
    # when the machine is measured again, and the passport written twice
    new = passport(roof(5e12), day="2026-06-01")
    store.write(new)
    store.write(new)
    # then both are there
    assert store.read("box") == new
    (earlier,) = (tmp_path / "machines" / "earlier").iterdir()
    assert (earlier.name, earlier.read_bytes()) == ("box-2026-05-03T120000.json", before)


def test_drift_is_told_in_words() -> None:
    before, today = passport(roof(4.0e12)), passport(roof(3.72e12), day="2026-11-15")
    assert drift(before, today) == [
        "slower: the dram copy roof is 7.0 % below the passport of 2026-05-03"
    ]
    assert drift(before, passport(roof(3.9e12))) == []
    launches = (replace(roof(rate), kind="launch", what="kernel") for rate in (2e-6, 3e-6))
    assert drift(*map(passport, launches)) == [
        "slower: the kernel launch cost is 50.0 % above the passport of 2026-05-03"
    ]


def test_a_lower_clock_explains_a_lower_roof() -> None:
    before = passport(roof(4e12, clock_hz=2e9))
    after = passport(roof(3e12, clock_hz=1.5e9, reasons=("power cap",)), driver="590")
    (found,) = differences(before, after)
    assert found.change == pytest.approx(-0.25)
    assert found.explanation == "clock 2000 → 1500 MHz explains it; limited by power cap"
    assert changed_settings(before, after) == ["description.gpus.0.driver: 580 → 590"]
    assert differences(passport(roof(0.0)), passport(roof(4e12))) == []


def test_peaks_for_roofline_scripts() -> None:
    answer = peaks(passport(roof(4e12), product(8e14), product(6e13, "fp32")))
    assert answer == {
        "box": {
            "description": "measured by ridgeline on 2026-05-03T12:00:00+00:00",
            "peak_gbps": 4000.0,
            "peak_gflops": {"bf16": 800000.0, "fp32": 60000.0},
        }
    }


CONTENT = passport(roof(4e12)).to_dict()


def with_ceiling(**changes: Any) -> str:
    return json.dumps(CONTENT | {"ceilings": [CONTENT["ceilings"][0] | changes]})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read as a passport"),
        ("\x00\x01", "cannot be read as a passport"),
        ("[]", "cannot be read as a passport"),
        ('{"schema_version": 1}', "as a passport: machine is missing"),
        ('{"schema_version": 99}', "is a passport of version 99; this ridgeline reads 1"),
        (json.dumps(CONTENT | {"machine": 5}), "as a passport: machine is"),
        (
            json.dumps(CONTENT | {"measured_at": None}),
            "as a passport: measured_at is",
        ),
        (json.dumps(CONTENT | {"is_quick": "no"}), "as a passport: is_quick is"),
        (json.dumps(CONTENT | {"description": []}), "as a passport: description is"),
        (with_ceiling(samples=["fast"]), "cannot be read as a passport"),
        (with_ceiling(samples=[]), "cannot be read as a passport"),
        (with_ceiling(samples=[float("nan")]), "cannot be read as a passport"),
        (with_ceiling(samples=[None]), "cannot be read as a passport"),
        (
            with_ceiling(samples=[0.0]),
            "as a passport: ceilings.0.samples are not numbers",
        ),
        (with_ceiling(kind="colour"), "cannot be read as a passport"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(RidgelineError) as refused:
        read_passport(path)
    assert complaint in refused.value.problem


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    store = Passports(tmp_path)
    store.write(passport(roof(4e12)))
    with pytest.raises(RidgelineError, match=r"there is no passport of 'bax'.*\n.*: box;"):
        store.read("bax")


def test_noise_leaves_products_out() -> None:
    noisy = replace(product(1.0), samples=(1.0, 2.0))
    steady = replace(roof(1.0), samples=(100.0, 101.0))
    assert passport(noisy, steady).noise == steady.spread


PASSPORT = read_passport(Path(__file__).parents[1] / "data" / "passport-h200.json")
DESCRIPTION = PASSPORT.description


TWIN = replace(DESCRIPTION, gpus=(replace(DESCRIPTION.gpus[0], uuid="GPU-other"),))


def test_two_machines() -> None:
    without = replace(DESCRIPTION, gpus=())
    assert another_machine(DESCRIPTION, DESCRIPTION) is None
    assert another_machine(DESCRIPTION, without) == "GPUs: 1 × NVIDIA H200 before, none now"
    assert another_machine(Description(), DESCRIPTION) is None  # nothing is claimed
    # and another device of the same kind
    assert another_machine(DESCRIPTION, TWIN) is None
    assert another_device(DESCRIPTION, DESCRIPTION) is None
    assert str(another_device(DESCRIPTION, TWIN)).endswith("and on GPU-other now")


(FP32,) = PASSPORT.find(kind="compute", path="matrix", precision="fp32")


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (0.97, "within 5.0 % of the passport of 2026-11-15"),
        (0.80, "20.0 % slower than in the passport of 2026-11-15: other programs"),
        (1.20, "20.0 % faster than in the passport of 2026-11-15: measure the machine again"),
    ],
)
def test_the_same_product_is_sampled_again(factor: float, says: str) -> None:
    asked = []

    def rates(device: str, shape: tuple[int, int, int]) -> list[float]:
        asked.append((device, shape))
        return [0.5 * FP32.best, factor * FP32.best]  # the best counts

    found = sample_product_again(PASSPORT, "cuda:0", rates)
    assert found is not None
    assert asked == [("cuda:0", (4096, 4096, 8192))]  # as the passport says it was measured
    assert says in describe_drift(found, PASSPORT.measured_at)
    assert sample_product_again(PASSPORT, "cpu", rates) is None  # nothing to repeat


ROOF = Ceiling(kind="bandwidth", device="cpu", level="dram", pattern="read", samples=(1.0,), how="")


def test_a_device_that_fails_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(device: str, **_others: Any) -> tuple[list[Ceiling], list[Missing]]:
        if device != "cpu":
            raise RidgelineError(f"{device} stopped answering", hint="look at the log")
        return [ROOF], []

    monkeypatch.setattr(measure, "_measure", one)
    how: Any = {"quick": True, "progress": print}
    missing = [Missing(what="cuda:0", reason="cuda:0 stopped answering")]
    assert measure.measure_devices(["cpu", "cuda:0"], **how) == ([ROOF], missing)
    with pytest.raises(RidgelineError, match="cuda:0 stopped answering"):
        measure.measure_devices(["cuda:0"], **how)

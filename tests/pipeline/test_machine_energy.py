"""Energy coefficients measured: simulated devices, read through the sensors' own code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.measure.simulated import Device, SteppedSampler

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import Cpu
from ridgeline.machine.describe import Description
from ridgeline.machine.energy_fit import fit_energy
from ridgeline.machine.passport import Ceiling, Missing, Passport, Passports
from ridgeline.pipeline import machine
from ridgeline.pipeline.machine import (
    Load,
    Loads,
    import_energy,
    measure_energy,
    measure_loads,
    run_by_turns,
)
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import Meters

PAGODA = Path(__file__).parents[2] / "benchmarks" / "data" / "pagoda-energy.csv"
WRAP_UJ = 60_000_000


class RaplDevice(Device):
    """A processor whose package counter stands in the files of the kernel and wraps at 60 J."""

    def __init__(self, root: Path) -> None:
        self.zone = root / "class" / "powercap" / "intel-rapl:0"
        self.zone.mkdir(parents=True)
        (self.zone / "name").write_text("package-0\n")
        (self.zone / "max_energy_range_uj").write_text(f"{WRAP_UJ}\n")
        (self.zone / "energy_uj").write_text("0\n")
        super().__init__(refresh_s=0.02, offset_s=0.001)

    def _refresh(self) -> None:
        super()._refresh()
        counted_uj = round(1e6 * self.true_j) % WRAP_UJ
        (self.zone / "energy_uj").write_text(f"{counted_uj}\n")


def make_loads(device: Device) -> Loads:
    """10 ms of work at 20 W constant, 50 pJ per FLOP, 200 pJ per byte of DRAM and 40 of L2."""

    def load(label: str, gflops: float = 0.0, dram: float = 0.0, l2: float = 0.0) -> Load:
        power_w = 20 + 0.05 * gflops + 0.2 * dram + 0.04 * l2  # rates in G per second
        moved = {"dram": dram * 1e7, "l2": l2 * 1e7}
        return Load(
            label=label,
            call=lambda: device.spend(0.01, power_w),
            flops={"fp32": gflops * 1e7} if gflops else {},
            moved_bytes={level: amount for level, amount in moved.items() if amount},
        )

    known = (load("spinning"), load("DRAM read", dram=30), load("DRAM copy", dram=25),
             load("L2 read", l2=400), load("chains", gflops=500), load("products", 400, 2, 40),
             load("by turns", 250, 15))  # fmt: skip
    return Loads(loads=known, synchronize=lambda: None)


def test_coefficients_of_a_processor_by_its_rapl_counter(tmp_path: Path) -> None:
    device = RaplDevice(tmp_path)
    meters = find_meters("cpu", root=tmp_path)
    sampler = SteppedSampler(device, meters)

    points, missing = measure_loads(
        make_loads(device), meters, sampler=sampler, clock=device.clock, rest=device.spend
    )

    model = fit_energy(points, device="cpu", how="RAPL", measured_at="2026-11-19T09:00:00Z")
    found = {
        name: one.value for name, one in (*model.j_per_flop.items(), *model.j_per_byte.items())
    }
    assert not missing
    assert found == pytest.approx({"fp32": 50e-12, "l2": 40e-12, "dram": 200e-12}, rel=0.02)
    assert model.constant_power_w.value == pytest.approx(20.0, rel=0.02)
    assert model.r_squared_power > 0.99


def test_by_turns_each_has_half_of_the_time() -> None:
    # given calls of 1 ms and of 4 ms
    done: list[str] = []
    short = Load(label="a", call=lambda: done.append("a"), flops={"fp32": 10.0},
                 moved_bytes={"dram": 1.0})  # fmt: skip
    long = Load(label="b", call=lambda: done.append("b"), moved_bytes={"dram": 100.0})
    mixed = run_by_turns(
        "both", short, long, lambda call, times: 1e-3 if call is short.call else 4e-3
    )

    assert mixed.call is not None
    mixed.call()

    assert done == ["a", "a", "a", "a", "b"]
    assert (mixed.flops, mixed.moved_bytes) == ({"fp32": 40.0}, {"dram": 104.0})


# ---------------------------------------------------------------- into passports


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a passport, a simulated meter, and a clock of its own."""
    device = Device()
    description = Description(cpu=Cpu(model="Toy 1"))
    ceiling = Ceiling(kind="bandwidth", device="cpu", level="dram", samples=(1e10,), how="read")
    Passports(tmp_path).write(
        Passport(name="box", measured_at="2026-11-18T09:00:00+00:00", is_quick=False,
                 ceilings=(ceiling,), description=description)
    )  # fmt: skip

    @contextmanager
    def open_loads(kind: str, number: int) -> Iterator[Loads]:
        yield make_loads(device)

    def measure(loads: Loads, meters: Meters, **_: object) -> object:
        sampler = SteppedSampler(device, meters)
        return measure_loads(loads, meters, sampler=sampler, clock=device.clock, rest=device.spend)

    monkeypatch.setattr(machine, "describe", lambda: description)
    monkeypatch.setattr(machine, "machine_name", lambda _description: "box")
    monkeypatch.setattr(machine, "find_meters", lambda kind, uuid: device.meters("counter"))
    monkeypatch.setattr(machine, "open_loads", open_loads)
    monkeypatch.setattr(machine, "measure_loads", measure)
    return tmp_path


def test_measured_coefficients_join_the_passport(here: Path) -> None:
    before = Passports(here).read("box")

    stored = measure_energy("cpu", here)

    (model,) = stored.passport.energy
    assert Passports(here).read("box") == stored.passport == replace(before, energy=(model,))
    assert (model.device, model.provenance, model.how) == ("cpu", "measured", "counter, a board")
    assert model.constant_power_w.value == pytest.approx(20.0, rel=0.02)


def test_without_a_meter_nothing_is_made_up(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Meters(reasons=("this machine has none",))
    monkeypatch.setattr(machine, "find_meters", lambda kind, uuid: none)

    with pytest.raises(RidgelineError) as error:
        measure_energy("cpu", here)

    assert error.value.problem == "there is no energy meter for cpu: this machine has none"


def test_loads_that_give_no_coefficients_say_what_is_missing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_all = machine.open_loads

    @contextmanager
    def open_few(kind: str, number: int) -> Iterator[Loads]:
        with open_all(kind, number) as loads:
            absent = Missing(what="products", reason="no torch")
            yield replace(loads, loads=loads.loads[:2], missing=(absent,))

    monkeypatch.setattr(machine, "open_loads", open_few)

    with pytest.raises(RidgelineError) as error:
        measure_energy("cpu", here)

    assert error.value.problem.startswith("2 points are too few for 2 coefficients")
    assert error.value.hint.endswith("products: no torch")


def test_a_file_becomes_a_passport_of_its_own(tmp_path: Path) -> None:
    stored = import_energy(PAGODA, tmp_path)

    (model,) = stored.passport.energy
    assert (stored.passport.name, model.device, model.provenance) == (
        "pagoda-energy", "cuda:0", "imported",
    )  # fmt: skip
    assert model.how == "figures of pagoda-energy.csv"
    assert Passports(tmp_path).read("pagoda-energy") == stored.passport


def test_a_second_fit_replaces_the_first_and_keeps_it(here: Path) -> None:
    first = import_energy(PAGODA, here, name="box").passport
    fewer = here / "fewer.csv"
    fewer.write_text("".join(PAGODA.read_text().splitlines(keepends=True)[:-1]))

    second = import_energy(fewer, here, name="box").passport

    assert (first.energy[0].device, len(second.energy)) == ("cpu", 1)
    assert second.energy[0].how == "figures of fewer.csv"
    earlier = max((here / "machines" / "earlier").glob("*.json"))  # named by the second
    assert Passports(here).read(str(earlier)).energy == first.energy

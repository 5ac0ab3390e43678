"""The machine is measured once; a measurement replaces nothing that it did not measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ridgeline.machine.cpu import Cpu
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.passport import Ceiling, Passports, read_passport
from ridgeline.pipeline.machine import MachineAnswer, import_energy, machine_task, passport_name

H200 = read_passport(Path(__file__).parent.parent / "data" / "passport-h200.json")
PAGODA = Path(__file__).parents[2] / "benchmarks" / "data" / "pagoda-energy.csv"
CPU = Ceiling(kind="compute", device="cpu", path="matrix", precision="fp32", samples=(1e12,),
              how="torch.mm 64x64x64")  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Measuring takes no time, and notes whether it was to be quick."""
    asked: list[bool] = []

    def measure_cpu(*, quick: bool, progress: Any) -> tuple[list[Ceiling], list[Any]]:
        asked.append(quick)
        return [CPU], []

    monkeypatch.setattr("ridgeline.machine.ceilings_cpu.measure_cpu", measure_cpu)
    return asked


def find_or_measure(results: Path, *, quick: bool = True, remeasure: bool = False) -> MachineAnswer:
    return machine_task(results, lambda what: None, device="cpu", quick=quick, remeasure=remeasure)


def test_a_device_that_the_machine_is_not_named_after() -> None:
    described = H200.description
    assert passport_name(described, "cuda:0", "nvidia-h200") == "nvidia-h200"
    assert passport_name(described, "cpu", "nvidia-h200") == "nvidia-h200-cpu"
    assert passport_name(described, "cuda:1", "nvidia-h200") == "nvidia-h200-cuda1"
    assert passport_name(Description(), "cpu", "epyc-2c") == "epyc-2c"


def test_measured_once_then_kept(tmp_path: Path, measured: list[bool]) -> None:
    first = find_or_measure(tmp_path)
    again = find_or_measure(tmp_path)
    assert (first.is_cached, again.is_cached) == (False, True)
    assert first.name == again.name == Passports(tmp_path).names()[0]
    assert again.note.startswith("kept from ")
    # a quick passport is not enough for a thorough analysis, which will do for a quick look
    assert not find_or_measure(tmp_path, quick=False).is_cached
    assert find_or_measure(tmp_path).is_cached
    assert not find_or_measure(tmp_path, remeasure=True).is_cached
    assert measured == [True, False, True]


def test_measured_again_a_machine_keeps_its_energy_coefficients(
    tmp_path: Path, measured: list[bool]
) -> None:
    name = find_or_measure(tmp_path).name
    fitted = import_energy(PAGODA, tmp_path, name=name).passport.energy

    find_or_measure(tmp_path, remeasure=True)

    assert (len(fitted), Passports(tmp_path).read(name).energy) == (1, fitted)


def test_another_machine_of_this_name_is_left_alone(tmp_path: Path, measured: list[bool]) -> None:
    name = machine_name(describe())
    other = Description(cpu=Cpu(model="Another", logical_cores=96))
    Passports(tmp_path).write(replace(H200, name=name, description=other))
    found = find_or_measure(tmp_path)
    assert found.name == f"{name}-2"
    assert Passports(tmp_path).read(name).description == other

"""Clock, temperature and energy of a CPU, from the kernel's files."""

from pathlib import Path

import pytest

from ridgeline.records import Conditions
from ridgeline.sensors.meters import NO_RAPL, ROOT_ONLY, RaplMeter, cpu_reader, rapl_meters


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_reader_tells_clock_and_temperature(tmp_path: Path) -> None:
    assert cpu_reader([0, 1], tmp_path)() == Conditions()
    for cpu, clock_khz in enumerate((2_400_000, 2_600_000)):
        folder = tmp_path / "devices" / "system" / "cpu" / f"cpu{cpu}"
        write(folder / "cpufreq" / "scaling_cur_freq", f"{clock_khz}\n")
    write(tmp_path / "class" / "thermal" / "thermal_zone0" / "type", "x86_pkg_temp\n")
    write(tmp_path / "class" / "thermal" / "thermal_zone0" / "temp", "45500\n")

    assert cpu_reader([0, 1], tmp_path)() == Conditions(clock_hz=2.5e9, temperature_c=45.5)


def rapl(root: Path, energy_uj: int) -> None:
    zone = root / "class" / "powercap" / "intel-rapl:0"
    write(zone / "energy_uj", f"{energy_uj}\n")
    write(zone / "max_energy_range_uj", "10000000\n")
    write(zone.parent / "intel-rapl:0:0" / "energy_uj", "5\n")  # a part of the package


def test_energy_is_counted_across_a_wrap(tmp_path: Path) -> None:
    rapl(tmp_path, 9_000_000)
    meter = RaplMeter(tmp_path)
    rapl(tmp_path, 9_500_000)
    assert meter.energy_j() == pytest.approx(0.5)
    rapl(tmp_path, 1_000_000)
    assert meter.energy_j() == pytest.approx(2.0)


def test_the_whole_platform_is_not_added_to_its_packages(tmp_path: Path) -> None:
    zones = tmp_path / "class" / "powercap"
    platform, package = zones / "intel-rapl:1" / "energy_uj", zones / "intel-rapl:2" / "energy_uj"
    rapl(tmp_path, 0)
    write(zones / "intel-rapl:0" / "name", "package-0\n")
    write(package.with_name("name"), "package-1\n")
    write(package, "0\n")
    write(platform.with_name("name"), "psys\n")
    write(platform, "0\n")
    meter = RaplMeter(tmp_path)

    rapl(tmp_path, 1_000_000)
    write(package, "2000000\n")
    write(platform, "9000000\n")

    assert meter.energy_j() == pytest.approx(3.0)


def test_why_there_is_no_meter(tmp_path: Path) -> None:
    assert (rapl_meters(tmp_path).reasons, RaplMeter(tmp_path).energy_j()) == ((NO_RAPL,), None)
    rapl(tmp_path, 1)
    (tmp_path / "class" / "powercap" / "intel-rapl:0" / "energy_uj").unlink()
    assert rapl_meters(tmp_path).reasons == (ROOT_ONLY,)


def test_as_a_meter_it_says_what_it_counts(tmp_path: Path) -> None:
    rapl(tmp_path, 0)
    (meter,) = rapl_meters(tmp_path).available
    rapl(tmp_path, 3_000_000)

    assert (meter.name, meter.kind) == ("RAPL energy counters", "counter")
    assert meter.scope == "CPU packages, without the memory"
    assert meter.read() == pytest.approx(3.0)

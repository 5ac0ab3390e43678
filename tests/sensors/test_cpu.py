"""Clock and temperature of a CPU, from the kernel's files."""

from pathlib import Path

from ridgeline.records import Conditions
from ridgeline.sensors.cpu import cpu_reader, cpuinfo_hz, read_clock_hz, temperature_c


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nothing_told_is_none(tmp_path: Path) -> None:
    assert cpuinfo_hz("cpu MHz\t\t: 2596.10\ncpu MHz : 2700.00\n") == 2.7e9
    assert cpuinfo_hz("") is None
    assert temperature_c(tmp_path) is None
    assert cpu_reader([0, 1], tmp_path, tmp_path)() == Conditions()


def test_a_guest_does_not_know_its_clock(tmp_path: Path) -> None:
    write(tmp_path / "cpuinfo", "cpu MHz : 2700.00\n")
    assert read_clock_hz([0], tmp_path, tmp_path) == 2.7e9
    write(tmp_path / "cpuinfo", "flags : hypervisor\ncpu MHz : 2700.00\n")
    assert read_clock_hz([0], tmp_path, tmp_path) is None


def test_a_reader_tells_clock_and_temperature(tmp_path: Path) -> None:
    for cpu, clock_khz in enumerate((2_400_000, 2_600_000)):
        folder = tmp_path / "devices" / "system" / "cpu" / f"cpu{cpu}"
        write(folder / "cpufreq" / "scaling_cur_freq", f"{clock_khz}\n")
    write(tmp_path / "class" / "thermal" / "thermal_zone0" / "type", "x86_pkg_temp\n")
    write(tmp_path / "class" / "thermal" / "thermal_zone0" / "temp", "45500\n")

    assert cpu_reader([0, 1], tmp_path)() == Conditions(clock_hz=2.5e9, temperature_c=45.5)

"""Which meters are found where, and what is said where there are none."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ridgeline.sensors.meters import COMMAND, NEEDS_ROOT, NO_RAPL, find_meters, powers_w
from ridgeline.sensors.nvidia import NO_BINDINGS

POWERMETRICS = """\
*** Sampled system activity (Mon Jun  1 12:00:00 2026 +0200) (101.52ms elapsed) ***

**** Processor usage ****

E-Cluster HW active frequency: 1020 MHz
CPU Power: 812 mW
GPU Power: 9250 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 10062 mW

**** GPU usage ****

GPU HW active frequency: 1398 MHz
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def no_bindings() -> Any:
    raise ModuleNotFoundError("pynvml")


def tell(_command: Sequence[str]) -> str:
    return POWERMETRICS


def refuse(command: Sequence[str]) -> str:
    raise subprocess.CalledProcessError(1, command, stderr="sudo: a password is required")


# ---- where nothing is found ----------------------------------------------------------------------


def test_without_any_meter_there_are_reasons_only(tmp_path: Path) -> None:
    cuda = find_meters("cuda", uuid="GPU-1", root=tmp_path, nvml=no_bindings)
    cpu = find_meters("cpu", root=tmp_path, system="linux")

    assert (cuda.available, cuda.reasons) == ((), (NO_BINDINGS,))
    assert (cpu.available, cpu.reasons) == ((), (NO_RAPL,))
    assert find_meters("xpu").reasons == ("ridgeline knows no meter of xpu devices",)


# ---- Apple ---------------------------------------------------------------------------------------


def test_powermetrics_is_read_by_its_lines() -> None:
    assert powers_w(POWERMETRICS) == {"CPU": 0.812, "GPU": 9.25, "ANE": 0.0}
    assert powers_w("CPU Power: 1.5 W\n") == {"CPU": 1.5}
    assert powers_w("") == {}


@pytest.mark.parametrize(
    ("kind", "name", "power_w"),
    [("mps", "powermetrics GPU power", 9.25), ("cpu", "powermetrics CPU power", 0.812)],
)
def test_a_mac_tells_the_power_of_each_part(kind: str, name: str, power_w: float) -> None:
    (meter,) = find_meters(kind, system="darwin", run=tell).available

    assert (meter.name, meter.kind, meter.read()) == (name, "power", power_w)
    assert "as macOS estimates it" in meter.scope


def test_a_mac_tells_root_only() -> None:
    assert COMMAND[:2] == ("sudo", "-n")  # never waits for a password
    assert find_meters("mps", system="darwin", run=refuse).reasons == (NEEDS_ROOT,)
    silent = find_meters("mps", system="darwin", run=lambda _command: "")
    assert silent.reasons == ("powermetrics tells no GPU power on this Mac",)


# ---- Jetson --------------------------------------------------------------------------------------


def ina3221(root: Path, labels: Sequence[str], address: str = "1-0040") -> Path:
    """A sensor as the kernel shows it: the driver's folder has a link to the device's."""
    device = root / "devices" / address
    folder = device / "hwmon" / "hwmon3"
    for channel, label in enumerate(labels, start=1):
        write(folder / f"in{channel}_label", f"{label}\n")
        write(folder / f"in{channel}_input", "5000\n")  # 5 V
        write(folder / f"curr{channel}_input", f"{400 * channel}\n")  # 0.4 A, 0.8 A, 1.2 A
    write(folder / "in7_label", "sum of shunt voltages\n")
    driver = root / "bus" / "i2c" / "drivers" / "ina3221"
    driver.mkdir(parents=True, exist_ok=True)
    (driver / address).symlink_to(device)
    return folder


@pytest.mark.parametrize(
    ("labels", "kind", "rail", "power_w"),
    [
        (["VDD_GPU_SOC", "VDD_CPU_CV"], "cuda", "VDD_GPU_SOC", 2.0),
        (["VDD_GPU_SOC", "VDD_CPU_CV"], "cpu", "VDD_CPU_CV", 4.0),
        (["VDD_IN", "VDD_CPU_GPU_CV"], "cuda", "VDD_CPU_GPU_CV", 4.0),
        (["VDD_SOC", "VDD_IN"], "cuda", "VDD_IN", 4.0),
    ],
)
def test_a_jetson_has_rails(
    tmp_path: Path, labels: list[str], kind: str, rail: str, power_w: float
) -> None:
    ina3221(tmp_path, labels)

    meters = find_meters(kind, uuid="GPU-1", system="linux", root=tmp_path, nvml=no_bindings)

    (meter,) = meters.available
    scope = "the whole module" if rail == "VDD_IN" else f"all that the rail {rail} feeds"
    assert (meter.name, meter.scope) == (f"INA3221 rail {rail}", scope)
    assert (meter.kind, meter.read()) == ("power", power_w)

"""Which meters are found where, and what is said where there are none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ridgeline.sensors.meters import NO_RAPL, find_meters
from ridgeline.sensors.nvidia import NO_BINDINGS


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def no_bindings() -> Any:
    raise ModuleNotFoundError("pynvml")


# ---- where nothing is found ----------------------------------------------------------------------


def test_without_any_meter_there_are_reasons_only(tmp_path: Path) -> None:
    cuda = find_meters("cuda", uuid="GPU-1", root=tmp_path, nvml=no_bindings)
    cpu = find_meters("cpu", root=tmp_path)

    assert (cuda.available, cuda.reasons) == ((), (NO_BINDINGS,))
    assert (cpu.available, cpu.reasons) == ((), (NO_RAPL,))
    assert find_meters("mps").reasons == ("ridgeline knows no meter of mps devices",)


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

    meters = find_meters(kind, uuid="GPU-1", root=tmp_path, nvml=no_bindings)

    (meter,) = meters.available
    scope = "the whole module" if rail == "VDD_IN" else f"all that the rail {rail} feeds"
    assert (meter.name, meter.scope) == (f"INA3221 rail {rail}", scope)
    assert (meter.kind, meter.read()) == ("power", power_w)

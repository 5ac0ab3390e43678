"""NVIDIA's meters, with NVML replaced."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.machine.recorded import FakeNvml

from ridgeline.records import Conditions
from ridgeline.sensors.nvidia import (
    IS_MIG,
    NO_BINDINGS,
    NO_UUID,
    nvidia_meters,
    throttle_reasons,
)


def watts(milliwatts: int) -> list[Any]:
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=milliwatts))]


BOARD: dict[str, Any] = {  # at 250 W, number 3 of its machine
    "UUID": "GPU-1-2",
    "Index": 3,
    "TotalEnergyConsumption": 5_000_250,
    "PowerUsage": 250_000,
    "FieldValues": watts(251_000),
    "ClockInfo": {1: 1980, 2: 3201},
    "Temperature": {0: 41},
    "CurrentClocksThrottleReasons": 0x4,
    "PerformanceState": 0,
    "MigMode": (0, 0),
}
SLICE = {**BOARD, "UUID": "MIG-3-4", "nvmlDeviceIsMigDeviceHandle": True}


def load(**changes: Any) -> Callable[[], Any]:
    """NVML of a machine with a board, changed, and a slice."""
    return lambda: FakeNvml({**BOARD, **changes}, SLICE)


def test_counter_and_instant_power_of_the_board_with_the_uuid() -> None:
    meters = nvidia_meters("1-2", load())

    assert meters.reasons == ()
    assert [(m.name, m.scope, m.kind) for m in meters.available] == [
        ("NVML energy counter", "GPU 3: the whole board", "counter"),
        ("NVML instant power", "GPU 3: the whole board", "power"),
    ]
    assert [m.read() for m in meters.available] == pytest.approx([5000.25, 251.0])
    assert meters.conditions() == Conditions(
        clock_hz=1.98e9,
        memory_clock_hz=3.201e9,
        temperature_c=41.0,
        power_w=250.0,
        throttle_reasons=("power cap",),
        power_state="P0",
    )


@pytest.mark.parametrize("answer", [None, watts(0)], ids=["none", "zero"])
def test_averaged_power_is_said_to_be_averaged(answer: Any) -> None:
    power = nvidia_meters("GPU-1-2", load(FieldValues=answer)).first("power")

    assert power is not None
    assert (power.name, power.read()) == ("NVML power, averaged over up to 1 s", 250.0)


def test_a_device_without_meters_says_so() -> None:
    names = ("TotalEnergyConsumption", "FieldValues", "PowerUsage", "PerformanceState")

    meters = nvidia_meters("GPU-1-2", load(**dict.fromkeys(names)))

    assert meters.available == ()
    assert meters.reasons == (
        "no NVML energy counter, which devices have since Volta: TotalEnergyConsumption",
        "no NVML power sensor: PowerUsage",
    )
    assert meters.conditions().power_state is None


def test_a_meter_that_answers_zero_is_none() -> None:
    meters = nvidia_meters("GPU-1-2", load(FieldValues=watts(0), PowerUsage=0))

    assert [meter.kind for meter in meters.available] == ["counter"]
    assert meters.reasons == ("no NVML power sensor: it answers zero",)


@pytest.mark.parametrize(
    ("uuid", "mig_mode"), [("MIG-3-4", 0), ("3-4", 0), ("GPU-1-2", 1)], ids=str
)
def test_the_power_of_a_board_is_not_that_of_a_slice(uuid: str, mig_mode: int) -> None:
    meters = nvidia_meters(uuid, load(MigMode=(mig_mode, 0)))

    assert (meters.available, meters.reasons) == ((), (IS_MIG,))
    assert meters.conditions().temperature_c == 41.0


def no_bindings() -> Any:
    raise ModuleNotFoundError("pynvml")


@pytest.mark.parametrize(
    ("uuid", "load", "reason"),
    [
        (None, load(), NO_UUID),  # an index is no UUID
        ("", load(), NO_UUID),
        ("GPU-1-2", no_bindings, NO_BINDINGS),
        ("GPU-9", load(), "NVML does not answer for GPU-9: GPU-9"),
    ],
)
def test_why_there_is_no_meter(uuid: str | None, load: Callable[[], Any], reason: str) -> None:
    assert nvidia_meters(uuid, load).reasons == (reason,)


def test_throttle_reasons() -> None:
    assert throttle_reasons(0x1) == ()  # idle
    assert throttle_reasons(0x44) == ("power cap", "hardware thermal")
    assert throttle_reasons(None) == ()

"""NVIDIA's meters, with NVML replaced."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ridgeline.records import Conditions
from ridgeline.sensors.nvidia import (
    IS_MIG,
    NO_BINDINGS,
    NO_UUID,
    nvidia_meters,
    nvml_handle,
    throttle_reasons,
)


class NvmlError(Exception):
    """As pynvml's: the base of all its errors."""


class FakeNvml:
    """One board at 250 W, number 3 of its machine, that lacks what `without` names."""

    NVMLError = NvmlError
    NVML_SUCCESS, NVML_FI_DEV_POWER_INSTANT = 0, 186
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *without: str, mig_mode: int = 0, instant_mw: int = 251_000) -> None:
        self.without, self.mig_mode, self.instant_mw = without, mig_mode, instant_mw
        self.is_started = False

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetHandleByUUID": self.handle,
            "nvmlDeviceGetIndex": lambda _handle: 3,
            "nvmlDeviceIsMigDeviceHandle": lambda handle: handle.startswith("MIG-"),
            "nvmlDeviceGetMigMode": lambda _handle: (self.mig_mode, 0),
            "nvmlDeviceGetTotalEnergyConsumption": lambda _handle: 5_000_250,
            "nvmlDeviceGetPowerUsage": lambda _handle: 250_000,
            "nvmlDeviceGetFieldValues": self.field_values,
            "nvmlDeviceGetClockInfo": lambda _handle, which: {1: 1980, 2: 3201}[which],
            "nvmlDeviceGetTemperature": lambda _handle, _which: 41,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _handle: 0x4,
            "nvmlDeviceGetPerformanceState": lambda _handle: 0,
        }
        if name in self.without:
            return self.refuse
        return answers[name]

    def nvmlInit(self) -> None:  # noqa: N802, the name is NVIDIA's
        self.is_started = True

    def handle(self, uuid: str) -> str:
        if uuid not in ("GPU-1-2", "MIG-3-4"):
            raise NvmlError("Not Found")
        return uuid

    def field_values(self, _handle: str, _fields: list[int]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.instant_mw))]

    def refuse(self, *_args: object) -> Any:
        raise NvmlError("Not Supported")


def test_counter_and_instant_power_of_the_board_with_the_uuid() -> None:
    nvml = FakeNvml()

    meters = nvidia_meters("1-2", lambda: nvml)

    assert nvml.is_started
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


@pytest.mark.parametrize(
    "nvml", [FakeNvml("nvmlDeviceGetFieldValues"), FakeNvml(instant_mw=0)], ids=["none", "zero"]
)
def test_averaged_power_is_said_to_be_averaged(nvml: FakeNvml) -> None:
    power = nvidia_meters("GPU-1-2", lambda: nvml).power

    assert power is not None
    assert (power.name, power.read()) == ("NVML power, averaged over up to 1 s", 250.0)


def test_a_device_without_meters_says_so() -> None:
    nvml = FakeNvml("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues",
                    "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPerformanceState")  # fmt: skip

    meters = nvidia_meters("GPU-1-2", lambda: nvml)

    assert meters.available == ()
    assert meters.reasons == (
        "no NVML energy counter, which devices have since Volta: Not Supported",
        "no NVML power sensor: Not Supported",
    )
    assert meters.conditions().power_state is None


@pytest.mark.parametrize(
    ("uuid", "mig_mode"), [("MIG-3-4", 0), ("3-4", 0), ("GPU-1-2", 1)], ids=str
)
def test_the_power_of_a_board_is_not_that_of_a_slice(uuid: str, mig_mode: int) -> None:
    meters = nvidia_meters(uuid, lambda: FakeNvml(mig_mode=mig_mode))

    assert (meters.available, meters.reasons) == ((), (IS_MIG,))
    assert meters.conditions().temperature_c == 41.0


def no_bindings() -> Any:
    raise ModuleNotFoundError("pynvml")


@pytest.mark.parametrize(
    ("uuid", "load", "reason"),
    [
        (None, FakeNvml, NO_UUID),  # an index is no UUID
        ("", FakeNvml, NO_UUID),
        ("GPU-1-2", no_bindings, NO_BINDINGS),
        ("GPU-9", FakeNvml, "NVML does not answer for GPU-9: Not Found"),
    ],
)
def test_why_there_is_no_meter(uuid: str | None, load: Callable[[], Any], reason: str) -> None:
    assert nvidia_meters(uuid, load).reasons == (reason,)


@pytest.mark.parametrize(
    ("given", "asked"),
    [("1-2", ["GPU-1-2"]), ("3-4", ["GPU-3-4", "MIG-3-4"]), ("MIG-3-4", ["MIG-3-4"])],
)
def test_torch_does_not_say_whether_a_uuid_is_of_a_slice(given: str, asked: list[str]) -> None:
    questions: list[str] = []

    class Nvml(FakeNvml):
        def handle(self, uuid: str) -> str:
            questions.append(uuid)
            return super().handle(uuid)

    assert nvml_handle(Nvml(), given) == asked[-1]
    assert questions == asked


def test_throttle_reasons() -> None:
    assert throttle_reasons(0x1) == ()  # idle
    assert throttle_reasons(0x44) == ("power cap", "hardware thermal")
    assert throttle_reasons(None) == ()

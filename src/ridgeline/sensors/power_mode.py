"""The power limit of an NVIDIA GPU and the power mode of a Jetson: set for a while, and put back.

    with hold_power_mode(PowerLimit(uuid), 400.0):
        ...

What was set before is put back by a process of its own. It waits for the end of a pipe, which comes
when this process ends, however it ends. Run as `python -m ridgeline.sensors.power_mode`.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.sensors.nvidia import nvml_handle, start_nvml

POWER_LIMIT, NVPMODEL = "power_limit_w", "nvpmodel"
POWER_KEYS = (POWER_LIMIT, NVPMODEL)
BACK_S = 30.0  # nvpmodel may take some seconds
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """In watts, of a GPU, by NVML."""

    uuid: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its key, and which device it is of."""
        return (POWER_LIMIT, self.uuid)

    def read(self) -> float:
        nvml, handle = self._open()
        return float(nvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1000

    def write(self, value: float) -> None:
        nvml, handle = self._open()
        try:
            nvml.nvmlDeviceSetPowerManagementLimit(handle, round(1000 * value))
        except nvml.NVMLError as error:
            low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            raise RidgelineError(
                f"the power limit of {self.uuid} cannot be set to {value:g} W: {error}",
                hint=f"it is {low / 1000:g} to {high / 1000:g} W, and root may set it",
            ) from error

    def _open(self) -> tuple[Any, Any]:
        nvml = start_nvml()
        if nvml is None:
            raise RidgelineError("NVML does not answer", hint="`ridgeline doctor` says why")
        try:
            return nvml, nvml_handle(nvml, self.uuid)
        except nvml.NVMLError as error:
            raise RidgelineError(
                f"NVML has no device {self.uuid}: {error}", hint="`ridgeline doctor` says why"
            ) from error


@dataclass(frozen=True, slots=True)
class JetsonMode:
    """The number of a Jetson's power mode."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return (NVPMODEL,)

    def read(self) -> float:
        found = parse_nvpmodel(_run_nvpmodel("-q"))
        if found is None:
            raise RidgelineError("nvpmodel names no mode", hint="try `sudo nvpmodel -q`")
        return float(found[0])

    def write(self, value: float) -> None:
        _run_nvpmodel("-m", f"{value:.0f}")


PowerMode = PowerLimit | JetsonMode


def _run_nvpmodel(*arguments: str) -> str:
    try:
        done = subprocess.run(("nvpmodel", *arguments), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=ANSWER_S, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise RidgelineError(
            f"nvpmodel {' '.join(arguments)} failed: {getattr(error, 'stderr', '') or error}",
            hint="it is there on Jetson boards; root may set a mode, and some need a restart",
        ) from error
    return done.stdout


def parse_nvpmodel(text: str) -> tuple[int, str] | None:
    """Number and name of the mode, from `nvpmodel -q`."""
    found = re.search(r"^NV Power Mode:\s*(\S+)\s+(\d+)\s*$", text, re.MULTILINE)
    return (int(found[2]), found[1]) if found else None


@contextmanager
def hold_power_mode(mode: PowerMode, value: float) -> Iterator[None]:
    """Set the mode; put back what was there before at the end, also after a kill."""
    before = mode.read()
    command = [sys.executable, "-m", __name__, str(before), *mode.arguments]
    guard = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        mode.write(value)
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(BACK_S)
        if guard.returncode != 0:
            raise RidgelineError(
                f"{mode.arguments[0]} could not be put back to {before:g}",
                hint="set it by hand: nvidia-smi -pl WATTS, or nvpmodel -m MODE",
            )


def find_power_mode(key: str, uuid: str = "") -> PowerMode:
    return PowerLimit(uuid) if key == POWER_LIMIT else JetsonMode()


def guard_power_mode(value: str, key: str, uuid: str = "") -> None:
    """Wait for the end of standard input, then set the mode."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    find_power_mode(key, uuid).write(float(value))


if __name__ == "__main__":
    guard_power_mode(*sys.argv[1:])

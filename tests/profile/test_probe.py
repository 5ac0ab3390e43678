"""The tiny program with one kernel, where there is no device to run it on."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest
import torch

from ridgeline.profile import probe


def test_without_a_device_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = subprocess.run(
        [sys.executable, probe.__file__, "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == probe.NO_DEVICE
    assert done.stderr.startswith("ridgeline: no device for counters: ")


def test_calls_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Driver:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any) -> int:
                calls.append(name)
                return int(name == "cuLaunchKernel")

            return call

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    # given a driver that refuses the launch, when the program runs
    with pytest.raises(probe.DriverError, match="cuLaunchKernel gave 1"):
        probe.main(2)
    # then it had come that far
    assert calls == [
        "cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData",
        "cuModuleGetFunction", "cuMemAlloc_v2", "cuLaunchKernel",
    ]  # fmt: skip

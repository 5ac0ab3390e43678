"""Machines made of recorded text: files and commands that exist, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ridgeline.machine.describe import LIST_CUDA_DEVICES
from ridgeline.machine.system import SystemIO

DATA = Path(__file__).parents[1] / "data"
GPU = "GPU-11111111-2222-3333-4444-555555555555"
GPU_B = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"
MIG = "MIG-bbbbbbbb-0000-5000-8000-000000000002"
SM, MEMORY = 1, 2  # clocks of NVML


def files(name: str) -> dict[str, str]:
    """Recorded files by their paths."""
    content: dict[str, str] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return content


def machine(
    files: Mapping[str, str] | None = None,
    commands: Mapping[str, str | None] | None = None,
    packages: Mapping[str, str] | None = None,
    **others: Any,
) -> SystemIO:
    """A machine with these files, with commands by the beginning of their line, and packages."""
    files, commands, packages = files or {}, commands or {}, packages or {}

    def run(command: Sequence[str]) -> str | None:
        line = " ".join(command)
        return next((text for start, text in commands.items() if line.startswith(start)), None)

    def find(pattern: str) -> list[str]:
        depth = pattern.count("/")
        known = {"/".join(path.split("/")[: depth + 1]) for path in files}
        return sorted(path for path in known if fnmatchcase(path, pattern))

    settings: dict[str, Any] = {
        "run": run,
        "run_slow": run,
        "read": files.get,
        "find": find,
        "which": lambda name: name if any(c.split()[0] == name for c in commands) else None,
        "version": packages.get,
        "folder": lambda name: f"/packages/{name}" if name in packages else None,
        "nvml": lambda: None,
        "disk": lambda path: (100_000_000_000, True),
        "memory_bytes": lambda: (None, None),
        "load": lambda: None,
        "environ": {},
        "system": "Linux",
        "architecture": "x86_64",
        "kernel": "6.18.0",
    }
    return SystemIO(**{**settings, **others})


H200: dict[str, Any] = {  # what NVML answered on an H200; the UUID is made up
    "Name": "NVIDIA H200",
    "UUID": GPU,
    "CudaComputeCapability": (9, 0),
    "MemoryInfo": SimpleNamespace(total=143_771 * 2**20),
    "MaxClockInfo": {SM: 1980, MEMORY: 3201},
    "PowerManagementLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "EccMode": (1, 1),
    "MigMode": (0, 0),
    "MaxPcieLinkGeneration": 5,
    "MaxPcieLinkWidth": 16,
    "CurrentClocksThrottleReasons": 0,
    "ComputeRunningProcesses": [],
}


class NoAnswerError(Exception):
    """What the stand-in for NVML raises."""


class FakeNvml:
    """NVML with these devices; it refuses every question that a device has no answer to."""

    NVMLError = NoAnswerError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = SM, MEMORY, 0
    NVML_SUCCESS, NVML_FI_DEV_POWER_INSTANT = 0, 186

    def __init__(self, *cards: Mapping[str, Any], driver: str = "580.159.04") -> None:
        self.cards = cards
        self.nvmlInit = lambda: None
        self.nvmlDeviceGetCount = lambda: len(cards)
        self.nvmlDeviceGetHandleByIndex = lambda index: cards[index]
        self.nvmlSystemGetDriverVersion = lambda: driver
        self.nvmlSystemGetProcessName = lambda pid: "/opt/env/bin/python"

    def __getattr__(self, name: str) -> Any:
        def answer(card: Mapping[str, Any], *arguments: int) -> Any:
            found = card.get(name.removeprefix("nvmlDeviceGet"))
            if arguments and isinstance(found, dict):
                found = found.get(arguments[0])
            if found is None:
                raise NoAnswerError(name.removeprefix("nvmlDeviceGet"))
            return found

        return answer

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Mapping[str, Any]:  # noqa: N802
        found = next((card for card in self.cards if card.get("UUID") == uuid), None)
        if found is None:
            raise NoAnswerError(uuid)
        return found


def cuda_answer(*uuids: str, **fields: Any) -> dict[str, str | None]:
    """The CUDA driver that shows these devices, in this order."""
    devices = [
        {"index": i, "name": "NVIDIA H200", "uuid": uuid[4:], **fields}
        for i, uuid in enumerate(uuids)
    ]
    return {
        " ".join(LIST_CUDA_DEVICES): json.dumps({"cuda_version": "13.0", "devices": devices}),
    }

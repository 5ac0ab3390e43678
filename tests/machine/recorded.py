"""Machines made of recorded text: files and commands that exist, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ridgeline.machine.system_io import SystemIO

DATA = Path(__file__).parents[1] / "data"
GPU = "GPU-11111111-2222-3333-4444-555555555555"
GPU_B = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"
MIG_A = "MIG-bbbbbbbb-0000-5000-8000-000000000001"
MIG_B = "MIG-bbbbbbbb-0000-5000-8000-000000000002"


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
        "free_bytes": lambda path: 100_000_000_000,
        "is_writable": lambda path: True,
        "environ": {},
        "system": "Linux",
        "architecture": "x86_64",
        "kernel": "6.18.0",
    }
    return SystemIO(**{**settings, **others})


def gpu_row(index: int = 0, uuid: str = GPU, **changes: str) -> str:
    """A line of nvidia-smi's answer to GPU_QUERY: that of an H200, changed."""
    from ridgeline.machine.describe_nvidia import FIELDS

    recorded = (DATA / "nvidia-smi-h200-all.csv").read_text(encoding="utf-8").strip()
    row = dict(zip(FIELDS, recorded.split(", "), strict=True))
    row |= {"index": str(index), "uuid": uuid}
    row |= {name.replace("__", "."): value for name, value in changes.items()}
    return ", ".join(row.values()) + "\n"

"""Whether two descriptions are of one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Description = Mapping[str, Any]


def another_machine(before: Description, now: Description) -> str | None:
    """What differs in the hardware: `1 × NVIDIA H200 before, none now`; None if nothing does."""
    for what, look in (("GPUs", _gpus), ("processor", _cpu)):
        old, new = look(before), look(now)
        if old and old != new:
            return f"{what}: {old} before, {new or 'none'} now"
    return None


def another_device(before: Description, now: Description) -> str | None:
    """The same kind of GPU, but not the same one."""
    old, new = _uuids(before), _uuids(now)
    if old and new and old != new:
        return f"measured on {', '.join(old)} before and on {', '.join(new)} now"
    return None


def _gpus(description: Description) -> str:
    names = [str(gpu.get("name")) for gpu in description.get("gpus") or ()]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def _cpu(description: Description) -> str:
    cpu = description.get("cpu") or {}
    return f"{cpu.get('model')}, {cpu.get('logical_cores')} threads" if cpu.get("model") else ""


def _uuids(description: Description) -> list[str]:
    return sorted(str(gpu["uuid"]) for gpu in description.get("gpus") or () if gpu.get("uuid"))

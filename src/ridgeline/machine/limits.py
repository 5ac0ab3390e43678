"""What this process may use of the machine: affinity, container and batch system."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePosixPath

from ridgeline.machine.probe import Probe

CGROUPS = "/sys/fs/cgroup"
_NO_LIMIT_BYTES = 2**60  # version 1 writes a number near 2^63 for "no limit"
_CAPABILITY_BITS = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None where there is no limit."""

    allowed_cpus: frozenset[int] | None = None  # logical CPUs
    cpu_quota: float | None = None  # CPU seconds per second
    memory_bytes: int | None = None

    def whole_cpus(self, allowed: int) -> int:
        """CPUs that can be kept busy at once, of so many allowed ones."""
        if self.cpu_quota is None:
            return allowed
        return min(allowed, max(1, math.floor(self.cpu_quota)))


def find_limits(probe: Probe | None = None) -> Limits:
    """The limits of Linux; a Mac has none."""
    probe = probe or Probe()
    status = probe.read("/proc/self/status") or ""
    groups = parse_cgroup(probe.read("/proc/self/cgroup") or "")
    return Limits(
        allowed_cpus=_allowed(status),
        cpu_quota=_cpu_quota(probe, groups),
        memory_bytes=_memory_limit(probe, groups),
    )


def _allowed(status: str) -> frozenset[int] | None:
    listed = status_field(status, "Cpus_allowed_list")
    return frozenset(parse_cpu_list(listed)) if listed else None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first.strip().isdigit():
            numbers += range(int(first), int(last if dash else first) + 1)
    return tuple(numbers)


def status_field(status: str, name: str) -> str | None:
    """One line of /proc/self/status."""
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def has_capability(status: str, name: str) -> bool:
    """Whether the process of this /proc/self/status may do it: root in a container may not."""
    effective = int(status_field(status, "CapEff") or "0", 16)
    return bool(effective >> _CAPABILITY_BITS[name] & 1)


def parse_cgroup(text: str) -> dict[str, str]:
    """The group of each controller, from /proc/self/cgroup; version 2 is under ``""``."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _cpu_quota(probe: Probe, groups: dict[str, str]) -> float | None:
    quotas = []
    for folder in _folders("", groups.get("")):
        quota, _, period = (probe.line(f"{folder}/cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for folder in _folders("cpu", groups.get("cpu")):
        quota_us = probe.number(f"{folder}/cpu.cfs_quota_us") or -1
        period_us = probe.number(f"{folder}/cpu.cfs_period_us")
        if quota_us > 0 and period_us:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def _memory_limit(probe: Probe, groups: dict[str, str]) -> int | None:
    found = [
        *(probe.number(f"{folder}/memory.max") for folder in _folders("", groups.get(""))),
        *(
            probe.number(f"{folder}/memory.limit_in_bytes")
            for folder in _folders("memory", groups.get("memory"))
        ),
    ]
    return min((size for size in found if size and size < _NO_LIMIT_BYTES), default=None)


def _folders(controller: str, path: str | None) -> list[str]:
    """The group and all above it: the tightest limit holds. Inside a container, the top is ours."""
    if path is None:
        return []
    root = PurePosixPath(CGROUPS, controller)
    here = root / path.lstrip("/")
    return [str(folder) for folder in (here, *here.parents) if folder.is_relative_to(root)]

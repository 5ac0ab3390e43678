"""The system around the hardware: container, hypervisor, libraries, limits; and how to look at it.

SystemIO has every command, file and setting that the answers are made of. Tests put recorded text
in place of each, so that a Mac, a node with MIG slices and a bare container can be described here.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ridgeline.provenance import (
    LIBRARIES,
    ReadText,
    RunCommand,
    package_version,
    read_text,
    run_command,
)
from ridgeline.sensors.nvidia import start_nvml

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


def find_limits(io: SystemIO | None = None) -> Limits:
    """The limits of Linux; a Mac has none."""
    io = io or SystemIO()
    status = io.read("/proc/self/status") or ""
    groups = parse_cgroup(io.read("/proc/self/cgroup") or "")
    return Limits(
        allowed_cpus=_allowed(status),
        cpu_quota=_cpu_quota(io, groups),
        memory_bytes=_memory_limit(io, groups),
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


def _cpu_quota(io: SystemIO, groups: dict[str, str]) -> float | None:
    quotas = []
    for folder in _folders("", groups.get("")):
        quota, _, period = (io.line(f"{folder}/cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for folder in _folders("cpu", groups.get("cpu")):
        quota_us = io.number(f"{folder}/cpu.cfs_quota_us") or -1
        period_us = io.number(f"{folder}/cpu.cfs_period_us")
        if quota_us > 0 and period_us:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def _memory_limit(io: SystemIO, groups: dict[str, str]) -> int | None:
    found = [
        *(io.number(f"{folder}/memory.max") for folder in _folders("", groups.get(""))),
        *(
            io.number(f"{folder}/memory.limit_in_bytes")
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


MORE_LIBRARIES = ("nvidia-ml-py",)  # those that measuring uses beyond LIBRARIES
CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
}
CONTAINER_GROUPS = ("kubepods", "docker", "podman", "libpod", "lxc", "containerd")
HYPERVISORS = {  # a part of the maker's or the product's name that the firmware gives
    "QEMU": "KVM or QEMU",
    "KVM": "KVM",
    "Amazon EC2": "Amazon EC2",
    "Google": "Google Compute Engine",
    "VMware": "VMware",
    "VirtualBox": "VirtualBox",
    "Virtual Machine": "Hyper-V",
    "Xen": "Xen",
    "OpenStack": "OpenStack",
    "Parallels": "Parallels",
}


def find_container(io: SystemIO) -> str | None:
    """The kind of container that this process is in."""
    if io.system == "Darwin":
        return None
    named = [name for key, name in CONTAINER_VARIABLES.items() if key in io.environ]
    if named:
        return named[0]
    if io.read("/run/.containerenv") is not None:
        return "podman"
    if io.read("/.dockerenv") is not None:
        return "docker"
    groups = io.read("/proc/1/cgroup") or ""
    known = next((name for name in CONTAINER_GROUPS if name in groups), None)
    return known or io.environ.get("container") or None


def find_virtualization(io: SystemIO) -> str | None:
    """The hypervisor under the system, if one shows."""
    if io.system == "Darwin":
        hidden = io.run(("sysctl", "-n", "kern.hv_vmm_present")) or ""
        return "virtual machine" if hidden.strip() == "1" else None
    release = (io.read("/proc/sys/kernel/osrelease") or io.kernel).lower()
    if "microsoft" in release:
        return "WSL 2" if "wsl2" in release or "standard" in release else "WSL"
    names = ("sys_vendor", "product_name", "bios_vendor")
    firmware = " ".join(io.line(f"/sys/class/dmi/id/{name}") or "" for name in names)
    flagged = re.search(r"^flags\s*:.*\bhypervisor\b", io.read("/proc/cpuinfo") or "", re.M)
    known = next((name for part, name in HYPERVISORS.items() if part in firmware), None)
    # A maker's name alone is not enough: Google and Amazon build bare machines as well.
    if flagged is None and known not in ("KVM or QEMU", "KVM", "VMware", "VirtualBox"):
        return None
    return known or "unnamed hypervisor"


def library_versions(io: SystemIO) -> dict[str, str]:
    """Installed versions of what can change a result."""
    versions = {name: io.version(name) for name in (*LIBRARIES, *MORE_LIBRARIES)}
    return {name: version for name, version in versions.items() if version is not None}


# ---------------------------------------------------------------- looking

_SLOW_LIMIT_S = 90  # the first import of torch from a network file system takes its time


def run_slow_command(command: Sequence[str]) -> str | None:
    """As `run_command`, for what may take a minute."""
    return run_command(command, limit_s=_SLOW_LIMIT_S)


def find_paths(pattern: str) -> list[str]:
    """Paths that match, in order; none if the folder does not exist."""
    path = Path(pattern)
    return sorted(
        str(found) for found in Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    )


def package_folder(name: str) -> str | None:
    """Where a package is installed; it is not imported."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def free_bytes(path: str) -> int | None:
    """Room on the disk of a folder, or of the nearest one above it that exists."""
    try:
        return shutil.disk_usage(_existing(path)).free
    except OSError:
        return None


def is_writable(path: str) -> bool:
    """Whether a file can be put into a folder, or the folder can be made."""
    return os.access(_existing(path), os.W_OK)


def _existing(path: str) -> Path:
    here = Path(path).absolute()
    return next(folder for folder in (here, *here.parents) if folder.exists())


def pairs(text: str) -> dict[str, str]:
    """Lines of `key: value`, as /proc, sysctl and dmidecode write them."""
    rows = [line.partition(":") for line in text.splitlines()]
    return {key.strip(): value.strip() for key, colon, value in rows if colon}


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemIO:
    """The ways to ask. Each answers None, or nothing, where there is no answer."""

    run: RunCommand = run_command
    run_slow: RunCommand = run_slow_command
    read: ReadText = read_text
    find: Callable[[str], list[str]] = find_paths
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = package_version
    folder: Callable[[str], str | None] = package_folder
    nvml: Callable[[], Any] = start_nvml
    free_bytes: Callable[[str], int | None] = free_bytes
    is_writable: Callable[[str], bool] = is_writable
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    system: str = field(default_factory=platform.system)  # "Linux", "Darwin"
    architecture: str = field(default_factory=platform.machine)
    kernel: str = field(default_factory=platform.release)

    def line(self, path: str) -> str | None:
        """A file of one line, without its end."""
        text = self.read(path)
        return None if text is None else text.strip()

    def number(self, path: str) -> int | None:
        """A file that holds one whole number."""
        try:
            return int(self.line(path) or "")
        except ValueError:
            return None

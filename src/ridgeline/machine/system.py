"""The system around the hardware: limits, container, hypervisor; and how to look at it.

SystemIO has every command, file and setting that a description is made of. Tests put recorded text
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
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from ridgeline.provenance import ReadText, RunCommand, package_version, read_text, run_command
from ridgeline.sensors.nvidia import start_nvml

_SLOW_LIMIT_S = 90  # the first import of torch from a network file system takes its time


# ---------------------------------------------------------------- looking


def run_slow_command(command: Sequence[str]) -> str | None:
    """As `run_command`, for what may take a minute."""
    return run_command(command, limit_s=_SLOW_LIMIT_S)


def find_paths(pattern: str) -> list[str]:
    """Paths that match, in order; none if the folder does not exist."""
    path = Path(pattern)
    return sorted(str(one) for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def find_package_folder(name: str) -> str | None:
    """Where a package is installed; it is not imported."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def read_free_bytes(path: str) -> int | None:
    """What is free on the disk of a folder, or of the nearest one above it that exists."""
    try:
        return shutil.disk_usage(_nearest_folder(path)).free
    except OSError:
        return None


def is_writable(path: str) -> bool:
    """Whether a file can be put into a folder, or the folder can be made."""
    return os.access(_nearest_folder(path), os.W_OK)


def _nearest_folder(path: str) -> Path:
    here = Path(path).absolute()
    return next(folder for folder in (here, *here.parents) if folder.exists())


def read_memory_bytes() -> tuple[int | None, int | None]:
    """All memory of the machine, and what can be had of it without swapping."""
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available)


def read_load() -> float | None:
    """How many processes ran or waited, on average over the last minute."""
    import psutil

    return float(psutil.getloadavg()[0])


def is_plugged_in() -> bool | None:
    """Whether a laptop is on mains; None where there is no battery."""
    import psutil

    battery = psutil.sensors_battery()
    return None if battery is None else battery.power_plugged


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemIO:
    """The ways to look. Each answers None, or nothing, where there is no answer."""

    run: RunCommand = run_command
    run_slow: RunCommand = run_slow_command
    read: ReadText = read_text
    find: Callable[[str], list[str]] = find_paths
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = package_version
    folder: Callable[[str], str | None] = find_package_folder
    nvml: Callable[[], Any] = start_nvml
    free_bytes: Callable[[str], int | None] = read_free_bytes
    is_writable: Callable[[str], bool] = is_writable
    memory_bytes: Callable[[], tuple[int | None, int | None]] = read_memory_bytes
    load: Callable[[], float | None] = read_load
    is_plugged_in: Callable[[], bool | None] = is_plugged_in
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


def parse_pairs(text: str) -> dict[str, str]:
    """Lines of `key: value`, as /proc and sysctl write them."""
    rows = [line.partition(":") for line in text.splitlines()]
    return {key.strip(): value.strip() for key, colon, value in rows if colon}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first.strip().isdigit():
            numbers += range(int(first), int(last if dash else first) + 1)
    return tuple(numbers)


# ---------------------------------------------------------------- limits

CGROUPS = "/sys/fs/cgroup"
_NO_LIMIT_BYTES = 2**60  # version 1 writes a number near 2^63 for "no limit"
_CAP_SYS_ADMIN_BIT = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a container or a batch system lets a process have. None where there is no limit."""

    allowed_cpus: tuple[int, ...] | None = None  # logical CPUs
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
    listed = parse_pairs(io.read("/proc/self/status") or "").get("Cpus_allowed_list")
    groups = _parse_cgroup(io.read("/proc/self/cgroup") or "")
    return Limits(
        allowed_cpus=parse_cpu_list(listed) if listed else None,
        cpu_quota=_find_cpu_quota(io, groups),
        memory_bytes=_find_memory_limit(io, groups),
    )


def has_admin_capability(status: str) -> bool:
    """Whether the process of this /proc/self/status has CAP_SYS_ADMIN; root may lack it."""
    effective = int(parse_pairs(status).get("CapEff", "0"), 16)
    return bool(effective >> _CAP_SYS_ADMIN_BIT & 1)


def _parse_cgroup(text: str) -> dict[str, str]:
    """The group of each controller, from /proc/self/cgroup; version 2 is under ``""``."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def _find_cpu_quota(io: SystemIO, groups: Mapping[str, str]) -> float | None:
    quotas = []
    for folder in _list_folders("", groups):
        quota, _, period = (io.line(f"{folder}/cpu.max") or "max").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for folder in _list_folders("cpu", groups):
        quota_us = io.number(f"{folder}/cpu.cfs_quota_us") or -1
        period_us = io.number(f"{folder}/cpu.cfs_period_us")
        if quota_us > 0 and period_us:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def _find_memory_limit(io: SystemIO, groups: Mapping[str, str]) -> int | None:
    files = [
        *(f"{folder}/memory.max" for folder in _list_folders("", groups)),
        *(f"{folder}/memory.limit_in_bytes" for folder in _list_folders("memory", groups)),
    ]
    sizes = [io.number(file) for file in files]
    return min((size for size in sizes if size and size < _NO_LIMIT_BYTES), default=None)


def _list_folders(controller: str, groups: Mapping[str, str]) -> list[str]:
    """The group and all above it: the tightest limit holds. Inside a container, the top is ours."""
    if controller not in groups:
        return []
    root = PurePosixPath(CGROUPS, controller)
    here = root / groups[controller].lstrip("/")
    return [str(folder) for folder in (here, *here.parents) if folder.is_relative_to(root)]


# ---------------------------------------------------------------- container and hypervisor

CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
}
CONTAINER_FILES = {"/run/.containerenv": "podman", "/.dockerenv": "docker"}
CONTAINER_GROUPS = ("kubepods", "docker", "podman", "libpod", "lxc", "containerd")
VIRTUAL_VENDORS = ("QEMU", "VMware", "innotek")  # makers of nothing but virtual machines


def find_container(io: SystemIO) -> str | None:
    """The kind of container that this process is in."""
    if io.system == "Darwin":
        return None
    groups = io.read("/proc/1/cgroup") or ""
    names = [
        *(name for key, name in CONTAINER_VARIABLES.items() if key in io.environ),
        *(name for path, name in CONTAINER_FILES.items() if io.read(path) is not None),
        *(name for name in CONTAINER_GROUPS if name in groups),
        io.environ.get("container"),
    ]
    return next(filter(None, names), None)


def find_virtualization(io: SystemIO) -> str | None:
    """The hypervisor under the system by its maker's name, if one shows."""
    if io.system == "Darwin":
        answer = io.run(("sysctl", "-n", "kern.hv_vmm_present")) or ""
        return "virtual machine" if answer.strip() == "1" else None
    release = (io.read("/proc/sys/kernel/osrelease") or io.kernel).lower()
    if "microsoft" in release:
        return "WSL 2" if "wsl2" in release or "standard" in release else "WSL"
    vendor = io.line("/sys/class/dmi/id/sys_vendor") or ""
    is_flagged = re.search(r"^flags\s*:.*\bhypervisor\b", io.read("/proc/cpuinfo") or "", re.M)
    # Google and Amazon build bare machines as well, and an Arm processor has no such flag.
    if not is_flagged and not vendor.startswith(VIRTUAL_VENDORS):
        return None
    return vendor or "unnamed hypervisor"

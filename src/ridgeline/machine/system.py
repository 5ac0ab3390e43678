"""The system around the hardware: container, hypervisor, drivers, libraries; what we may use."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from ridgeline.machine.gpu import Gpus
from ridgeline.machine.system_io import SystemIO
from ridgeline.provenance import LIBRARIES

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
RUNTIME_PACKAGES = {  # what pip installs beside torch, by the names of CUDA 13 and 12
    "CUDA runtime": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cuDNN": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cuBLAS": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
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


def driver_versions(io: SystemIO, gpus: Gpus) -> dict[str, str]:
    """Drivers and CUDA libraries: what the system has and what came with torch."""
    build = torch_build(io)
    found = {
        "NVIDIA driver": next((g.driver for g in gpus.found if g.kind == "cuda"), None)
        or kernel_driver(io),
        "AMD driver": next((g.driver for g in gpus.found if g.kind == "rocm"), None),
        "CUDA, newest that the driver supports": gpus.cuda_version,
        "CUDA, that torch is built with": build.get("cuda"),
        "ROCm, that torch is built with": build.get("hip"),
        **{name: _first_version(io, names) for name, names in RUNTIME_PACKAGES.items()},
    }
    return {name: version for name, version in found.items() if version}


def kernel_driver(io: SystemIO) -> str | None:
    """The NVIDIA driver that the kernel has loaded, even where nvidia-smi does not work."""
    text = io.read("/proc/driver/nvidia/version") or ""
    version = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", text)
    return version[1] if version else None


def torch_build(io: SystemIO) -> dict[str, str]:
    """What torch was built with, from its own version.py: torch is not imported."""
    folder = io.folder("torch")
    text = io.read(f"{folder}/version.py") or "" if folder else ""
    return dict(re.findall(r"^(__version__|cuda|hip)\b.*?= *'([^']+)'", text, re.MULTILINE))


def library_versions(io: SystemIO) -> dict[str, str]:
    """Installed versions of what can change a result."""
    versions = {name: io.version(name) for name in (*LIBRARIES, *MORE_LIBRARIES)}
    return {name: version for name, version in versions.items() if version is not None}


def _first_version(io: SystemIO, names: tuple[str, ...]) -> str | None:
    return next((version for name in names if (version := io.version(name))), None)

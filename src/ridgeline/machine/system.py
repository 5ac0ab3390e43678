"""The system around the hardware: limits, container, hypervisor; and how to look at it.

SystemIO has every command, file and setting that a description is made of. Tests put recorded text
in place of each, so that a Mac, a node with MIG slices and a bare container can be described here.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from ridgeline.provenance import ReadText, RunCommand, package_version, read_text, run_command
from ridgeline.sensors.nvidia import start_nvml

# The first import of torch from a network file system takes its time.
run_slow_command = partial(run_command, limit_s=90)


# ---------------------------------------------------------------- looking


def find_paths(pattern: str) -> list[str]:
    """Paths that match, in order; none if the folder does not exist."""
    path = Path(pattern)
    return sorted(str(one) for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def find_package_folder(name: str) -> str | None:
    """Where a package is installed; it is not imported."""
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def read_disk(path: str) -> tuple[int, bool]:
    """Bytes that are free on the disk of a folder or of the nearest one above it that exists, and
    whether a file can be put there.
    """
    here = Path(path).absolute()
    folder = next(folder for folder in (here, *here.parents) if folder.exists())
    return shutil.disk_usage(folder).free, os.access(folder, os.W_OK)


def read_memory_bytes() -> tuple[int | None, int | None]:
    """All memory of the machine, and what can be had of it without swapping."""
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available)


def read_load() -> float | None:
    """How many processes ran or waited, on average over the last minute."""
    import psutil

    return float(psutil.getloadavg()[0])


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
    disk: Callable[[str], tuple[int, bool]] = read_disk
    memory_bytes: Callable[[], tuple[int | None, int | None]] = read_memory_bytes
    load: Callable[[], float | None] = read_load
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
_NO_LIMIT_BYTES = 2**60  # version 1 of cgroups writes a number near 2^63 for "no limit"
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
    """The limits of Linux; a Mac has none. Of the process's group and all above, the tightest."""
    io = io or SystemIO()
    listed = parse_pairs(io.read("/proc/self/status") or "").get("Cpus_allowed_list")
    quotas = [text.split() for text in _read_group_files(io, "", "cpu.max") if text[:1].isdigit()]
    sizes = [
        *_read_group_files(io, "", "memory.max"),
        *_read_group_files(io, "memory", "memory.limit_in_bytes"),  # version 1
    ]
    limits_bytes = [int(size) for size in sizes if size.isdigit()]
    return Limits(
        allowed_cpus=parse_cpu_list(listed) if listed else None,
        cpu_quota=min((int(quota) / int(period) for quota, period in quotas), default=None),
        memory_bytes=min((size for size in limits_bytes if size < _NO_LIMIT_BYTES), default=None),
    )


def _read_group_files(io: SystemIO, controller: str, name: str) -> list[str]:
    """A file of this process's control group and of all above. Inside a container, the top is ours.

    In version 2 the controller is empty.
    """
    for line in (io.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            root = PurePosixPath(CGROUPS, controller)
            here = root / path.lstrip("/")
            folders = [one for one in (here, *here.parents) if one.is_relative_to(root)]
            return [io.line(f"{folder}/{name}") or "" for folder in folders]
    return []


def has_admin_capability(status: str) -> bool:
    """Whether the process of this /proc/self/status has CAP_SYS_ADMIN; root may lack it."""
    effective = int(parse_pairs(status).get("CapEff", "0"), 16)
    return bool(effective >> _CAP_SYS_ADMIN_BIT & 1)


# ---------------------------------------------------------------- container and hypervisor

CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
}
CONTAINER_FILES = {"/run/.containerenv": "podman", "/.dockerenv": "docker"}


def find_container(io: SystemIO) -> str | None:
    """The kind of container that this process is in."""
    names = [
        *(name for key, name in CONTAINER_VARIABLES.items() if key in io.environ),
        *(name for path, name in CONTAINER_FILES.items() if io.read(path) is not None),
        io.environ.get("container"),
    ]
    return next(filter(None, names), None)


def find_virtualization(io: SystemIO) -> str | None:
    """The hypervisor under Linux by its maker's name, if the processor's flags show one."""
    if "microsoft" in (io.read("/proc/sys/kernel/osrelease") or io.kernel).lower():
        return "WSL 2"
    if not re.search(r"^flags\s*:.*\bhypervisor\b", io.read("/proc/cpuinfo") or "", re.M):
        return None
    return io.line("/sys/class/dmi/id/sys_vendor") or "unnamed hypervisor"


# ---------------------------------------------------------------- tools that count
# Nsight Compute, and the CUPTI that PyTorch has loaded.

NCU_VARIABLE = "RIDGELINE_NCU"  # names the program where it is not on the path
NCU_PATTERNS = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/opt/cuda*/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Compute/ncu",
    "/Applications/NVIDIA Nsight Compute.app/Contents/MacOS/ncu",
)


def ncu_path(io: SystemIO) -> str | None:
    """The one that the user names, that of PATH, or the newest of the first usual folder."""
    at_hand = io.environ.get(NCU_VARIABLE) or io.which("ncu")
    if at_hand:
        return at_hand
    groups = (io.find(pattern) for pattern in NCU_PATTERNS)
    newest = (max(paths, key=lambda path: [int(part) for part in re.findall(r"\d+", path)])
              for paths in groups if paths)  # fmt: skip
    return next(newest, None)


CUPTI_MAPS = Path("/proc/self/maps")  # what this process has loaded
CUPTI = "libcupti.so"
CUPTI_NEEDED = ("cuptiRangeProfilerEnable", "cuptiProfilerHostInitialize")


class NoCuptiError(Exception):
    """There is none that can count, for this reason."""


def loaded_library() -> ctypes.CDLL:
    """The one that PyTorch uses: a second one in the same process would not hear it."""
    path = loaded_path(CUPTI_MAPS.read_text(encoding="utf-8") if CUPTI_MAPS.exists() else "")
    if path is None:
        raise NoCuptiError("this PyTorch comes without CUPTI")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise NoCuptiError(f"the CUPTI of this PyTorch cannot be loaded: {error}") from error
    if not all(hasattr(library, name) for name in CUPTI_NEEDED):
        raise NoCuptiError("this CUPTI is older than its range profiler (CUDA 12.8)")
    return library


def loaded_path(maps: str) -> str | None:
    """The file of the library, in what /proc says of a process."""
    paths = [line.split(maxsplit=5)[-1] for line in maps.splitlines() if CUPTI in line]
    return next(iter(paths), None)


def has_cupti() -> bool:
    """Whether there is one, for who need not know why not."""
    try:
        loaded_library()
    except NoCuptiError:
        return False
    return True

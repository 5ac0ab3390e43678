"""The system around the hardware: container, hypervisor, drivers, libraries."""

from __future__ import annotations

import re

from ridgeline.machine.gpu import Gpus
from ridgeline.machine.probe import Probe
from ridgeline.provenance import LIBRARIES

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


def find_container(probe: Probe) -> str | None:
    """The kind of container that this process is in."""
    if probe.system == "Darwin":
        return None
    named = [name for key, name in CONTAINER_VARIABLES.items() if key in probe.environ]
    if named:
        return named[0]
    if probe.read("/run/.containerenv") is not None:
        return "podman"
    if probe.read("/.dockerenv") is not None:
        return "docker"
    groups = probe.read("/proc/1/cgroup") or ""
    known = next((name for name in CONTAINER_GROUPS if name in groups), None)
    return known or probe.environ.get("container") or None


def find_virtualization(probe: Probe) -> str | None:
    """The hypervisor under the system, if one shows."""
    if probe.system == "Darwin":
        hidden = probe.run(("sysctl", "-n", "kern.hv_vmm_present")) or ""
        return "virtual machine" if hidden.strip() == "1" else None
    release = (probe.read("/proc/sys/kernel/osrelease") or probe.kernel).lower()
    if "microsoft" in release:
        return "WSL 2" if "wsl2" in release or "standard" in release else "WSL"
    names = ("sys_vendor", "product_name", "bios_vendor")
    firmware = " ".join(probe.line(f"/sys/class/dmi/id/{name}") or "" for name in names)
    flagged = re.search(r"^flags\s*:.*\bhypervisor\b", probe.read("/proc/cpuinfo") or "", re.M)
    known = next((name for part, name in HYPERVISORS.items() if part in firmware), None)
    # A maker's name alone is not enough: Google and Amazon build bare machines as well.
    if flagged is None and known not in ("KVM or QEMU", "KVM", "VMware", "VirtualBox"):
        return None
    return known or "unnamed hypervisor"


def driver_versions(probe: Probe, gpus: Gpus) -> dict[str, str]:
    """Drivers and CUDA libraries: what the system has and what came with torch."""
    build = torch_build(probe)
    found = {
        "NVIDIA driver": next((g.driver for g in gpus.found if g.kind == "cuda"), None)
        or kernel_driver(probe),
        "AMD driver": next((g.driver for g in gpus.found if g.kind == "rocm"), None),
        "CUDA, newest that the driver supports": gpus.cuda_version,
        "CUDA, that torch is built with": build.get("cuda"),
        "ROCm, that torch is built with": build.get("hip"),
        **{name: _first_version(probe, names) for name, names in RUNTIME_PACKAGES.items()},
    }
    return {name: version for name, version in found.items() if version}


def kernel_driver(probe: Probe) -> str | None:
    """The NVIDIA driver that the kernel has loaded, even where nvidia-smi does not work."""
    text = probe.read("/proc/driver/nvidia/version") or ""
    version = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", text)
    return version[1] if version else None


def torch_build(probe: Probe) -> dict[str, str]:
    """What torch was built with, from its own version.py: torch is not imported."""
    folder = probe.folder("torch")
    text = probe.read(f"{folder}/version.py") or "" if folder else ""
    return dict(re.findall(r"^(__version__|cuda|hip)\b.*?= *'([^']+)'", text, re.MULTILINE))


def library_versions(probe: Probe) -> dict[str, str]:
    """Installed versions of what can change a result."""
    versions = {name: probe.version(name) for name in (*LIBRARIES, *MORE_LIBRARIES)}
    return {name: version for name, version in versions.items() if version is not None}


def _first_version(probe: Probe, names: tuple[str, ...]) -> str | None:
    return next((version for name in names if (version := probe.version(name))), None)

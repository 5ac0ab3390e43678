"""What is there: processor, memory, accelerators, system, drivers and libraries of a machine.

    description = describe()
    print(description.to_markdown())

The parts are in
describe_cpu.py, describe_mac.py   processor, caches, NUMA nodes, memory
describe_gpu.py                    accelerators, by the tools of their makers
describe_nvidia.py, visible.py     NVIDIA's, and the index that CUDA gives to each
describe_system.py, limits.py      container, drivers, libraries; what this process may use
describe_text.py                   the text for people
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ridgeline.machine.describe_cpu import describe_cpu, describe_memory, describe_numa
from ridgeline.machine.describe_gpu import describe_gpus
from ridgeline.machine.describe_system import (
    driver_versions,
    find_container,
    find_virtualization,
    library_versions,
)
from ridgeline.machine.gpu import Gpu
from ridgeline.machine.limits import Limits, find_limits
from ridgeline.machine.probe import Probe
from ridgeline.machine.processor import Cpu, Memory, NumaNode
from ridgeline.provenance import os_name
from ridgeline.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One machine, as this process sees it. None where the system does not say."""

    os: str
    kernel: str
    container: str | None  # "docker", "podman", "apptainer", "kubernetes"…
    virtualization: str | None  # "KVM", "WSL 2", …; None: bare metal, as far as can be seen
    cpu: Cpu
    limits: Limits
    numa_nodes: tuple[NumaNode, ...]
    memory: Memory
    gpus: tuple[Gpu, ...]
    drivers: Mapping[str, str]
    libraries: Mapping[str, str]
    python: str
    ridgeline: str
    notes: tuple[str, ...] = ()  # what is uncertain in the above

    @property
    def name(self) -> str:
        return machine_name(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; every quantity in an SI unit that its name ends with."""
        content = asdict(self)
        allowed = self.limits.allowed_cpus
        content["limits"]["allowed_cpus"] = None if allowed is None else sorted(allowed)
        return {"machine": self.name, **content}

    def to_markdown(self) -> str:
        """The environment notes of a report."""
        from ridgeline.machine.describe_text import to_markdown

        return to_markdown(self)


def describe(probe: Probe | None = None) -> Description:
    """Describe this machine. Nothing is measured and no setting is touched."""
    probe = probe or Probe()
    limits = find_limits(probe)
    memory = describe_memory(probe, limits)
    gpus = describe_gpus(probe, ram_bytes=memory.total_bytes)
    return Description(
        os=os_name(probe.read("/etc/os-release"), system=probe.system),
        kernel=probe.kernel,
        container=find_container(probe),
        virtualization=find_virtualization(probe),
        cpu=describe_cpu(probe, limits),
        limits=limits,
        numa_nodes=describe_numa(probe),
        memory=memory,
        gpus=gpus.found,
        drivers=driver_versions(probe, gpus),
        libraries=library_versions(probe),
        python=platform.python_version(),
        ridgeline=__version__,
        notes=gpus.notes,
    )


# ---------------------------------------------------------------- a name

_NOISE = re.compile(
    r"\((?:r|tm|c)\)|\bcpu\b|\bgpu\b|\bprocessor\b|@.*"
    r"|\b\d+-core\b|\b\d+th gen\b|\b(?:with|w/) radeon.*",
    re.IGNORECASE,
)


def machine_name(description: Description) -> str:
    """A short name that stays the same: `nvidia-h200`, `nvidia-l4-x4`, `amd-epyc-2c`.

    By the accelerators that CUDA or ROCm shows, else by the processor and its usable cores:
    with other cores the ceilings are others, too.
    """
    accelerators = [
        name for gpu in description.gpus if gpu.kind != "mps" for name in _visible_names(gpu)
    ]
    if accelerators:
        count = f"-x{len(accelerators)}" if len(accelerators) > 1 else ""
        return slug(accelerators[0]) + count
    cores = description.cpu.usable_cores
    return slug(description.cpu.model) + (f"-{cores}c" if cores else "")


def _visible_names(gpu: Gpu) -> list[str]:
    slices = [f"{gpu.name} MIG {mig.profile}" for mig in gpu.mig_instances if mig.index is not None]
    return slices or ([gpu.name] if gpu.index is not None else [])


def slug(model: str) -> str:
    """A name as a part of a file name: `Intel(R) Core(TM) i7-1360P` is `intel-core-i7-1360p`."""
    plain = _NOISE.sub(" ", model).lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.") or "unknown"

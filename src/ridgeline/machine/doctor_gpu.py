"""Checks of the GPU, its driver, NVML, and of the counters of GPU and CPU."""

from __future__ import annotations

import re

from ridgeline.machine.checks import Facts, Finding, broken, check, first_line, missing, note, ok
from ridgeline.machine.describe_system import kernel_driver
from ridgeline.machine.gpu import Gpu
from ridgeline.machine.limits import has_capability, status_field
from ridgeline.machine.nsight import NCU_VARIABLE, ncu_path

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
NCU_PAGE = "https://developer.nvidia.com/nsight-compute"
ALLOW_COUNTERS = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
    " | sudo tee /etc/modprobe.d/nvidia-counters.conf, then reboot"
)


@check("gpu", "GPU")
def gpu(facts: Facts) -> Finding:
    gpus = facts.description.gpus
    if gpus:
        return ok("; ".join(_about(gpu) for gpu in gpus))
    smi = facts.probe.which("nvidia-smi")
    if smi is not None:
        return broken("nvidia-smi is there, but cannot talk to the driver",
                      "nvidia-smi  # shows the reason; often a reboot after an update")  # fmt: skip
    if _has_nvidia_card(facts):
        if kernel_driver(facts.probe):
            return broken("the driver is loaded, but no device can be seen from here",
                          "in a container: start it with --gpus all")  # fmt: skip
        return broken("an NVIDIA card without NVIDIA's driver",
                      "install the driver: https://www.nvidia.com/drivers")  # fmt: skip
    return missing("none: everything runs on the CPU")


def _about(gpu: Gpu) -> str:
    slices = ", ".join(mig.profile for mig in gpu.mig_instances)
    return f"{gpu.name}, divided into {slices}" if slices else gpu.name


def _has_nvidia_card(facts: Facts) -> bool:
    return any(
        (facts.probe.line(f"{folder}/vendor") or "") == NVIDIA_VENDOR
        and (facts.probe.line(f"{folder}/class") or "").startswith(DISPLAY_CLASS)
        for folder in facts.probe.find("/sys/bus/pci/devices/*")
    )


@check("gpu", "visible to CUDA")
def visible(facts: Facts) -> Finding | None:
    cards = [gpu for gpu in facts.description.gpus if gpu.kind == "cuda"]
    if not cards:
        return None
    indices = [_indices(gpu) for gpu in cards]
    found = "; ".join(f"{gpu.name}: {text}" for gpu, text in zip(cards, indices, strict=True))
    if facts.description.notes:
        return note(found, facts.description.notes[0])
    if any(text == "hidden" for text in indices):
        shown = facts.probe.environ.get("CUDA_VISIBLE_DEVICES")
        return note(found, f"CUDA_VISIBLE_DEVICES is {shown!r}" if shown is not None else "")
    return ok(found)


def _indices(gpu: Gpu) -> str:
    own = [gpu.index, *(mig.index for mig in gpu.mig_instances)]
    seen = [f"cuda:{index}" for index in own if index is not None]
    return ", ".join(seen) or "hidden"


@check("gpu", "NVML")
def nvml(facts: Facts) -> Finding | None:
    if not facts.has_nvidia:
        return None
    version = facts.probe.version("nvidia-ml-py")
    if version is None:
        return missing("not installed: no power, clocks and temperature while measuring",
                       "pip install 'ridgeline[nvidia]'")  # fmt: skip
    if facts.probe.nvml() is None:
        return broken(f"nvidia-ml-py {version}, but the library does not start",
                      "nvidia-smi  # uses the same library and shows the reason")  # fmt: skip
    return ok(f"nvidia-ml-py {version}")


# ---------------------------------------------------------------- counters


@check("counters", "CUPTI")
def cupti(facts: Facts) -> Finding | None:
    if not facts.has_nvidia:
        return None
    if _has_cupti(facts):
        return ok("PyTorch's own: models are counted without Nsight Compute")
    return missing("PyTorch has none that can count: models need Nsight Compute",
                   "pip install a PyTorch for CUDA 12.8 or later")  # fmt: skip


def _has_cupti(facts: Facts) -> bool:
    return bool((facts.torch or {}).get("cupti"))


@check("counters", "Nsight Compute")
def ncu(facts: Facts) -> Finding:
    path = ncu_path(facts.probe)
    if path is None:
        if not facts.has_nvidia:
            return missing("no ncu, and no NVIDIA GPU for it either")
        needed = ": programs of your own and CUDA graphs need it" if _has_cupti(facts) else ""
        return missing(f"ncu is not in PATH or the usual folders{needed}",
                       f"install it from {NCU_PAGE}")  # fmt: skip
    version = re.search(r"Version ([\d.]+)", facts.probe.run((path, "--version")) or "")
    if version is None:
        return broken(f"{path} does not start", f"install it again from {NCU_PAGE}")
    if facts.probe.environ.get(NCU_VARIABLE):
        return ok(f"{version[1]}, at {path}, by {NCU_VARIABLE}")
    if facts.probe.which("ncu") is None:
        return note(f"{version[1]}, at {path}", f'export PATH="{path.rpartition("/")[0]}:$PATH"')
    return ok(version[1])


@check("counters", "GPU counters")
def gpu_counters(facts: Facts) -> Finding | None:
    if not facts.has_nvidia:
        return None
    if facts.description.virtualization in ("WSL", "WSL 2"):
        return note(
            "under WSL, Windows decides who may read them",
            "NVIDIA Control Panel, Desktop, Enable Developer Settings, then"
            " Developer, Manage GPU Performance Counters, Allow access to all users",
        )
    restricted = status_field(
        facts.probe.read("/proc/driver/nvidia/params") or "", "RmProfilingAdminOnly"
    )
    if restricted == "0":
        return ok("everybody may read them")
    status = facts.probe.read("/proc/self/status") or ""
    if has_capability(status, "CAP_SYS_ADMIN"):
        return ok("this process may read them: it has CAP_SYS_ADMIN")
    if restricted is None:
        return note("whether they may be read is not known: the driver's settings are hidden",
                    "`ridgeline profile` says ERR_NVGPUCTRPERM if not")  # fmt: skip
    inside = facts.description.container
    mend = f"start the container with --cap-add SYS_ADMIN, or on the host: {ALLOW_COUNTERS}"
    # Installed but not allowed; without both nothing that is there fails.
    state = broken if ncu_path(facts.probe) or _has_cupti(facts) else note
    return state("only administrators may read them (ERR_NVGPUCTRPERM)",
                 mend if inside else f"{ALLOW_COUNTERS}; or run with sudo")  # fmt: skip


@check("counters", "CPU counters")
def cpu_counters(facts: Facts) -> Finding:
    if facts.probe.system == "Darwin":
        return missing("macOS has no perf; nothing in ridgeline needs it")
    perf = facts.probe.which("perf")
    if perf is None:
        return missing("no perf; nothing in ridgeline needs it",
                       "install your kernel's linux-perf or linux-tools package")  # fmt: skip
    level = facts.probe.number("/proc/sys/kernel/perf_event_paranoid")
    counted = facts.probe.run((perf, "stat", "-x,", "--log-fd", "1", "-e", "cycles", "true"))
    if counted and re.search(r"^\d+,", counted, re.MULTILINE):
        return ok(f"perf counts cycles (perf_event_paranoid is {level})")
    if counted and "not supported" in counted:
        where = facts.description.virtualization
        return note("perf has software events only" + (": a virtual machine" if where else ""),
                    "let the hypervisor pass the counters on" if where else "")  # fmt: skip
    if level is not None and level > 2:
        return broken(f"perf may not count: perf_event_paranoid is {level}",
                      "sudo sysctl kernel.perf_event_paranoid=2")  # fmt: skip
    return broken(f"perf does not count: {first_line(counted) or 'it fails'}",
                  "perf stat true  # shows the reason")  # fmt: skip

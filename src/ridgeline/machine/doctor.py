"""What works here, and how to get what does not.

    for check in diagnose():
        print(check.state, check.name, check.result, check.fix)

To add a check, write a short function of the facts and enter it in CHECKS. It answers with

ok        it works
missing   not there, and ridgeline does without it; `fix` says how to get it
broken    there, but not usable; `fix` says what to change
note      nothing to fix in ridgeline, but it shows in measurements

and cannot fail: an exception in one becomes a line like any other.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ridgeline.machine.cpu import CPUS
from ridgeline.machine.describe import Description, describe, kernel_driver, torch_build
from ridgeline.machine.profilers import NCU_VARIABLE, ncu_path
from ridgeline.machine.system import SystemIO, has_admin_capability, parse_pairs
from ridgeline.sensors.nvidia import Gpu, list_programs
from ridgeline.serialize import to_dict
from ridgeline.units import format_bytes

STATES = ("ok", "missing", "broken", "note")
GROUPS = ("software", "gpu", "counters", "power", "noise")

# In a process of its own: an import that crashes must not end the doctor, and a calculation
# that works is worth more than a version number.
TORCH_QUESTION = """
import json
try:
    import torch
    answer = {"version": torch.__version__, "devices": [], "problem": None}
    answer["mps"] = torch.backends.mps.is_available()
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            answer["devices"].append(torch.cuda.get_device_name(i))
            (torch.ones(8, device=f"cuda:{i}") + 1).sum().item()
        from ridgeline.machine.profilers import has_cupti
        answer["cupti"] = has_cupti()
except Exception as error:
    answer = {**locals().get("answer", {}), "problem": f"{type(error).__name__}: {error}"}
print(json.dumps(answer))
"""
ASK_TORCH = (sys.executable, "-c", TORCH_QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str
    state: str  # one of STATES
    result: str = field(metadata={"key": "found"})
    fix: str = ""  # a command or a setting; empty if there is nothing to do
    group: str = "software"  # one of GROUPS

    def to_dict(self) -> dict[str, str]:
        return dict(to_dict(self))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the checks look at; costly answers are asked for once."""

    io: SystemIO = field(default_factory=SystemIO)
    results: str = "results"  # the folder that results will go to

    @cached_property
    def description(self) -> Description:
        return describe(self.io)

    @cached_property
    def torch(self) -> dict[str, Any] | None:
        """What torch says about itself; None if it does not even start."""
        answer = self.io.run_slow(ASK_TORCH)
        try:
            # The last line: imports of others may print.
            return dict(json.loads((answer or "").strip().splitlines()[-1]))
        except (ValueError, IndexError, TypeError):
            return None

    @property
    def has_cupti(self) -> bool:
        return bool((self.torch or {}).get("cupti"))

    @property
    def nvidia_gpus(self) -> list[Gpu]:
        return [gpu for gpu in self.description.gpus if gpu.kind == "cuda"]


Finding = tuple[str, str, str]  # state, result, fix


def ok(result: str) -> Finding:
    return ("ok", result, "")


def missing(result: str, fix: str = "") -> Finding:
    return ("missing", result, fix)


def broken(result: str, fix: str) -> Finding:
    return ("broken", result, fix)


def note(result: str, advice: str = "") -> Finding:
    return ("note", result, advice)


# ---------------------------------------------------------------- software

CORE = ("numpy", "pandas", "pyarrow", "psutil", "rich", "typer")
# By major version of CUDA; a minor one needs no newer driver:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVER = {
    11: 450,
    12: 525,
    13: 580,
}
INSTALL = {
    "apt-get": "sudo apt-get install",
    "dnf": "sudo dnf install",
    "pacman": "sudo pacman -S",
    "zypper": "sudo zypper install",
    "brew": "brew install",
}
SHORT_BYTES = 5_000_000_000
FULL_BYTES = 200_000_000
TORCH_PAGE = "https://pytorch.org/get-started/locally/"


def check_python(facts: Facts) -> Finding:
    return ok(f"{platform.python_version()}, {platform.python_implementation()}")


def check_core_packages(facts: Facts) -> Finding:
    versions = {name: facts.io.version(name) for name in CORE}
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        return broken(f"without {', '.join(absent)}", f"pip install {' '.join(absent)}")
    return ok(", ".join(f"{name} {version}" for name, version in versions.items()))


def check_torch(facts: Facts) -> Finding:
    version = facts.io.version("torch")
    if version is None:
        return missing("not installed: no networks can be counted or run",
                       "pip install 'ridgeline[torch]'")  # fmt: skip
    answer = facts.torch
    if answer is None:
        return broken(f"{version}, but importing it crashes or takes over a minute",
                      "python -c 'import torch'  # shows the reason")  # fmt: skip
    if "version" not in answer:
        return broken(
            f"{version}, but it does not import: {_first_line(answer['problem'])}",
            "pip install --force-reinstall torch",
        )
    return ok(str(answer["version"]))


def check_torch_and_gpu(facts: Facts) -> Finding | None:
    if facts.io.version("torch") is None or not facts.torch or "version" not in facts.torch:
        return None  # the check before says so
    kinds = {gpu.kind for gpu in facts.description.gpus}
    build = torch_build(facts.io)
    if "mps" in kinds:
        if facts.torch.get("mps"):
            return ok("computes on the GPU (MPS)")
        return broken("torch does not see the GPU",
                      "use macOS 12.3 or later and a Python that is built for arm64")  # fmt: skip
    if "rocm" in kinds:
        if "hip" in build:
            return ok("built for ROCm")
        return broken("an AMD GPU, but a torch that was not built for ROCm", f"see {TORCH_PAGE}")
    return _check_torch_on_cuda(facts, facts.torch, build.get("cuda")) if kinds else None


def _check_torch_on_cuda(facts: Facts, torch: dict[str, Any], cuda: str | None) -> Finding:
    """The build against the driver, then whether it really computes."""
    if cuda is None:
        return broken(
            "a build for the CPU only, though there is an NVIDIA GPU",
            f"pip uninstall torch, then the command that {TORCH_PAGE} gives for CUDA",
        )
    driver = next((gpu.driver for gpu in facts.description.gpus if gpu.driver), None)
    oldest = OLDEST_DRIVER.get(int(cuda.split(".")[0]))
    if driver and oldest and int(driver.split(".")[0]) < oldest:
        return broken(
            f"built for CUDA {cuda}, which needs driver {oldest} or later; here it is {driver}",
            f"update the driver, or install a torch for an older CUDA: {TORCH_PAGE}",
        )
    if torch.get("problem"):
        fix = "nvidia-smi  # is the GPU free and healthy?"
        if "no kernel image" in torch["problem"]:
            fix = f"this build does not know the GPU: install one that does, {TORCH_PAGE}"
        return broken(f"built for CUDA {cuda}, but: {_first_line(torch['problem'])}", fix)
    if torch.get("devices"):
        return ok(f"built for CUDA {cuda}, computes on {', '.join(torch['devices'])}")
    shown = facts.io.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return note(f"torch sees no GPU, as CUDA_VISIBLE_DEVICES is {shown!r}",
                    "unset CUDA_VISIBLE_DEVICES")  # fmt: skip
    return broken(f"built for CUDA {cuda}, but torch sees no GPU",
                  "nvidia-smi  # does the driver answer? in a container: --gpus all")  # fmt: skip


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def check_compiler(facts: Facts) -> Finding:
    there = [(name, path) for name in ("cc", "gcc", "clang") if (path := facts.io.which(name))]
    manager = next((name for name in INSTALL if facts.io.which(name)), None)
    fix = f"{INSTALL[manager]} gcc" if manager else "install gcc"
    if not there:
        return missing("no cc, gcc or clang: CPU ceilings go without compiled kernels", fix)
    for name, path in there:
        version = _first_line(facts.io.run((path, "--version")))
        if version:
            return ok(f"{name}: {version}")
    fix = "xcode-select --install" if facts.io.system == "Darwin" else fix
    return broken(f"{there[0][1]} does not start", fix)


def check_slurm(facts: Facts) -> Finding:
    sinfo, sbatch = facts.io.which("sinfo"), facts.io.which("sbatch")
    if sinfo is None or sbatch is None:
        return missing("no sinfo and sbatch: sweeps run on this machine only")
    partitions = facts.io.run((sinfo, "--noheader", "--format=%P"))
    if partitions is None:
        return broken("sinfo is there, but the controller does not answer",
                      "scontrol ping  # then ask those who run the cluster")  # fmt: skip
    names = sorted({line.strip() for line in partitions.splitlines() if line.strip()})
    return ok(f"partitions {', '.join(names) or 'none'}")


def check_results_disk(facts: Facts) -> Finding:
    return _check_disk(facts, facts.results, "choose another folder with --results DIR")


def check_temporary_disk(facts: Facts) -> Finding:
    return _check_disk(facts, tempfile.gettempdir(), "export TMPDIR=DIR, on a disk with room")


def _check_disk(facts: Facts, folder: str, fix: str) -> Finding:
    free = facts.io.free_bytes(folder)
    if free is None:
        return note("the room that is left cannot be read")
    result = f"{format_bytes(free)} free"
    if not facts.io.is_writable(folder):
        return broken(f"{result}, but it cannot be written to", fix)
    if free < FULL_BYTES:
        return broken(result, f"make room, or {fix}")
    if free < SHORT_BYTES:
        return note(f"{result}: profiles with counters can take more", fix)
    return ok(result)


# ---------------------------------------------------------------- GPU

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
DRIVER_SETTINGS = "/proc/driver/nvidia/params"
NCU_PAGE = "https://developer.nvidia.com/nsight-compute"
ALLOW_COUNTERS = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
    " | sudo tee /etc/modprobe.d/nvidia-counters.conf, then reboot"
)


def check_gpu(facts: Facts) -> Finding:
    gpus = facts.description.gpus
    if gpus:
        return ok("; ".join(map(_name_with_slices, gpus)))
    if facts.io.which("nvidia-smi"):
        if facts.io.version("nvidia-ml-py") is None:
            return broken("the CUDA driver shows no device, and nvidia-ml-py is not installed",
                          "pip install 'ridgeline[nvidia]'")  # fmt: skip
        return broken("nvidia-smi is there, but neither NVML nor CUDA shows a device",
                      "nvidia-smi  # shows the reason; often a reboot after an update")  # fmt: skip
    if _has_nvidia_card(facts):
        if kernel_driver(facts.io):
            return broken("the driver is loaded, but no device can be seen from here",
                          "in a container: start it with --gpus all")  # fmt: skip
        return broken("an NVIDIA card without NVIDIA's driver",
                      "install the driver: https://www.nvidia.com/drivers")  # fmt: skip
    return missing("none: everything runs on the CPU")


def _name_with_slices(gpu: Gpu) -> str:
    slices = ", ".join(mig.profile for mig in gpu.mig_instances)
    return f"{gpu.name}, divided into {slices}" if slices else gpu.name


def _has_nvidia_card(facts: Facts) -> bool:
    return any(
        (facts.io.line(f"{folder}/vendor") or "") == NVIDIA_VENDOR
        and (facts.io.line(f"{folder}/class") or "").startswith(DISPLAY_CLASS)
        for folder in facts.io.find("/sys/bus/pci/devices/*")
    )


def check_visible(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    indices = {gpu: _list_indices(gpu) for gpu in facts.nvidia_gpus}
    result = "; ".join(f"{gpu.name}: {text or 'hidden'}" for gpu, text in indices.items())
    if all(indices.values()):
        return ok(result)
    shown = facts.io.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return note(result, f"CUDA_VISIBLE_DEVICES is {shown!r}")
    return note(result, "; ".join(facts.description.notes))


def _list_indices(gpu: Gpu) -> str:
    own = [gpu.index, *(mig.index for mig in gpu.mig_instances)]
    return ", ".join(f"cuda:{index}" for index in own if index is not None)


def check_nvml(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    version = facts.io.version("nvidia-ml-py")
    if version is None:
        return missing("nvidia-ml-py is not installed: no power, clocks and temperature",
                       "pip install 'ridgeline[nvidia]'")  # fmt: skip
    if facts.io.nvml() is None:
        return broken(f"nvidia-ml-py {version}, but the library does not start",
                      "nvidia-smi  # uses the same library and shows the reason")  # fmt: skip
    return ok(f"nvidia-ml-py {version}")


# ---------------------------------------------------------------- counters


def check_cupti(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    if facts.has_cupti:
        return ok("PyTorch's own: models are counted without Nsight Compute")
    return missing("PyTorch has none that can count: models need Nsight Compute",
                   "pip install a PyTorch for CUDA 12.8 or later")  # fmt: skip


def check_ncu(facts: Facts) -> Finding:
    path = ncu_path(facts.io)
    if path is None:
        if not facts.nvidia_gpus:
            return missing("no ncu, and no NVIDIA GPU for it either")
        needed = ": programs of your own and CUDA graphs need it" if facts.has_cupti else ""
        return missing(f"ncu is not in PATH or the usual folders{needed}",
                       f"install it from {NCU_PAGE}")  # fmt: skip
    version = re.search(r"Version ([\d.]+)", facts.io.run((path, "--version")) or "")
    if version is None:
        return broken(f"{path} does not start", f"install it again from {NCU_PAGE}")
    if facts.io.environ.get(NCU_VARIABLE):
        return ok(f"{version[1]}, at {path}, by {NCU_VARIABLE}")
    if facts.io.which("ncu") is None:
        return note(f"{version[1]}, at {path}", f'export PATH="{path.rpartition("/")[0]}:$PATH"')
    return ok(version[1])


def check_gpu_counters(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    if facts.description.virtualization in ("WSL", "WSL 2"):
        return note(
            "under WSL, Windows decides who may read them",
            "NVIDIA Control Panel, Desktop, Enable Developer Settings, then"
            " Developer, Manage GPU Performance Counters, Allow access to all users",
        )
    restricted = parse_pairs(facts.io.read(DRIVER_SETTINGS) or "").get("RmProfilingAdminOnly")
    if restricted == "0":
        return ok("everybody may read them")
    if has_admin_capability(facts.io.read("/proc/self/status") or ""):
        return ok("this process may read them: it has CAP_SYS_ADMIN")
    if restricted is None:
        return note("whether they may be read is not known: the driver's settings are hidden",
                    "`ridgeline profile` says ERR_NVGPUCTRPERM if not")  # fmt: skip
    fix = f"{ALLOW_COUNTERS}; or run with sudo"
    if facts.description.container:
        fix = f"start the container with --cap-add SYS_ADMIN, or on the host: {ALLOW_COUNTERS}"
    # Installed but not allowed; without both nothing that is there fails.
    state = broken if ncu_path(facts.io) or facts.has_cupti else note
    return state("only administrators may read them (ERR_NVGPUCTRPERM)", fix)


# ---------------------------------------------------------------- power

RAPL = "/sys/class/powercap"
ALLOW_RAPL = "sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj  # until the next start"
BUSY_SHARE = 0.25  # of the usable threads
THERMAL = ("software thermal", "hardware thermal", "hardware slowdown", "power brake")


def check_cpu_energy(facts: Facts) -> Finding:
    if facts.io.system == "Darwin":
        return missing("macOS gives it to root only, through powermetrics")
    zones = facts.io.find(f"{RAPL}/intel-rapl:*")
    if not zones and facts.description.virtualization:
        return missing("no RAPL: the virtual machine does not pass it on")
    if not zones:
        return missing("no RAPL", "sudo modprobe intel_rapl_common intel_rapl_msr")
    if any(facts.io.number(f"{zone}/energy_uj") is None for zone in zones):
        return missing("RAPL is there, but only root may read it", ALLOW_RAPL)
    names = [facts.io.line(f"{zone}/name") or zone.rpartition("/")[2] for zone in zones]
    return ok(f"RAPL of {', '.join(names)}")


def check_gpu_power(facts: Facts) -> Finding | None:
    cards = facts.nvidia_gpus
    if not cards:
        return None
    if all(gpu.power_limit_w is None for gpu in cards):
        return missing("this device or its driver does not tell its power")
    for gpu in cards:
        usual_w = gpu.default_power_limit_w
        if gpu.power_limit_w and usual_w and gpu.power_limit_w < usual_w - 0.5:
            return note(
                f"{gpu.name} is limited to {gpu.power_limit_w:g} W, not its usual {usual_w:g} W",
                "roofs measured here hold for this limit only",
            )
    return ok(", ".join(f"{g.name}: limit {g.power_limit_w:g} W" for g in cards if g.power_limit_w))


def check_mains(facts: Facts) -> Finding | None:
    is_plugged_in = facts.io.is_plugged_in()
    if is_plugged_in is None:
        return None  # no battery
    if is_plugged_in:
        return ok("plugged in")
    return note("on battery: clocks are held down", "plug it in before you measure")


# ---------------------------------------------------------------- noise


def check_governor(facts: Facts) -> Finding | None:
    if facts.io.system == "Darwin":
        return None
    name = facts.description.cpu.governor
    if name is None:
        where = "the host decides" if facts.description.virtualization else "no cpufreq driver"
        return note(f"cannot be read: {where}", "look at the spread of what is measured")
    if name == "performance":
        return ok(name)
    return note(f"{name}: the clock follows the load",
                "sudo cpupower frequency-set --governor performance")  # fmt: skip


def check_turbo(facts: Facts) -> Finding | None:
    no_turbo = facts.io.number(f"{CPUS}/intel_pstate/no_turbo")
    boost = facts.io.number(f"{CPUS}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return None
    if no_turbo == 1 or boost == 0:
        return ok("off: the clock does not depend on heat and on how many cores work")
    return note("on: the clock depends on heat and on how many cores work",
                "compare sustained values, not the best ones")  # fmt: skip


def check_load(facts: Facts) -> Finding | None:
    load, threads = facts.io.load(), facts.description.cpu.usable_threads
    if load is None or threads is None:
        return None
    result = f"{load:.2f} over the last minute, for {threads} usable threads"
    if load > BUSY_SHARE * threads:
        return note(result, "top  # wait until what else runs is done")
    return ok(result)


def check_limits(facts: Facts) -> Finding | None:
    """What a container or a batch system holds back."""
    cpu, limits, container = (
        facts.description.cpu, facts.description.limits, facts.description.container,
    )  # fmt: skip
    every, total = cpu.logical_cores or 0, facts.description.memory.total_bytes
    parts = []
    if cpu.usable_threads and cpu.usable_threads < every:
        parts.append(f"{cpu.usable_threads} of {every} threads")
    if limits.cpu_quota is not None and limits.cpu_quota < every:
        parts.append(f"a quota of {limits.cpu_quota:g} CPUs")
    if limits.memory_bytes is not None and (total is None or limits.memory_bytes < total):
        parts.append(f"{format_bytes(limits.memory_bytes)} of memory")
    if parts:
        return note(", ".join(parts), "ceilings measured here hold for this share of the machine")
    return ok("none" if container is None else f"none, in a container ({container})")


def check_gpu_throttling(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    held = [
        f"{gpu.name}: {', '.join(reasons)}"
        for gpu in facts.nvidia_gpus
        if (reasons := [reason for reason in gpu.throttle_reasons if reason in THERMAL])
    ]
    if held:
        return note("; ".join(held), "let it cool; nvidia-smi -q -d PERFORMANCE shows more")
    return ok("not now")


def check_gpu_programs(facts: Facts) -> Finding | None:
    if not facts.nvidia_gpus:
        return None
    nvml = facts.io.nvml()
    if nvml is None:
        return note("cannot be listed without NVML")
    programs = [f"{name.rpartition('/')[2]} ({pid})" for pid, name in list_programs(nvml)]
    if programs:
        return note(", ".join(programs[:5]), "wait for them, or choose another GPU")
    return ok("none")


# ---------------------------------------------------------------- the table

CHECKS: tuple[tuple[str, str, Callable[[Facts], Finding | None]], ...] = (
    ("software", "Python", check_python),
    ("software", "core packages", check_core_packages),
    ("software", "torch", check_torch),
    ("software", "torch and the GPU", check_torch_and_gpu),
    ("software", "compiler", check_compiler),
    ("software", "Slurm", check_slurm),
    ("software", "disk for results", check_results_disk),
    ("software", "disk for temporary files", check_temporary_disk),
    ("gpu", "GPU", check_gpu),
    ("gpu", "visible to CUDA", check_visible),
    ("gpu", "NVML", check_nvml),
    ("counters", "CUPTI", check_cupti),
    ("counters", "Nsight Compute", check_ncu),
    ("counters", "GPU counters", check_gpu_counters),
    ("power", "CPU energy", check_cpu_energy),
    ("power", "GPU power", check_gpu_power),
    ("power", "mains", check_mains),
    ("noise", "clock governor", check_governor),
    ("noise", "turbo", check_turbo),
    ("noise", "load", check_load),
    ("noise", "limits", check_limits),
    ("noise", "GPU throttling", check_gpu_throttling),
    ("noise", "other programs on the GPU", check_gpu_programs),
)  # group, name, check; which answers None where its question does not arise


def diagnose(
    facts: Facts | None = None, *, before: Callable[[str], object] = lambda name: None
) -> list[Check]:
    """Every check that applies here, by group. `before` gets the name of each as it begins."""
    facts = facts or Facts()
    checks = []
    for group, name, function in CHECKS:
        before(name)
        finding = _run_check(function, facts)
        if finding is not None:
            state, result, fix = finding
            checks.append(Check(group=group, name=name, state=state, result=result, fix=fix))
    return checks


def _run_check(function: Callable[[Facts], Finding | None], facts: Facts) -> Finding | None:
    try:
        return function(facts)
    except Exception as error:  # one check that fails must not cost the others
        text = " ".join(str(error).split())[:200]
        return broken(
            f"the check itself failed: {type(error).__name__}: {text}",
            "please report this line as a bug of ridgeline",
        )


def is_healthy(checks: Iterable[Check]) -> bool:
    """Whether nothing is broken; what is only missing does not count."""
    return all(check.state != "broken" for check in checks)

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
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ridgeline.machine.describe import Description, describe, kernel_driver, torch_build
from ridgeline.machine.system import (
    NCU_VARIABLE,
    SystemIO,
    has_admin_capability,
    ncu_path,
    parse_pairs,
)
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
        from ridgeline.machine.system import has_cupti
        answer["cupti"] = has_cupti()
    answer["cudnn"] = torch.backends.cudnn.version()
except Exception as error:
    answer = {**locals().get("answer", {}), "problem": f"{type(error).__name__}: {error}"}
print(json.dumps(answer))
"""
ASK_TORCH = (sys.executable, "-c", TORCH_QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str = ""
    state: str  # one of STATES
    result: str = field(metadata={"key": "found"})
    fix: str = ""  # a command or a setting; empty if there is nothing to do
    group: str = ""  # one of GROUPS

    def to_dict(self) -> dict[str, str]:
        return dict(to_dict(self))


def _make_check(state: str, result: str, fix: str = "") -> Check:
    return Check(state=state, result=result, fix=fix)


ok, missing, broken, note = (partial(_make_check, state) for state in STATES)


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
    def nvidia_gpus(self) -> list[Gpu]:
        return [gpu for gpu in self.description.gpus if gpu.kind == "cuda"]

    @property
    def has_cupti(self) -> bool:
        return bool((self.torch or {}).get("cupti"))


# ---------------------------------------------------------------- software

# By major version of CUDA; a minor one needs no newer driver:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
FULL_BYTES = 200_000_000
TORCH_PAGE = "https://pytorch.org/get-started/locally/"


def check_torch(facts: Facts) -> Check:
    version, answer = facts.io.version("torch"), facts.torch
    if version is None:
        fix = "pip install 'ridgeline[torch]'"
        return missing("not installed: no networks can be counted or run", fix)
    if answer is None:
        fix = "python -c 'import torch'  # shows the reason"
        return broken(f"{version}, but importing it crashes or takes over a minute", fix)
    if "version" not in answer:
        reason = _first_line(answer["problem"])
        fix = "pip install --force-reinstall torch"
        return broken(f"{version}, but it does not import: {reason}", fix)
    return ok(str(answer["version"]))


def check_torch_and_gpu(facts: Facts) -> Check | None:
    kinds, torch = {gpu.kind for gpu in facts.description.gpus}, facts.torch or {}
    if not kinds or facts.io.version("torch") is None or "version" not in torch:
        return None  # the check before says so
    build = torch_build(facts.io)
    if "mps" in kinds and not torch.get("mps"):
        return broken("torch does not see the GPU", "use a Python that is built for arm64")
    if "cuda" in kinds:
        return _check_torch_on_cuda(facts, torch, build.get("cuda"))
    return ok("computes on the GPU (MPS)")


def _check_torch_on_cuda(facts: Facts, torch: dict[str, Any], cuda: str | None) -> Check:
    """The build against the driver, then whether it really computes."""
    if cuda is None:
        fix = f"pip uninstall torch, then the command that {TORCH_PAGE} gives for CUDA"
        return broken("a build for the CPU only, though there is an NVIDIA GPU", fix)
    build = f"built for CUDA {cuda}"
    driver = next((gpu.driver for gpu in facts.nvidia_gpus if gpu.driver), None)
    oldest = OLDEST_DRIVER.get(int(cuda.split(".")[0]))
    if driver and oldest and int(driver.split(".")[0]) < oldest:
        fix = f"update the driver, or install a torch for an older CUDA: {TORCH_PAGE}"
        return broken(f"{build}, which needs driver {oldest} or later; here it is {driver}", fix)
    if torch.get("problem"):
        fix = "nvidia-smi  # is the GPU free and healthy?"
        if "no kernel image" in torch["problem"]:
            fix = f"this build does not know the GPU: install one that does, {TORCH_PAGE}"
        return broken(f"{build}, but: {_first_line(torch['problem'])}", fix)
    if torch.get("devices"):
        return ok(f"{build}, computes on {', '.join(torch['devices'])}")
    shown = facts.io.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        result = f"torch sees no GPU, as CUDA_VISIBLE_DEVICES is {shown!r}"
        return note(result, "unset CUDA_VISIBLE_DEVICES")
    fix = "nvidia-smi  # does the driver answer? in a container: --gpus all"
    return broken(f"{build}, but torch sees no GPU", fix)


def _first_line(text: str | None) -> str:
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def check_cudnn(facts: Facts) -> Check | None:
    """The version that torch has loaded; a torch for the CPU has no use for it."""
    cuda, torch = torch_build(facts.io).get("cuda"), facts.torch or {}
    if cuda is None or "cudnn" not in torch:
        return None
    if torch.get("cudnn"):
        return ok(_read_cudnn_version(torch["cudnn"]))
    fix = f"pip install nvidia-cudnn-cu{cuda.split('.')[0]}"
    return missing(f"torch for CUDA {cuda} does not find it: no fast convolutions on a GPU", fix)


def _read_cudnn_version(number: int) -> str:
    """`9.26.0` of 92600; before version 9 the major part counted thousands."""
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def check_compiler(facts: Facts) -> Check:
    there = [path for name in ("cc", "gcc", "clang") if (path := facts.io.which(name))]
    versions = (_first_line(facts.io.run((path, "--version"))) for path in there)
    if version := next(filter(None, versions), None):
        return ok(version)
    fix = "xcode-select --install" if facts.io.system == "Darwin" else "install gcc"
    if there:
        return broken(f"{there[0]} does not start", fix)
    return missing("no cc, gcc or clang: CPU ceilings go without compiled kernels", fix)


def check_slurm(facts: Facts) -> Check:
    sinfo, sbatch = facts.io.which("sinfo"), facts.io.which("sbatch")
    if sinfo is None or sbatch is None:
        return missing("no sinfo and sbatch: sweeps run on this machine only")
    partitions = facts.io.run((sinfo, "--noheader", "--format=%P"))
    if partitions is None:
        return missing("sinfo is there, but the controller does not answer: `scontrol ping`")
    names = sorted({line.strip() for line in partitions.splitlines() if line.strip()})
    return ok(f"partitions {', '.join(names) or 'none'}")


def check_results_disk(facts: Facts) -> Check:
    fix = "choose another folder with --results DIR"
    free, is_writable = facts.io.disk(facts.results)
    result = f"{format_bytes(free)} free"
    if not is_writable:
        return broken(f"{result}, but it cannot be written to", fix)
    return ok(result) if free > FULL_BYTES else broken(result, f"make room, or {fix}")


# ---------------------------------------------------------------- GPU

DRIVER_SETTINGS = "/proc/driver/nvidia/params"
INSTALL_NVML = "pip install 'ridgeline[nvidia]'"
NCU_PAGE = "https://developer.nvidia.com/nsight-compute"
ALLOW_COUNTERS = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
    " | sudo tee /etc/modprobe.d/nvidia-counters.conf, then reboot"
)


def check_gpu(facts: Facts) -> Check:
    gpus = facts.description.gpus
    if gpus:
        return ok("; ".join(_name_gpu(gpu, facts.io.environ) for gpu in gpus))
    if facts.io.which("nvidia-smi"):
        if facts.io.version("nvidia-ml-py") is None:
            result = "the CUDA driver shows no device, and nvidia-ml-py is not installed"
            return broken(result, INSTALL_NVML)
        fix = "nvidia-smi  # shows the reason; often a reboot after an update"
        return broken("nvidia-smi is there, but neither NVML nor CUDA shows a device", fix)
    if kernel_driver(facts.io):
        result = "the driver is loaded, but no device can be seen from here"
        return broken(result, "in a container: start it with --gpus all")
    return missing("none: everything runs on the CPU")


def _name_gpu(gpu: Gpu, environ: Mapping[str, str]) -> str:
    """With the index that CUDA gives to it, or to its slices."""
    own = [gpu.index, *(mig.index for mig in gpu.mig_instances)]
    indices = ", ".join(f"cuda:{index}" for index in own if index is not None)
    if gpu.kind == "mps" or indices:
        return f"{gpu.name} ({indices or 'mps'})"
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    why = "" if shown is None else f", as CUDA_VISIBLE_DEVICES is {shown!r}"
    return f"{gpu.name} (hidden from CUDA{why})"


def check_nvml(facts: Facts) -> Check:
    version = facts.io.version("nvidia-ml-py")
    if version is None:
        result = "nvidia-ml-py is not installed: no power, clocks and temperature"
        return missing(result, INSTALL_NVML)
    if facts.io.nvml() is None:
        fix = "nvidia-smi  # uses the same library and shows the reason"
        return broken(f"nvidia-ml-py {version}, but the library does not start", fix)
    return ok(f"nvidia-ml-py {version}")


# ---------------------------------------------------------------- counters


def check_cupti(facts: Facts) -> Check:
    if facts.has_cupti:
        return ok("PyTorch's own: models are counted without Nsight Compute")
    fix = "pip install a PyTorch for CUDA 12.8 or later"
    return missing("PyTorch has none that can count: models need Nsight Compute", fix)


def check_ncu(facts: Facts) -> Check:
    path = ncu_path(facts.io)
    if path is None:
        needed = ": programs of your own and CUDA graphs need it" if facts.has_cupti else ""
        return missing(f"no ncu in PATH or the usual folders{needed}", f"install it: {NCU_PAGE}")
    version = re.search(r"Version ([\d.]+)", facts.io.run((path, "--version")) or "")
    if version is None:
        return broken(f"{path} does not start", f"install it again from {NCU_PAGE}")
    if facts.io.environ.get(NCU_VARIABLE):
        return ok(f"{version[1]}, at {path}, by {NCU_VARIABLE}")
    return ok(version[1] if facts.io.which("ncu") else f"{version[1]}, at {path}")


def check_gpu_counters(facts: Facts) -> Check:
    restricted = parse_pairs(facts.io.read(DRIVER_SETTINGS) or "").get("RmProfilingAdminOnly")
    if restricted == "0":
        return ok("everybody may read them")
    if has_admin_capability(facts.io.read("/proc/self/status") or ""):
        return ok("this process may read them: it has CAP_SYS_ADMIN")
    if restricted is None:
        result = "whether they may be read is not known: the driver's settings are hidden"
        return note(result, "`ridgeline profile` says ERR_NVGPUCTRPERM if not")
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


def check_cpu_energy(facts: Facts) -> Check:
    if facts.io.system == "Darwin":
        return missing("not read on macOS")
    zones = facts.io.find(f"{RAPL}/intel-rapl:*")
    if not zones:
        if facts.description.virtualization:
            return missing("no RAPL: the virtual machine does not pass it on")
        return missing("no RAPL", "sudo modprobe intel_rapl_common intel_rapl_msr")
    if any(facts.io.number(f"{zone}/energy_uj") is None for zone in zones):
        return missing("RAPL is there, but only root may read it", ALLOW_RAPL)
    names = [facts.io.line(f"{zone}/name") or zone.rpartition("/")[2] for zone in zones]
    return ok(f"RAPL of {', '.join(names)}")


def check_gpu_power(facts: Facts) -> Check:
    limits = []
    for gpu in facts.nvidia_gpus:
        limit_w, usual_w = gpu.power_limit_w, gpu.default_power_limit_w
        if limit_w and usual_w and limit_w < usual_w - 0.5:
            result = f"{gpu.name} is limited to {limit_w:g} W, not its usual {usual_w:g} W"
            return note(result, "roofs measured here hold for this limit only")
        limits += [f"{gpu.name}: limit {limit_w:g} W"] if limit_w else []
    return ok(", ".join(limits)) if limits else missing("the driver tells no power")


# ---------------------------------------------------------------- noise


def check_governor(facts: Facts) -> Check | None:
    if facts.io.system == "Darwin":
        return None
    name = facts.description.cpu.governor
    if name is None:
        where = "the host decides" if facts.description.virtualization else "no cpufreq driver"
        return note(f"cannot be read: {where}", "look at the spread of what is measured")
    fix = "sudo cpupower frequency-set --governor performance"
    return ok(name) if name == "performance" else note(f"{name}: the clock follows the load", fix)


def check_load(facts: Facts) -> Check | None:
    load, threads = facts.io.load(), facts.description.cpu.usable_threads
    if load is None or threads is None:
        return None
    result = f"{load:.2f} over the last minute, for {threads} usable threads"
    if load > BUSY_SHARE * threads:
        return note(result, "top  # wait until what else runs is done")
    return ok(result)


def check_limits(facts: Facts) -> Check:
    """What a container or a batch system holds back."""
    limits, cpu = facts.description.limits, facts.description.cpu
    parts = []
    if cpu.usable_threads and cpu.usable_threads < (cpu.logical_cores or 0):
        parts.append(f"{cpu.usable_threads} of {cpu.logical_cores} threads")
    if limits.memory_bytes is not None:
        parts.append(f"{format_bytes(limits.memory_bytes)} of memory")
    if parts:
        return note(", ".join(parts), "ceilings measured here hold for this share of the machine")
    container = facts.description.container
    return ok("none" if container is None else f"none, in a container ({container})")


def check_gpu_programs(facts: Facts) -> Check:
    nvml = facts.io.nvml()
    if nvml is None:
        return note("cannot be listed without NVML")
    programs = [f"{name.rpartition('/')[2]} ({pid})" for pid, name in list_programs(nvml)]
    if programs:
        return note(", ".join(programs[:5]), "wait for them, or choose another GPU")
    return ok("none")


# ---------------------------------------------------------------- the table

CHECKS: tuple[tuple[str, str, Callable[[Facts], Check | None]], ...] = (
    ("software", "torch", check_torch),
    ("software", "torch and the GPU", check_torch_and_gpu),
    ("software", "cuDNN", check_cudnn),
    ("software", "compiler", check_compiler),
    ("software", "Slurm", check_slurm),
    ("software", "disk for results", check_results_disk),
    ("gpu", "GPU", check_gpu),
    ("gpu", "NVML", check_nvml),
    ("counters", "CUPTI", check_cupti),
    ("counters", "Nsight Compute", check_ncu),
    ("counters", "GPU counters", check_gpu_counters),
    ("power", "CPU energy", check_cpu_energy),
    ("power", "GPU power", check_gpu_power),
    ("noise", "clock governor", check_governor),
    ("noise", "load", check_load),
    ("noise", "limits", check_limits),
    ("noise", "other programs on the GPU", check_gpu_programs),
)  # group, name, check; which answers None where its question does not arise
OF_NVIDIA_GPUS = (
    check_nvml, check_cupti, check_gpu_counters, check_gpu_power, check_gpu_programs,
)  # fmt: skip


def diagnose(
    facts: Facts | None = None, *, before: Callable[[str], object] = lambda name: None
) -> list[Check]:
    """Every check that applies here, by group. `before` gets the name of each as it begins."""
    facts = facts or Facts()
    checks = []
    for group, name, function in CHECKS:
        before(name)
        check = _run_check(function, facts)
        if check is not None:
            checks.append(replace(check, group=group, name=name))
    return checks


def _run_check(function: Callable[[Facts], Check | None], facts: Facts) -> Check | None:
    try:
        return None if function in OF_NVIDIA_GPUS and not facts.nvidia_gpus else function(facts)
    except Exception as error:  # one check that fails must not cost the others
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return broken(f"the check itself failed: {text}", "report this line as a bug of ridgeline")


def is_healthy(checks: Iterable[Check]) -> bool:
    """Whether nothing is broken; what is only missing does not count."""
    return all(check.state != "broken" for check in checks)

"""Checks of Python, packages, torch, compilers, Slurm, browser and disk."""

from __future__ import annotations

import platform
import sys
import tempfile

from ridgeline.machine.checks import Facts, Finding, broken, check, first_line, missing, note, ok
from ridgeline.machine.describe_system import torch_build
from ridgeline.units import format_bytes

CORE = ("numpy", "pandas", "pyarrow", "psutil", "rich", "typer")
OLDEST_PYTHON = (3, 11)
# By major version of CUDA; a minor one needs no newer driver:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVER = {
    11: 450,
    12: 525,
    13: 580,
}
BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)  # fmt: skip
LITTLE_ROOM_BYTES = 5_000_000_000
NO_ROOM_BYTES = 200_000_000
TORCH_PAGE = "https://pytorch.org/get-started/locally/"


@check("software", "Python")
def python(facts: Facts) -> Finding:
    found = f"{platform.python_version()}, {platform.python_implementation()}"
    if sys.version_info < OLDEST_PYTHON:
        return broken(found, "install Python 3.11 or later")
    return ok(found)


@check("software", "core packages")
def core_packages(facts: Facts) -> Finding:
    versions = {name: facts.probe.version(name) for name in CORE}
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        return broken(f"without {', '.join(absent)}", f"pip install {' '.join(absent)}")
    return ok(", ".join(f"{name} {version}" for name, version in versions.items()))


@check("software", "torch")
def torch(facts: Facts) -> Finding:
    version = facts.probe.version("torch")
    if version is None:
        return missing("not installed: no networks can be counted or run",
                       "pip install 'ridgeline[torch]'")  # fmt: skip
    answer = facts.torch
    if answer is None:
        return broken(f"{version}, but importing it crashes or takes over a minute",
                      "python -c 'import torch'  # shows the reason")  # fmt: skip
    if "version" not in answer:
        return broken(
            f"{version}, but it does not import: {first_line(answer['problem'])}",
            "pip install --force-reinstall torch",
        )
    return ok(str(answer["version"]))


@check("software", "torch and the GPU")
def torch_and_gpu(facts: Facts) -> Finding | None:
    if facts.probe.version("torch") is None or not facts.torch or "version" not in facts.torch:
        return None  # said by the check before
    kinds = {gpu.kind for gpu in facts.description.gpus}
    if "mps" in kinds:
        return _torch_on_mac(facts)
    if not kinds:
        return None
    build = torch_build(facts.probe)
    if "rocm" in kinds and "hip" not in build:
        return broken("an AMD GPU, but a torch that was not built for ROCm", f"see {TORCH_PAGE}")
    return _torch_on_cuda(facts, build.get("cuda")) if "cuda" in kinds else ok("built for ROCm")


def _torch_on_mac(facts: Facts) -> Finding:
    if facts.torch and facts.torch.get("mps"):
        return ok("computes on the GPU (MPS)")
    return broken("torch does not see the GPU",
                  "use macOS 12.3 or later and a Python that is built for arm64")  # fmt: skip


def _torch_on_cuda(facts: Facts, cuda: str | None) -> Finding:
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
    answer = facts.torch or {}
    if answer.get("problem"):
        return broken(f"built for CUDA {cuda}, but: {first_line(answer['problem'])}",
                      _mend_calculation(answer))  # fmt: skip
    if not answer.get("devices"):
        return _unseen(facts, cuda)
    return ok(f"built for CUDA {cuda}, computes on {', '.join(answer['devices'])}")


def _mend_calculation(answer: dict[str, object]) -> str:
    if "no kernel image" in str(answer.get("problem")):
        return f"this build does not know the GPU: install one that does, {TORCH_PAGE}"
    return "nvidia-smi  # is the GPU free and healthy?"


def _unseen(facts: Facts, cuda: str) -> Finding:
    shown = facts.probe.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return note(f"torch sees no GPU, as CUDA_VISIBLE_DEVICES is {shown!r}",
                    "unset CUDA_VISIBLE_DEVICES")  # fmt: skip
    return broken(f"built for CUDA {cuda}, but torch sees no GPU",
                  "nvidia-smi  # does the driver answer? in a container: --gpus all")  # fmt: skip


@check("software", "compiler")
def compiler(facts: Facts) -> Finding:
    found = [(name, path) for name in ("cc", "gcc", "clang") if (path := facts.probe.which(name))]
    if not found:
        return missing("no cc, gcc or clang: CPU ceilings go without compiled kernels",
                       _install(facts, "gcc"))  # fmt: skip
    for name, path in found:
        version = first_line(facts.probe.run((path, "--version")))
        if version:
            return ok(f"{name}: {version}")
    mend = "xcode-select --install" if facts.probe.system == "Darwin" else _install(facts, "gcc")
    return broken(f"{found[0][1]} does not start", mend)


@check("software", "Slurm")
def slurm(facts: Facts) -> Finding:
    sinfo, sbatch = facts.probe.which("sinfo"), facts.probe.which("sbatch")
    if sinfo is None or sbatch is None:
        return missing("no sinfo and sbatch: sweeps run on this machine only")
    partitions = facts.probe.run((sinfo, "--noheader", "--format=%P"))
    if partitions is None:
        return broken("sinfo is there, but the controller does not answer",
                      "scontrol ping  # then ask those who run the cluster")  # fmt: skip
    names = sorted({line.strip() for line in partitions.splitlines() if line.strip()})
    return ok(f"partitions {', '.join(names) or 'none'}")


@check("software", "browser")
def browser(facts: Facts) -> Finding:
    path = next((path for name in BROWSERS if (path := facts.probe.which(name))), None)
    if path is None:
        return missing("no Chromium or Chrome: reports are written, not drawn as pictures",
                       _install(facts, "chromium"))  # fmt: skip
    version = first_line(facts.probe.run((path, "--version")))
    if not version:
        return broken(f"{path} does not start", _install(facts, "chromium"))
    return ok(version)


@check("software", "disk for results")
def results_disk(facts: Facts) -> Finding:
    return _disk(facts, facts.results, "choose another folder with --results DIR")


@check("software", "disk for temporary files")
def temporary_disk(facts: Facts) -> Finding:
    return _disk(facts, tempfile.gettempdir(), "export TMPDIR=DIR, on a disk with room")


def _disk(facts: Facts, folder: str, mend: str) -> Finding:
    free = facts.probe.free_bytes(folder)
    if free is None:
        return note("the room that is left cannot be read")
    found = f"{format_bytes(free)} free"
    if not facts.probe.is_writable(folder):
        return broken(f"{found}, but it cannot be written to", mend)
    if free < NO_ROOM_BYTES:
        return broken(found, f"make room, or {mend}")
    if free < LITTLE_ROOM_BYTES:
        return note(f"{found}: profiles with counters can take more", mend)
    return ok(found)


def _install(facts: Facts, package: str) -> str:
    """The command of the system's own package manager."""
    managers = {
        "apt-get": f"sudo apt-get install {package}",
        "dnf": f"sudo dnf install {package}",
        "pacman": f"sudo pacman -S {package}",
        "zypper": f"sudo zypper install {package}",
        "brew": f"brew install {package}",
    }
    known = next((mend for name, mend in managers.items() if facts.probe.which(name)), None)
    return known or f"install {package}"

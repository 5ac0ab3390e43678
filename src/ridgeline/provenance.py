"""Where a number came from: the machine, software and command that made it.

Nothing here imports a heavy package to learn its version, and nothing here can fail a run: what
cannot be found out is None or absent. Commands and files come in as functions, so that tests
put recorded text in their place.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ridgeline.records import Commit as Commit
from ridgeline.records import Device as Device
from ridgeline.records import Host as Host
from ridgeline.records import Provenance as Provenance
from ridgeline.sensors.nvidia import read_gpus, start_nvml
from ridgeline.sensors.power_mode import NVPMODEL, POWER_KEYS, POWER_LIMIT, parse_nvpmodel
from ridgeline.version import __version__

LIBRARIES = (  # those that can change a result; in the order of pyproject.toml
    "numpy", "pandas", "pyarrow", "torch", "torchvision", "triton", "timm", "transformers",
    "ultralytics", "onnx", "onnxruntime",
)  # fmt: skip

# Environment variables that change how fast a step is: threads, allocators, math modes, kernels.
# Those that ridgeline sets for its own processes are none of these and must stay so:
# CUBLAS_WORKSPACE_CONFIG (--deterministic, which is a setting of its own),
# TORCHINDUCTOR_COMPILE_THREADS (under Nsight Compute) and the offline switches of Hugging Face.
SPEED_PREFIXES = ("OMP_", "MKL_", "MALLOC_", "KMP_", "TORCH_", "CUDA_", "PYTORCH_")
SPEED_NAMES = ("LD_PRELOAD", "NVIDIA_TF32_OVERRIDE")
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")  # never stored, whatever the prefix

RunCommand = Callable[[Sequence[str]], str | None]  # its output; None if it is absent or fails
ReadText = Callable[[str], str | None]  # None if there is no such file

_COMMAND_LIMIT_S = 10


def run_command(command: Sequence[str], *, limit_s: float = _COMMAND_LIMIT_S) -> str | None:
    """What a command printed; None if it is absent, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout


def read_text(path: str) -> str | None:
    """The text of a file; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def collect(
    *,
    run: RunCommand = run_command,
    read: ReadText = read_text,
    system: str | None = None,
    argv: Sequence[str] | None = None,
    now: datetime | None = None,
    environ: Mapping[str, str] | None = None,
) -> Provenance:
    """Everything about here and now. Call it once per run, outside what is timed."""
    host = describe_host(run=run, read=read, system=system or platform.system())
    variables = speed_variables(os.environ if environ is None else environ)
    return Provenance(
        time=(now or datetime.now()).astimezone().isoformat(timespec="seconds"),
        command=command_line(sys.argv if argv is None else argv),
        host=host,
        python=platform.python_version(),
        ridgeline=__version__,
        libraries={n: version for n in LIBRARIES if (version := package_version(n))},
        backends=torch_backends(sys.modules.get("torch")),
        commit=find_commit(run),
        ridgeline_commit=find_own_commit(run),
        environment={**variables, **read_power_settings(host.devices, run)},
    )


def describe_host(*, run: RunCommand, read: ReadText, system: str) -> Host:
    """The machine, from what Linux or macOS tells about it."""
    import psutil  # here, so that the record types alone cost nothing

    ram_bytes = psutil.virtual_memory().total
    cpu = cpu_name(run=run, read=read, system=system)
    return Host(
        name=socket.gethostname(),
        os=os_name(read("/etc/os-release"), system=system),
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu=cpu,
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        usable_cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        ram_bytes=ram_bytes,
        devices=find_devices(cpu=cpu, ram_bytes=ram_bytes),
    )


def find_devices(
    *, cpu: str, ram_bytes: int, nvml: Callable[[], Any] = start_nvml
) -> tuple[Device, ...]:
    """The accelerators, by their driver's own library; none of them is woken up for this."""
    if cpu.startswith("Apple "):  # the GPU is a part of the chip and shares its memory
        return (Device(kind="mps", index=0, name=cpu, memory_bytes=ram_bytes),)
    bindings = nvml()
    if bindings is None:
        return _torch_devices(sys.modules.get("torch"))
    return tuple(
        Device(
            kind=gpu.kind, index=gpu.system_index or 0, name=gpu.name, driver=gpu.driver,
            memory_bytes=gpu.memory_bytes, default_power_limit_w=gpu.default_power_limit_w,
            max_core_clock_hz=gpu.max_clock_hz,
            max_memory_clock_hz=gpu.max_memory_clock_hz, power_limit_w=gpu.power_limit_w,
            compute_capability=gpu.compute_capability,
        )
        for gpu in read_gpus(bindings)
    )  # fmt: skip


def _torch_devices(torch: Any) -> tuple[Device, ...]:
    """Devices of a torch that is already using them, where there is no tool to ask."""
    if torch is None or not torch.cuda.is_initialized():
        return ()
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple(
        Device(kind="cuda", index=i, name=p.name, memory_bytes=p.total_memory)
        for i, p in enumerate(properties)
    )


def cpu_name(*, run: RunCommand, read: ReadText, system: str) -> str:
    """The processor as its maker calls it."""
    if system == "Darwin":
        name = run(("sysctl", "-n", "machdep.cpu.brand_string"))
    else:
        name = parse_cpu_name(read("/proc/cpuinfo") or "") or parse_cpu_name(run(("lscpu",)) or "")
    return (name or platform.processor() or platform.machine()).strip()


def parse_cpu_name(text: str) -> str | None:
    """The model from /proc/cpuinfo or, on processors that are not named there, from lscpu."""
    match = re.search(r"^\s*model name\s*:\s*(.+)$", text, re.IGNORECASE | re.MULTILINE)
    return match[1].strip() if match else None


def os_name(os_release: str | None, *, system: str) -> str:
    """The distribution from the text of /etc/os-release, or the version of macOS."""
    if system == "Darwin":
        return f"macOS {platform.mac_ver()[0]}".strip()
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', os_release or "", re.MULTILINE)
    return match[1] if match else system


def speed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those environment variables that change how fast a step is, sorted; no others are read."""
    return {name: environ[name] for name in sorted(environ) if _is_speed_variable(name)}


def read_power_settings(devices: Sequence[Device], run: RunCommand) -> dict[str, str]:
    """A power limit that is not the device's default, and the power mode of a Jetson."""
    limits = [d.power_limit_w for d in devices if d.power_limit_w is not None
              and d.default_power_limit_w not in (None, d.power_limit_w)]  # fmt: skip
    found = {POWER_LIMIT: ",".join(f"{limit_w:g}" for limit_w in limits)} if limits else {}
    mode = parse_nvpmodel(run(("nvpmodel", "-q")) or "")
    return found | ({NVPMODEL: f"{mode[0]}:{mode[1]}"} if mode else {})


def _is_speed_variable(name: str) -> bool:
    is_known = name in (*SPEED_NAMES, *POWER_KEYS) or name.startswith(SPEED_PREFIXES)
    return is_known and name.isidentifier() and not any(word in name.upper() for word in SECRETS)


def torch_backends(torch: Any) -> dict[str, str]:
    """The CUDA, ROCm and cuDNN that an already imported torch uses."""
    if torch is None:
        return {}
    versions = {
        "cuda": torch.version.cuda,
        "rocm": getattr(torch.version, "hip", None),
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
    }
    return {name: str(version) for name, version in versions.items() if version is not None}


def find_own_commit(run: RunCommand) -> Commit | None:
    """The commit of ridgeline's own sources, where they are tracked by git."""
    here = str(Path(__file__).parent)
    if run(("git", "-C", here, "ls-files", "--error-unmatch", Path(__file__).name)) is None:
        return None  # installed as a package, perhaps inside somebody else's repository
    return find_commit(run, folder=here)


def find_commit(run: RunCommand, folder: str = ".") -> Commit | None:
    """The commit of the repository around a folder."""
    sha = run(("git", "-C", folder, "rev-parse", "HEAD"))
    # Untracked files are left out: results written beside the code do not change the code.
    changes = run(("git", "-C", folder, "status", "--porcelain", "--untracked-files=no"))
    if sha is None or changes is None:
        return None
    return Commit(sha=sha.strip(), is_dirty=bool(changes.strip()))


def command_line(argv: Sequence[str]) -> tuple[str, ...]:
    """The command as it was typed: the program by its name, not by where it is installed."""
    if not argv:
        return ()
    program = Path(argv[0])
    if program.name == "__main__.py":
        return ("python", "-m", program.parent.name, *argv[1:])
    return (program.name, *argv[1:])


def package_version(name: str) -> str | None:
    """The installed version of a package, from its metadata: nothing is imported."""
    from importlib import metadata  # a third of this module's import time

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

"""Each check where all is well, where something is missing and where it is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.machine.recorded import GPU, H200, FakeNvml, cuda_answer, files, machine

from ridgeline.machine import system
from ridgeline.machine.doctor import (
    ASK_TORCH,
    CHECKS,
    GROUPS,
    STATES,
    Check,
    Facts,
    diagnose,
    is_healthy,
)
from ridgeline.machine.system import NoCuptiError, has_cupti, loaded_library, loaded_path

EPYC = files("linux-amd-epyc-2c.json")
PACKAGES = {"torch": "2.15.0", "nvidia-ml-py": "13.0"}
BUILD = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n"
WORKING = {"version": "2.15.0+cu132", "devices": ["NVIDIA H200"], "mps": False, "problem": None,
           "cudnn": 92600}  # fmt: skip
NOBODY = "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-1\n"


def torch_says(answer: Mapping[str, object] | None) -> dict[str, str | None]:
    return {ASK_TORCH[0] + " -c": None if answer is None else json.dumps(answer)}


def gpu_machine(
    card: Mapping[str, Any] = H200,
    *,
    driver: str = "580.159.04",
    seen: Mapping[str, str] | None = None,
    commands: Mapping[str, str | None] | None = None,
    torch: Mapping[str, object] | None = WORKING,
    **others: Any,
) -> Facts:
    """An H200 on which everything works, changed."""
    found = {**EPYC, "/packages/torch/version.py": BUILD, **(seen or {})}
    asked = {
        **cuda_answer(GPU),
        **torch_says(torch),
        **(commands or {}),
    }
    others = {"packages": PACKAGES, "nvml": lambda: FakeNvml(card, driver=driver), **others}
    return Facts(io=machine(found, asked, **others))


def find(name: str, facts: Facts) -> Check:
    """What one check says."""
    return next(check for check in diagnose(facts) if check.name == name)


def state(name: str, facts: Facts) -> str | None:
    return next((check.state for check in diagnose(facts) if check.name == name), None)


# ---------------------------------------------------------------- as a whole


@pytest.mark.parametrize("system", ["Linux", "Darwin", "FreeBSD"])
def test_a_machine_that_answers_no_question_is_healthy(system: str) -> None:
    assert is_healthy(diagnose(Facts(io=machine(system=system))))


def test_every_line_is_whole() -> None:
    checks = diagnose(gpu_machine())
    groups = [check.group for check in checks]
    assert groups == sorted(groups, key=GROUPS.index)
    assert set(groups) == set(GROUPS)
    assert [check.name for check in checks if check.state == "broken"] == []
    for check in checks:
        assert check.state in STATES
        assert check.group in GROUPS
        assert check.result
        assert "\n" not in check.result + check.fix
        assert check.fix or check.state != "broken", check


def test_nothing_escapes_when_everything_raises() -> None:
    def fall(*_: object) -> Any:
        raise PermissionError("of\nall things")

    io = machine(run=fall, run_slow=fall, read=fall, find=fall, which=fall, version=fall,
                 folder=fall, nvml=fall, disk=fall, memory_bytes=fall, load=fall)  # fmt: skip
    checks = diagnose(Facts(io=io))
    assert [check.name for check in checks] == [name for _, name, _ in CHECKS]
    assert {(check.state, check.result) for check in checks} == {
        ("broken", "the check itself failed: PermissionError: of all things")
    }


# ---------------------------------------------------------------- torch


def test_a_gpu_that_was_hidden_on_purpose_is_not_broken() -> None:
    facts = gpu_machine(torch={**WORKING, "devices": []}, environ={"CUDA_VISIBLE_DEVICES": ""},
                        commands=cuda_answer())  # fmt: skip
    assert state("torch and the GPU", facts) == "note"
    assert find("GPU", facts).result.endswith("(hidden from CUDA, as CUDA_VISIBLE_DEVICES is '')")


# ---------------------------------------------------------------- GPU and counters


NCU = {"ncu --version": "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0\n"}
ADMIN_ONLY = {"/proc/driver/nvidia/params": "Foo: 3\nRmProfilingAdminOnly: 1\n"}


def test_counters_that_only_administrators_may_read() -> None:
    facts = gpu_machine(seen={**ADMIN_ONLY, "/proc/self/status": NOBODY}, commands=NCU)
    assert state("Nsight Compute", facts) == "ok"
    check = find("GPU counters", facts)
    assert check.state == "broken"
    assert "ERR_NVGPUCTRPERM" in check.result
    assert "--cap-add SYS_ADMIN" in check.fix  # the recorded machine is a container
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in check.fix


# ---------------------------------------------------------------- power and noise

ZONE = "/sys/class/powercap/intel-rapl:0"


CPUS = "/sys/devices/system/cpu"


def test_every_check_is_on_the_page() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE))
    assert [name for _, name, _ in CHECKS if name not in rows] == []


def bare(seen: Mapping[str, str] | None = None, **others: Any) -> Facts:
    """A machine without a GPU."""
    return Facts(io=machine(seen, **others))


def epyc(seen: Mapping[str, str] | None = None, **others: Any) -> Facts:
    """A recorded virtual machine, changed."""
    return bare({**EPYC, **(seen or {})}, **others)


SLURM = {"sinfo": "gpu*\ncpu\n", "sbatch": ""}
GOVERNOR = f"{CPUS}/cpu0/cpufreq/scaling_governor"
LOCKED = {**ADMIN_ONLY, "/proc/self/status": NOBODY}
FOR_CPU = {"/packages/torch/version.py": "__version__ = '2.15.0+cpu'\n"}
CUDA_12 = {"/packages/torch/version.py": BUILD.replace("13.2", "12.8")}


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("torch", bare(), "missing"),
        # a driver for CUDA 12.0 and a torch for 12.8
        ("torch and the GPU", gpu_machine(driver="525.60.13", seen=CUDA_12), "ok"),
        ("cuDNN", gpu_machine(seen=FOR_CPU), None),
        ("cuDNN", bare(), None),
        ("Slurm", bare(commands=SLURM), "ok"),
        ("Slurm", bare(commands={**SLURM, "sinfo": None}), "missing"),
        ("Slurm", bare(), "missing"),
        ("disk for results", bare(), "ok"),
        ("disk for results", bare(disk=lambda path: (1_000_000, True)), "broken"),
        ("disk for results", bare(disk=lambda path: (50_000_000_000, False)), "broken"),
        ("NVML", gpu_machine(), "ok"),
        ("NVML", gpu_machine(nvml=lambda: None), "broken"),
        ("NVML", gpu_machine(packages={"torch": "2.15.0"}), "missing"),
        ("NVML", bare(), None),  # no GPU, no question
        ("CUPTI", gpu_machine(torch={**WORKING, "cupti": True}), "ok"),
        ("CUPTI", gpu_machine(torch={**WORKING, "cupti": False}), "missing"),
        ("CUPTI", gpu_machine(), "missing"),
        ("CUPTI", bare(), None),
        ("Nsight Compute", gpu_machine(commands={"ncu --version": None}), "broken"),
        (
            "GPU counters",
            gpu_machine(seen={"/proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n"}),
            "ok",
        ),
        ("GPU counters", gpu_machine(seen=ADMIN_ONLY), "ok"),  # recorded with CAP_SYS_ADMIN
        ("GPU counters", gpu_machine(seen=LOCKED), "note"),  # there is no ncu to fail
        # without ncu, CUPTI may not read them either
        ("GPU counters", gpu_machine(seen=LOCKED, torch={**WORKING, "cupti": True}), "broken"),
        ("GPU counters", gpu_machine(seen={"/proc/self/status": NOBODY}), "note"),  # hidden
        ("clock governor", epyc({GOVERNOR: "performance\n"}), "ok"),
        ("clock governor", epyc({GOVERNOR: "powersave\n"}), "note"),
        ("clock governor", epyc(), "note"),
        ("load", epyc(load=lambda: 0.1), "ok"),
        ("load", epyc(load=lambda: 7.22), "note"),
        ("load", epyc(), None),
        ("limits", epyc(), "ok"),
        # one of two CPUs
        ("limits", epyc({"/sys/fs/cgroup/cpu.max": "100000 100000\n"}), "note"),
        ("limits", epyc({"/sys/fs/cgroup/memory.max": "1000000\n"}), "note"),
        ("limits", epyc({"/proc/self/status": "Cpus_allowed_list:\t0\n"}), "note"),
    ],
)
def test_states(name: str, facts: Facts, expected: str | None) -> None:
    assert state(name, facts) == expected


OLD_NCU, NEW_NCU = "/usr/local/cuda-9.2/bin/ncu", "/usr/local/cuda-13.0/bin/ncu"
VERSION = "Version 2025.3.1.0"
KERNEL_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
)
NO_KERNEL = {**WORKING, "problem": "RuntimeError: CUDA error: no kernel image"}


@pytest.mark.parametrize(
    ("name", "facts", "state", "result", "fix"),
    [
        ("torch", gpu_machine(torch=None), "broken", "crashes", "python -c"),
        ("torch", gpu_machine(torch={"problem": "OSError: libc10.so"}), "broken",
         "libc10.so", "pip"),
        ("torch and the GPU", gpu_machine(), "ok",
         "built for CUDA 13.2, computes on NVIDIA H200", ""),
        ("torch and the GPU", gpu_machine(driver="570.86.10"), "broken",
         "needs driver 580 or later", "update the driver"),
        ("torch and the GPU", gpu_machine(seen=FOR_CPU), "broken", "a build for the CPU only",
         "pip uninstall torch"),
        ("torch and the GPU", gpu_machine(torch={**WORKING, "devices": []}), "broken",
         "torch sees no GPU", "nvidia-smi"),
        ("torch and the GPU", gpu_machine(torch=NO_KERNEL), "broken", "no kernel image",
         "this build does not know the GPU"),
        ("cuDNN", gpu_machine(), "ok", "9.26.0", ""),
        ("cuDNN", gpu_machine(torch={**WORKING, "cudnn": 8902}), "ok", "8.9.2", ""),
        ("cuDNN", gpu_machine(torch={**WORKING, "cudnn": None}), "missing",
         "torch for CUDA 13.2 does not find it", "pip install nvidia-cudnn-cu13"),
        ("compiler", bare(commands={"gcc --version": "gcc (Debian) 14.2.0\nmore\n"}), "ok",
         "gcc (Debian) 14.2.0", ""),
        # macOS before its developer tools are installed
        ("compiler", bare(commands={"cc": None}, system="Darwin"), "broken", "does not start",
         "xcode-select --install"),
        ("compiler", bare(), "missing", "no cc, gcc or clang", "install gcc"),
        ("GPU", bare(commands={"nvidia-smi": None}, packages=PACKAGES), "broken",
         "neither NVML nor CUDA shows a device", "nvidia-smi"),
        # nvidia-ml-py may be all that is missing
        ("GPU", bare(commands={"nvidia-smi": None}), "broken", "nvidia-ml-py is not installed",
         "pip install 'ridgeline[nvidia]'"),
        ("GPU", bare({"/proc/driver/nvidia/version": KERNEL_DRIVER}), "broken",
         "the driver is loaded", "in a container: start it with --gpus all"),
        # the newest of those outside of PATH, and the one that the user names
        ("Nsight Compute", gpu_machine(seen={OLD_NCU: "", NEW_NCU: ""},
                                       commands={f"{NEW_NCU} --version": VERSION}),
         "ok", f"2025.3.1.0, at {NEW_NCU}", ""),
        ("Nsight Compute", gpu_machine(environ={"RIDGELINE_NCU": "/mine/ncu"},
                                       commands={"/mine/ncu --version": VERSION}),
         "ok", "2025.3.1.0, at /mine/ncu, by RIDGELINE_NCU", ""),
        ("CPU energy", bare({f"{ZONE}/name": "package-0\n", f"{ZONE}/energy_uj": "12345\n"}), "ok",
         "RAPL of package-0", ""),
        # only root may read it, as on current kernels: a setting, not a fault
        ("CPU energy", bare({f"{ZONE}/name": "package-0\n"}), "missing", "only root may read it",
         "sudo chmod a+r /sys/class/powercap/"),
        ("CPU energy", epyc(), "missing", "the virtual machine does not pass it on", ""),
        ("GPU power", gpu_machine({**H200, "PowerManagementLimit": 400_000}), "note",
         "NVIDIA H200 is limited to 400 W, not its usual 700 W", "roofs measured here"),
        ("other programs on the GPU",
         gpu_machine({**H200, "ComputeRunningProcesses": [SimpleNamespace(pid=4242)]}), "note",
         "python (4242)", "wait for them"),
        ("other programs on the GPU", gpu_machine(), "ok", "none", ""),
    ],
)  # fmt: skip
def test_results_and_fixes(name: str, facts: Facts, state: str, result: str, fix: str) -> None:
    check = find(name, facts)
    assert check.state == state
    assert result in check.result
    assert check.fix.startswith(fix)
    assert bool(check.fix) == bool(fix)


# ---------------------------------------------------------------- the CUPTI of PyTorch

MAPS = """\
7f1200000000-7f1200400000 r--p 00000000 08:01 1234   /usr/lib/x86_64-linux-gnu/libc.so.6
7f1300000000-7f1300100000 r--p 00000000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
7f1300100000-7f1300200000 r-xp 00100000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
"""


def test_the_library_is_the_one_that_is_loaded() -> None:
    assert loaded_path(MAPS) == "/opt/my env/nvidia/cu13/lib/libcupti.so.13"
    assert loaded_path(MAPS.replace("cupti", "other")) is None


OLD = SimpleNamespace()  # without the functions that are needed
NEW = SimpleNamespace(**dict.fromkeys(system.CUPTI_NEEDED))


def _broken(path: str) -> None:
    raise OSError("file too short")


@pytest.mark.parametrize(
    ("maps", "load", "why"),
    [
        (None, None, "this PyTorch comes without CUPTI"),  # as on Windows: no such file
        ("", None, "this PyTorch comes without CUPTI"),
        (MAPS, lambda path: OLD, "this CUPTI is older than its range profiler"),
        (MAPS, _broken, "the CUPTI of this PyTorch cannot be loaded: file too short"),
    ],
)
def test_none_that_can_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maps: str | None, load: object, why: str
) -> None:
    if maps is not None:
        (tmp_path / "maps").write_text(maps)
    monkeypatch.setattr(system, "CUPTI_MAPS", tmp_path / "maps")
    monkeypatch.setattr("ctypes.CDLL", load)
    with pytest.raises(NoCuptiError, match=why):
        loaded_library()
    assert not has_cupti()


def test_one_that_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS)
    monkeypatch.setattr(system, "CUPTI_MAPS", tmp_path / "maps")
    monkeypatch.setattr("ctypes.CDLL", lambda path: NEW)
    assert has_cupti()

"""Each check where all is well, where something is missing and where it is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.machine.recorded import GPU, H200, FakeNvml, cuda_answer, files, machine

from ridgeline.machine import doctor
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

EPYC = files("linux-amd-epyc-2c.json")
PACKAGES = {"torch": "2.15.0", "nvidia-ml-py": "13.0"}
BUILD = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n"
WORKING = {"version": "2.15.0+cu132", "devices": ["NVIDIA H200"], "mps": False, "problem": None}
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


def test_a_check_that_fails_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def ill(facts: Facts) -> None:
        raise ZeroDivisionError("of\nall things")

    monkeypatch.setattr(doctor, "CHECKS", (("noise", "load", ill),))
    check = find("load", gpu_machine())
    assert check.state == "broken"
    assert check.result == "the check itself failed: ZeroDivisionError: of all things"


def test_nothing_escapes_when_everything_raises() -> None:
    def fall(*_: object) -> Any:
        raise PermissionError("no")

    io = machine(run=fall, run_slow=fall, read=fall, find=fall, which=fall, version=fall,
                 folder=fall, nvml=fall, disk=fall, memory_bytes=fall, load=fall)  # fmt: skip
    checks = diagnose(Facts(io=io))
    assert len(checks) == len(CHECKS)
    assert {check.state for check in checks} == {"broken"}


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (gpu_machine(driver="570.86.10"), "needs driver 580 or later"),
        (
            gpu_machine(seen={"/packages/torch/version.py": "__version__ = '2.15.0+cpu'\n"}),
            "a build for the CPU only",
        ),
        (gpu_machine(torch={**WORKING, "devices": []}), "torch sees no GPU"),
        (
            gpu_machine(torch={**WORKING, "problem": "RuntimeError: CUDA error: no kernel image"}),
            "no kernel image",
        ),
    ],
)
def test_a_torch_that_cannot_use_the_gpu(facts: Facts, found: str) -> None:
    check = find("torch and the GPU", facts)
    assert check.state == "broken"
    assert found in check.result
    assert check.fix


def test_a_gpu_that_was_hidden_on_purpose_is_not_broken() -> None:
    facts = gpu_machine(torch={**WORKING, "devices": []}, environ={"CUDA_VISIBLE_DEVICES": ""},
                        commands=cuda_answer())  # fmt: skip
    assert state("torch and the GPU", facts) == "note"
    assert state("visible to CUDA", facts) == "note"


@pytest.mark.parametrize(
    ("answer", "words"),
    [(None, "crashes"), ({"problem": "OSError: libc10.so: cannot open"}, "libc10.so")],
)
def test_a_torch_that_does_not_import(answer: dict[str, object] | None, words: str) -> None:
    facts = gpu_machine(torch=answer)
    check = find("torch", facts)
    assert check.state == "broken"
    assert words in check.result
    assert state("torch and the GPU", facts) is None  # once is enough


def test_what_the_import_prints_is_passed_over() -> None:
    noise = "a warning\n" + json.dumps(WORKING) + "\n"
    io = machine(commands={ASK_TORCH[0]: noise}, packages=PACKAGES)
    assert state("torch", Facts(io=io)) == "ok"


# ---------------------------------------------------------------- GPU and counters


def test_a_driver_that_shows_no_device() -> None:
    installed = Facts(io=machine(commands={"nvidia-smi": None}, packages=PACKAGES))
    check = find("GPU", installed)
    assert (check.state, check.fix.split()[0]) == ("broken", "nvidia-smi")
    # given that nvidia-ml-py may be all that is missing
    check = find("GPU", Facts(io=machine(commands={"nvidia-smi": None})))
    assert (check.state, check.fix) == ("broken", "pip install 'ridgeline[nvidia]'")


def test_a_driver_without_a_device_in_a_container() -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    check = find("GPU", Facts(io=machine({"/proc/driver/nvidia/version": text})))
    assert (check.state, check.fix) == ("broken", "in a container: start it with --gpus all")


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


def test_ncu_outside_of_the_path_is_found_by_version() -> None:
    old, new = "/usr/local/cuda-9.2/bin/ncu", "/usr/local/cuda-13.0/bin/ncu"
    facts = gpu_machine(seen={old: "", new: ""},
                        commands={f"{new} --version": "Version 2025.3.1.0"})  # fmt: skip
    check = find("Nsight Compute", facts)
    assert (check.state, check.result) == ("ok", f"2025.3.1.0, at {new}")


def test_an_ncu_that_the_user_names() -> None:
    facts = gpu_machine(
        environ={"RIDGELINE_NCU": "/mine/ncu"},
        commands={"/mine/ncu --version": "Version 2025.3.1.0"},
    )
    check = find("Nsight Compute", facts)
    assert (check.state, check.result) == ("ok", "2025.3.1.0, at /mine/ncu, by RIDGELINE_NCU")


# ---------------------------------------------------------------- software


def test_a_compiler_that_is_only_a_promise() -> None:
    # given macOS before its developer tools are installed
    facts = Facts(io=machine(commands={"cc": None}, system="Darwin"))
    check = find("compiler", facts)
    assert (check.state, check.fix) == ("broken", "xcode-select --install")


def test_the_compiler() -> None:
    facts = Facts(io=machine(commands={"gcc --version": "gcc (Debian) 14.2.0\nmore\n"}))
    check = find("compiler", facts)
    assert (check.state, check.result) == ("ok", "gcc (Debian) 14.2.0")
    assert state("compiler", Facts(io=machine())) == "missing"


# ---------------------------------------------------------------- power and noise

ZONE = "/sys/class/powercap/intel-rapl:0"


def test_energy_of_the_cpu() -> None:
    there = {f"{ZONE}/name": "package-0\n", f"{ZONE}/energy_uj": "12345\n"}
    check = find("CPU energy", Facts(io=machine(there)))
    assert (check.state, check.result) == ("ok", "RAPL of package-0")
    # given that only root may read it, as on current kernels
    del there[f"{ZONE}/energy_uj"]
    locked = find("CPU energy", Facts(io=machine(there)))
    assert locked.state == "missing"  # a setting, not a fault
    assert locked.fix.startswith("sudo chmod a+r /sys/class/powercap/")
    absent = find("CPU energy", Facts(io=machine(EPYC)))
    assert (absent.state, absent.fix) == ("missing", "")  # nothing helps in a virtual machine


def test_a_lowered_power_limit() -> None:
    check = find("GPU power", gpu_machine({**H200, "PowerManagementLimit": 400_000}))
    assert check.result == "NVIDIA H200 is limited to 400 W, not its usual 700 W"


CPUS = "/sys/devices/system/cpu"


def test_a_hot_gpu() -> None:
    hot = gpu_machine({**H200, "CurrentClocksThrottleReasons": 0x40})
    check = find("GPU throttling", hot)
    assert check.result == "NVIDIA H200: hardware thermal"
    capped = gpu_machine({**H200, "CurrentClocksThrottleReasons": 0x4})
    assert state("GPU throttling", capped) == "ok"


def test_neighbours_on_the_gpu() -> None:
    facts = gpu_machine({**H200, "ComputeRunningProcesses": [SimpleNamespace(pid=4242)]})
    check = find("other programs on the GPU", facts)
    assert (check.state, check.result) == ("note", "python (4242)")
    assert state("other programs on the GPU", gpu_machine()) == "ok"


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


def disk(free: int, *, is_writable: bool = True) -> Facts:
    return bare(disk=lambda path: (free, is_writable))


SLURM = {"sinfo": "gpu*\ncpu\n", "sbatch": ""}
GOVERNOR = f"{CPUS}/cpu0/cpufreq/scaling_governor"
THROTTLED = f"{CPUS}/cpu0/thermal_throttle/package_throttle_count"
LOCKED = {**ADMIN_ONLY, "/proc/self/status": NOBODY}
CUDA_12 = {"/packages/torch/version.py": BUILD.replace("13.2", "12.8")}


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("torch", bare(), "missing"),
        # a driver for CUDA 12.0 and a torch for 12.8
        ("torch and the GPU", gpu_machine(driver="525.60.13", seen=CUDA_12), "ok"),
        ("Slurm", bare(commands=SLURM), "ok"),
        ("Slurm", bare(commands={**SLURM, "sinfo": None}), "broken"),
        ("Slurm", bare(), "missing"),
        ("disk for results", disk(50_000_000_000), "ok"),
        ("disk for results", disk(1_000_000), "broken"),
        ("disk for results", disk(50_000_000_000, is_writable=False), "broken"),
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
        (
            "GPU counters",
            gpu_machine(seen={"/proc/sys/kernel/osrelease": "5.15-microsoft-standard-WSL2"}),
            "note",
        ),
        ("clock governor", epyc({GOVERNOR: "performance\n"}), "ok"),
        ("clock governor", epyc({GOVERNOR: "powersave\n"}), "note"),
        ("clock governor", epyc(), "note"),
        ("CPU throttling", epyc(), None),
        ("CPU throttling", epyc({THROTTLED: "0\n"}), "ok"),
        ("CPU throttling", epyc({THROTTLED: "7\n"}), "note"),
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

"""What a machine is, from recorded text; and what is said where there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.machine.recorded import (
    DATA,
    DIVIDED,
    GPU,
    GPU_B,
    H200,
    MIG_A,
    MIG_B,
    FakeNvml,
    cuda_answer,
    files,
    machine,
)

from ridgeline.machine.cpu import Cache
from ridgeline.machine.describe import (
    LIST_CUDA_DEVICES,
    Description,
    Memory,
    describe,
    slug,
)
from ridgeline.machine.system import (
    Limits,
    find_container,
    find_limits,
    find_virtualization,
)
from ridgeline.sensors.nvidia import Gpu, Mig

EPYC = "linux-amd-epyc-2c.json"


def gpu_machine(
    *cards: dict[str, Any], commands: Mapping[str, str | None] | None = None
) -> Description:
    """A machine with these devices, which CUDA shows in their order unless told otherwise."""
    commands = commands or cuda_answer(*(card["UUID"] for card in cards))
    return describe(machine(files(EPYC), commands, nvml=lambda: FakeNvml(*cards)))


# ---------------------------------------------------------------- processor and memory


def test_a_virtual_machine_from_its_recorded_files() -> None:
    found = describe(machine(files(EPYC), packages={"numpy": "2.4.6"},
                             memory_bytes=lambda: (24684100 * 1024, 2 * 10**10)))  # fmt: skip
    cpu = found.cpu
    assert (cpu.model, cpu.sockets, cpu.governor) == ("AMD EPYC", 1, None)
    assert (cpu.physical_cores, cpu.logical_cores, cpu.usable_cores) == (2, 2, 2)
    assert {"avx2", "fma", "avx512f", "avx512_bf16"} <= set(cpu.extensions)
    assert "amx_tile" not in cpu.extensions
    assert cpu.current_clock_hz == pytest.approx(2.59613e9)
    assert cpu.caches == tuple(
        Cache(level=level, kind=kind, size_bytes=size * 1024, shared_by_cores=users, instances=n)
        for level, kind, size, users, n in (
            (1, "data", 32, 1, 2), (1, "instruction", 32, 1, 2),
            (2, "unified", 1024, 1, 2), (3, "unified", 32768, 2, 1),
        )
    )  # fmt: skip
    assert found.memory == Memory(total_bytes=24684100 * 1024, available_bytes=2 * 10**10)
    assert (found.container, found.virtualization) == ("docker", "unnamed hypervisor")
    assert found.libraries == {"numpy": "2.4.6"}
    assert (found.gpus, found.name) == ((), "amd-epyc-2c")


def test_two_threads_of_a_core_are_one_core() -> None:
    # given four logical CPUs on two cores, of which this process may use the first core
    cpus = "/sys/devices/system/cpu"
    seen = {
        f"{cpus}/cpu{cpu}/topology/thread_siblings_list": siblings
        for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3"))
    } | {f"{cpus}/online": "0-3", "/proc/self/status": "Cpus_allowed_list:\t0,2\n"}
    cpu = describe(machine(seen)).cpu
    assert (cpu.physical_cores, cpu.logical_cores) == (2, 4)
    assert (cpu.usable_cores, cpu.usable_threads) == (1, 2)


def test_the_tightest_limit_holds() -> None:
    # given a job of Slurm: half a processor for the user, less memory for the job
    found = find_limits(machine({
        "/proc/self/status": "Cpus_allowed_list:\t4-7\n",
        "/proc/self/cgroup": "0::/slurm/job_7\n",
        "/sys/fs/cgroup/slurm/cpu.max": "250000 100000\n",
        "/sys/fs/cgroup/slurm/job_7/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/slurm/memory.max": "max\n",
        "/sys/fs/cgroup/slurm/job_7/memory.max": "8000000000\n",
    }))  # fmt: skip
    assert found.allowed_cpus == (4, 5, 6, 7)
    assert (found.cpu_quota, found.memory_bytes) == (2.5, 8_000_000_000)
    assert found.whole_cpus(4) == 2


@pytest.mark.parametrize(
    ("limit", "memory_bytes"), [("9223372036854771712", None), ("8000000000\n", 8_000_000_000)]
)
def test_limits_of_the_first_version_of_cgroups(limit: str, memory_bytes: int | None) -> None:
    found = find_limits(machine({
        "/proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/\n0::/\n",
        "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": limit,
    }))  # fmt: skip
    assert found == Limits(memory_bytes=memory_bytes)


def test_a_mac() -> None:
    # given text written after the manual, not recorded
    text = (DATA / "sysctl-apple-m2-pro.txt").read_text()
    displays = {"SPDisplaysDataType": [{"sppci_model": "Apple M2 Pro", "sppci_cores": "19"}]}
    found = describe(machine(
        commands={
            "sysctl -n machdep.cpu.brand_string": "Apple M2 Pro\n",
            "sysctl -n": "0\n",
            "sysctl": text,
            "system_profiler SPDisplaysDataType": json.dumps(displays),
        },
        system="Darwin", architecture="arm64", memory_bytes=lambda: (32 * 2**30, 2**30),
    ))  # fmt: skip
    shared = [
        (c.level, c.kind[0], c.size_bytes >> 10, c.shared_by_cores, c.instances)
        for c in found.cpu.caches
    ]
    assert shared == [
        (1, "d", 128, 1, 8), (1, "i", 192, 1, 8), (2, "u", 16384, 4, 2),
    ]  # fmt: skip
    (gpu,) = found.gpus
    assert (gpu.kind, gpu.name, gpu.compute_units) == ("mps", "Apple M2 Pro", 19)
    assert gpu.memory_bytes == 32 * 2**30  # the chip's GPU has no memory of its own
    assert found.name == "apple-m2-pro-12c"


def test_a_machine_that_says_nothing() -> None:
    found = describe(machine())
    assert (found.cpu.caches, found.gpus) == ((), ())
    assert found.cpu.usable_cores is None
    assert json.loads(json.dumps(found.to_dict()))["gpus"] == []
    assert "None was found." in found.to_markdown()


def test_this_machine() -> None:
    found = describe()
    assert found.cpu.usable_threads
    assert found.memory.total_bytes
    assert json.loads(json.dumps(found.to_dict()))["machine"] == found.name


# ---------------------------------------------------------------- container, hypervisor


@pytest.mark.parametrize(
    ("seen", "environ", "name"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": 'engine="podman-5"'}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "x"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "image.sif"}, "apptainer"),
        ({}, {"container": "lxc"}, "lxc"),
        ({}, {}, None),
    ],
)
def test_containers(seen: dict[str, str], environ: dict[str, str], name: str | None) -> None:
    assert find_container(machine(seen, environ=environ)) == name


FLAGGED = {"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor avx\n"}


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}, "WSL 2"),
        ({**FLAGGED, "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "Amazon EC2"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, None),  # a bare one
        (FLAGGED, "unnamed hypervisor"),
        ({}, None),
    ],
)
def test_hypervisors(seen: dict[str, str], name: str | None) -> None:
    assert find_virtualization(machine(seen)) == name


# ---------------------------------------------------------------- NVIDIA


def test_an_h200() -> None:
    cuda = cuda_answer(GPU, compute_units=132, l2_bytes=62_914_560)
    found = gpu_machine(H200, commands=cuda)
    (gpu,) = found.gpus
    assert gpu == Gpu(
        kind="cuda", name="NVIDIA H200", index=0, uuid=GPU, system_index=0, compute_units=132,
        compute_capability="9.0", max_clock_hz=1.98e9, max_memory_clock_hz=3.201e9,
        power_limit_w=700, default_power_limit_w=700, has_ecc=True, l2_bytes=62_914_560,
        memory_bytes=143_771 * 2**20, max_pcie_generation=5, max_pcie_width=16, driver="580.159.04",
    )  # fmt: skip
    assert found.drivers["CUDA, newest that the driver supports"] == "13.0"
    assert found.name == "nvidia-h200"
    text = found.to_markdown()
    assert "## Accelerator 0: NVIDIA H200" in text
    for row in ("compute units | 132", "l2 | 60 MiB", "power limit | 700 W", "has ecc | yes"):
        assert f"| {row} |" in text


def test_what_a_driver_does_not_know() -> None:
    (gpu,) = gpu_machine({"Name": "NVIDIA X", "UUID": GPU}).gpus
    assert gpu == Gpu(
        kind="cuda", name="NVIDIA X", index=0, uuid=GPU, system_index=0, driver="580.159.04"
    )


def test_without_nvidia_ml_py_cuda_describes_its_devices() -> None:
    cuda = cuda_answer(GPU, compute_units=132, memory_bytes=150_000_000_000,
                       capability_major=9, capability_minor=0)  # fmt: skip
    found = describe(machine(files(EPYC), cuda))
    assert found.gpus == (
        Gpu(kind="cuda", name="NVIDIA H200", index=0, uuid=GPU, compute_units=132,
            compute_capability="9.0", memory_bytes=150_000_000_000),
    )  # fmt: skip
    assert found.notes == (
        "clocks, power and slices of the GPUs are not described:"
        " nvidia-ml-py is not installed: pip install 'ridgeline[nvidia]'",
    )


SECOND = {**H200, "UUID": GPU_B}


def test_indices_are_joined_by_uuid() -> None:
    # given that CUDA takes the second device for the fastest
    found = gpu_machine(H200, SECOND, commands=cuda_answer(GPU_B, GPU))
    assert [(g.index, g.system_index, g.uuid) for g in found.gpus] == [(0, 1, GPU_B), (1, 0, GPU)]
    assert (found.notes, found.name) == ((), "nvidia-h200-x2")


def test_a_cuda_driver_that_does_not_start() -> None:
    refusal = {" ".join(LIST_CUDA_DEVICES): json.dumps({"error": "cuInit answered 100"})}
    found = gpu_machine(H200, commands=refusal)
    assert [gpu.index for gpu in found.gpus] == [None]
    assert found.notes == (
        "the CUDA driver does not start, so no GPU has a CUDA index: cuInit answered 100",
    )
    assert found.name == "amd-epyc-2c"


def test_slices_of_a_divided_device() -> None:
    cuda = cuda_answer(MIG_B, compute_units=16, memory_bytes=10_000_000_000)
    found = gpu_machine(DIVIDED, SECOND, commands=cuda)
    divided, whole = found.gpus
    assert (divided.index, whole.index) == (None, None)
    assert divided.mig_instances == (
        Mig(profile="3g.40gb", uuid=MIG_A),
        Mig(profile="1g.10gb", uuid=MIG_B, index=0, compute_units=16, memory_bytes=10_000_000_000),
    )
    assert found.name == "nvidia-h200-mig-1g.10gb"
    assert f"| 1g.10gb | {MIG_B} | 0 |" in found.to_markdown()


# ---------------------------------------------------------------- others


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Intel(R) Xeon(R) Platinum 8480+", "intel-xeon-platinum-8480"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon"),
        ("13th Gen Intel(R) Core(TM) i7-1360P", "intel-core-i7-1360p"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "amd-ryzen-7-7840u"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "nvidia-geforce-rtx-4090-laptop"),
        ("???", "unknown"),
    ],
)
def test_short_names(model: str, name: str) -> None:
    assert slug(model) == name

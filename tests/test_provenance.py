"""Where a result was made, from what commands and files say."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from tests.machine import recorded
from tests.machine.recorded import FakeNvml

from ridgeline.provenance import (
    Commit,
    Device,
    RunCommand,
    collect,
    command_line,
    cpu_name,
    find_commit,
    find_devices,
    find_own_commit,
    os_name,
    parse_cpu_name,
    read_text,
    run_command,
    torch_backends,
)
from ridgeline.store import to_json
from ridgeline.version import __version__

H200 = Device(
    kind="cuda",
    index=0,
    name="NVIDIA H200",
    memory_bytes=143_771 * 1024 * 1024,
    driver="580.159.04",
    max_core_clock_hz=1.98e9,
    max_memory_clock_hz=3.201e9,
    power_limit_w=700.0,
    default_power_limit_w=700.0,
    compute_capability="9.0",
)


def answers(**outputs: str) -> RunCommand:
    """A machine on which only these programs exist."""

    def run(command: Sequence[str]) -> str | None:
        return outputs.get(command[0].replace("-", "_"))

    return run


NOTHING = answers()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch were not in use, whatever GPU this machine has."""
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
def test_devices_come_from_the_driver_where_there_is_one() -> None:
    nvml = FakeNvml(recorded.H200)

    assert find_devices(cpu="Xeon", ram_bytes=1, nvml=lambda: nvml) == (H200,)
    assert find_devices(cpu="Xeon", ram_bytes=1, nvml=lambda: None) == ()


def test_an_apple_chip_is_its_own_accelerator() -> None:
    assert find_devices(cpu="Apple M2 Pro", ram_bytes=16_000) == (
        Device(kind="mps", index=0, name="Apple M2 Pro", memory_bytes=16_000),
    )


@pytest.mark.parametrize("is_initialized", [True, False])
def test_torch_is_asked_only_when_it_uses_the_device_already(
    monkeypatch: pytest.MonkeyPatch, is_initialized: bool
) -> None:
    card = SimpleNamespace(name="AMD Instinct", total_memory=64_000)
    cuda = SimpleNamespace(
        is_initialized=lambda: is_initialized,
        device_count=lambda: 1,
        get_device_properties=lambda index: card,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    expected = Device(kind="cuda", index=0, name="AMD Instinct", memory_bytes=64_000)
    found = find_devices(cpu="EPYC", ram_bytes=1, nvml=lambda: None)
    assert found == ((expected,) if is_initialized else ())


def test_the_processor_on_linux_and_macos() -> None:
    cpuinfo = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: AMD EPYC 7763\nstepping\t: 2\n"
    lscpu = "Architecture:  aarch64\n  Model name:  Neoverse-V2\n"

    assert parse_cpu_name(cpuinfo) == "AMD EPYC 7763"
    assert parse_cpu_name(lscpu) == "Neoverse-V2"
    assert parse_cpu_name("BogoMIPS : 50.00\n") is None
    on_arm = cpu_name(run=answers(lscpu=lscpu), read=lambda _: "BogoMIPS : 1\n", system="Linux")
    on_mac = cpu_name(run=answers(sysctl="Apple M2\n"), read=lambda _: None, system="Darwin")
    assert (on_arm, on_mac) == ("Neoverse-V2", "Apple M2")
    assert cpu_name(run=NOTHING, read=lambda _: None, system="Linux")  # at least the architecture


def test_the_operating_system() -> None:
    release = 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'

    assert os_name(release, system="Linux") == "Debian GNU/Linux 13 (trixie)"
    assert os_name(None, system="Linux") == "Linux"
    assert os_name(None, system="Darwin").startswith("macOS")


@pytest.mark.parametrize(("status", "is_dirty"), [("", False), (" M src/a.py\n", True)])
def test_the_commit_of_the_working_directory(status: str, is_dirty: bool) -> None:
    def run(command: Sequence[str]) -> str:
        return "abc123\n" if "rev-parse" in command else status

    def installed(command: Sequence[str]) -> str | None:
        return None if "ls-files" in command else run(command)

    assert find_commit(run) == find_own_commit(run) == Commit(sha="abc123", is_dirty=is_dirty)
    assert find_own_commit(installed) is None


def test_the_working_directory_decides_which_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if run_command(("git", "init", "--quiet", str(tmp_path))) is None:
        pytest.skip("git is not installed")
    monkeypatch.chdir(tmp_path)
    assert find_commit(run_command) is None  # a repository without a commit
    assert find_commit(NOTHING) is None  # no git

    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    run_command(("git", *author, "commit", "--quiet", "--allow-empty", "-m", "x"))
    (tmp_path / "results.csv").write_text("untracked")

    commit = find_commit(run_command)
    assert commit is not None
    assert (len(commit.sha), commit.is_dirty) == (40, False)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/opt/venv/bin/ridgeline", "count", "a b"], ("ridgeline", "count", "a b")),
        (["/opt/lib/ridgeline/__main__.py", "count"], ("python", "-m", "ridgeline", "count")),
        ([""], ("",)),
        ([], ()),
    ],
)
def test_the_command_names_no_place(argv: list[str], command: tuple[str, ...]) -> None:
    assert command_line(argv) == command


def test_the_backends_of_an_imported_torch() -> None:
    cudnn = SimpleNamespace(version=lambda: 91900)
    torch = SimpleNamespace(
        version=SimpleNamespace(cuda="13.2", hip=None), backends=SimpleNamespace(cudnn=cudnn)
    )

    assert torch_backends(torch) == {"cuda": "13.2", "cudnn": "91900"}
    assert torch_backends(None) == {}


def test_a_command_that_is_absent_or_fails_is_none() -> None:
    assert run_command(("no-such-program-here",)) is None
    assert run_command((sys.executable, "-c", "raise SystemExit(3)")) is None
    assert run_command((sys.executable, "-c", "print('yes')")) == "yes\n"
    assert read_text("no/such/file") is None


@pytest.mark.usefixtures("no_torch")
def test_the_whole_record_on_a_bare_container() -> None:
    now = datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    read = {"/proc/cpuinfo": "model name : Xeon\n"}.get

    record = collect(run=NOTHING, read=read, system="Linux", argv=["/x/ridgeline"], now=now)

    assert datetime.fromisoformat(record.time) == now
    assert datetime.fromisoformat(record.time).utcoffset() is not None
    assert record.command == ("ridgeline",)
    assert (record.host.os, record.host.cpu, record.host.devices) == ("Linux", "Xeon", ())
    assert record.host.ram_bytes == psutil.virtual_memory().total
    assert (record.ridgeline, record.commit) == (__version__, None)
    assert '"cpu": "Xeon"' in to_json(record)


def test_only_variables_that_change_speed_are_recorded() -> None:
    kept = {
        "CUDA_LAUNCH_BLOCKING": "1", "KMP_BLOCKTIME": "0", "LD_PRELOAD": "/usr/lib/libjemalloc.so",
        "MALLOC_ARENA_MAX": "2", "MKL_NUM_THREADS": "4", "NVIDIA_TF32_OVERRIDE": "0",
        "OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    }  # fmt: skip
    others = {
        "HOME": "/root", "AWS_SECRET_ACCESS_KEY": "s", "MY_OMP_THREADS": "1",
        "omp_num_threads": "1", "LD_PRELOAD_TOKEN": "s", "NVIDIA_VISIBLE_DEVICES": "all",
        "TORCHX_HOME": "/x", "PYTORCH_GITHUB_TOKEN": "s", "TORCH_API_KEY": "s", "CUDA_x; rm": "1",
        # what ridgeline sets for its own processes
        "RIDGELINE_NCU": "/tmp/x", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCHINDUCTOR_COMPILE_THREADS": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip

    record = collect(run=NOTHING, environ={**others, **kept})

    assert record.environment == kept

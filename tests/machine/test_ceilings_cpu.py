"""The CPU's ceilings: the kernels do what they say, and what is missing is said."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.machine.recorded import machine

from ridgeline.machine import ceilings_cpu, cpu_kernels
from ridgeline.machine.ceilings_cpu import list_working_sets
from ridgeline.machine.cpu import CPUS, read_caches, share_caches
from ridgeline.machine.cpu_kernels import (
    BuildError,
    Compiler,
    Gate,
    Kernels,
    Probe,
    Span,
    Team,
    Worker,
    choose_cpus,
)
from ridgeline.machine.passport import ONE_CORE
from ridgeline.machine.system import Limits, SystemIO


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets, few samples: a test asks whether it works, not how fast."""
    monkeypatch.setattr(ceilings_cpu, "ROUNDS", {True: 10})
    monkeypatch.setattr(ceilings_cpu, "LONGEST_PRODUCT_S", 0.0)
    monkeypatch.setattr(ceilings_cpu, "LAUNCHES", 10)


@pytest.fixture(scope="module")
def c_kernels() -> Kernels:
    try:
        return cpu_kernels.build_kernels()
    except BuildError as error:
        pytest.skip(f"no C kernels here: {error}")


# ---- measuring -----------------------------------------------------------------------------------


def test_a_whole_measurement(c_kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    # given two threads, which may share a core here
    monkeypatch.setattr(ceilings_cpu, "build_kernels", lambda: c_kernels)
    monkeypatch.setattr(ceilings_cpu, "choose_cpus", lambda: (0, 0))
    monkeypatch.setattr(ceilings_cpu, "SHARES", (1 / 2,))
    steps: list[str] = []

    ceilings, missing = ceilings_cpu.measure_cpu(quick=True, progress=steps.append)

    assert len(steps) == ceilings_cpu.cpu_steps(True) == 1 + 3 + 10 + 1
    assert all(ceiling.best > 0 and len(ceiling.samples) >= 10 for ceiling in ceilings)
    assert {ceiling.device for ceiling in ceilings} == {"cpu"}
    assert len({ceiling.key for ceiling in ceilings}) == len(ceilings)
    compute = {(c.path, c.precision) for c in ceilings if c.kind == "compute"}
    assert {("vector", "fp32"), ("vector", "fp64"), ("matrix", "fp32")} <= compute
    assert all(what.reason for what in missing)
    memory = {(c.level, c.threads, c.what) for c in ceilings if c.kind == "bandwidth"}
    levels = {level for level, _, _ in memory}
    assert memory == {(x, n, w) for x in levels for n, w in ((2, None), (1, ONE_CORE))}
    patterns = {(c.level, c.pattern) for c in ceilings if c.kind == "bandwidth"}
    assert {("dram", pattern) for pattern in ("read", "copy", "triad")} <= patterns


@pytest.mark.parametrize(
    ("processor", "width"),
    [("flags : sse2 avx avx512f", 64), ("flags : avx avx2", 32), ("asimd", 16)],
)
def test_vectors_as_wide_as_the_processor_has(processor: str, width: int) -> None:
    assert cpu_kernels.vector_bytes(processor) == width


# ---- kernels -------------------------------------------------------------------------------------


def spans(kernels: Kernels, name: str, memory_bytes: int, fill: Any = None) -> tuple[Span, Any]:
    """One pass of one thread, and the memory after it."""
    with Team([0], max(memory_bytes, 4096)) as team:

        def body(worker: Worker) -> tuple[Span, Any]:
            if fill is not None:
                worker.memory[: fill.nbytes] = fill.view(np.uint8)
            span = kernels.run(name, worker, memory_bytes, 0, 1, Gate(ctypes.c_int64(0), 1))
            return span, worker.memory.copy().view(np.float64)

        return team.run(body, 1)[0]


def test_kernels_move_what_they_count(c_kernels: Kernels) -> None:
    """24 KiB: whole chunks for one, two and three arrays, in one stream and in eight."""
    numbers = np.random.default_rng(0).random(3072)
    copied, summed = numbers[:1536], numbers[:1024] + 3 * numbers[1024:2048]
    expected = {"read": (0, numbers), "copy": (1536, copied), "triad": (2048, summed)}
    for name in sorted(name for name in c_kernels.names if name.startswith("memory_")):
        first, values = expected[name.split("_")[1]]
        span, memory = spans(c_kernels, name, 24576, numbers)
        assert span.work == 24576
        assert span.end_s >= span.start_s
        is_same = np.allclose if "triad" in name else np.array_equal
        assert is_same(memory[first:], values), name


def test_a_rate_is_all_work_over_the_whole_time() -> None:
    class Fake:
        def run(
            self, name: str, worker: Worker, size: int, warm: int, passes: int, gate: Any
        ) -> Span:
            return Span(start_s=worker.index, end_s=worker.index + 3.0, work=8.0 * passes)

    fake: Any = Fake()
    with Team([0, 0], 4096) as team:
        assert Probe(team, fake, "memory_read", threads=2, size_bytes=4096)() == 16.0 / 4.0
        assert Probe(team, fake, "memory_read", threads=1, size_bytes=4096)() == 8.0 / 3.0


def test_a_container_with_little_memory_gets_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings_cpu, "find_limits", lambda: Limits(memory_bytes=2**26))
    assert ceilings_cpu._limit_bytes({"l3": 2**25}, threads=4) == 2**26 // 2 // 4


# ---- compiling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('echo "kernels.c:1: error: out of ideas" >&2; exit 1', "cc did not compile.*out of ideas"),
        ("exit 1", "cc did not compile the kernels: no message"),
        ('for last; do :; done; echo rubbish > "$last"', "the compiled kernels do not load"),
    ],
)
def test_a_broken_compiler_is_a_reason(tmp_path: Path, script: str, reason: str) -> None:
    path = tmp_path / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)

    with pytest.raises(BuildError, match=reason):
        cpu_kernels.load_library(16, Compiler(str(path), "cc 1.0"))


# ---------------------------------------------------------------- cpu levels

KIB, MIB = 1024, 1024**2


def test_caches_are_read_from_sys() -> None:
    def cache(index: int, **named: str) -> dict[str, str]:
        return {f"{CPUS}/cpu0/cache/index{index}/{name}": text for name, text in named.items()}

    io = machine({
        **cache(0, type="Data", level="1", size="32K", shared_cpu_list="0"),
        **cache(1, type="Instruction", level="1", size="32K", shared_cpu_list="0"),
        **cache(2, type="Unified", level="2", size="1024K", shared_cpu_list="0"),
        **cache(3, type="Unified", level="3", size="32M", shared_cpu_list="0-1,8"),
        **cache(4, type="Unified", level="4"),  # half described: left out
    })  # fmt: skip

    found = read_caches(io, 0)

    assert [(c.level, c.kind, c.size_bytes, set(c.cpus)) for c in found] == [
        (1, "data", 32 * KIB, {0}),
        (1, "instruction", 32 * KIB, {0}),
        (2, "unified", MIB, {0}),
        (3, "unified", 32 * MIB, {0, 1, 8}),
    ]
    assert share_caches(found, [0, 1]) == {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB}
    assert read_caches(machine(), 0) == []


def test_caches_are_tried_where_nearer_ones_cannot_help() -> None:
    assert list_working_sets({"l1": 32 * KIB, "l2": MIB, "l3": 2 * MIB}, 16 * MIB) == {
        "l1": [4 * KIB, 8 * KIB, 16 * KIB, 24 * KIB],
        "l2": [128 * KIB, 256 * KIB, 512 * KIB, 768 * KIB],  # at least three times the nearer one
        "l3": [1536 * KIB],  # or as much as it can be
        "dram": [16 * MIB],
    }
    assert list_working_sets({}, MIB) == {"dram": [MIB]}


def test_one_cpu_of_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.machine.cpu_kernels.list_allowed_cpus", lambda: [0, 1, 2, 3])
    siblings = {
        f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": text
        for cpu, text in enumerate(("0,2", "1,3", "0,2", "1,3"))
    }

    assert choose_cpus(io=machine(siblings)) == (0, 1)
    assert choose_cpus(io=machine()) == (0, 1, 2, 3)


def test_no_more_threads_than_a_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.machine.cpu_kernels.list_allowed_cpus", lambda: [3, 4, 5, 6])

    def limited(quota_us: str) -> SystemIO:
        group = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": f"{quota_us} 100000\n"}
        return machine(group)

    assert choose_cpus(io=limited("max")) == (3, 4, 5, 6)
    assert choose_cpus(io=limited("250000")) == (3, 4)
    assert choose_cpus(io=limited("50000")) == (3,)

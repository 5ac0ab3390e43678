"""Levels of memory: caches from recorded text, working sets from a recorded curve."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.machine.recorded import machine

from ridgeline.machine.ceilings_cpu import Level, best_size, list_levels
from ridgeline.machine.cpu import CPUS, read_caches, share_caches
from ridgeline.machine.cpu_kernels import choose_cpus
from ridgeline.machine.system import SystemIO

DATA = Path(__file__).parents[1] / "data"
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


def test_a_mac_shares_the_smaller_caches_of_its_two_kinds_of_core() -> None:
    levels = {0: ("performancelevel", 8, 128 * KIB, 16 * MIB, 4), 1: ("e", 4, 64 * KIB, 4 * MIB, 4)}
    lines = ["hw.nperflevels: 2"]
    for level, (name, cores, l1, l2, users) in levels.items():
        prefix = f"hw.perflevel{level}"
        lines += [f"{prefix}.name: {name}", f"{prefix}.physicalcpu: {cores}",
                  f"{prefix}.l1dcachesize: {l1}", f"{prefix}.l2cachesize: {l2}",
                  f"{prefix}.cpusperl2: {users}"]  # fmt: skip
    io = machine(commands={"sysctl hw": "\n".join(lines)}, system="Darwin")

    shares = share_caches(read_caches(io, 0), range(12))

    assert shares == {"l1": 64 * KIB, "l2": MIB}


def test_sets_of_a_curve_from_a_busy_machine() -> None:
    with (DATA / "cpu-read-curve.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    curve = {int(row["bytes_per_thread"]): float(row["bytes_per_s"]) for row in rows}

    levels = list_levels({"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB})

    assert [level.name for level in levels] == ["l1", "l2", "l3", "dram"]
    rates = [curve[best_size(list(curve.items()), level)] / 1e9 for level in levels]
    assert rates == pytest.approx([466, 234, 199, 14], rel=0.02)


def test_levels_are_measured_where_nearer_caches_cannot_help() -> None:
    described = {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB}

    levels = list_levels(described)

    assert [(level.name, level.first_bytes, level.last_bytes) for level in levels] == [
        ("l1", 4 * KIB, int(0.8 * 32 * KIB)),
        ("l2", 96 * KIB, int(0.8 * MIB)),
        ("l3", 3 * MIB, int(0.8 * 16 * MIB)),
        ("dram", 64 * MIB, 2**62),
    ]
    assert [level.described_bytes for level in levels] == [*described.values(), None]
    assert [level.name for level in list_levels({})] == ["dram"]


def test_the_fastest_size_of_a_level_and_the_largest_of_dram() -> None:
    curve = [(4 * KIB, 5.0), (8 * KIB, 9.0), (16 * KIB, 7.0), (MIB, 2.0), (2 * MIB, 1.0)]

    def level(name: str, first: int, last: int) -> Level:
        return Level(name=name, first_bytes=first, last_bytes=last, described_bytes=None)

    assert best_size(curve, level("l1", 4 * KIB, 16 * KIB)) == 8 * KIB
    assert best_size(curve, level("l2", 300 * KIB, 400 * KIB)) == MIB  # nearest, in octaves
    assert best_size(curve, level("dram", MIB, 2**62)) == 2 * MIB


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

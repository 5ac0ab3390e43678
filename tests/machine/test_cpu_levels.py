"""Levels of memory: caches from recorded text, plateaus from curves made by hand and recorded."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.machine.recorded import machine

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import CPUS, read_caches
from ridgeline.machine.cpu_levels import (
    Level,
    Plateau,
    best_size,
    grid,
    name_levels,
    plateaus,
    share_caches,
)
from ridgeline.machine.cpu_threads import cpus_to_use, first_of_each_core
from ridgeline.machine.system_io import SystemIO

DATA = Path(__file__).parents[1] / "data"
KIB, MIB = 1024, 1024**2
STEPS = [  # three caches and DRAM, two points an octave
    *((4 * KIB * 2 ** (i / 2), 400.0) for i in range(7)),  # to 32 KiB
    *((45 * KIB * 2 ** (i / 2), 200.0) for i in range(9)),  # to 720 KiB
    (1 * MIB, 150.0),
    *((1.5 * MIB * 2 ** (i / 2), 100.0) for i in range(7)),  # to 12 MiB
    (17 * MIB, 60.0),
    (24 * MIB, 35.0),
    *((34 * MIB * 2 ** (i / 2), 20.0) for i in range(5)),  # to 136 MiB
]
HAND_MADE = [(int(size), rate) for size, rate in STEPS]


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


def test_the_grid_doubles_in_equal_steps() -> None:
    assert grid(32 * KIB, per_octave=2) == [n * KIB for n in (4, 6, 8, 11, 16, 23, 32)]


def test_plateaus_of_a_curve_made_by_hand() -> None:
    found = plateaus(HAND_MADE)

    assert [plateau.rate for plateau in found] == [400.0, 200.0, 100.0, 20.0]
    assert [plateau.last_bytes for plateau in found[:2]] == [32 * KIB, 720 * KIB]


def test_a_dip_does_not_split_a_plateau() -> None:
    dipped = [
        (size, rate / 2 if i in (3, 10) else rate) for i, (size, rate) in enumerate(HAND_MADE)
    ]

    assert plateaus(dipped) == plateaus(HAND_MADE)


def test_a_slope_has_no_plateau() -> None:
    assert plateaus([(KIB * 2**i, 1000.0 / 2**i) for i in range(12)]) == []


def test_plateaus_of_a_curve_from_a_busy_machine() -> None:
    with (DATA / "cpu-read-curve.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    curve = [(int(row["bytes_per_thread"]), float(row["bytes_per_s"])) for row in rows]

    found = plateaus(curve)
    levels = name_levels(found, {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB})

    assert [level.name for level in levels] == ["l1", "l2", "l3", "dram"]
    assert [level.plateau is not None for level in levels] == [True] * 4
    rates = [level.plateau.rate / 1e9 for level in levels if level.plateau]
    assert rates == pytest.approx([466, 234, 199, 14], rel=0.02)


def test_levels_are_measured_where_nearer_caches_cannot_help() -> None:
    described = {"l1": 32 * KIB, "l2": MIB, "l3": 16 * MIB}

    levels = name_levels(plateaus(HAND_MADE), described)

    ranges = {level.name: (level.first_bytes, level.last_bytes) for level in levels}
    assert ranges["l1"] == (4 * KIB, int(0.8 * 32 * KIB))
    assert ranges["l2"] == (96 * KIB, 720 * KIB)
    assert ranges["l3"][0] == 3 * MIB
    assert ranges["dram"][0] == 64 * MIB
    assert [level.described_bytes for level in levels] == [*described.values(), None]


def test_a_described_cache_that_the_curve_does_not_show_is_said_to_have_no_plateau() -> None:
    only_l1 = Plateau(first_bytes=4 * KIB, last_bytes=32 * KIB, rate=400.0)

    levels = name_levels([only_l1], {"l1": 32 * KIB, "l2": MIB})

    assert [(level.name, level.plateau) for level in levels] == [
        ("l1", only_l1),
        ("l2", None),
        ("dram", None),
    ]


def test_without_descriptions_the_order_names_the_levels() -> None:
    levels = name_levels(plateaus(HAND_MADE), {})

    assert [level.name for level in levels] == ["l1", "l2", "l3", "dram"]
    assert levels[1].last_bytes == 720 * KIB
    assert name_levels([], {}) == []


def test_the_fastest_size_of_a_level_and_the_largest_of_dram() -> None:
    curve = [(4 * KIB, 5.0), (8 * KIB, 9.0), (16 * KIB, 7.0), (MIB, 2.0), (2 * MIB, 1.0)]

    def level(name: str, first: int, last: int) -> Level:
        return Level(
            name=name, first_bytes=first, last_bytes=last, plateau=None, described_bytes=None
        )

    assert best_size(curve, level("l1", 4 * KIB, 16 * KIB)) == 8 * KIB
    assert best_size(curve, level("l2", 300 * KIB, 400 * KIB)) == MIB  # nearest, in octaves
    assert best_size(curve, level("dram", MIB, 2**62)) == 2 * MIB


def test_one_cpu_of_each_core() -> None:
    siblings = {
        f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": text
        for cpu, text in enumerate(("0,2", "1,3", "0,2", "1,3"))
    }

    assert first_of_each_core([0, 1, 2, 3], machine(siblings)) == [0, 1]
    assert first_of_each_core([0, 1, 2, 3], machine()) == [0, 1, 2, 3]


def test_no_more_threads_than_a_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.machine.cpu_threads.allowed_cpus", lambda: [3, 4, 5, 6])

    def limited(quota_us: str) -> SystemIO:
        group = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": f"{quota_us} 100000\n"}
        return machine(group)

    assert cpus_to_use(io=limited("max")) == (3, 4, 5, 6)
    assert cpus_to_use(io=limited("250000")) == (3, 4)
    assert cpus_to_use(io=limited("50000")) == (3,)
    assert cpus_to_use(3, limited("50000")) == (3, 4, 5)


def test_more_threads_than_cpus_are_refused() -> None:
    with pytest.raises(RidgelineError, match="cannot measure with 0 threads\n  hint: this process"):
        cpus_to_use(0)

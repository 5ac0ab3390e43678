"""CPU ceilings against likwid-bench, on the same threads and the same working sets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Report, Table
from ridgeline.machine.ceilings_cpu import DRAM_FACTOR
from ridgeline.machine.cpu import read_caches, share_caches
from ridgeline.machine.cpu_kernels import (
    DRAM_KERNELS,
    Kernels,
    Probe,
    Team,
    build_kernels,
    choose_cpus,
)
from ridgeline.machine.sampling import in_rounds
from ridgeline.machine.system import SystemIO

ROUNDS = 8
SAMPLE_S = 0.03
AIM = 0.95
RATE = {"flops": re.compile(r"MFlops/s:\s*([\d.]+)"), "bytes": re.compile(r"MByte/s:\s*([\d.]+)")}
WORK_PER_BYTE = {"flops": 7.5, "bytes": 1.0}  # of likwid's tests; only sets how long they run
CHUNK_BYTES = 64 * 1024  # sizes that both sides can split without rounding
TITLE = "CPU ceilings and likwid-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One ceiling: our kernels for it, likwid's tests for it, and the bytes of one thread."""

    name: str
    ours: Sequence[str]
    theirs: Sequence[str]
    unit: str  # "flops" or "bytes"
    size_bytes: int


def run() -> Report:
    """Every test of every case by turns; the best of each side."""
    if shutil.which("likwid-bench") is None:
        missing = "likwid-bench is not installed (Debian: `apt-get install likwid`): not compared."
        return Report(title=TITLE, summary=[missing], tables=[])
    cpus = choose_cpus()
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    found = cases(share_caches(read_caches(SystemIO(), cpus[0]), cpus), flags)
    size_bytes = max(case.size_bytes for case in found)
    load_before = os.getloadavg()[0]
    with Team(cpus, size_bytes) as team:
        kernels = build_kernels()
        probes = {
            (case.name, side, test): probe
            for case in found
            for side, test, probe in probes_of(case, team, kernels)
        }
        samples = in_rounds(probes, rounds=ROUNDS)
    return report(found, samples, len(cpus), load_before)


def cases(described: dict[str, int], flags: set[str]) -> list[Case]:
    """Peaks, and read and copy in the middle of each level."""
    wide = ["avx512", "avx"] if "avx512f" in flags else ["avx"]
    found = [
        Case(name=f"{precision} peak", ours=[f"vector_{precision}"], unit="flops",
             theirs=[f"peakflops{infix}_{isa}_fma" for isa in wide], size_bytes=8 * 1024)
        for precision, infix in (("fp32", "_sp"), ("fp64", ""))
    ]  # fmt: skip
    below = 0
    for level, size in described.items():
        wanted = size // 2 if not below else (3 * below + size // 2) // 2
        found += _memory_cases(level, min(wanted, size // 2), wide)
        below = size
    return found + _memory_cases("dram", 2 * DRAM_FACTOR * below, wide)


def _memory_cases(level: str, size_bytes: int, wide: Sequence[str]) -> list[Case]:
    chunk = min(CHUNK_BYTES, 4096 if size_bytes < CHUNK_BYTES else CHUNK_BYTES)
    size_bytes = max(chunk, size_bytes // chunk * chunk)
    copies = [f"copy_{isa}" for isa in wide]
    streams = [f"copy_mem_{isa}" for isa in wide] if level == "dram" else []
    more = DRAM_KERNELS if level == "dram" else {"read": (), "copy": ()}
    return [
        Case(name=f"{level} read", ours=["memory_read", *more["read"]], unit="bytes",
             size_bytes=size_bytes, theirs=[f"load_{isa}" for isa in wide]),
        Case(name=f"{level} copy", ours=["memory_copy", *more["copy"]], unit="bytes",
             size_bytes=size_bytes, theirs=[*copies, *streams]),
    ]  # fmt: skip


def probes_of(
    case: Case, team: Team, kernels: Kernels
) -> list[tuple[str, str, Callable[[], float]]]:
    """Theirs, then ours, with samples of about the same length."""
    threads = len(team.cpus)
    size_bytes = case.size_bytes if case.unit == "bytes" else 0
    ours = [
        (name, Probe(team, kernels, name, threads=threads, size_bytes=size_bytes,
                     sample_s=SAMPLE_S))
        for name in case.ours
        if name in kernels.names
    ]  # fmt: skip
    rate = max(probe() for _, probe in ours)
    total_bytes = case.size_bytes * threads
    passes = max(1, round(SAMPLE_S * rate / total_bytes / WORK_PER_BYTE[case.unit]))
    theirs = [(test, likwid(test, case.unit, total_bytes, threads, passes)) for test in case.theirs]
    return [
        *(("theirs", test, probe) for test, probe in theirs),
        *(("ours", name, probe) for name, probe in ours),
    ]


def likwid(test: str, unit: str, size_bytes: int, threads: int, passes: int) -> Callable[[], float]:
    """A probe of likwid-bench: a process of its own, of which it spends a second on its clock."""
    group = f"N:{size_bytes // 1000}kB:{threads}"
    command = ["likwid-bench", "-t", test, "-i", str(passes), "-W", group]

    def measure() -> float:
        said = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        rate = RATE[unit].search(said)
        if rate is None:
            raise ValueError(f"likwid-bench {test} printed no rate: {said[-300:]}")
        return 1e6 * float(rate[1])

    return measure


def report(
    found: Sequence[Case],
    samples: dict[tuple[str, str, str], tuple[float, ...]],
    threads: int,
    load_before: float,
) -> Report:
    """The best of both sides, and their ratio."""
    rows, ratios = [], []
    for case in found:
        best = {}
        for side in ("ours", "theirs"):
            rates = {
                test: max(taken)
                for (name, where, test), taken in samples.items()
                if name == case.name and where == side
            }
            best[side] = max(rates.items(), key=lambda item: item[1])
        ratio = best["ours"][1] / best["theirs"][1]
        ratios.append(ratio)
        total = f"{case.size_bytes * threads / 1024:.0f} KiB" if case.unit == "bytes" else ""
        rows.append(
            (case.name, total, best["ours"][0], best["theirs"][0], f"{best['ours'][1] / 1e9:.1f}",
             f"{best['theirs'][1] / 1e9:.1f}", f"{ratio:.3f}")
        )  # fmt: skip
    reached = sum(ratio >= AIM for ratio in ratios)
    return Report(
        title=TITLE,
        summary=[
            f"**{reached} of {len(ratios)} ceilings reach {100 * AIM:.0f} % of likwid-bench's "
            f"figure**; the lowest ratio is {min(ratios):.2f}."
        ],
        tables=[
            Table(
                columns=("ceiling", "working set", "our kernel", "likwid's best test",
                         "ours, GFLOP/s or GB/s", "likwid, GFLOP/s or GB/s", "ratio"),
                rows=rows,
                text_columns=4,
            )
        ],
        notes=[
            f"{threads} threads, one a core; samples of {1e3 * SAMPLE_S:.0f} ms by turns, the best "
            f"of {ROUNDS} for every test; where likwid has several tests, its best one counts. "
            "Copies count bytes read plus bytes written on both sides. The load average before it "
            f"was {load_before:.1f}: above 1, others were working on the machine too.",
            f"{likwid_version()}; it is used for this comparison only.",
        ],
    )  # fmt: skip


def likwid_version() -> str:
    """What it says about itself."""
    said = subprocess.run(["likwid-bench", "-h"], capture_output=True, text=True).stdout
    version = re.search(r"Version\s+([\d.]+)", said)
    return f"likwid-bench {version[1]}" if version else "likwid-bench"

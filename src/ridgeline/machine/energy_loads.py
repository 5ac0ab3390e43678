"""Loads whose work is known, for the fit of energy coefficients: with the kernels of the ceilings.

They span what the model tells apart: time alone (a device at working clocks without work), bytes
of each level, FLOPs of each precision, and mixtures. Products also run half of the time, between
spins, where the power cap does not reach them. Data are random: products of zeros draw far
less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ridgeline.machine.ceilings_cuda import DRAM_SHARE_OF_L2, PRODUCTS
from ridgeline.machine.passport import Missing
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds

CPU, CUDA = "cpu", "cuda"
SPIN_CYCLES = 2_000_000  # about a millisecond
PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
SIDE, SLOW_SIDE = 8192, 4096  # of matrices; fp32 takes longer
CPU_SIDE = 2048
CHAINS = ("fp32", "fp64")
OPERAND_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
CALL_S = 0.05  # of a CPU's kernel: starting its threads does not count beside it
L2_SHARE, L2_PASSES = 4, 64  # a quarter of the cache, so that all of it stays there


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A call that is repeated, and the work of one; without a call, the device rests."""

    label: str
    call: Callable[[], object] | None = field(default=None, repr=False)
    flops: Mapping[str, float] = field(default_factory=dict)  # by precision
    moved_bytes: Mapping[str, float] = field(default_factory=dict)  # by memory level


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The loads of a device, how to wait for it, and what it cannot run."""

    loads: tuple[Load, ...]
    synchronize: Callable[[], object]
    missing: tuple[Missing, ...] = ()


def run_by_turns(label: str, first: Load, second: Load, clock: Clock) -> Load:
    """Two loads one after the other, each for about half of the time."""
    assert first.call is not None and second.call is not None
    times_s = [min(sample_seconds(one.call, clock, samples=3)) for one in (first, second)
               if one.call is not None]  # fmt: skip
    longest_s = max(times_s)
    turns = [max(1, round(longest_s / time_s)) for time_s in times_s]
    calls = [first.call] * turns[0] + [second.call] * turns[1]

    def call() -> None:
        for one in calls:
            one()

    return Load(
        label=label,
        call=call,
        flops=_add_work((first.flops, turns[0]), (second.flops, turns[1])),
        moved_bytes=_add_work((first.moved_bytes, turns[0]), (second.moved_bytes, turns[1])),
    )


def _add_work(*parts: tuple[Mapping[str, float], int]) -> dict[str, float]:
    total: dict[str, float] = {}
    for amounts, turns in parts:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + turns * amount
    return total


def make_product(torch: Any, device: str, precision: str, side: int) -> Load:
    """A square matrix product of random numbers; its bytes are those of operands and result."""
    product = next(one for one in PRODUCTS if one.precision == precision)
    return Load(
        label=f"{precision} products",
        call=product.make(torch, side, side, side, device),
        flops={precision: 2.0 * side**3},
        moved_bytes={"dram": 3.0 * OPERAND_BYTES[precision] * side**2},
    )


# ---------------------------------------------------------------- a GPU


@contextmanager
def open_cuda_loads(number: int) -> Iterator[Loads]:
    """The loads of a CUDA device; streams and chains need Triton. Not verified on hardware."""
    import torch

    device = f"cuda:{number}"
    with torch.cuda.device(number):
        synchronize = partial(torch.cuda.synchronize, number)
        clock = host_clock(synchronize)
        spin = Load(label="spinning", call=lambda: torch.cuda._sleep(SPIN_CYCLES))
        loads, missing = [Load(label="idle"), spin], []
        try:
            loads += _make_kernel_loads(torch, number, clock)
        except ImportError as error:
            missing.append(Missing(what="loads of DRAM, L2 and vector units", reason=str(error)))
        for precision in PRECISIONS:
            side = SLOW_SIDE if precision == "fp32" else SIDE
            try:
                product = make_product(torch, device, precision, side)
                half = run_by_turns(f"{product.label}, half of the time", product, spin, clock)
            except RuntimeError as error:  # a precision that the device lacks, too little memory
                reason = " ".join(str(error).split())[:200]
                missing.append(Missing(what=f"{precision} products", reason=reason))
                continue
            loads += [product, half]
        yield Loads(loads=tuple(loads), synchronize=synchronize, missing=tuple(missing))
        torch.cuda.empty_cache()


def _make_kernel_loads(torch: Any, number: int, clock: Clock) -> list[Load]:
    """DRAM and L2 streams, fp32 chains, and chains and streams by turns."""
    from ridgeline.machine import cuda_kernels

    properties = torch.cuda.get_device_properties(number)
    l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or (40 << 20)
    stream = partial(cuda_kernels.stream, device=number, fill=torch.randn)
    large = partial(stream, size_bytes=DRAM_SHARE_OF_L2 * l2_bytes, rounds=1)
    read, copy = large("read"), large("copy")
    cached = stream("read", size_bytes=l2_bytes // L2_SHARE, rounds=L2_PASSES)
    chain = cuda_kernels.fma_chain(torch.float32, number, is_alternating=True)
    dram = Load(label="DRAM read", call=read.call, moved_bytes={"dram": read.work})
    chains = Load(label="fp32 chains", call=chain.call, flops={"fp32": chain.work})
    return [
        dram,
        Load(label="DRAM copy", call=copy.call, moved_bytes={"dram": copy.work}),
        Load(label="L2 read", call=cached.call, moved_bytes={"l2": cached.work}),
        chains,
        run_by_turns("fp32 chains and DRAM read by turns", chains, dram, clock),
    ]


# ---------------------------------------------------------------- a CPU


@contextmanager
def open_cpu_loads() -> Iterator[Loads]:
    """The loads of all cores; the team of threads lives as long as the block."""
    from ridgeline.machine.ceilings_cpu import import_torch
    from ridgeline.machine.cpu import read_caches, share_caches
    from ridgeline.machine.cpu_kernels import Team, build_kernels, choose_cpus, choose_kernels
    from ridgeline.machine.system import SystemIO

    cpus = choose_cpus()
    shares = share_caches(read_caches(SystemIO(), cpus[0]), cpus)  # of one thread
    last, last_bytes = max(shares.items(), key=lambda one: one[1], default=("l2", 1 << 20))
    team_of_all = Team(cpus, max(4 * last_bytes, 1 << 26))
    with team_of_all as team, import_torch(len(cpus)) as torch:
        team.run(_fill_memory, len(cpus))
        kernels = choose_kernels(team, build_kernels())
        sizes = {"dram": team.bytes_per_thread, last: last_bytes // 2}
        loads = _make_cpu_loads(team, kernels, sizes)
        missing = []
        if torch is None:
            missing.append(Missing(what="products", reason="pip install 'ridgeline[torch]'"))
        else:
            loads += [make_product(torch, CPU, name, CPU_SIDE) for name in ("fp32", "fp64")]
        yield Loads(loads=tuple(loads), synchronize=lambda: None, missing=tuple(missing))


def _fill_memory(worker: Any) -> None:
    """Random numbers: zeros would draw less."""
    import numpy as np

    numbers = worker.memory.view(np.float32)
    numbers[:] = np.random.default_rng(worker.index).random(len(numbers), dtype=np.float32)


def _make_cpu_loads(team: Any, kernels: Mapping[str, Any], sizes: Mapping[str, int]) -> list[Load]:
    """Rest, spinning, reads of each size, a copy in DRAM, chains, and both by turns."""
    from ridgeline.machine.cpu_kernels import Probe

    rows = [  # label, kernel, precision of its FLOPs, level of its bytes
        ("spinning", "cycles", "", ""),
        *((f"{level.upper()} read", "memory_read", "", level) for level in sizes),
        ("DRAM copy", "memory_copy", "", "dram"),
        *((f"{precision} chains", f"vector_{precision}", precision, "") for precision in CHAINS),
    ]
    loads = {}
    for label, name, precision, level in rows:
        if name in kernels:
            probe = Probe(team, kernels[name], name, threads=len(team.cpus),
                          size_bytes=sizes.get(level, 0), sample_s=CALL_S)  # fmt: skip
            work = probe.work_per_call()
            loads[label] = Load(
                label=label,
                call=probe,
                flops={precision: work} if precision else {},
                moved_bytes={level: work} if level else {},
            )
    mixed = run_by_turns("fp32 chains and DRAM read by turns", loads["fp32 chains"],
                         loads["DRAM read"], host_clock(lambda: None))  # fmt: skip
    return [Load(label="idle"), *loads.values(), mixed]

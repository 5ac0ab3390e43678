"""GPU kernels in Triton for what no library call reaches: vector units and caches.

Imported only where Triton is installed. Every kernel returns the work it does, so that a
rate is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]

CHAINS = 8  # independent values per thread: enough to hide the latency of an FMA
UNROLL = 32
WARPS = 8
LANES = 32
PROGRAMS_PER_SM = 4
FMA_ROUNDS = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel ready to run, and the FLOPs or bytes of one run."""

    call: Callable[[], object]
    work: int
    how: str


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _fma_chain(out, rounds, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    lane = tl.arange(0, BLOCK)
    x = tl.load(out + lane)
    scale = tl.load(out)  # one register for all chains: three apart would be a bottleneck
    shift = tl.load(out + 1)
    for _ in range(rounds):
        for _ in tl.static_range(STEPS):
            x = x * scale + shift
    tl.store(out + tl.program_id(0) * BLOCK + lane, x)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _packed_fma_chain(  # type: ignore[no-untyped-def]
    out,
    rounds,
    BLOCK: tl.constexpr,  # noqa: N803
    STEPS: tl.constexpr,  # noqa: N803
    CODE: tl.constexpr,  # noqa: N803
):
    lane = tl.arange(0, BLOCK)
    x = tl.load(out + lane)
    shift = tl.load(out + tl.num_programs(0) * BLOCK - BLOCK + lane)
    for _ in range(rounds):
        for _ in tl.static_range(STEPS):
            # x·x + shift: two registers, since three apart would be a bottleneck
            x = tl.inline_asm_elementwise(
                CODE, "=r,r,r", [x, shift], dtype=x.dtype, is_pure=True, pack=2
            )
    tl.store(out + tl.program_id(0) * BLOCK + lane, x)


# Two halves go through one lane at a time; a compiler does not always pair them by itself.
PACKED = {
    torch.float16: "fma.rn.f16x2 $0, $1, $1, $2;",
    torch.bfloat16: "fma.rn.bf16x2 $0, $1, $1, $2;",
}


def fma_chain(dtype: torch.dtype, device: int, *, chains: int = CHAINS) -> Launch:
    """Independent chains of fused multiply-adds in registers; nothing is read in between."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    block, programs = WARPS * LANES * chains, sms * PROGRAMS_PER_SM
    rounds = FMA_ROUNDS if dtype != torch.float64 else FMA_ROUNDS // 4
    out = torch.zeros(programs * block, dtype=dtype, device=f"cuda:{device}")

    def call() -> object:
        settings = {"BLOCK": block, "STEPS": UNROLL, "num_warps": WARPS}
        if dtype in PACKED:
            return _packed_fma_chain[(programs,)](out, rounds, CODE=PACKED[dtype], **settings)
        return _fma_chain[(programs,)](out, rounds, **settings)

    flops = 2 * programs * block * rounds * UNROLL
    return Launch(call, flops, f"Triton FMA chains, {chains} a thread, {programs} programs")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _read_own(  # type: ignore[no-untyped-def]
    data,
    out,
    rounds,
    zero,
    BLOCK: tl.constexpr,  # noqa: N803
    BLOCKS: tl.constexpr,  # noqa: N803
):
    lane = tl.arange(0, BLOCK)
    first = tl.program_id(0) * BLOCKS * BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(rounds):
        # `zero` is only known at run time, so that no load can be moved out of the loop
        at = data + first + i * zero + lane
        for block in tl.static_range(BLOCKS):
            total += tl.load(at + block * BLOCK, cache_modifier=".ca")
    tl.store(out + tl.program_id(0) * BLOCK + lane, total)


def read_l1(device: int, bytes_per_sm: int) -> Launch:
    """Every program reads a small region of its own again and again, through its SM's L1."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    per_sm, block = 4, 4 * WARPS * LANES  # 16 bytes for each thread
    blocks = max(bytes_per_sm // per_sm // (4 * block), 1)
    programs, rounds = sms * per_sm, 8192
    data = torch.zeros(programs * blocks * block, device=f"cuda:{device}")
    out = torch.empty(programs * block, device=f"cuda:{device}")

    def call() -> object:
        return _read_own[(programs,)](
            data, out, rounds, 0, BLOCK=block, BLOCKS=blocks, num_warps=WARPS
        )

    size = per_sm * blocks * block * 4
    return Launch(call, programs * rounds * blocks * block * 4, f"Triton loop, {size} B per SM")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _read_all(  # type: ignore[no-untyped-def]
    data,
    out,
    blocks,
    rounds,
    BLOCK: tl.constexpr,  # noqa: N803
):
    lane = tl.arange(0, BLOCK)
    programs = tl.num_programs(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for r in range(rounds):
        start = (tl.program_id(0) + r * 37) % programs
        for block in range(start, blocks, programs):
            total += tl.load(data + tl.cast(block, tl.int64) * BLOCK + lane, cache_modifier=".cg")
    tl.store(out + tl.program_id(0) * BLOCK + lane, total)


def read_shared(device: int, size_bytes: int, *, rounds: int, programs_per_sm: int = 8) -> Launch:
    """All SMs read the same buffer, past L1; in another order each round. L2, or DRAM if large."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    block = 4 * WARPS * LANES
    blocks, programs = size_bytes // (4 * block), sms * programs_per_sm
    data = torch.zeros(blocks * block, device=f"cuda:{device}")
    out = torch.empty(programs * block, device=f"cuda:{device}")

    def call() -> object:
        return _read_all[(programs,)](data, out, blocks, rounds, BLOCK=block, num_warps=WARPS)

    return Launch(call, rounds * blocks * block * 4, f"Triton loop over {blocks * block * 4} B")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _copy_all(source, target, blocks, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    lane = tl.arange(0, BLOCK)
    programs = tl.num_programs(0)
    for r in range(rounds):
        start = (tl.program_id(0) + r * 37) % programs
        for block in range(start, blocks, programs):
            at = tl.cast(block, tl.int64) * BLOCK + lane
            tl.store(target + at, tl.load(source + at, cache_modifier=".cg"))


def copy_shared(device: int, size_bytes: int, *, rounds: int) -> Launch:
    """Copy between two buffers; bytes read and bytes written both count."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    block = 4 * WARPS * LANES
    blocks, programs = size_bytes // (4 * block), sms * 8
    source = torch.zeros(blocks * block, device=f"cuda:{device}")
    target = torch.empty_like(source)

    def call() -> object:
        return _copy_all[(programs,)](source, target, blocks, rounds, BLOCK=block, num_warps=WARPS)

    return Launch(call, 2 * rounds * blocks * block * 4, f"Triton copy of {blocks * block * 4} B")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _triad_all(a, b, c, scale, blocks, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    lane = tl.arange(0, BLOCK)
    programs = tl.num_programs(0)
    for r in range(rounds):
        start = (tl.program_id(0) + r * 37) % programs
        for block in range(start, blocks, programs):
            at = tl.cast(block, tl.int64) * BLOCK + lane
            left = tl.load(b + at, cache_modifier=".cg")
            right = tl.load(c + at, cache_modifier=".cg")
            tl.store(a + at, left + scale * right)


def triad_shared(device: int, size_bytes: int, *, rounds: int) -> Launch:
    """a = b + s·c: two reads and one write for each element."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    block = 4 * WARPS * LANES
    blocks, programs = size_bytes // (4 * block), sms * 8
    a, b, c = (torch.zeros(blocks * block, device=f"cuda:{device}") for _ in range(3))

    def call() -> object:
        return _triad_all[(programs,)](a, b, c, 1.5, blocks, rounds, BLOCK=block, num_warps=WARPS)

    return Launch(call, 3 * rounds * blocks * block * 4, f"Triton triad of {blocks * block * 4} B")

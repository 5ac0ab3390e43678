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
BLOCK = 4 * WARPS * LANES  # elements of fp32: 16 bytes for each thread
BLOCK_BYTES = 4 * BLOCK


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel ready to run, and the FLOPs or bytes of one run."""

    call: Callable[[], object]
    work: int
    how: str


@dataclass(frozen=True, slots=True)
class _Cut:
    """A buffer of fp32 in whole blocks, dealt to programs by turns."""

    blocks: int
    programs: int

    @property
    def elements(self) -> int:
        return self.blocks * BLOCK

    @property
    def size_bytes(self) -> int:
        return self.blocks * BLOCK_BYTES


def _cut(device: int, size_bytes: int, programs_per_sm: int = 8) -> _Cut:
    return _Cut(size_bytes // BLOCK_BYTES, _sms(device) * programs_per_sm)


def _sms(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


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
    block, programs = WARPS * LANES * chains, _sms(device) * PROGRAMS_PER_SM
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
    per_sm, rounds = 4, 8192
    programs = _sms(device) * per_sm
    blocks = max(bytes_per_sm // per_sm // BLOCK_BYTES, 1)
    data = torch.zeros(programs * blocks * BLOCK, device=f"cuda:{device}")
    out = torch.empty(programs * BLOCK, device=f"cuda:{device}")

    def call() -> object:
        return _read_own[(programs,)](
            data, out, rounds, 0, BLOCK=BLOCK, BLOCKS=blocks, num_warps=WARPS
        )

    size_bytes = blocks * BLOCK_BYTES  # of one program
    how = f"Triton loop, {per_sm * size_bytes} B per SM"
    return Launch(call, programs * rounds * size_bytes, how)


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
    cut = _cut(device, size_bytes, programs_per_sm)
    data = torch.zeros(cut.elements, device=f"cuda:{device}")
    out = torch.empty(cut.programs * BLOCK, device=f"cuda:{device}")

    def call() -> object:
        return _read_all[(cut.programs,)](
            data, out, cut.blocks, rounds, BLOCK=BLOCK, num_warps=WARPS
        )

    return Launch(call, rounds * cut.size_bytes, f"Triton loop over {cut.size_bytes} B")


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
    cut = _cut(device, size_bytes)
    source = torch.zeros(cut.elements, device=f"cuda:{device}")
    target = torch.empty_like(source)

    def call() -> object:
        return _copy_all[(cut.programs,)](
            source, target, cut.blocks, rounds, BLOCK=BLOCK, num_warps=WARPS
        )

    return Launch(call, 2 * rounds * cut.size_bytes, f"Triton copy of {cut.size_bytes} B")


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
    cut = _cut(device, size_bytes)
    a, b, c = (torch.zeros(cut.elements, device=f"cuda:{device}") for _ in range(3))

    def call() -> object:
        return _triad_all[(cut.programs,)](
            a, b, c, 1.5, cut.blocks, rounds, BLOCK=BLOCK, num_warps=WARPS
        )

    return Launch(call, 3 * rounds * cut.size_bytes, f"Triton triad of {cut.size_bytes} B")

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

from ridgeline.records import ConvShape

CHAINS = 8  # independent values per thread: enough to hide the latency of an FMA
UNROLL = 32
WARPS = 8
LANES = 32
PROGRAMS_PER_SM = 4
FMA_ROUNDS = 4096
BLOCK = 4 * WARPS * LANES  # elements of fp32: 16 bytes for each thread
BLOCK_BYTES = 4 * BLOCK
CHANNELS, POSITIONS = 16, 128  # of a block of a convolution


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel ready to run, and the FLOPs or bytes of one run."""

    call: Callable[[], object]
    work: int
    how: str


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


def fma_chain(
    dtype: torch.dtype, device: int, *, chains: int = CHAINS, is_alternating: bool = False
) -> Launch:
    """Independent chains of fused multiply-adds in registers; nothing is read in between.

    They start from zeros and stay there, or alternate between x and 0.5 - x of random numbers.
    """
    block, programs = WARPS * LANES * chains, _sms(device) * PROGRAMS_PER_SM
    rounds = FMA_ROUNDS if dtype != torch.float64 else FMA_ROUNDS // 4
    out = torch.zeros(programs * block, dtype=dtype, device=f"cuda:{device}")
    if is_alternating:
        out[:block] = torch.randn(block, dtype=dtype, device=out.device)
        out[0], out[1] = -1.0, 0.5  # scale and shift, which an even number of steps leaves alone

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


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _copy_all(source, target, blocks, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    lane = tl.arange(0, BLOCK)
    programs = tl.num_programs(0)
    for r in range(rounds):
        start = (tl.program_id(0) + r * 37) % programs
        for block in range(start, blocks, programs):
            at = tl.cast(block, tl.int64) * BLOCK + lane
            tl.store(target + at, tl.load(source + at, cache_modifier=".cg"))


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


STREAMS = {  # kernel, buffers, words for it
    "read": (_read_all, 1, "loop over"),
    "copy": (_copy_all, 2, "copy of"),
    "triad": (_triad_all, 3, "triad of"),  # a = b + s·c: two reads and one write per element
}


def stream(
    pattern: str,
    device: int,
    size_bytes: int,
    *,
    rounds: int,
    programs_per_sm: int = 8,
    fill: Callable[..., torch.Tensor] = torch.zeros,
) -> Launch:
    """All SMs on the same buffers, past L1; in another order each round. L2, or DRAM if large.

    Bytes read and bytes written both count. The buffers hold fp32 in whole blocks, dealt to
    programs by turns.
    """
    kernel, arrays, words = STREAMS[pattern]
    blocks, programs = size_bytes // BLOCK_BYTES, _sms(device) * programs_per_sm
    name = f"cuda:{device}"
    buffers = [fill(blocks * BLOCK, device=name) for _ in range(arrays)]
    if pattern == "read":  # its sums
        buffers.append(torch.empty(programs * BLOCK, device=name))
    scale = (1.5,) if pattern == "triad" else ()

    def call() -> object:
        return kernel[(programs,)](*buffers, *scale, blocks, rounds, BLOCK=BLOCK, num_warps=WARPS)

    moved = blocks * BLOCK_BYTES
    return Launch(call, arrays * rounds * moved, f"Triton {words} {moved} B")


# ---------------------------------------------------------------- a direct convolution
# cuDNN has a name for it and does it for no shape. A program computes a block of output channels at
# a block of positions: for every channel and tap one outer product of weights and inputs.


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _direct_kernel(  # type: ignore[no-untyped-def]
    x, w, y, channels, height, width, filters, rows, columns, groups,
    stride_h, stride_w, pad_h, pad_w, gap_h, gap_w,
    x_n, x_c, x_h, x_w, w_k, w_c, w_r, w_s, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr,  # noqa: N803
    CHANNELS: tl.constexpr, POSITIONS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    place = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    k = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    sample, group = tl.program_id(2) // groups, tl.program_id(2) % groups
    p, q = place // columns, place % columns
    is_place, is_filter = place < rows * columns, k < filters
    sums = tl.zeros((CHANNELS, POSITIONS), dtype=tl.float32)
    for c in range(channels):
        for r in tl.static_range(R):
            for s in tl.static_range(S):
                row, column = p * stride_h - pad_h + r * gap_h, q * stride_w - pad_w + s * gap_w
                is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
                from_x = sample * x_n + (group * channels + c) * x_c + row * x_h + column * x_w
                value = tl.load(x + from_x, mask=is_place & is_inside, other=0.0)
                from_w = (group * filters + k) * w_k + c * w_c + r * w_r + s * w_s
                factor = tl.load(w + from_w, mask=is_filter, other=0.0)
                sums += factor.to(tl.float32)[:, None] * value.to(tl.float32)[None, :]
    to_y = sample * y_n + (group * filters + k)[:, None] * y_k + (p * y_p + q * y_q)[None, :]
    tl.store(y + to_y, sums.to(y.dtype.element_ty), mask=is_filter[:, None] & is_place[None, :])


def direct_convolution(x: torch.Tensor, w: torch.Tensor, shape: ConvShape) -> torch.Tensor:
    """A convolution by multiply-adds in fp32; the output has the layout of the input."""
    n, _, p, q = shape.output_shape
    filters = shape.k // shape.groups
    y = x.new_empty((n, p, q, shape.k)).permute(0, 3, 1, 2)
    if x.stride(1) != 1 or shape.c == 1:
        y = y.contiguous()
    grid = (triton.cdiv(p * q, POSITIONS), triton.cdiv(filters, CHANNELS), n * shape.groups)
    _direct_kernel[grid](
        x, w, y, shape.c // shape.groups, shape.h, shape.w, filters, p, q, shape.groups,
        *shape.stride, *shape.padding, *shape.dilation, *x.stride(), *w.stride(), *y.stride(),
        R=shape.r, S=shape.s, CHANNELS=CHANNELS, POSITIONS=POSITIONS,
    )  # fmt: skip
    return y

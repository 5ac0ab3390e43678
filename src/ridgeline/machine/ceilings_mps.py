"""The ceilings of an Apple GPU, through torch: products and memory.

Written without such a machine at hand; the tests replace the device's calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Ceiling, Missing
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds

SHAPES = ((4096, 4096, 4096), (2048, 4096, 4096), (4096, 4096, 8192))
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
BUFFER_BYTES = 1 << 30  # far larger than the system-level cache
NOT_REACHED = (
    ("fp64 products", "the Metal back end of torch has no fp64"),
    ("cache bandwidth", "torch offers no kernel that stays in a cache"),
    ("power and clocks", "macOS shows them to root only: sudo powermetrics"),
)


def mps_steps() -> int:
    """How often `progress` is called."""
    return len(PRECISIONS) + 2


def measure_mps(
    *,
    quick: bool = False,
    progress: Callable[[str], None] = lambda _what: None,
    torch: Any = None,
) -> tuple[list[Ceiling], list[Missing]]:
    """Measure an Apple GPU through Metal."""
    if torch is None:
        import torch
    if not torch.backends.mps.is_available():
        raise RidgelineError(
            "there is no Apple GPU here that torch can use",
            hint="`ridgeline doctor` says what is missing; --device cpu measures the CPU",
        )
    clock = host_clock(torch.mps.synchronize)
    samples = 5 if quick else 15
    ceilings: list[Ceiling] = []
    missing = [Missing(what=what, reason=reason) for what, reason in NOT_REACHED]
    parts: dict[str, Callable[[], list[Ceiling]]] = {
        f"{precision} products": partial(
            _product, torch, precision, getattr(torch, dtype), clock, samples
        )
        for precision, dtype in PRECISIONS.items()
    }
    parts["memory"] = partial(_memory, torch, clock, samples)
    parts["launches"] = partial(_dispatch, torch, clock, samples)
    for what, part in parts.items():
        progress(what)
        try:
            ceilings += part()
        except (RuntimeError, TypeError) as error:
            missing.append(Missing(what=what, reason=str(error)[:200]))
    return ceilings, missing


def _product(torch: Any, precision: str, dtype: Any, clock: Clock, samples: int) -> list[Ceiling]:
    def make(shape: tuple[int, int, int]) -> Callable[[], object]:
        m, n, k = shape
        a = torch.randn(m, k, device="mps").to(dtype)
        b = torch.randn(k, n, device="mps").to(dtype)
        return lambda: torch.mm(a, b)

    def flops(shape: tuple[int, int, int]) -> int:
        return 2 * shape[0] * shape[1] * shape[2]

    best = max(SHAPES, key=lambda s: flops(s) / min(sample_seconds(make(s), clock, samples=3)))
    taken = sample_seconds(make(best), clock, samples=samples)
    return [
        Ceiling(
            kind="compute",
            device="mps",
            path="matrix",
            precision=precision,
            accumulator="fp32",
            samples=tuple(flops(best) / s for s in taken),
            how=f"torch.mm {'x'.join(map(str, best))}, random data",
        )
    ]


def _memory(torch: Any, clock: Clock, samples: int) -> list[Ceiling]:
    a, b, c = (torch.zeros(BUFFER_BYTES // 4, device="mps") for _ in range(3))
    patterns = {
        "read": (lambda: a.sum(), BUFFER_BYTES),
        "copy": (lambda: b.copy_(a), 2 * BUFFER_BYTES),
        "triad": (lambda: torch.add(b, c, alpha=1.5, out=a), 3 * BUFFER_BYTES),
    }
    return [
        Ceiling(
            kind="bandwidth",
            device="mps",
            level="dram",
            pattern=pattern,
            working_set_bytes=BUFFER_BYTES,
            samples=tuple(moved / s for s in sample_seconds(call, clock, samples=samples)),
            how=f"torch {pattern} of {BUFFER_BYTES} B",
        )
        for pattern, (call, moved) in patterns.items()
    ]


def _dispatch(torch: Any, clock: Clock, samples: int) -> list[Ceiling]:
    x = torch.zeros(32, device="mps")

    def tiny() -> None:
        for _ in range(100):
            x.add_(1)

    taken = sample_seconds(tiny, clock, samples=samples, sample_s=0.005)
    return [
        Ceiling(
            kind="launch",
            device="mps",
            what="eager dispatch",
            samples=tuple(s / 100 for s in taken),
            how="100 additions of 32 numbers",
        )
    ]

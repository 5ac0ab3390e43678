"""A batch size for those who name none: large enough to tell something, soon done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LARGEST = {"cpu": 8, "cuda": 64, "mps": 32}  # a processor is full with few samples
LONGEST_STEP_S = 0.5  # at the roof; real steps take longer
SAFE_SHARE = 0.7  # of the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """What a step of a certain batch needs."""

    flops: float
    peak_bytes: float


def choose_batch(
    need: Callable[[int], OneStep],
    *,
    kind: str,
    flops_per_s: float | None,
    memory_bytes: float | None,
) -> int:
    """The largest power of two whose step fits the memory and does not take too long."""
    batch = LARGEST.get(kind, 8)
    while batch > 1:
        step = need(batch)
        fits = memory_bytes is None or step.peak_bytes <= SAFE_SHARE * memory_bytes
        is_short = flops_per_s is None or step.flops / flops_per_s <= LONGEST_STEP_S
        if fits and is_short:
            return batch
        batch //= 2
    return 1

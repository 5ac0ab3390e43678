"""The learning rate of each step: a straight rise, then half a cosine down to zero.

As in arXiv:1608.03983 without restarts, behind a warm-up as in arXiv:1706.02677.
"""

from __future__ import annotations

import math

USUAL_WARMUP = 500  # steps, unless that is more than a tenth of all


def lr_at(step: int, *, peak_lr: float, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of a step; the first is step 0, and step `warmup_steps` has the peak."""
    if step < warmup_steps:
        return peak_lr * (step + 1) / (warmup_steps + 1)
    decay_steps = max(1, total_steps - warmup_steps)
    return peak_lr * 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / decay_steps))


def usual_warmup(total_steps: int) -> int:
    """The warm-up of a training that was not given one."""
    return min(USUAL_WARMUP, total_steps // 10)

"""The records that cross between rooms. SI base units only; the unit is in the name.

A multiply-add is one MAC and two FLOPs. `flops` is a count, never a rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RECOMPUTE = "recompute"  # what activation checkpointing computes again
BACKWARD = ("input-grad", "weight-grad", RECOMPUTE)
PHASES = ("forward", *BACKWARD, "optimizer")
MODES = ("infer", "train")
PRECISIONS = ("fp32", "tf32", "amp", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a piece of work must do. Every operand is moved once, nothing is recomputed."""

    macs: int = 0  # multiply-adds of matrix products and convolutions
    other_flops: int = 0  # additions, multiplications, divisions, comparisons outside products
    transcendentals: int = 0  # exp, log, erf, tanh, sqrt…; not part of flops
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def flops(self) -> int:
        """2 · MACs + other FLOPs; transcendental functions are counted apart."""
        return 2 * self.macs + self.other_flops

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            macs=self.macs + other.macs,
            other_flops=self.other_flops + other.other_flops,
            transcendentals=self.transcendentals + other.transcendentals,
            read_bytes=self.read_bytes + other.read_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            macs=self.macs * times,
            other_flops=self.other_flops * times,
            transcendentals=self.transcendentals * times,
            read_bytes=self.read_bytes * times,
            written_bytes=self.written_bytes * times,
        )

    def __sub__(self, other: Cost) -> Cost:
        """The change from `other` to this; may be negative."""
        return self + other * -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What was asked for: enough to build the same workload again."""

    model: str  # as the user wrote it: "resnet50", "timm:vit_tiny_patch16_224", "net.py:make"
    batch_size: int = 1
    mode: str = "infer"  # one of MODES
    input_size: tuple[int, ...] | None = None  # (224,) or (height, width); None: the model's own
    seq_len: int | None = None  # tokens; None: the model's own default
    config: Mapping[str, Any] = field(default_factory=dict)  # overrides for configurable models

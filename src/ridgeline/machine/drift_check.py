"""A look at whether a passport still holds: one ceiling, sampled again for a second.

The product of the passport is repeated in the same library and shape, so that both numbers mean the
same. A lower rate tells of a busy neighbour, a lower clock or another library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ridgeline.machine.ceiling import Ceiling
from ridgeline.machine.passport import DRIFT, Passport
from ridgeline.units import format_percent

SAMPLES = 40
SAMPLE_S = 0.01
_SHAPE = re.compile(r"\b(\d+)x(\d+)x(\d+)\b")

Rate = Callable[[str, tuple[int, int, int]], float]  # device, shape → best FLOP/s


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCheck:
    """One ceiling, then and now."""

    ceiling: Ceiling
    now: float
    measured_at: str

    @property
    def change(self) -> float:
        """-0.1 is ten per cent less than in the passport."""
        return self.now / self.ceiling.best - 1

    @property
    def has_drifted(self) -> bool:
        return abs(self.change) > DRIFT

    def __str__(self) -> str:
        then = f"the passport of {self.measured_at[:10]}"
        if not self.has_drifted:
            return f"a {self.ceiling.precision} product is within {format_percent(DRIFT)} of {then}"
        by = format_percent(abs(self.change))
        if self.change > 0:
            return (
                f"a {self.ceiling.precision} product is {by} faster than in {then}:"
                " measure the machine again (--remeasure)"
            )
        return (
            f"a {self.ceiling.precision} product is {by} slower than in {then}: other"
            " programs are running, or the machine has changed (--remeasure measures it again)"
        )


def check_drift(passport: Passport, device: str, rate: Rate | None = None) -> DriftCheck | None:
    """Sample the fp32 product again; None where the passport has none that can be repeated."""
    for ceiling in passport.find(kind="compute", device=device, path="matrix", precision="fp32"):
        shape = _SHAPE.search(ceiling.how)
        if shape is None or "torch" not in ceiling.how:  # another library is another number
            continue
        m, n, k = (int(side) for side in shape.groups())
        now = (rate or best_rate)(device, (m, n, k))
        return DriftCheck(ceiling=ceiling, now=now, measured_at=passport.measured_at)
    return None


def best_rate(device: str, shape: tuple[int, int, int]) -> float:
    """The best of some short samples of a product in fp32."""
    import torch

    from ridgeline.machine.sampling import rate_probe

    m, n, k = shape
    a, b = torch.rand(m, k, device=device), torch.rand(k, n, device=device)
    out = torch.empty(m, n, device=device)
    probe = rate_probe(
        lambda: torch.mm(a, b, out=out),
        2.0 * m * n * k,
        sync=partial(_synchronize, device),
        sample_s=SAMPLE_S,
    )
    return max(probe() for _ in range(SAMPLES))


def _synchronize(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()

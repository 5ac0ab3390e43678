"""Two passports: one machine or two, what differs and why; one passport and the machine now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ridgeline.machine.ceiling import LOWER_IS_BETTER, Ceiling, rate_probe
from ridgeline.machine.passport import DRIFT, Passport
from ridgeline.units import format_percent

Description = Mapping[str, Any]


def another_machine(before: Description, now: Description) -> str | None:
    """What differs in the hardware: `1 × NVIDIA H200 before, none now`; None if nothing does."""
    for what, look in (("GPUs", _gpus), ("processor", _cpu)):
        old, new = look(before), look(now)
        if old and old != new:
            return f"{what}: {old} before, {new or 'none'} now"
    return None


def another_device(before: Description, now: Description) -> str | None:
    """The same kind of GPU, but not the same one."""
    old, new = _uuids(before), _uuids(now)
    if old and new and old != new:
        return f"measured on {', '.join(old)} before and on {', '.join(new)} now"
    return None


def _gpus(description: Description) -> str:
    names = [str(gpu.get("name")) for gpu in description.get("gpus") or ()]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def _cpu(description: Description) -> str:
    cpu = description.get("cpu") or {}
    return f"{cpu.get('model')}, {cpu.get('logical_cores')} threads" if cpu.get("model") else ""


def _uuids(description: Description) -> list[str]:
    return sorted(str(gpu["uuid"]) for gpu in description.get("gpus") or () if gpu.get("uuid"))


CLOCK_EXPLAINS = 0.03  # the ratio of clocks is the ratio of roofs, within this


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One ceiling in two passports."""

    key: tuple[str, ...]
    before: Ceiling
    after: Ceiling
    explanation: str

    @property
    def change(self) -> float:
        """0.1 is ten per cent more in the second passport."""
        return self.after.best / self.before.best - 1


def differences(before: Passport, after: Passport) -> list[Difference]:
    """Ceilings that both have, the largest change first. Devices are matched by their order."""
    earlier = {c.key: c for c in before.ceilings}
    found = [
        Difference(
            key=c.key, before=earlier[c.key], after=c, explanation=_explain(earlier[c.key], c)
        )
        for c in after.ceilings
        if c.key in earlier and earlier[c.key].best
    ]
    return sorted(found, key=lambda d: -abs(d.change))


def _explain(before: Ceiling, after: Ceiling) -> str:
    """What the conditions say about the change, if anything."""
    reasons = []
    ratio = after.best / before.best
    clocks = (before.conditions.clock_hz, after.conditions.clock_hz)
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > CLOCK_EXPLAINS:
        moved = f"clock {clocks[0] / 1e6:.0f} → {clocks[1] / 1e6:.0f} MHz"
        explains = abs(ratio - clocks[1] / clocks[0]) < CLOCK_EXPLAINS
        reasons.append(moved + (" explains it" if explains else ""))
    new = set(after.conditions.throttle_reasons) - set(before.conditions.throttle_reasons)
    if new:
        reasons.append(f"limited by {', '.join(sorted(new))}")
    if max(before.spread, after.spread) > abs(ratio - 1) > 0:
        reasons.append("within the noise")
    if before.how != after.how:
        reasons.append("measured with another kernel or size")
    return "; ".join(reasons)


def changed_settings(before: Passport, after: Passport) -> list[str]:
    """Drivers, caps and libraries that differ: `power_limit_w: 700 → 500`."""
    left = _flat({"description": before.description, "provenance": before.provenance})
    right = _flat({"description": after.description, "provenance": after.provenance})
    return [
        f"{name}: {left[name]} → {right[name]}"
        for name in left
        if name in right and left[name] != right[name] and _matters(name)
    ]


_WORDS = ("driver", "power_limit", "clock", "ecc", "mig", "cuda", "cudnn", "torch", "triton", "cpu",
          "governor", "kernel", "ram", "cores", "name")  # fmt: skip


_MOVES_BY_ITSELF = ("current", "time", ".clock_hz", ".memory_clock_hz")


def _matters(name: str) -> bool:
    lower = name.lower()
    return any(word in lower for word in _WORDS) and not any(
        word in lower for word in _MOVES_BY_ITSELF
    )


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(content, Mapping):
        return {
            key: value
            for name, item in content.items()
            for key, value in _flat(item, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    if isinstance(content, list | tuple):
        return {
            key: value
            for number, item in enumerate(content)
            for key, value in _flat(item, f"{prefix}.{number}").items()
        }
    return {prefix: content}


def drift(before: Passport, after: Passport) -> list[str]:
    """`the dram copy roof is 7.0 % below the passport of 2026-05-03`, for each that moved."""
    day = before.measured_at[:10]
    lines = []
    for difference in differences(before, after):
        if abs(difference.change) <= DRIFT or difference.before.kind == "power":
            continue
        worse = (difference.change < 0) != (difference.before.kind in LOWER_IS_BETTER)
        direction = "below" if difference.change < 0 else "above"
        word = "roof" if difference.before.kind != "launch" else "cost"
        why = f" ({difference.explanation})" if difference.explanation else ""
        lines.append(
            f"{'slower' if worse else 'faster'}: the {label(difference.before)} {word} is "
            f"{format_percent(abs(difference.change))} {direction} the passport of {day}{why}"
        )
    return lines


def label(ceiling: Ceiling) -> str:
    """What a ceiling is of, in words: `bf16 matrix`, `dram copy`, `graph replay`."""
    share = f", {ceiling.what}" if ceiling.what else ""  # of one core, beside that of all
    if ceiling.kind == "compute":
        return f"{ceiling.precision} {ceiling.path}{share}"
    if ceiling.kind == "bandwidth":
        return f"{ceiling.level} {ceiling.pattern}{share}"
    return f"{ceiling.what} {ceiling.kind}"


# ---------------------------------------------------------------- drift
# Whether a passport still holds: one ceiling, sampled again for a second. The product of the
# passport is repeated in the same library and shape, so that both numbers mean the same. A lower
# rate tells of a busy neighbour, a lower clock or another library.

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
        now = (rate or best_product_rate)(device, (m, n, k))
        return DriftCheck(ceiling=ceiling, now=now, measured_at=passport.measured_at)
    return None


def best_product_rate(device: str, shape: tuple[int, int, int]) -> float:
    """The best of some short samples of a product in fp32."""
    import torch

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

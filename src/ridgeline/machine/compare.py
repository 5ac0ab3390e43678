"""Two passports: one machine or two, what differs and why; one passport and the machine now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ridgeline.machine.describe import Description
from ridgeline.machine.passport import LOWER_IS_BETTER, Ceiling, Passport
from ridgeline.machine.sampling import host_clock, sample_seconds
from ridgeline.serialize import to_dict
from ridgeline.units import format_percent

DRIFT = 0.05  # a roof that moved by more than this share is worth a word
CLOCK_EXPLAINS = 0.03  # the ratio of clocks is the ratio of roofs, within this


def another_machine(before: Description, now: Description) -> str | None:
    """What differs in the hardware: `1 × NVIDIA H200 before, none now`; None if nothing does."""
    for what in ("GPUs", "processor"):
        old, new = _name_hardware(before)[what], _name_hardware(now)[what]
        if old and old != new:
            return f"{what}: {old} before, {new or 'none'} now"
    return None


def another_device(before: Description, now: Description) -> str | None:
    """The same kind of GPU, but not the same one."""
    old, new = (sorted(gpu.uuid for gpu in d.gpus if gpu.uuid) for d in (before, now))
    if old and new and old != new:
        return f"measured on {', '.join(old)} before and on {', '.join(new)} now"
    return None


def _name_hardware(description: Description) -> dict[str, str]:
    gpus, cpu = Counter(gpu.name for gpu in description.gpus), description.cpu
    return {
        "GPUs": ", ".join(f"{count} × {name}" for name, count in gpus.items()),
        "processor": f"{cpu.model}, {cpu.logical_cores} threads" if cpu.model else "",
    }


# ---------------------------------------------------------------- ceilings


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One ceiling in two passports."""

    before: Ceiling
    after: Ceiling

    @property
    def change(self) -> float:
        """0.1 is ten per cent more in the second passport."""
        return self.after.best / self.before.best - 1

    @property
    def has_drifted(self) -> bool:
        return abs(self.change) > DRIFT

    @property
    def explanation(self) -> str:
        """What the conditions say about the change, if anything."""
        before, after, ratio = self.before, self.after, self.after.best / self.before.best
        reasons = []
        old_hz, new_hz = before.conditions.clock_hz, after.conditions.clock_hz
        if old_hz and new_hz and abs(new_hz / old_hz - 1) > CLOCK_EXPLAINS:
            explains = " explains it" if abs(ratio - new_hz / old_hz) < CLOCK_EXPLAINS else ""
            reasons.append(f"clock {old_hz / 1e6:.0f} → {new_hz / 1e6:.0f} MHz{explains}")
        new = {*after.conditions.throttle_reasons} - {*before.conditions.throttle_reasons}
        if new:
            reasons.append(f"limited by {', '.join(sorted(new))}")
        if max(before.spread, after.spread) > abs(ratio - 1) > 0:
            reasons.append("within the noise")
        if before.how != after.how:
            reasons.append("measured with another kernel or size")
        return "; ".join(reasons)


def differences(before: Passport, after: Passport) -> list[Difference]:
    """Ceilings that both have, the largest change first. Devices are matched by their order."""
    earlier = {c.key: c for c in before.ceilings if c.best}
    pairs = [Difference(before=earlier[c.key], after=c) for c in after.ceilings if c.key in earlier]
    return sorted(pairs, key=lambda d: -abs(d.change))


_SETTINGS = re.compile(
    r"driver|power_limit|clock|ecc|mig|cuda|cudnn|torch|triton|cpu|governor|kernel|ram|cores|name",
    re.IGNORECASE,
)
_MOVES_BY_ITSELF = re.compile(r"current|time|\.clock_hz|\.memory_clock_hz", re.IGNORECASE)


def changed_settings(before: Passport, after: Passport) -> list[str]:
    """Drivers, caps and libraries that differ: `power_limit_w: 700 → 500`."""
    old, new = (
        dict(_flatten({"description": p.description, "provenance": p.provenance}))
        for p in (before, after)
    )
    return [
        f"{name}: {old[name]} → {new[name]}"
        for name in old
        if name in new and old[name] != new[name]
        and _SETTINGS.search(name) and not _MOVES_BY_ITSELF.search(name)
    ]  # fmt: skip


def _flatten(content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The leaves of nested values, by their path."""
    for name, item in to_dict(content).items():
        inside = dict(enumerate(item)) if isinstance(item, list) else item
        if isinstance(inside, Mapping):
            yield from ((f"{name}.{path}", leaf) for path, leaf in _flatten(inside))
        else:
            yield name, item


def drift(before: Passport, after: Passport) -> list[str]:
    """`the dram copy roof is 7.0 % below the passport of 2026-05-03`, for each that moved."""
    day = before.measured_at[:10]
    lines = []
    for moved in differences(before, after):
        if moved.has_drifted and moved.before.kind != "power":
            is_cost, is_less = moved.before.kind in LOWER_IS_BETTER, moved.change < 0
            why = f" ({moved.explanation})" if moved.explanation else ""
            lines.append(
                f"{'slower' if is_less != is_cost else 'faster'}: the {label(moved.before)} "
                f"{'cost' if is_cost else 'roof'} is {format_percent(abs(moved.change))} "
                f"{'below' if is_less else 'above'} the passport of {day}{why}"
            )
    return lines


def label(ceiling: Ceiling) -> str:
    """What a ceiling is of, in words: `bf16 matrix`, `dram copy`, `graph replay`."""
    share = f", {ceiling.what}" if ceiling.what else ""  # of one core, where another is of all
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
_TORCH_PRODUCT = re.compile(r"torch.*\b(\d+)x(\d+)x(\d+)\b")

Rates = Callable[[str, tuple[int, int, int]], Sequence[float]]  # device, shape → samples, FLOP/s


def sample_product_again(
    passport: Passport, device: str, rates: Rates | None = None
) -> Difference | None:
    """The fp32 product then and now; None where the passport has none that can be repeated."""
    for ceiling in passport.find(kind="compute", device=device, path="matrix", precision="fp32"):
        shape = _TORCH_PRODUCT.search(ceiling.how)  # another library is another number
        if shape is not None:
            m, n, k = map(int, shape.groups())
            samples = (rates or sample_product)(device, (m, n, k))
            return Difference(before=ceiling, after=replace(ceiling, samples=tuple(samples)))
    return None


def describe_drift(difference: Difference, measured_at: str) -> str:
    """Whether a ceiling that was sampled again is as in the passport, and what to do if not."""
    then, by = f"the passport of {measured_at[:10]}", format_percent(abs(difference.change))
    product = f"a {difference.before.precision} product is"
    if not difference.has_drifted:
        return f"{product} within {format_percent(DRIFT)} of {then}"
    if difference.change > 0:
        return f"{product} {by} faster than in {then}: measure the machine again (--remeasure)"
    why = "other programs are running, or the machine has changed"
    return f"{product} {by} slower than in {then}: {why} (--remeasure measures it again)"


def sample_product(device: str, shape: tuple[int, int, int]) -> list[float]:
    """Short samples of a product in fp32."""
    import torch

    m, n, k = shape
    a, b = torch.rand(m, k, device=device), torch.rand(k, n, device=device)
    out = torch.empty(m, n, device=device)
    sync: Callable[[], object] = partial(torch.cuda.synchronize, device)
    if not device.startswith("cuda"):
        sync = torch.mps.synchronize if device == "mps" else lambda: None
    times_s = sample_seconds(
        lambda: torch.mm(a, b, out=out), host_clock(sync), samples=SAMPLES, sample_s=SAMPLE_S
    )
    return [2.0 * m * n * k / time_s for time_s in times_s]

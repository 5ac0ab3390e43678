"""Two passports: whether they are of one machine, what differs, and what may explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.machine.ceiling import LOWER_IS_BETTER, Ceiling
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

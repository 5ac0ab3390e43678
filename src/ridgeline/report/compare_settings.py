"""What differs between two groups of runs beside their times, since it may explain them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ridgeline.provenance import speed_variables
from ridgeline.store import Run
from ridgeline.units import format_percent

CLOCK_DIFFERS = 0.03  # as a share; a clock that moves by less is the same one
CLOCK_EXPLAINS = 0.03  # the ratio of clocks is that of times, within this
WARMER_C = 5.0
BUSIER = 0.05
NOT_SETTINGS = (  # of what was asked: names, and what does not change a step
    "command", "label", "repeat", "precision", "backend", "layers", "energy", "energy_time_s",
    "layer_energy",
)  # fmt: skip
FOUND = ("precision", "backend", "device_name", "device_uuid", "threads")
NOT_PLACES = (  # of the provenance: the first two differ between any two runs
    "time", "command", "environment",
)  # fmt: skip
NOT_SET = "not set"  # an environment variable, in a run that would have recorded it
SHOWN_SHA = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting or version that is not the same on both sides."""

    name: str
    before: str  # several, if the runs of the side differ: "2.10.0, 2.11.0"
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


def changed_settings(before: Sequence[Run], after: Sequence[Run]) -> tuple[Setting, ...]:
    """Settings, device, versions, commits and environment variables that differ between sides."""
    variables = sorted({name for run in (*before, *after) for name in _environment(run) or ()})
    left, right = _values(before, variables), _values(after, variables)
    return tuple(
        Setting(name=name, before=_listed(left.get(name)), after=_listed(right.get(name)))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    )


def _values(runs: Iterable[Run], variables: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for run in runs:
        recorded = _environment(run)
        known = {} if recorded is None else {v: recorded.get(v, NOT_SET) for v in variables}
        for name, value in {**_settings(run), **known}.items():
            found.setdefault(name, set()).add(plain(value))
    return found


def _environment(run: Run) -> dict[str, str] | None:
    """The variables that were recorded; None of a run by a version that recorded none."""
    recorded = run.provenance.get("environment")
    return speed_variables(recorded) if isinstance(recorded, Mapping) else None


def _settings(run: Run) -> dict[str, Any]:
    asked = {name: value for name, value in run.asked.items() if name not in NOT_SETTINGS}
    place = {name: value for name, value in run.provenance.items() if name not in NOT_PLACES}
    for name in ("commit", "ridgeline_commit"):
        place[name] = _commit(place.get(name))
    return {
        **asked,
        **{name: run.found.get(name) for name in FOUND},
        **{_short(name): value for name, value in _flat(place)},
    }


def _flat(content: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(content, Mapping):
        for name, item in content.items():
            yield from _flat(item, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(content, list | tuple):
        for number, item in enumerate(content):
            yield from _flat(item, f"{prefix}.{number}")
    else:
        yield prefix, content


def _short(name: str) -> str:
    """`torch` of `libraries.torch`, `device 0 driver` of `host.devices.0.driver`."""
    words = name.replace("host.devices.", "device ").split(".")
    if words[0] == "backends":  # what torch was built with: `cuda`, `cudnn`
        return f"torch's {' '.join(words[1:])}"
    return " ".join(words[1:] if words[0] == "libraries" else words)


def _commit(commit: Any) -> str | None:
    if not isinstance(commit, Mapping):
        return None
    changed = " with changes" if commit.get("is_dirty") else ""
    return f"{str(commit.get('sha'))[:SHOWN_SHA]}{changed}"


def plain(value: Any) -> str:
    """A setting as people write it: `none`, `yes`, `224x224`, `a=1,b=2`."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "x".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={json.dumps(value[key])}" for key in sorted(value))
    return str(value)


def _listed(values: set[str] | None) -> str:
    return ", ".join(sorted(values)) if values else "not known"


# ---------------------------------------------------------------- while the steps were timed


def changed_conditions(
    before: Sequence[Run], after: Sequence[Run], ratio: float
) -> tuple[str, ...]:
    """Clocks, limits, temperature and idle time that differ; `ratio` is that of the times."""
    found = [_clock(before, after, ratio), *_limits(before, after)]
    warm = [_middle(runs, "temperature_c") for runs in (before, after)]
    if warm[0] is not None and warm[1] is not None and abs(warm[1] - warm[0]) > WARMER_C:
        found.append(f"temperature {warm[0]:.0f} → {warm[1]:.0f} °C")
    busy = [_median(run.found.get("busy_fraction") for run in runs) for runs in (before, after)]
    if busy[0] is not None and busy[1] is not None and abs(busy[1] - busy[0]) > BUSIER:
        told = " → ".join(format_percent(share) for share in busy if share is not None)
        found.append(f"the device was busy {told} of the time")
    return tuple(text for text in found if text)


def _clock(before: Sequence[Run], after: Sequence[Run], ratio: float) -> str:
    left, right = _middle(before, "clock_hz"), _middle(after, "clock_hz")
    if not left or not right or abs(right / left - 1) <= CLOCK_DIFFERS:
        return ""
    explains = abs(ratio * right / left - 1) < CLOCK_EXPLAINS
    return f"clock {left / 1e6:.0f} → {right / 1e6:.0f} MHz" + (" explains it" if explains else "")


def _limits(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    reasons = [
        {reason for run in runs for reason in _during(run).get("throttle_reasons") or ()}
        for runs in (before, after)
    ]
    only = (("only before", reasons[0] - reasons[1]), ("only after", reasons[1] - reasons[0]))
    return [f"held down by {', '.join(sorted(new))} {when}" for when, new in only if new]


def _during(run: Run) -> dict[str, Any]:
    return (run.found.get("conditions") or {}).get("during") or {}


def _middle(runs: Sequence[Run], name: str) -> float | None:
    return _median(_during(run).get(name) for run in runs)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

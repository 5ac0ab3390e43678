"""What a device did while something ran on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from ridgeline.records import Conditions as Conditions


def middle(seen: Sequence[Conditions]) -> Conditions:
    """The median of each number, every throttle reason, the most frequent power state."""
    states = Counter(one.power_state for one in seen if one.power_state is not None)
    return Conditions(
        clock_hz=_median(one.clock_hz for one in seen),
        memory_clock_hz=_median(one.memory_clock_hz for one in seen),
        temperature_c=_median(one.temperature_c for one in seen),
        power_w=_median(one.power_w for one in seen),
        throttle_reasons=tuple(sorted({why for one in seen for why in one.throttle_reasons})),
        power_state=states.most_common(1)[0][0] if states else None,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

"""The readings of a measurement as a table, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.measure.energy_window import Pass
from ridgeline.sensors.sampler import Reading

if TYPE_CHECKING:
    import pandas as pd

BETWEEN = "between"  # a reading that belongs to no pass


def readings_table(readings: Sequence[Reading], passes: Sequence[Pass]) -> pd.DataFrame:
    """Columns time_s, pass, power_w, energy_j, clock_hz, memory_clock_hz, temperature_c and
    throttle_reasons (joined by "; ", empty where none held, absent where it was not asked).
    """
    import pandas as pd

    numbers = ("clock_hz", "memory_clock_hz", "temperature_c")
    seen = [reading.conditions for reading in readings]
    table = pd.DataFrame(
        {
            "time_s": [reading.time_s for reading in readings],
            "pass": [pass_at(reading.time_s, passes) for reading in readings],
            "power_w": [_power_w(reading) for reading in readings],
            "energy_j": [reading.energy_j for reading in readings],
            **{name: [getattr(one, name) for one in seen] for name in numbers},
        }
    ).astype(dict.fromkeys(("time_s", "power_w", "energy_j", *numbers), "float64"))
    return table.assign(throttle_reasons=["; ".join(one.throttle_reasons) for one in seen])


def _power_w(reading: Reading) -> float | None:
    """By the meter, or as the conditions have it where the meter was not asked."""
    return reading.conditions.power_w if reading.power_w is None else reading.power_w


def pass_at(time_s: float, passes: Sequence[Pass]) -> str:
    """The name of the pass at this time."""
    return next((one.name for one in passes if one.start_s <= time_s <= one.end_s), BETWEEN)

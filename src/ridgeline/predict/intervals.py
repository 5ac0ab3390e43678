"""How far off a prediction may be: conformal intervals from errors that were seen.

The error of a prediction is |log(measured / predicted)|, in units of what was expected of it. An
interval of 80 % is as wide as 80 % of the errors seen so far, with the correction for few of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, sqrt

CONFIDENCE = 0.8
MOST_PAST = 30  # later predictions say more than earlier ones
COMMON_SHARE = 0.5  # of the operators' errors, as a variance, that all operators of a step share
TYPICAL_SCORE = 1.6  # 80 % of the errors of a normal distribution, in mean absolute errors
LEAST_ERROR = 0.02  # nothing is known better: clocks and neighbours move a step by that much
CHANGED_VERSION = 1.25  # an interval grows by it for a driver or a library that changed
USUAL_DRIFT = 0.03  # of a passport


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """By how much intervals grow because the machine is not what was calibrated, and why."""

    factor: float = 1.0
    reasons: tuple[str, ...] = ()


def conformal_quantile(scores: Sequence[float], confidence: float = CONFIDENCE) -> float | None:
    """What the next score stays below with this confidence; None where the scores are too few."""
    rank = ceil((len(scores) + 1) * confidence)
    return sorted(scores)[rank - 1] if rank <= len(scores) else None


def expected_error(times_s: Sequence[float], spreads: Sequence[float]) -> float:
    """Expected |log error| of a sum: half of the operators' variance is common to all of them."""
    total = sum(times_s)
    if total <= 0:
        return LEAST_ERROR
    parts = [time_s * min(spread, 1.0) for time_s, spread in zip(times_s, spreads, strict=True)]
    common, own = sum(parts) ** 2, sum(part**2 for part in parts)
    return max(sqrt(COMMON_SHARE * common + (1 - COMMON_SHARE) * own) / total, LEAST_ERROR)


def step_interval(
    time_s: float,
    error: float,
    scores: Sequence[float] = (),
    *,
    confidence: float = CONFIDENCE,
    widening: float = 1.0,
) -> tuple[float, float]:
    """Around a predicted time; `scores` are earlier errors in units of the expected `error`."""
    quantile = conformal_quantile(scores[-MOST_PAST:], confidence)
    if quantile is None:  # too few to speak for themselves
        quantile = max([TYPICAL_SCORE, *scores])
    width = quantile * max(error, LEAST_ERROR) * widening
    return time_s * exp(-width), time_s * exp(width)


def find_widening(
    calibrated: Mapping[str, str], current: Mapping[str, str], passport_drift: float | None = None
) -> Widening:
    """From versions by name at the calibration and today, and the relative drift of the ceilings.

    A version that is unknown on one side says nothing.
    """
    changed = [
        f"{name} was {calibrated[name]} at the calibration and is {current[name]}"
        for name in sorted(calibrated.keys() & current.keys())
        if calibrated[name] != current[name]
    ]
    factor = CHANGED_VERSION ** len(changed)
    if passport_drift is not None and abs(passport_drift) > USUAL_DRIFT:
        changed.append(f"the ceilings moved by {passport_drift:+.0%} since the calibration")
        factor *= 1 + abs(passport_drift) / USUAL_DRIFT / 4
    return Widening(factor=factor, reasons=tuple(f"{why}: calibrate again" for why in changed))

"""A look at whether a passport still holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ridgeline.machine.drift_check import best_rate, check_drift
from ridgeline.machine.passport import read_passport

PASSPORT = read_passport(Path(__file__).parent.parent / "data" / "passport-h200.json")
(FP32,) = PASSPORT.find(kind="compute", path="matrix", precision="fp32")


@pytest.mark.parametrize(
    ("factor", "has_drifted", "says"),
    [
        (0.97, False, "within 5.0 % of the passport of 2026-11-15"),
        (0.80, True, "20.0 % slower than in the passport of 2026-11-15: other programs"),
        (1.20, True, "20.0 % faster than in the passport of 2026-11-15: measure the machine again"),
    ],
)
def test_the_same_product_is_sampled_again(factor: float, has_drifted: bool, says: str) -> None:
    asked = []

    def rate(device: str, shape: tuple[int, int, int]) -> float:
        asked.append((device, shape))
        return factor * FP32.best

    spot = check_drift(PASSPORT, "cuda:0", rate)
    assert spot is not None
    assert asked == [("cuda:0", (4096, 4096, 8192))]  # as the passport says it was measured
    assert spot.has_drifted is has_drifted
    assert says in str(spot)


def test_nothing_to_repeat() -> None:
    bare = replace(PASSPORT, ceilings=tuple(c for c in PASSPORT.ceilings if c.kind != "compute"))
    assert check_drift(bare, "cuda:0", lambda device, shape: 1.0) is None
    assert check_drift(PASSPORT, "cpu", lambda device, shape: 1.0) is None


def test_a_real_product() -> None:
    assert best_rate("cpu", (64, 64, 64)) > 1e6

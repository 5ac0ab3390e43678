"""The learning rate of each step, by hand."""

import pytest

from ridgeline.train.records import lr_at, usual_warmup

HALF = 0.5**0.5  # the cosine of an eighth of a turn


@pytest.mark.parametrize(
    ("warmup_steps", "total_steps", "rates"),
    [
        # quarters of 0.8 to the peak, four steps down: 0.6828, 0.4, 0.1172; after the last step 0
        (3, 7, [0.2, 0.4, 0.6, 0.8, 0.4 * (1 + HALF), 0.4, 0.4 * (1 - HALF), 0.0]),
        (0, 2, [0.8, 0.4]),  # no warm-up
        (3, 2, [0.2, 0.4]),  # a training that ends before its warm-up does
        (1, 1, [0.4]),
        (0, 1, [0.8]),
    ],
)
def test_a_straight_rise_and_half_a_cosine(
    warmup_steps: int, total_steps: int, rates: list[float]
) -> None:
    found = [
        lr_at(step, peak_lr=0.8, warmup_steps=warmup_steps, total_steps=total_steps)
        for step in range(len(rates))
    ]
    assert found == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize(
    ("total_steps", "warmup_steps"), [(9, 0), (80, 8), (5000, 500), (7820, 500)]
)
def test_usual_warmup(total_steps: int, warmup_steps: int) -> None:
    assert usual_warmup(total_steps) == warmup_steps

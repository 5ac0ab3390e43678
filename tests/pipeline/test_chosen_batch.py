"""A batch size for those who name none."""

from __future__ import annotations

import pytest

from ridgeline.pipeline.count_models import choose_batch


@pytest.mark.parametrize(
    ("kind", "flops_each", "bytes_each", "flops_per_s", "memory", "batch"),
    [
        ("cuda", 1e9, 1e6, 1e13, 1e11, 64),  # nothing is in the way
        ("cpu", 2e10, 1e6, 2e11, 1e10, 4),  # 0.4 s at the roof; 8 would take 0.8 s
        ("cpu", 1e9, 1e6, 2e11, 1e10, 8),  # a processor is full with few samples
        ("cpu", 1e9, 1e9, 1e13, 1e10, 4),  # 4 GB of 10, 8 would be more than 70 %
        ("cpu", 1e12, 1e6, 1e11, None, 1),  # one sample is slow already
        ("mps", 1e9, 1e6, None, None, 32),  # nothing is known
    ],
)
def test_the_largest_that_fits_and_is_soon_done(
    kind: str,
    flops_each: float,
    bytes_each: float,
    flops_per_s: float | None,
    memory: float | None,
    batch: int,
) -> None:
    found = choose_batch(
        lambda n: (n * flops_each, n * bytes_each),
        kind=kind,
        flops_per_s=flops_per_s,
        memory_bytes=memory,
    )
    assert found == batch

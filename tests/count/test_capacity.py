"""The largest batch that fits."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.count.capacity import max_batch
from ridgeline.errors import RidgelineError


def line(fixed: int, each: int) -> Callable[[int], int]:
    return lambda batch: fixed + each * batch


def test_a_line_by_hand() -> None:
    # 100 + 7·batch ≤ 1000 up to 128: 996; 129 needs 1003
    assert max_batch(line(100, 7), 1000) == 128


def test_one_sample_too_many() -> None:
    with pytest.raises(RidgelineError, match="one sample needs 107 B, more than 50 B"):
        max_batch(line(100, 7), 50)


@given(
    fixed=st.integers(0, 10**6),
    each=st.integers(1, 10**4),
    jump=st.integers(0, 10**5),
    limit=st.integers(1, 10**6),
)
def test_the_next_batch_never_fits(fixed: int, each: int, jump: int, limit: int) -> None:
    # given memory that grows with a jump on the way, as when the peak moves to another layer
    def peak(batch: int) -> int:
        return fixed + each * batch + (jump if batch > 50 else 0)

    if peak(1) > limit:
        with pytest.raises(RidgelineError):
            max_batch(peak, limit)
        return
    batch = max_batch(peak, limit)
    assert peak(batch) <= limit < peak(batch + 1)


def tried_with(
    peak: Callable[[int], int], limit: int, largest: float = inf, within: float = 0.0
) -> tuple[int, list[int]]:
    """The batch that is found where those above `largest` fail, and all that were tried."""
    tried: list[int] = []

    def peak_bytes(batch: int) -> float:
        tried.append(batch)
        return peak(batch) if batch <= largest else inf

    return max_batch(peak_bytes, limit, within=within), tried


def test_few_counts_are_needed() -> None:
    found, tried = tried_with(line(10**8, 85_000_000), 24 * 10**9)
    assert (found, len(tried) <= 8) == (281, True)


@pytest.mark.parametrize("largest", [1, 2, 3, 63, 64, 100, 999])
def test_a_batch_that_did_not_fit_tells_nothing_more(largest: int) -> None:
    # given a limit far above what fits, as where memory is in pieces
    found, tried = tried_with(line(50, 10), 20_000, largest)
    # then the largest that fits is found, in a few tries
    assert (found, len(tried) <= 17) == (largest, True)


@pytest.mark.parametrize("largest", [1, 2, 3, 63, 1995, 30_000])
def test_tries_end_when_the_answer_is_close_enough(largest: int) -> None:
    # given a device on which batches fail long before its memory is full
    found, tried = tried_with(line(500, 10), 1_000_000, largest, within=0.01)
    assert 0.99 * largest <= found <= largest
    assert len(tried) <= 16
    # and no try is much larger than the one before: its inputs have to fit into the host's memory
    assert all(later <= 16 * max(tried[:n]) for n, later in enumerate(tried) if n > 1)

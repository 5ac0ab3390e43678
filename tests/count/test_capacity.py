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


def test_few_counts_are_needed() -> None:
    asked = []

    def peak(batch: int) -> int:
        asked.append(batch)
        return 10**8 + 85_000_000 * batch

    assert max_batch(peak, 24 * 10**9) == 281
    assert len(asked) <= 8


@pytest.mark.parametrize("largest", [1, 2, 3, 63, 64, 100, 999])
def test_a_batch_that_did_not_fit_tells_nothing_more(largest: int) -> None:
    # given a device that can only be tried: a batch fits and tells its memory, or it does not
    tried: list[int] = []

    def peak_bytes(batch: int) -> float:
        tried.append(batch)
        return 50 + 10 * batch if batch <= largest else inf

    # when the limit is far above what fits, as where memory is in pieces
    found = max_batch(peak_bytes, limit_bytes=20_000)

    # then the largest that fits is found, in a few tries
    assert found == largest
    assert len(tried) <= 15


@pytest.mark.parametrize("largest", [1, 2, 3, 63, 1995, 30_000])
def test_tries_end_when_the_answer_is_close_enough(largest: int) -> None:
    # given a device on which batches fail long before its memory is full
    tried: list[int] = []

    def peak_bytes(batch: int) -> float:
        tried.append(batch)
        return 500 + 10 * batch if batch <= largest else inf

    found = max_batch(peak_bytes, limit_bytes=1_000_000, within=0.01)

    assert 0.99 * largest <= found <= largest
    assert len(tried) <= 16
    # and no try is much larger than the one before: its inputs have to fit into the host's memory
    assert all(later <= 16 * max(tried[:n]) for n, later in enumerate(tried) if n > 1)


def test_a_line_that_is_right_needs_few_tries() -> None:
    tried: list[int] = []

    def peak_bytes(batch: int) -> float:
        tried.append(batch)
        return 500 + 10 * batch if batch <= 2000 else inf

    # 500 + 10·2000 = 20,500: the line says 2000, one percent more fails, and that is close enough
    assert max_batch(peak_bytes, limit_bytes=20_500, within=0.01) == 2000
    assert tried == [1, 2, 32, 512, 2000, 2020]

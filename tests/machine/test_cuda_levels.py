"""The end of a GPU's cache, on curves by hand and as an H200 gave them."""

from ridgeline.machine.ceilings_cuda import CacheEnd, cache_end


def test_a_curve_by_hand() -> None:
    # 8 and 2 at the ends: the middle is 4, between 20 and 40
    assert cache_end([10, 20, 40, 80], [7.0, 8.0, 3.0, 2.0]) == CacheEnd(20, 40)


def test_agreement_with_the_description() -> None:
    end = CacheEnd(20, 40)
    assert end.agrees(30)
    assert not end.agrees(300)
    assert end.text(30) == "the curve falls between 20 and 40 B; described L2 30 B"


def test_a_curve_that_does_not_fall() -> None:
    flat = cache_end([10, 20], [5.0, 5.0])
    assert flat.outside_bytes is None
    assert not flat.agrees(10)
    assert flat.text(10) == "the curve does not fall; described L2 10 B"

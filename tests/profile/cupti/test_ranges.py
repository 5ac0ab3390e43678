"""Counters of every kernel, with a stand-in for the library."""

import pytest
from tests.profile.cupti.fake_library import NAMES, FakeLibrary

from ridgeline.profile.cupti.library import Cupti, RefusedError
from ridgeline.profile.cupti.ranges import Chip, RangeCounters

ENOUGH = 10**9


def chip_of(library: FakeLibrary) -> Chip:
    return Chip.of(Cupti(library), context=1, device=0)


def test_a_chip_names_its_counters() -> None:
    assert chip_of(FakeLibrary()).metrics() == frozenset(NAMES)


def test_each_kernel_has_its_values_after_the_last_pass() -> None:
    # given two metrics, which take two passes
    library = FakeLibrary()
    counters = RangeCounters(chip_of(library), ["dram__bytes_read.sum", "dram__bytes_write.sum"])
    assert counters.passes == 2
    # when three kernels run in each
    with counters.enabled(most_ranges=10, most_bytes=ENOUGH):
        for is_last in (False, True):
            counters.start()
            for name in ("a", "b", "c"):
                library.launch(name)
            assert counters.stop() is is_last
        values = counters.values()
    # then each has both
    assert values == [[0, 1], [100, 101], [200, 201]]
    assert library.asked[-1] == "cuptiRangeProfilerDisable"


def test_more_kernels_than_there_is_room_for() -> None:
    library = FakeLibrary()
    counters = RangeCounters(chip_of(library), ["dram__bytes_read.sum"])
    with (
        pytest.raises(RefusedError, match="1 kernels more were launched than the step has"),
        counters.enabled(most_ranges=1, most_bytes=ENOUGH),
    ):
        counters.start()
        library.launch("a")
        library.launch("b")
        counters.stop()
        counters.values()


def test_counters_that_need_more_memory_than_there_is() -> None:
    counters = RangeCounters(chip_of(FakeLibrary()), ["dram__bytes_read.sum"])
    with (
        pytest.raises(RefusedError, match=r"counters of 2,000,000 kernels need 2\.0 GB of memory"),
        counters.enabled(most_ranges=2_000_000, most_bytes=ENOUGH),
    ):
        pass


def test_what_went_wrong_first_is_told() -> None:
    counters = RangeCounters(
        chip_of(FakeLibrary(refuses="cuptiRangeProfilerDisable")), ["dram__bytes_read.sum"]
    )
    with pytest.raises(RefusedError, match="the cause"), counters.enabled(1, ENOUGH):
        raise RefusedError("the cause")

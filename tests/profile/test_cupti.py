"""Calls of CUPTI, launches and counters of every kernel, with a stand-in for the library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from tests.profile.fake_cupti import FakeLibrary

from ridgeline.machine.system import NoCuptiError
from ridgeline.profile import cupti as range_profiler
from ridgeline.profile.cupti import (
    GRAPH_LAUNCHES,
    LAUNCHES,
    Chip,
    Cupti,
    Launch,
    LaunchLog,
    RangeCounters,
    RefusedError,
    loaded_cupti,
    structure_of,
)


def test_what_a_later_version_writes_behind_a_structure_hurts_nobody() -> None:
    # given a library that clears a field that ours does not have, as CUPTI 13.2 does
    class Later:
        def cuptiProfilerHostInitialize(self, asked: Any) -> int:  # noqa: N802
            end = ctypes.addressof(asked._obj) + ctypes.sizeof(structure)
            ctypes.memset(end, 0, 64)
            asked._obj.host = 7
            return 0

    structure, _ = structure_of("cuptiProfilerHostInitialize")
    found = Cupti(Later()).call("cuptiProfilerHostInitialize", chip=b"GH100")
    # then that was in the room behind it
    assert (found.host, found.chip) == (7, b"GH100")
    assert ctypes.sizeof(structure) + 64 <= range_profiler.SPARE_BYTES


def test_none_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> ctypes.CDLL:
        raise NoCuptiError("this PyTorch comes without CUPTI")

    monkeypatch.setattr(range_profiler, "loaded_library", none)
    with pytest.raises(RefusedError, match="this PyTorch comes without CUPTI"):
        loaded_cupti()


def test_a_refusal_has_the_name_of_its_code() -> None:
    refused = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize"))
    with pytest.raises(
        RefusedError, match="cuptiProfilerInitialize answers CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    ):
        refused.call("cuptiProfilerInitialize")
    unknown = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize", code=999))
    with pytest.raises(RefusedError, match="answers error 999"):
        unknown.call("cuptiProfilerInitialize")


def test_each_launch_is_heard_once_with_its_innermost_range() -> None:
    library, log = FakeLibrary(), LaunchLog()
    library.launch("unheard")
    # when kernels are launched in ranges and outside of them
    with log.listening(Cupti(library)):
        library.launch("bare")
        with log.range("outer"):
            library.launch("one")
            with log.range("inner"):
                library.launch("two", LAUNCHES["cuLaunchKernelEx"][0])
            library.launch("three")
    library.launch("unheard")
    # then all of them are told, and none twice
    expected = [("bare", ""), ("one", "outer"), ("two", "inner"), ("three", "outer")]
    assert log.take() == [Launch(*one) for one in expected]
    assert log.take() == []


def test_graphs_are_counted_apart() -> None:
    library, log = FakeLibrary(), LaunchLog()
    with log.listening(Cupti(library)):
        library.launch("", GRAPH_LAUNCHES[0])
    assert log.graphs == 1


ENOUGH = 10**9


def chip_of(library: FakeLibrary) -> Chip:
    return Chip.of(Cupti(library), context=1, device=0)


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

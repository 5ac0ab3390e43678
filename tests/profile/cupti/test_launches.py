"""What is launched, in order, with the range around it."""

import threading

import pytest
from tests.profile.cupti.fake_library import FakeLibrary

from ridgeline.profile.cupti.launches import Launch, LaunchLog
from ridgeline.profile.cupti.library import Cupti, RefusedError
from ridgeline.profile.cupti.structures import GRAPH_LAUNCHES, LAUNCHES


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
    assert log.taken() == [Launch(*one) for one in expected]
    assert log.taken() == []


def test_a_range_is_of_its_thread() -> None:
    library, log = FakeLibrary(), LaunchLog()
    with log.listening(Cupti(library)), log.range("here"):
        other = threading.Thread(target=library.launch, args=("elsewhere",))
        other.start()
        other.join()
        library.launch("here")
    assert log.taken() == [Launch("elsewhere", ""), Launch("here", "here")]


def test_graphs_are_counted_apart() -> None:
    library, log = FakeLibrary(), LaunchLog()
    with log.listening(Cupti(library)):
        library.launch("", GRAPH_LAUNCHES[0])
    assert log.graphs == 1


def test_a_subscription_that_is_refused_or_ends_badly() -> None:
    with (
        pytest.raises(RefusedError, match="cuptiSubscribe"),
        LaunchLog().listening(Cupti(FakeLibrary(refuses="cuptiSubscribe"))),
    ):
        pass
    # its end is nobody's concern: what went wrong before is told
    with (
        pytest.raises(RefusedError, match="the cause"),
        LaunchLog().listening(Cupti(FakeLibrary(refuses="cuptiUnsubscribe"))),
    ):
        raise RefusedError("the cause")

"""The mark around a step: the order of the calls, and that all of the step is between them."""

import pytest

from ridgeline.measure.backends import Backend, choose_backend
from ridgeline.measure.profiler_mark import MarkCalls, mark_calls, marked


def recorded(log: list[str]) -> MarkCalls:
    """Calls that write down that they were made."""

    def start_range(name: str) -> int:
        log.append(f"start range {name}")
        return 7

    return MarkCalls(
        synchronize=lambda: log.append("synchronize"),
        start_profiler=lambda: log.append("start profiler"),
        stop_profiler=lambda: log.append("stop profiler"),
        start_range=start_range,
        end_range=lambda number: log.append(f"end range {number}"),
    )


ALL = [
    "synchronize", "start profiler", "start range ridgeline_step", "work",
    "synchronize", "end range 7", "stop profiler",
]  # fmt: skip


def test_the_order_of_the_calls() -> None:
    log: list[str] = []
    with marked(recorded(log)):
        log.append("work")
    assert log == ALL


def test_a_step_that_fails_is_closed_too() -> None:
    log: list[str] = []
    with pytest.raises(ZeroDivisionError), marked(recorded(log)):
        log.append("work")
        raise ZeroDivisionError
    assert log == ALL


def test_without_a_device_to_mark_for_the_block_just_runs() -> None:
    log: list[str] = []
    with marked(mark_calls(choose_backend("cpu"))):
        log.append("work")
    assert log == ["work"]


def test_on_cuda_the_range_is_one_of_the_process() -> None:
    # given a CUDA device; none of its calls is made
    from torch import cuda

    backend = Backend(kind="cuda", device=choose_backend("cpu").device, name="a GPU")
    calls = mark_calls(backend)
    # then the range is not of the kind that only one thread sees (range_push, range_pop)
    assert calls is not None
    assert (calls.start_range, calls.end_range) == (cuda.nvtx.range_start, cuda.nvtx.range_end)
    assert (calls.start_profiler, calls.stop_profiler) == (cuda.profiler.start, cuda.profiler.stop)

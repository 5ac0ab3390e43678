"""Which device a step runs on, and the calls that each kind makes; torch's own are replaced."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tests.measure.fakes import marked_gpu

from ridgeline.errors import RidgelineError
from ridgeline.measure.backends import (
    Backend,
    CudaBackend,
    DeviceMemory,
    choose_backend,
    marked,
)

ABSENT = "`ridgeline doctor` says what is missing; --backend cpu runs on the CPU"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two NVIDIA GPUs; a list of those that were made the current one."""
    current: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda index: SimpleNamespace(name=f"GPU number {index}", uuid=f"1-2-{index}"),
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return current


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("asked", "index", "problem", "hint"),
    [
        ("tpu", 0, "unknown backend 'tpu'", "the backends are auto, cuda, mps, cpu"),
        ("cuda", 0, "torch finds no use for an NVIDIA GPU here", ABSENT),
        ("mps", 0, "torch finds no use for an Apple GPU here", ABSENT),
        ("cpu", 1, "there is no cpu device 1", "only CUDA has several devices: --device 0"),
        ("auto", 3, "there is no cpu device 3", "only CUDA has several devices: --device 0"),
        ("mps", 1, "there is no mps device 1", "only CUDA has several devices: --device 0"),
    ],
)
def test_what_is_not_here(asked: str, index: int, problem: str, hint: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        choose_backend(asked, index)

    assert (caught.value.problem, caught.value.hint) == (problem, hint)


def test_a_cuda_device_by_its_number(two_gpus: list[int]) -> None:
    backend = choose_backend("cuda", 1)

    assert isinstance(backend, CudaBackend)
    assert (backend.kind, backend.name, backend.uuid) == ("cuda", "GPU number 1", "1-2-1")
    assert backend.device == torch.device("cuda", 1)
    assert two_gpus == [1]  # torch records events in the queue of the current device


@pytest.mark.usefixtures("no_gpu")
def test_the_cpu_is_always_there_and_has_nothing_to_wait_for() -> None:
    backend = choose_backend("auto")

    assert type(backend) is Backend
    assert (backend.kind, backend.device.type, backend.has_events) == ("cpu", "cpu", False)
    assert backend.name
    timeline = backend.timeline()
    timeline.prepare(3)
    assert timeline.seconds(1.0, 3.5) == 2.5
    assert backend.peak_memory() == DeviceMemory()
    assert backend.total_memory_bytes() is None
    backend.synchronize()
    backend.hold_back(10.0)
    backend.reset_peak_memory()


# ---------------------------------------------------------------- the mark around a step

ALL = [
    "synchronize", "start profiler", "start range ridgeline_step", "work",
    "synchronize", "end range 7", "stop profiler",
]  # fmt: skip


def test_the_order_of_the_calls_of_a_step_that_ends_well_or_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    gpu = marked_gpu(monkeypatch, log)
    with marked(gpu) as is_marked:
        log.append("work")
    with pytest.raises(ZeroDivisionError), marked(gpu):
        log.append("work")
        raise ZeroDivisionError
    assert (log, is_marked) == ([*ALL, *ALL], True)

"""Counters of single calls, on stand-ins for CUPTI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from ridgeline.errors import RidgelineError
from ridgeline.profile.count_calls import CallCounter
from ridgeline.profile.cupti import RefusedError

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


class Log:
    """Launches of all threads: a call appends to it."""

    def __init__(self) -> None:
        self.launches: list[str] = []

    @contextmanager
    def listening(self, cupti: object) -> Iterator[None]:
        yield

    def take(self) -> list[str]:
        launches, self.launches = self.launches, []
        return launches


class Counters:
    """Two passes; each kernel takes 2 µs and 10 multiply-adds."""

    metrics = (FFMA, "gpu__time_duration.sum")
    passes = 2

    def __init__(self) -> None:
        self.done: list[str] = []

    @contextmanager
    def enabled(self, most_ranges: int, most_bytes: int) -> Iterator[None]:
        assert most_ranges >= 3
        yield

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    def values(self) -> list[list[float]]:
        return [[10.0, 2000.0]] * 3


def test_a_call_has_the_kernels_that_were_launched_until_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a step of two kernels, one of them by autograd's thread, and a call that fails
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    log, counters = Log(), Counters()
    counter: Any = object.__new__(CallCounter)
    counter._log, counter._counters = log, counters
    counter._cupti, counter._capability = None, "9.0"

    def fail() -> None:
        raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")

    calls = {
        "step": lambda: log.launches.extend(["forward", "backward"]),
        "broken": fail,
        "copy": lambda: log.launches.append("copy"),
    }

    table = counter.count(calls)

    assert counters.done == ["start", "stop"] * 2
    assert table["counter_time_s"].to_dict() == pytest.approx({"step": 4e-6, "copy": 2e-6})
    assert counter.flops(calls) == {"step": 40, "copy": 20}


def test_counters_that_may_not_be_read_are_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    counters = Counters()

    def refuse() -> None:
        raise RefusedError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    monkeypatch.setattr(counters, "start", refuse)
    counter: Any = object.__new__(CallCounter)
    counter._log, counter._counters = Log(), counters
    counter._cupti, counter._capability = None, "9.0"

    with pytest.raises(RidgelineError, match="cannot be read: CUPTI_ERROR_INSUFFICIENT"):
        counter.count({"copy": lambda: None})

"""A whole measurement on an Apple GPU, which is the CPU in truth: torch.mps is replaced.

Every event is a millisecond after the one before, so a step of five phases takes 5 ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
import torch
from tests.measure.fakes import workload

from ridgeline.measure import measure_workload as measurement
from ridgeline.measure.backends import MpsBackend
from ridgeline.measure.measure_workload import measure_workload
from ridgeline.measure.run_record import Measurement
from ridgeline.records import WorkloadSpec
from ridgeline.sensors.sampler import Meters
from ridgeline.settings import Settings

SPEC = WorkloadSpec(model="line", batch_size=2, mode="train")


class Metal:
    """torch.mps, and how often each of its calls was made."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.now_ms = count(1)

    def said(self, name: str) -> None:
        self.calls[name] += 1
        self.order.append(name)

    def synchronize(self) -> None:
        self.said("synchronize")

    def current_allocated_memory(self) -> int:
        self.said("allocated")
        return 1000

    def driver_allocated_memory(self) -> int:
        self.said("reserved")
        return 4096

    def recommended_max_memory(self) -> int:
        return 16_000_000_000


class MetalEvent:
    metal = Metal()

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at_ms = 0

    def record(self) -> None:
        self.metal.said("record")
        self.at_ms = next(self.metal.now_ms)

    def elapsed_time(self, end: MetalEvent) -> float:
        assert self.metal.order[-1] != "record", "the device must be idle before it is asked"
        return float(end.at_ms - self.at_ms)


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metal]:
    metal = Metal()
    MetalEvent.metal = metal
    for name in ("synchronize", "current_allocated_memory", "driver_allocated_memory",
                 "recommended_max_memory"):  # fmt: skip
        monkeypatch.setattr(torch.mps, name, getattr(metal, name))
    monkeypatch.setattr(torch.mps.event, "Event", MetalEvent)
    chip = MpsBackend(kind="mps", device=torch.device("cpu"), name="Apple M2")
    monkeypatch.setattr(measurement, "choose_backend", lambda asked, index: chip)
    monkeypatch.setattr(measurement, "find_meters", lambda kind, uuid: Meters(reasons=(kind,)))
    yield metal


def measured(**settings: object) -> Measurement:
    asked = Settings(backend="mps", warmup_iters=2, iters=3, **settings)  # type: ignore[arg-type]
    return measure_workload(workload(), SPEC, asked)[0]


def test_steps_are_timed_by_events_and_waited_for_at_the_ends_only(metal: Metal) -> None:
    result = measured(energy=False)

    assert result.timing.device.steps_s == (0.005, 0.005, 0.005)
    assert result.timing.device.phases_s == dict.fromkeys(
        ("data", "copy", "forward", "backward", "optimizer"), (0.001,) * 3
    )
    assert result.result.step_time_s.median == 0.005
    assert metal.order == [
        *["synchronize"] * 3,  # before the warm-up and after each of its steps
        *["record"] * 16,  # events that are made before they are needed
        "synchronize",
        *["record"] * 16,  # the start, and five phases of three steps
        "synchronize",
        "allocated",
        "reserved",
    ]

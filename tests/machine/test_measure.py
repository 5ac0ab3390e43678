"""All devices of a machine in one passport."""

from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine import measure
from ridgeline.machine.ceiling import Ceiling, Missing
from ridgeline.machine.passport import Passport

ROOF = Ceiling(kind="bandwidth", device="cpu", level="dram", pattern="read", samples=(1.0,), how="")


def measured(devices: list[str], monkeypatch: pytest.MonkeyPatch) -> Passport:
    """A machine whose GPU fails and whose CPU does not."""

    def one(device: str, **_others: Any) -> tuple[list[Ceiling], list[Missing]]:
        if device != "cpu":
            raise RidgelineError(f"{device} stopped answering", hint="look at the log")
        return [ROOF], []

    monkeypatch.setattr(measure, "_measure", one)
    return measure.measure_machine("box", devices, quick=True, progress=lambda _what: None,
                                   description={}, provenance={}, measured_at="now")  # fmt: skip


def test_a_device_that_fails_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(["cpu", "cuda:0"], monkeypatch)
    assert found.ceilings == (ROOF,)
    assert found.missing == (Missing(what="cuda:0", reason="cuda:0 stopped answering"),)


def test_nothing_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RidgelineError, match="cuda:0 stopped answering"):
        measured(["cuda:0"], monkeypatch)


def test_a_device_is_measured_once() -> None:
    assert measure.choose_devices(["cpu", "cpu"]) == ["cpu"]

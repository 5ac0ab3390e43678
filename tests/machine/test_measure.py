"""Ceilings of an Apple GPU, with the device's calls replaced: no such machine is at hand."""

from typing import Any

import pytest
import torch

from ridgeline.errors import RidgelineError
from ridgeline.machine import measure as mps


class Metal:
    """torch with an Apple GPU that is the CPU in truth."""

    class backends:  # noqa: N801 - torch's name
        class mps:  # noqa: N801
            is_available = staticmethod(lambda: True)

    class mps:  # noqa: N801
        synchronize = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def randn(*shape: int, device: str) -> torch.Tensor:
        assert device == "mps"
        return torch.randn(*shape)

    @staticmethod
    def zeros(*shape: int, device: str) -> torch.Tensor:
        assert device == "mps"
        return torch.zeros(*shape)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "SHAPES", ((16, 16, 16), (8, 16, 16)))
    monkeypatch.setattr(mps, "BUFFER_BYTES", 1 << 12)


def test_products_memory_and_launches_are_measured() -> None:
    steps: list[str] = []
    ceilings, missing = mps.measure_mps(quick=True, progress=steps.append, torch=Metal())
    assert [(c.kind, c.precision or c.pattern or c.what) for c in ceilings] == [
        ("compute", "fp32"), ("compute", "fp16"), ("compute", "bf16"),
        ("bandwidth", "read"), ("bandwidth", "copy"), ("bandwidth", "triad"),
        ("launch", "eager dispatch"),
    ]  # fmt: skip
    assert all(c.best > 0 for c in ceilings)
    assert len(steps) == mps.count_steps(["mps"], quick=True)
    assert "fp64 products" in {m.what for m in missing}


def test_what_metal_refuses_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise TypeError("bfloat16 is not supported on MPS")

    metal = Metal()
    real = mps._measure_product

    def product(torch: Any, clock: Any, samples: int, precision: str) -> Any:
        return refuse() if precision == "bf16" else real(torch, clock, samples, precision)

    monkeypatch.setattr(mps, "_measure_product", product)
    _, missing = mps.measure_mps(quick=True, torch=metal)
    assert ("bf16 products", "bfloat16 is not supported on MPS") in {
        (m.what, m.reason) for m in missing
    }


def test_no_apple_gpu() -> None:
    with pytest.raises(RidgelineError, match="there is no Apple GPU here"):
        mps.measure_mps(torch=torch)


def test_memory_that_does_not_fit_costs_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("MPS backend out of memory")

    monkeypatch.setattr(mps, "_measure_memory", refuse)
    ceilings, missing = mps.measure_mps(quick=True, torch=Metal())
    assert {c.kind for c in ceilings} == {"compute", "launch"}
    assert ("memory", "MPS backend out of memory") in {(m.what, m.reason) for m in missing}

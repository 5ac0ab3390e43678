"""Ceilings of an Apple GPU, with the device's calls replaced: no such machine is at hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ridgeline.machine import measure
from ridgeline.machine.cpu_kernels import BuildError
from ridgeline.machine.passport import Missing


class Metal:
    """torch with an Apple GPU that is the CPU in truth."""

    class backends:  # noqa: N801 - torch's name
        class mps:  # noqa: N801
            is_available = staticmethod(lambda: True)

    class mps:  # noqa: N801
        synchronize = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        real = getattr(torch, name)
        if name not in ("randn", "zeros", "ones", "empty"):
            return real

        def make(*shape: int, device: str, **others: Any) -> torch.Tensor:
            assert device == "mps"
            return real(*shape, **others)  # type: ignore[no-any-return]

        return make


SMALL = replace(measure.APPLE, shapes=((16, 16, 16), (8, 16, 16)), buffer_bytes=1 << 12)


def test_products_memory_and_launches_are_measured() -> None:
    steps: list[str] = []
    ceilings, missing = measure.measure_with_torch(
        "mps", SMALL, quick=True, progress=steps.append, torch=Metal()
    )
    assert [(c.kind, c.precision or c.pattern or c.what) for c in ceilings] == [
        ("compute", "fp32"), ("compute", "fp16"), ("compute", "bf16"),
        ("bandwidth", "read"), ("bandwidth", "copy"), ("bandwidth", "triad"),
        ("launch", "eager dispatch"),
    ]  # fmt: skip
    assert all(c.best > 0 for c in ceilings)
    assert len(steps) == measure.count_steps(["mps"], quick=True)
    assert "fp64 products" in {m.what for m in missing}


@pytest.mark.parametrize(
    ("part", "refused", "error"),
    [
        ("measure_product", "bf16", TypeError("bfloat16 is not supported on MPS")),
        ("_measure_memory", "mps", RuntimeError("MPS backend out of memory")),
    ],
)
def test_what_metal_refuses_is_listed_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, part: str, refused: str, error: Exception
) -> None:
    real = getattr(measure, part)

    def refuse(*how: Any) -> Any:
        if refused in how:
            raise error
        return real(*how)

    monkeypatch.setattr(measure, part, refuse)
    ceilings, missing = measure.measure_with_torch("mps", SMALL, quick=True, torch=Metal())
    assert str(error) in {m.reason for m in missing}
    assert "launch" in {c.kind for c in ceilings}


def test_a_cpu_without_a_compiler_is_measured_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_cpu(**_: Any) -> Any:
        raise BuildError("no C compiler was found")

    small = replace(measure.UNCOMPILED, shapes=((16, 16, 16),), buffer_bytes=1 << 12)
    monkeypatch.setattr("ridgeline.machine.ceilings_cpu.measure_cpu", measure_cpu)
    monkeypatch.setattr(measure, "UNCOMPILED", small)
    ceilings, missing = measure._measure("cpu", quick=True, progress=lambda _what: None)
    assert [(c.device, c.precision or c.pattern or c.what) for c in ceilings] == [
        ("cpu", "fp32"), ("cpu", "fp64"),
        ("cpu", "read"), ("cpu", "copy"), ("cpu", "triad"),
        ("cpu", "eager dispatch"),
    ]  # fmt: skip
    reason = "no C compiler was found; needs a C compiler: install gcc or clang"
    assert missing == [Missing(what="CPU vectors and caches", reason=reason)]

"""Hand-computed cases: what a row of a table is, and how it is checked.

Every expected number is written as the arithmetic it comes from, so that it can be checked by
eye. The conventions are those of `ridgeline.costs`: a multiply-add is one MAC, any other
operation on floating-point numbers is one FLOP, exp and its kin are counted apart, every operand
is read once and every result written once. A field left at None is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ridgeline
from ridgeline.count.result import CountResult
from ridgeline.records import Cost

FP32 = 4  # bytes of a float32
INT64 = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One model or function, its inputs, and what it costs."""

    id: str
    model: Callable[..., Any]
    inputs: Any
    macs: int | None = 0
    other: int | None = 0
    transcendental: int | None = 0
    read: int | None = None
    written: int | None = None
    phase: str = ""  # of a training step: only this one is checked
    settings: Mapping[str, Any] = field(default_factory=dict)


class Net(nn.Module):
    """Parts by their names, and a forward pass over them."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *data: Any) -> Any:
        return self._forward(self, *data)


def x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor without data."""
    return torch.empty(shape, dtype=dtype, device="meta")


def g(tensor: Tensor) -> Tensor:
    """One like it that wants a gradient."""
    return tensor.clone().requires_grad_()


def ids(*shape: int, below: int = 1) -> Tensor:
    """Whole numbers below `below`, in turn."""
    numbers = torch.arange(int(torch.Size(shape).numel())) % below
    return numbers.reshape(shape)


def table(*cases: Case) -> pytest.MarkDecorator:
    """A parametrised test with a row for each case."""
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def check(case: Case) -> CountResult:
    """Count the case and compare it with the numbers given."""
    mode = "train" if case.phase else "infer"
    result = ridgeline.count(case.model, case.inputs, mode=mode, **case.settings)
    assert result.unknown == {}
    assert_cost(
        result.phase(case.phase) if case.phase else result.total,
        macs=case.macs,
        other=case.other,
        transcendental=case.transcendental,
        read=case.read,
        written=case.written,
    )
    return result


def assert_cost(
    cost: Cost,
    *,
    macs: int | None = None,
    other: int | None = None,
    transcendental: int | None = None,
    read: int | None = None,
    written: int | None = None,
) -> None:
    """Compare those fields for which a number is given."""
    expected = {
        "macs": macs,
        "other_flops": other,
        "transcendentals": transcendental,
        "read_bytes": read,
        "written_bytes": written,
    }
    wanted = {name: value for name, value in expected.items() if value is not None}
    assert {name: getattr(cost, name) for name in wanted} == wanted

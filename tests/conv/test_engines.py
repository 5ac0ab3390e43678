"""Plans of cuDNN's graph interface, on a stand-in for its package that computes on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from ridgeline.conv import cudnn
from ridgeline.conv.algorithms import FORWARD, INPUT_GRAD, WEIGHT_GRAD, UnsupportedError, in_layout
from ridgeline.conv.cudnn import Operands, import_frontend, make_plans
from ridgeline.conv.measuring import Operands as Set
from ridgeline.conv.measuring import measure_conv, reference
from ridgeline.records import ConvRequest, ConvShape

SHAPE = ConvShape(n=2, c=4, h=8, w=7, k=6, r=3, s=3, stride=(2, 1), padding=(1, 0), groups=2)


class Symbol:
    """A tensor of a graph: what is set on it is remembered."""

    def __init__(self, **known: Any) -> None:
        self.known = known

    def __getattr__(self, name: str) -> Any:
        def remember(value: Any) -> Symbol:
            self.known[name] = value
            return self

        return remember


class FakeGraph:
    """Three plans, of which the second cannot be built."""

    def __init__(self, **known: Any) -> None:
        self.known, self.output, self.compute = known, Symbol(), None

    def tensor(self, **known: Any) -> Symbol:
        return Symbol(**known)

    def validate(self) -> None:
        assert {"set_dim", "set_stride", "set_output"} <= set(self.output.known)

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "B", "FALLBACK"]

    def get_execution_plan_count(self) -> int:
        return 3

    def build_plan_at_index(self, number: int) -> None:
        if number == 1:
            raise RuntimeError("not supported")

    def get_workspace_size_plan_at_index(self, number: int) -> int:
        return 64 * number

    def get_plan_name_at_index(self, number: int) -> str:
        return f"eng{number}_k2=5"

    def get_behavior_notes_for_plan_at_index(self, number: int) -> list[str]:
        return ["behavior_note.RUNTIME_COMPILATION"]

    def _define(self, compute: Any, window: dict[str, list[int]], *inputs: Symbol) -> Symbol:
        self.compute, self.window, self.inputs = compute, window, inputs
        return self.output

    def conv_fprop(self, *, image: Symbol, weight: Symbol, **window: Any) -> Symbol:
        return self._define("forward", window, image, weight)

    def conv_dgrad(self, *, loss: Symbol, filter: Symbol, **window: Any) -> Symbol:
        return self._define("input", window, loss, filter)

    def conv_wgrad(self, *, image: Symbol, loss: Symbol, **window: Any) -> Symbol:
        return self._define("weight", window, image, loss)

    def execute_plan_at_index(self, pack: Any, workspace: Any, number: int, handle: str) -> None:
        assert workspace.numel() == 64 * number
        first, second = (pack[one] for one in self.inputs)
        window = (self.window["stride"], self.window["padding"], self.window["dilation"])
        out = pack[self.output]
        if self.compute == "forward":
            out.copy_(F.conv2d(first, second, None, *window, groups=SHAPE.groups))
        elif self.compute == "input":
            out.copy_(conv2d_input(out.shape, second, first, *window, SHAPE.groups))
        else:
            out.copy_(conv2d_weight(first, out.shape, second, *window, SHAPE.groups))


FRONTEND = SimpleNamespace(
    create_handle=lambda: "handle", pygraph=FakeGraph,
    data_type=SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16"),
    heur_mode=SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK"),
)  # fmt: skip


def operands(*, is_nhwc: bool = False) -> Operands:
    shapes = (SHAPE.input_shape, SHAPE.weight_shape, SHAPE.output_shape)
    x, w, gradient = (in_layout(torch.randn(one), is_nhwc=is_nhwc) for one in shapes)
    return x, w, gradient


@pytest.mark.parametrize("is_nhwc", [False, True])
@pytest.mark.parametrize("phase", [FORWARD, INPUT_GRAD, WEIGHT_GRAD])
def test_every_plan_of_every_pass_computes_it(phase: str, is_nhwc: bool) -> None:
    sets = [operands(is_nhwc=is_nhwc) for _ in range(2)]

    plans = list(make_plans(ConvRequest(shape=SHAPE, phase=phase), sets, FRONTEND))

    assert [(plan.name, plan.notes, plan.workspace_bytes) for plan in plans] == [
        ("engine 0_k2=5", "RUNTIME_COMPILATION", 0),
        ("engine 2_k2=5", "RUNTIME_COMPILATION", 128),
    ]
    for plan in plans:
        for (x, w, gradient), call in zip(sets, plan.calls, strict=True):
            right = reference(SHAPE, Set(x=x, w=w, gradient=gradient), phase)
            torch.testing.assert_close(call().double(), right, rtol=1e-4, atol=1e-4)


def test_plans_are_measured_beside_the_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "import_module", lambda name: FRONTEND)
    request = ConvRequest(shape=SHAPE, algorithms=("default",), engines=True)

    result = measure_conv(request, torch.device("cpu"), "")

    assert [(one.algorithm, one.status) for one in result.timings] == [
        ("default", "ok"), ("engine 0_k2=5", "ok"), ("engine 2_k2=5", "ok"),
    ]  # fmt: skip
    assert all(one.samples_s for one in result.timings)


def test_without_the_package_the_reason_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise ImportError("No module named 'cudnn'")

    monkeypatch.setattr(cudnn, "import_module", fail)

    with pytest.raises(UnsupportedError, match="nvidia-cudnn-frontend"):
        import_frontend()
    request = ConvRequest(shape=SHAPE, algorithms=("default",), engines=True)
    result = measure_conv(request, torch.device("cpu"), "")
    assert [one.status for one in result.timings] == ["ok"]
    assert result.problems[0].startswith("plans were not measured: plans of cuDNN's graph")

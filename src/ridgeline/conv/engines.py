"""The plans of cuDNN's graph interface, by the package nvidia-cudnn-frontend (extra `cudnn`).

A plan is an engine with its knobs. The heuristics name those that may run; each is built and run by
its number. The package is imported only where plans are asked for. The strides of every output are
set: without them, results of NCHW come back in another layout, and everything seems to be well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ridgeline.conv.algorithms import FORWARD, INPUT_GRAD, UnsupportedError
from ridgeline.records import ConvRequest, ConvShape

DATA_TYPES = {torch.float32: "FLOAT", torch.float16: "HALF", torch.bfloat16: "BFLOAT16"}
HEURISTICS = ("A", "B", "FALLBACK")

Operands = tuple[Tensor, Tensor, Tensor]  # input, weight, gradient of the output


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """One plan, ready to run on each set of operands."""

    name: str  # engine 67_k2=5_k13=0
    notes: str
    workspace_bytes: int
    calls: tuple[Callable[[], Tensor], ...]


def import_frontend() -> Any:
    """The package; the reason where it is missing."""
    try:
        return import_module("cudnn")
    except (ImportError, OSError) as error:
        raise UnsupportedError(
            f"plans of cuDNN's graph interface need the package nvidia-cudnn-frontend ({error}):"
            " pip install --no-deps 'nvidia-cudnn-frontend'"
        ) from error


def make_plans(
    request: ConvRequest, sets: Sequence[Operands], frontend: Any
) -> Iterator[EnginePlan]:
    """Every plan that can be built for a pass; others are left out, as cuDNN does by itself."""
    graph = _Graph(request, sets[0], frontend)
    for number in range(graph.plans.get_execution_plan_count()):
        try:
            graph.plans.build_plan_at_index(number)
        except RuntimeError:  # named by a heuristic, and refused now
            continue
        size = int(graph.plans.get_workspace_size_plan_at_index(number))
        workspace = torch.empty(size, dtype=torch.uint8, device=sets[0][0].device)
        notes = graph.plans.get_behavior_notes_for_plan_at_index(number)
        yield EnginePlan(
            name=f"engine {str(graph.plans.get_plan_name_at_index(number)).removeprefix('eng')}",
            notes=", ".join(str(note).rpartition(".")[2] for note in notes),
            workspace_bytes=size,
            calls=tuple(graph.make_call(number, one, workspace) for one in sets),
        )


class _Graph:
    """One pass of a convolution as cuDNN's graph, with all its plans."""

    def __init__(self, request: ConvRequest, operands: Operands, frontend: Any) -> None:
        self._request, self._frontend = request, frontend
        self._handle = frontend.create_handle()
        kinds = frontend.data_type
        kind = getattr(kinds, DATA_TYPES[operands[0].dtype])
        self.plans = frontend.pygraph(
            io_data_type=kind, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT,
            handle=self._handle,
        )  # fmt: skip
        self._inputs = [
            self.plans.tensor(
                name=name, dim=list(one.shape), stride=list(one.stride()), data_type=kind
            )
            for name, one in self._choose(operands)
        ]
        like = _output_like(request, operands)
        self._output = self._add_pass(request.shape)
        self._output.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride()))
        self._output.set_data_type(kind)
        self.plans.validate()
        self.plans.build_operation_graph()
        modes = [getattr(frontend.heur_mode, name) for name in HEURISTICS]
        self.plans.create_execution_plans(modes)

    def _choose(self, operands: Operands) -> list[tuple[str, Tensor]]:
        """What a pass reads: two of input, weight and gradient."""
        x, w, gradient = operands
        if self._request.phase == FORWARD:
            return [("image", x), ("weight", w)]
        if self._request.phase == INPUT_GRAD:
            return [("loss", gradient), ("filter", w)]
        return [("image", x), ("loss", gradient)]

    def _add_pass(self, shape: ConvShape) -> Any:
        graph, (first, second) = self.plans, self._inputs
        window = {
            "padding": list(shape.padding), "stride": list(shape.stride),
            "dilation": list(shape.dilation),
        }  # fmt: skip
        if self._request.phase == FORWARD:
            return graph.conv_fprop(image=first, weight=second, **window)
        if self._request.phase == INPUT_GRAD:
            return graph.conv_dgrad(loss=first, filter=second, **window)
        return graph.conv_wgrad(image=first, loss=second, **window)

    def make_call(self, number: int, operands: Operands, workspace: Tensor) -> Callable[[], Tensor]:
        """The plan on one set of operands, with an output of its own."""
        out = torch.empty_like(_output_like(self._request, operands))
        tensors = [one for _, one in self._choose(operands)]
        pack = {**dict(zip(self._inputs, tensors, strict=True)), self._output: out}

        def call() -> Tensor:
            if out.is_cuda:
                stream = torch.cuda.current_stream(out.device).cuda_stream
                self._frontend.set_stream(handle=self._handle, stream=stream)
            self.plans.execute_plan_at_index(pack, workspace, number, handle=self._handle)
            return out

        return call


def _output_like(request: ConvRequest, operands: Operands) -> Tensor:
    """A tensor of the sizes and strides of a pass's result."""
    x, w, gradient = operands
    return {FORWARD: gradient, INPUT_GRAD: x}.get(request.phase, w)

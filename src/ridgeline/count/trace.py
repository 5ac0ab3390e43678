"""Watch a model run on tensors without data, and write down every operator call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ridgeline.count.backward import ROW, Attribution
from ridgeline.count.call import OpCall, Operator, TensorMeta, operator_of
from ridgeline.count.dispatch import autocast_knows_meta, device_independent_dispatch
from ridgeline.count.memory import Storages
from ridgeline.count.meta import (
    CHOICES,
    VALUE,
    NoValueError,
    Values,
    literals_known,
    map_tensors,
    with_value,
)
from ridgeline.count.records import ModuleCall, Shapes
from ridgeline.records import RECOMPUTE
from ridgeline.tracing.tracker import (
    ModuleTracker,
    current_node,
    name_modules,
    tensors_among,
    tensors_in,
    with_base,
)

_OF_WEIGHTS = "_ridgeline_of_weights"
_get_mkldnn: Any = torch._C._get_mkldnn_enabled
_set_mkldnn: Any = torch._C._set_mkldnn_enabled


@dataclass(slots=True)  # there are many: a frozen one takes several times as long to make
class Row:
    """One operator call as it was seen."""

    call: OpCall
    path: str
    stage: str  # "forward", "backward", "recompute", "optimizer"


def describe(tensor: Tensor, storages: Storages) -> TensorMeta:
    """The part of a tensor that a formula may use."""
    shape = tuple(tensor.shape)
    if tensor.layout is not torch.strided:
        held = tensor._values() if tensor.layout is torch.sparse_coo else tensor
        return TensorMeta(shape, tensor.dtype, held.numel(), 0, id(tensor))
    distinct = tensor.numel()
    if distinct and not tensor.is_contiguous():
        distinct = 1
        for size, stride in zip(shape, tensor.stride(), strict=True):
            distinct *= size if stride else 1
    view = (int(tensor.storage_offset()), *map(int, tensor.stride()))
    return TensorMeta(shape, tensor.dtype, distinct, storages.number_of(tensor), id(tensor), view)


class ModuleRecorder(ModuleTracker):
    """Also a record of every module that ran."""

    def __init__(self, root: nn.Module | None) -> None:
        super().__init__()
        self._names = name_modules(root, "")
        self.calls: dict[str, ModuleCall] = {}

    def path_of(self, module: nn.Module) -> str:
        return self._names.get(id(module), self.path)

    def on_enter(self, path: str, module: nn.Module, args: Any) -> None:
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = ModuleCall(type(module).__name__)
            call.input_shapes = shapes_of(args)
        call.calls += 1

    def on_leave(self, path: str, args: Any, output: Any) -> None:
        call = self.calls.get(path)
        if call is not None and not call.output_shapes:
            call.output_shapes = shapes_of(output)
        if call is not None and current_node() is None:  # else it is recomputed
            call.output_bytes += sum(tensor.nbytes for tensor in tensors_in(output))


def shapes_of(value: Any) -> Shapes:
    """Shapes of all tensors in a nested value."""
    return tuple(tuple(tensor.shape) for tensor in tensors_in(value))


class Tracer(TorchDispatchMode):
    """Records every operator that reaches PyTorch's dispatcher while it is active."""

    def __init__(self, model: nn.Module | None, *, keep_values: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: list[Row] = []
        self.modules = ModuleRecorder(model)
        self.memory = Storages()
        self.values = Values() if keep_values else None
        self.stage = "forward"
        self.weights = _weight_paths(model)
        self.attribution = Attribution(self.weights)
        self._weight_tensors = _weight_tensors(model)
        self._traces_gradients = False
        self._last_owner = ""

    @contextmanager
    def watching(self, *, gradients: bool) -> Iterator[None]:
        """Trace the block. Fused inference paths, which depend on the device, are off."""
        self._traces_gradients = gradients
        fast_path = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as stack:
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
            torch.backends.mha.set_fastpath_enabled(False)
            stack.callback(_set_mkldnn, _get_mkldnn())
            _set_mkldnn(False)
            stack.enter_context(device_independent_dispatch())
            stack.enter_context(self.modules.watching())
            if self.values is not None:
                stack.enter_context(literals_known())
            stack.enter_context(_inference_mode_is_no_grad())
            stack.enter_context(autocast_knows_meta())
            stack.enter_context(torch.set_grad_enabled(gradients))
            stack.enter_context(self)
            yield

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        operator = operator_of(func)
        if operator.decomposes:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out, args = self._run(func, operator, args, kwargs)
        if self.values is not None:
            self._follow_values(func, operator, args, kwargs, out)
        self._record(operator, args, kwargs, out)
        return out

    # ------------------------------------------------------------ running

    def _run(self, func: Any, operator: Operator, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Run the operator on tensors without data; look at values only where it must be."""
        try:
            return func(*args, **kwargs), args
        except (NotImplementedError, RuntimeError) as error:
            if self.values is None:
                raise
            return self._run_with_values(func, operator, args, kwargs, error)

    def _run_with_values(
        self, func: Any, operator: Operator, args: Any, kwargs: Any, error: Exception
    ) -> tuple[Any, Any]:
        assert self.values is not None
        mixed = _all_meta(args)
        if mixed is not args:
            self._note_twins(args, mixed)
            return self._run(func, operator, mixed, kwargs)
        name = operator.name
        if name == "aten::_grouped_mm":  # some versions refuse fp32 here, which devices run
            return _grouped_product(*args, **kwargs), args
        try:
            return self.values.evaluate(func, name, args, kwargs), args
        except NoValueError:
            raise error from None

    def _note_twins(self, args: Any, mixed: Any) -> None:
        """What is written into a twin is, for whoever reads it later, in the original."""
        for original, twin in zip(tensors_among(args), tensors_among(mixed), strict=True):
            if twin is not original:
                self.memory.share(twin, original)

    def _follow_values(
        self, func: Any, operator: Operator, args: Any, kwargs: Any, out: Any
    ) -> None:
        assert self.values is not None
        known = all(
            not t.is_meta or hasattr(t, VALUE) for t in tensors_among((*args, *kwargs.values()))
        )
        name = operator.name
        overwrites = bool(operator.written) and isinstance(out, Tensor) and hasattr(out, VALUE)
        if known or overwrites or name in CHOICES:
            self.values.follow(func, name, args, kwargs, out)

    # ------------------------------------------------------------ recording

    def _record(self, operator: Operator, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        outs = (out,) if isinstance(out, Tensor) else out if isinstance(out, list | tuple) else ()
        tensors = [t for t in outs if isinstance(t, Tensor)]
        index = len(self.rows)
        path, stage = self._locate(operator, index, args, kwargs, tensors)
        if not operator.is_free:
            described = tuple(map(self._described, args))
            named = {key: self._described(value) for key, value in kwargs.items()}
            results = tuple(map(self._described, tensors))
            self.rows.append(Row(OpCall(operator, described, named, results), path, stage))
        if not operator.is_free or operator.name.startswith("aten::"):
            self.memory.add(tensors, index)

    def storage_of(self, tensor: Tensor) -> int:
        """The number of its storage, as rows tell it; 0 where it has none."""
        return describe(tensor, self.memory).storage

    def _described(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return describe(value, self.memory)
        if isinstance(value, list | tuple):
            return [self._described(item) for item in value]
        return value

    def _locate(
        self, operator: Operator, index: int, args: Any, kwargs: Any, outs: list[Tensor]
    ) -> tuple[str, str]:
        """Module path and stage."""
        if not self._traces_gradients:
            return self.modules.path, self.stage
        inputs = list(tensors_among((*args, *kwargs.values())))
        if self.stage == "forward":
            path, is_again = self._path_of_forward(current_node())
            self._note_forward(operator, inputs, outs, path)
            return path, RECOMPUTE if is_again else self.stage
        if self.stage == "optimizer":
            return self._owner(inputs), self.stage
        is_in_node = current_node() is not None  # else: the gradient that backward starts from
        if self.modules.is_inside or (is_in_node and torch.is_grad_enabled()):
            self._note_forward(operator, inputs, outs, self.modules.path)
            return self.modules.path, RECOMPUTE
        return self._locate_backward(operator, index, inputs, outs), self.stage

    def _path_of_forward(self, node: Any) -> tuple[str, bool]:
        """Also of gradients that the forward pass asks for, and what is done again for them."""
        if node is None or node is self.modules.node:
            return self.modules.path, node is not None
        path = self.attribution.path_of(node)
        return (self.modules.path if path is None else path), False

    def _note_forward(
        self, operator: Operator, inputs: list[Tensor], outs: list[Tensor], path: str
    ) -> None:
        of_weights = [id(t) in self._weight_tensors or hasattr(t, _OF_WEIGHTS) for t in inputs]
        weights_only = all(of_weights) if inputs else not operator.is_random  # drawn: data
        for tensor in (one for out in outs for one in with_base(out)):
            if weights_only:
                setattr(tensor, _OF_WEIGHTS, True)
            elif hasattr(tensor, _OF_WEIGHTS):  # data were written into it
                delattr(tensor, _OF_WEIGHTS)
        self.attribution.saw_forward(inputs, outs, path, weights_only=weights_only)

    def _locate_backward(
        self, operator: Operator, index: int, inputs: list[Tensor], outs: list[Tensor]
    ) -> str:
        if operator.is_free:
            parent = next((p for t in inputs if (p := getattr(t, ROW, None)) is not None), None)
            if parent is not None:
                for tensor in outs:
                    setattr(tensor, ROW, parent)
            return ""
        path = self.attribution.saw_backward(index, current_node(), inputs)
        for tensor in outs:
            setattr(tensor, ROW, index)
        if path is None:
            parent = self.attribution.parent_of(index)
            path = self.rows[parent].path if parent is not None else ""
        return path

    def _owner(self, inputs: list[Tensor]) -> str:
        """The module whose parameter the optimizer works on; as before where it cannot be told."""
        for tensor in inputs:
            path = self.weights.get(id(tensor))
            if path is not None:
                self._last_owner = path
                return path
        return self._last_owner

    def claim(self, parameter: Tensor, tensors: Iterable[Tensor]) -> None:
        """Let tensors belong to a parameter's module, for the optimizer's rows."""
        for tensor in tensors:
            self.weights[id(tensor)] = self.weights[id(parameter)]


@contextmanager
def _inference_mode_is_no_grad() -> Iterator[None]:
    """Inside the block `torch.inference_mode` acts as `no_grad`.

    In inference mode composite operators (matmul, linear) arrive whole instead of as the
    operators they are made of, and the count would depend on it.
    """

    def no_grad(self: Any) -> None:
        self._ridgeline_before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(not self.mode)

    def restore(self: Any, *_: object) -> None:
        torch._C._set_grad_enabled(self._ridgeline_before)

    with patch.multiple(torch.inference_mode, __enter__=no_grad, __exit__=restore):
        yield


def _weight_paths(model: nn.Module | None) -> dict[int, str]:
    named = model.named_parameters() if model is not None else ()
    return {id(weight): name.rpartition(".")[0] for name, weight in named}


def _weight_tensors(model: nn.Module | None) -> set[int]:
    return {id(t) for t in (*model.parameters(), *model.buffers())} if model is not None else set()


def _grouped_product(
    a: Tensor, b: Tensor, offsets: Tensor | None = None, *_: Any, **__: Any
) -> Tensor:
    """The result of a grouped product, by the dimensions that its operands have."""
    rows, columns = a.shape[-2], b.shape[-1]
    if a.dim() == 2 and b.dim() == 2 and offsets is not None:
        return a.new_empty((offsets.shape[0], rows, columns))
    if a.dim() == 3 and b.dim() == 3:
        return a.new_empty((a.shape[0], rows, columns))
    return a.new_empty((rows, columns))


def _all_meta(args: Any) -> Any:
    """The arguments with real tensors replaced by meta twins, if real and meta are mixed."""
    tensors = list(tensors_among(args))
    if not any(t.is_meta for t in tensors) or all(t.is_meta for t in tensors):
        return args
    return map_tensors(args, lambda tensor: tensor if tensor.is_meta else with_value(tensor))

"""Operator points called for real, with operands of the right sizes, strides and values.

Floats are normal random numbers: zeros would run faster and cooler. Indices stay inside what they
index. What PyTorch runs by another operator on a device (attention, batch norm, dropout) is called
by its public function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ridgeline.predict.operators import OPTIMIZER, OperatorPoint, contiguous_strides, is_tensor
from ridgeline.workloads.losses import make_optimizer

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16,
          "bf16": torch.bfloat16}  # fmt: skip
LARGEST_OPTIMIZER_TENSOR = 1 << 24
WEIGHTS: Mapping[str, tuple[int, ...]] = {  # positions of what no operator of a step writes
    "aten::convolution": (1, 2), "aten::convolution_backward": (2,), "aten::addmm": (0, 2),
    "aten::mm": (1,), "aten::native_batch_norm": (1, 2, 3, 4), "aten::native_layer_norm": (2, 3),
    "aten::embedding": (0,), "aten::native_group_norm": (1, 2),
}  # fmt: skip
INDEX_DIMS: Mapping[str, int] = {  # the dimension of the first tensor that indices run over
    "aten::embedding": 0, "aten::nll_loss_forward": 1, "aten::nll_loss2d_forward": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A call with operands of its own."""

    run: Callable[[], object]
    activations: tuple[Tensor, ...]  # storages that another operator would have just written
    nbytes: int


class Normal:
    """Random numbers to copy from: making them anew would take longer than the measurement."""

    def __init__(self, device: torch.device, elements: int = 1 << 22) -> None:
        self._pool = torch.randn(elements, device=device)

    def fill(self, tensor: Tensor) -> Tensor:
        """Fill a contiguous tensor."""
        flat = tensor.view(-1)
        for start in range(0, flat.numel(), self._pool.numel()):
            part = flat[start : start + self._pool.numel()]
            part.copy_(self._pool[: part.numel()])
        return tensor


def make_replay(point: OperatorPoint, device: torch.device, normal: Normal) -> Replay:
    """A call of a point; raises what torch raises where it cannot be called."""
    if point.kind == OPTIMIZER:
        return _replay_optimizer(point, device, normal)
    positional, named = point.parsed
    maker = _Maker(point, device, normal)
    args = [maker.decode(value, (position,)) for position, value in enumerate(positional)]
    kwargs = {name: maker.decode(value, ()) for name, value in named.items()}
    run = SPECIAL.get(point.op, _plain)(point, args, kwargs)
    return Replay(run=run, activations=tuple(maker.activations), nbytes=maker.nbytes)


class _Maker:
    """Makes the arguments of one call."""

    def __init__(self, point: OperatorPoint, device: torch.device, normal: Normal) -> None:
        self._point, self._device, self._normal = point, device, normal
        self._weights = WEIGHTS.get(point.op, ())
        self.activations: list[Tensor] = []
        self.nbytes = 0

    def decode(self, value: Any, where: tuple[int, ...]) -> Any:
        if isinstance(value, list):
            return [self.decode(item, where) for item in value]
        if not isinstance(value, dict):
            return value
        if not is_tensor(value):
            return float(value["number"]) if "number" in value else getattr(torch, value["torch"])
        name = next(one for one in value if one != "strides")
        sizes = value[name]
        strides = value.get("strides") or contiguous_strides(sizes)
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        storage = self._fill(name, max(reach, 0) if prod(sizes) else 0)
        self.nbytes += storage.untyped_storage().nbytes()
        if not set(where) & set(self._weights) and storage.is_floating_point():
            self.activations.append(storage)
        return torch.as_strided(storage, sizes, strides)

    def _fill(self, name: str, elements: int) -> Tensor:
        dtype = DTYPES.get(name) or getattr(torch, name)
        if dtype.is_floating_point or dtype.is_complex:
            storage = self._normal.fill(torch.empty(elements, dtype=dtype, device=self._device))
            return storage.abs_() if self._point.op == "aten::native_batch_norm" else storage
        most = 2 if dtype is torch.bool else self._index_limit()
        return torch.randint(0, most, (elements,), device=self._device).to(dtype)

    def _index_limit(self) -> int:
        """Indices are below it."""
        op, tensors = self._point.op, self._point.tensors
        positional = self._point.parsed[0]
        if op == "aten::embedding_dense_backward":
            return int(positional[2])
        if op in ("aten::nll_loss_backward", "aten::nll_loss2d_backward"):
            return tensors[1][1] if len(tensors[1]) > 1 else tensors[1][0]
        if op == "aten::max_pool2d_with_indices_backward":
            return prod(tensors[1][-2:])
        if op in ("aten::gather", "aten::scatter", "aten::index_select", "aten::scatter_add"):
            return tensors[0][positional[1]] if tensors[0] else 1
        if op in INDEX_DIMS:
            sizes = tensors[0]
            return sizes[min(INDEX_DIMS[op], len(sizes) - 1)]
        return max(1, min((n for sizes in tensors[:1] for n in sizes), default=2))


# ---------------------------------------------------------------- what is called


def _plain(point: OperatorPoint, args: list[Any], kwargs: dict[str, Any]) -> Callable[[], object]:
    namespace, _, name = point.op.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    function = getattr(packet, point.overload or "default")
    return lambda: function(*args, **kwargs)


def _attend(point: OperatorPoint, args: list[Any], _: Any) -> Callable[[], object]:
    q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, _for_backward = args

    def attend() -> Tensor:
        return functional.scaled_dot_product_attention(
            q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )

    return attend


def _attend_backward(point: OperatorPoint, args: list[Any], _: Any) -> Callable[[], object]:
    grad, q, k, v, _out, _sums, mask, dropout_p, is_causal, scale, enable_gqa, needed = args
    operands = [t.detach().requires_grad_() for t, want in zip((q, k, v), needed, strict=False)]
    with torch.enable_grad():
        out = functional.scaled_dot_product_attention(
            operands[0], operands[1], operands[2], mask, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        )  # fmt: skip
    sources = [t for t, want in zip(operands, needed, strict=False) if want]
    return lambda: torch.autograd.grad(out, sources, grad, retain_graph=True)


def _batch_norm_backward(
    point: OperatorPoint, args: list[Any], kwargs: dict[str, Any]
) -> Callable[[], object]:
    """cuDNN's on a GPU, which only autograd calls rightly."""
    grad, x, weight, mean, variance, *_, is_training, eps, mask = args
    if not x.is_cuda or not is_training:
        return _plain(point, args, kwargs)
    x, weight = x.detach().requires_grad_(bool(mask[0])), weight.detach().requires_grad_()
    bias = torch.zeros_like(weight, requires_grad=True)
    with torch.enable_grad():
        out = torch.batch_norm(x, weight, bias, mean, variance, True, 0.1, eps, True)
    sources = [x, weight, bias] if mask[0] else [weight, bias]
    return lambda: torch.autograd.grad(out, sources, grad, retain_graph=True)


SPECIAL: Mapping[
    str, Callable[[OperatorPoint, list[Any], dict[str, Any]], Callable[[], object]]
] = {
    "ridgeline::sdpa": _attend,
    "ridgeline::sdpa_backward": _attend_backward,
    "aten::native_batch_norm": lambda _, args, __: lambda: torch.batch_norm(*args, True),  # type: ignore[call-arg]
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::native_dropout": lambda _, args, __: lambda: functional.dropout(args[0], args[1], True),
}


def _replay_optimizer(point: OperatorPoint, device: torch.device, normal: Normal) -> Replay:
    tensors, elements = point.parsed[0]
    weights = []
    for size in optimizer_sizes(tensors, elements):
        weight = normal.fill(torch.empty(size, device=device)).requires_grad_()
        weight.grad = normal.fill(torch.empty(size, device=device))
        weights.append(weight)
    optimizer = make_optimizer(point.op.partition("::")[2], weights, {})
    optimizer.step()
    return Replay(run=optimizer.step, activations=(), nbytes=4 * 4 * elements)


def optimizer_sizes(tensors: int, elements: int) -> Sequence[int]:
    """Half of the tensors are vectors (norms, biases); the others are weights of equal size."""
    tensors = max(tensors, -(-elements // LARGEST_OPTIMIZER_TENSOR), 1)
    vectors = tensors // 2
    small = min(512, max(1, elements // (4 * tensors)))
    weights = tensors - vectors
    large = max(1, (elements - vectors * small) // weights)
    return [small] * vectors + [large] * weights

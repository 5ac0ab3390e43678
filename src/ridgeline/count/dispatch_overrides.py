"""Operators that PyTorch decomposes differently on each device, dispatched one way for all.

Scaled dot-product attention is the main one: fused on a GPU, another kernel on the CPU, four
separate steps on meta tensors. A count must not depend on that, so there is one operator of ours,
with a forward and a backward, and calls are dispatched to it while a model is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_SCHEMA = (
    "sdpa(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p,"
    " bool is_causal, float? scale, bool enable_gqa, bool for_backward) -> (Tensor, Tensor)"
)
_BACKWARD_SCHEMA = (
    "sdpa_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out,"
    " Tensor logsumexp, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale,"
    " bool enable_gqa, bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor)"
)
_library = torch.library.Library("ridgeline", "DEF")
_library.define(_SCHEMA)
_library.define(_BACKWARD_SCHEMA)
_plain_attention: Any = torch.ops.aten._scaled_dot_product_attention_math.default


def _shapes(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Output and, where a backward will follow, the log-sum-exp of each query."""
    *_, enable_gqa, for_backward = settings
    shape = torch.broadcast_shapes(q.shape[:-2], () if enable_gqa else v.shape[:-2])
    rows = (*shape, q.shape[-2])
    return q.new_empty((*rows, v.shape[-1])), _logsumexp(q, rows if for_backward else (0,))


def _logsumexp(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return like.new_zeros(shape, dtype=torch.float32)


def _forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    mask, dropout_p, is_causal, scale, enable_gqa, for_backward = settings
    out, _ = _plain_attention(
        q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out, _logsumexp(q, tuple(out.shape[:-1]) if for_backward else (0,))


def _backward_shapes(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and mask; empty where none is wanted."""
    *operands, mask, needed = *rest[:3], rest[5], rest[-1]
    return tuple(
        torch.empty_like(tensor) if want else grad.new_empty(0)
        for tensor, want in zip((*operands, mask), needed, strict=True)
    )


def _backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Zeros of the right shapes: this runs below autograd, and no model looks at a gradient."""
    return tuple(torch.zeros_like(tensor) for tensor in _backward_shapes(grad, *rest))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, *settings, _for_backward = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.settings = settings
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor, _grad_logsumexp: Any) -> tuple[Any, ...]:
    q, k, v, mask, out, logsumexp = ctx.saved_tensors
    needed = list(ctx.needs_input_grad[:4])
    grads = torch.ops.ridgeline.sdpa_backward(
        grad, q, k, v, out, logsumexp, mask, *ctx.settings, needed
    )
    known = [g if want else None for g, want in zip(grads, needed, strict=True)]
    return (*known, None, None, None, None, None)


for _name, _kernel, _shape_kernel in (
    ("sdpa", _forward, _shapes),
    ("sdpa_backward", _backward, _backward_shapes),
):
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    _library.impl(_name, _shape_kernel, "Meta")
torch.library.register_autograd("ridgeline::sdpa", _gradient, setup_context=_save, lib=_library)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` by the one operator."""
    operands = (query, key, value, attn_mask)
    for_backward = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in operands
    )
    out, _ = torch.ops.ridgeline.sdpa(
        *operands, dropout_p, is_causal, scale, enable_gqa, for_backward
    )
    return out


def _dropout(input: Tensor, p: float, train: bool) -> Any:
    """One fused operator, as on a GPU; elsewhere it would be three."""
    if not train or p == 0:
        return input
    return torch.ops.aten.native_dropout(input, p, train)[0]


OVERRIDES: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention,
    "dropout": _dropout,
}


@contextmanager
def device_independent_dispatch() -> Iterator[None]:
    """Inside the block these operators are dispatched the same way on every device."""
    library = torch.library.Library("aten", "IMPL")
    for name, override in OVERRIDES.items():
        for key in ("AutogradMeta", "AutogradCPU"):
            library.impl(name, override, key)
    try:
        yield
    finally:
        library._destroy()

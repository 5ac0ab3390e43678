"""Scaled dot-product attention as one operator, whatever the device would choose.

PyTorch picks a backend by device: fused on a GPU, another on the CPU, four separate steps
on meta tensors. A count must not depend on that, so while a model is traced the call is
routed to one operator of ours with a forward and a backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_SCHEMA = (
    "sdpa(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p,"
    " bool is_causal, float? scale, bool enable_gqa) -> (Tensor, Tensor)"
)
_BACKWARD_SCHEMA = (
    "sdpa_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out,"
    " Tensor logsumexp, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale,"
    " bool enable_gqa) -> (Tensor, Tensor, Tensor)"
)
_library = torch.library.Library("ridgeline", "DEF")
_library.define(_SCHEMA)
_library.define(_BACKWARD_SCHEMA)
_plain_attention: Any = torch.ops.aten._scaled_dot_product_attention_math.default


def _shapes(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Output and the log-sum-exp of each query, which a fused backward needs."""
    shape = torch.broadcast_shapes(q.shape[:-2], () if _[-1] else v.shape[:-2])
    out = q.new_empty((*shape, q.shape[-2], v.shape[-1]))
    return out, q.new_empty((*shape, q.shape[-2]), dtype=torch.float32)


def _forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    mask, dropout_p, is_causal, scale, enable_gqa = settings
    out = _plain_attention(q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[
        0
    ]
    return out, q.new_zeros(out.shape[:-1], dtype=torch.float32)


def _backward_shapes(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    settings = rest[2:]
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out, _ = _forward(*leaves, *settings)
        return torch.autograd.grad(out, leaves, grad)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, *settings = inputs
    ctx.save_for_backward(q, k, v, mask, *output)
    ctx.settings = settings
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor, _grad_logsumexp: Any) -> tuple[Any, ...]:
    q, k, v, mask, out, logsumexp = ctx.saved_tensors
    grads = torch.ops.ridgeline.sdpa_backward(grad, q, k, v, out, logsumexp, mask, *ctx.settings)
    return (*grads, None, None, None, None, None)


for _name, _kernel, _shape_kernel in (
    ("sdpa", _forward, _shapes),
    ("sdpa_backward", _backward, _backward_shapes),
):
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    _library.impl(_name, _shape_kernel, "Meta")
torch.library.register_autograd("ridgeline::sdpa", _gradient, setup_context=_save, lib=_library)


def _route(
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
    out, _ = torch.ops.ridgeline.sdpa(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
    return out


@contextmanager
def one_attention_operator() -> Iterator[None]:
    """Inside the block, `scaled_dot_product_attention` is seen as `ridgeline::sdpa`."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("AutogradMeta", "AutogradCPU"):
        library.impl("scaled_dot_product_attention", _route, key)
    try:
        yield
    finally:
        library._destroy()

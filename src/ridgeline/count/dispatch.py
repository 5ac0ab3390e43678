"""Operators dispatched as on a GPU, whatever device is there: decompositions, autocast.

Scaled dot-product attention is the main one: fused on a GPU, another kernel on the CPU, four
separate steps on meta tensors. A count must not depend on that, so there is one operator of ours,
with a forward and a backward, and calls are dispatched to it while a model is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ridgeline.tracing.tracker import State, restore_on_recompute

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


# ---------------------------------------------------------------- CUDA's autocast
# On tensors of any device, so that mixed precision is counted without a GPU. PyTorch knows which
# operators CUDA's autocast touches; what it does not offer is to apply that to meta tensors. So the
# same operators get a kernel under a dispatch key that nothing else uses, which is switched on for
# every tensor while the model's forward runs.

_C: Any = torch._C
_KEY_NAME = "AutocastHPU"
_DEVICES = ("cuda", "meta")
_BLOCK = "_ridgeline_block"  # of a `torch.autocast`: whether it is on, and its type

PROMOTED = frozenset(
    """addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot
    scatter_add""".split()  # noqa: SIM905 - a list of names reads better as text
)
LOWERED = frozenset(
    """_convolution convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
    conv_transpose3d cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul
    einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _cudnn_rnn scaled_dot_product_attention
    _scaled_dot_product_flash_attention""".split()  # noqa: SIM905
)
"""Operators that run in the low precision; every other one on PyTorch's list runs in fp32."""


class Autocast:
    """Runs blocks as `torch.autocast("cuda", dtype)` would, on whatever device."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._key = getattr(_C.DispatchKey, _KEY_NAME)
        self._is_on = False
        self._depth = 0  # blocks inside of blocks
        self._regions: list[AbstractContextManager[None]] = []  # those of the model's own blocks
        # Until the last block ends: a weight, which must live as long as its id is used, and its
        # cast.
        self._cache: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Blocks can be run, the model's own among them, and again by checkpoints of theirs."""
        library = torch.library.Library("aten", "IMPL")
        for name in _cuda_autocast_ops():
            library.impl(name, self._kernel(_operator(name)), _KEY_NAME)
        others = torch.library.Library("_", "IMPL")
        others.fallback(torch.library.fallthrough_kernel, _KEY_NAME)
        try:
            with restore_on_recompute(self._state), self._patch_torch_autocast():
                yield
        finally:
            library._destroy()
            others._destroy()

    def _state(self) -> State:
        return partial(self.autocast_region, self._is_on, self._dtype)

    @contextmanager
    def autocast_region(self, is_on: bool, dtype: torch.dtype | None = None) -> Iterator[None]:
        """A block with autocast, or one without it inside of such a block."""
        before = self._is_on, self._dtype
        self._depth += 1
        self._switch(is_on, dtype or self._dtype)
        try:
            yield
        finally:
            self._switch(*before)
            self._depth -= 1
            if not self._depth:
                self._cache.clear()

    def _switch(self, is_on: bool, dtype: torch.dtype) -> None:
        self._is_on, self._dtype = is_on, dtype
        _C._dispatch_tls_set_dispatch_key_excluded(self._key, not is_on)
        _C._dispatch_tls_set_dispatch_key_included(self._key, is_on)

    @contextmanager
    def _patch_torch_autocast(self) -> Iterator[None]:
        """What the model says about CUDA's autocast, or asks of it, is about this one.

        Not so blocks that were made before it runs, as decorators are: they do not tell whether
        they were meant to be on, where there is no CUDA.
        """
        block: Any = torch.autocast
        original_init, original_enter = block.__init__, block.__enter__
        original_exit = block.__exit__
        is_enabled_before, dtype_before = torch.is_autocast_enabled, torch.get_autocast_dtype

        def make(
            one: Any, device_type: str, dtype: Any = None, enabled: bool = True, **rest: Any
        ) -> None:
            if device_type in _DEVICES:  # PyTorch's own stays as it is
                setattr(one, _BLOCK, (enabled, dtype))
                original_init(one, "cpu", None, False)
            else:
                original_init(one, device_type, dtype, enabled, **rest)

        def enter(one: Any) -> Any:
            if hasattr(one, _BLOCK):
                self._regions.append(self.autocast_region(*getattr(one, _BLOCK)))
                self._regions[-1].__enter__()
            return original_enter(one)

        def leave(one: Any, *error: Any) -> Any:
            if hasattr(one, _BLOCK):
                self._regions.pop().__exit__(None, None, None)
            return original_exit(one, *error)

        def is_enabled(device_type: str = "cuda") -> bool:
            return self._is_on if device_type in _DEVICES else is_enabled_before(device_type)

        def dtype_of(device_type: str) -> torch.dtype:
            return self._dtype if device_type in _DEVICES else dtype_before(device_type)

        with (
            patch.multiple(block, __init__=make, __enter__=enter, __exit__=leave),
            patch.multiple(torch, is_autocast_enabled=is_enabled, get_autocast_dtype=dtype_of),
        ):
            yield

    def _kernel(self, operator: Any) -> Callable[..., Any]:
        name = operator._schema.name.removeprefix("aten::")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(self._key)):
                target = _target(name, self._dtype, args)
                cast = [self._cast(value, target) for value in args]
                return operator(*cast, **{k: self._cast(v, target) for k, v in kwargs.items()})

        return kernel

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        """Cast as autocast does: fp64 is left alone, a weight is cast once and kept."""
        if isinstance(value, list | tuple):
            return type(value)(self._cast(item, dtype) for item in value)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if value.dtype in (dtype, torch.float64):
            return value
        is_weight = value.requires_grad and value.is_leaf and value.dtype == torch.float32
        if not is_weight:
            return value.to(dtype)
        key = id(value), dtype
        if key not in self._cache:
            with torch.enable_grad():  # the next who needs it may differentiate
                self._cache[key] = value, value.to(dtype)
        return self._cache[key][1]


def _cuda_autocast_ops() -> list[str]:
    names = _C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    return [name for name in names if name.startswith("aten::")]


def _operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _target(name: str, low: torch.dtype, args: tuple[Any, ...]) -> torch.dtype:
    if name in LOWERED:
        return low
    if name in PROMOTED:
        wide = any(isinstance(a, Tensor) and a.dtype == torch.float32 for a in args)
        return torch.float32 if wide else low
    return torch.float32


@contextmanager
def autocast_knows_meta() -> Iterator[None]:
    """Let models say `torch.autocast(x.device.type)`, also where that is meta.

    Some versions of PyTorch refuse the name. What such a block asks for acts on no meta tensor.
    """
    original = torch.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)

    with patch.object(torch.autocast, "__init__", init):
        yield

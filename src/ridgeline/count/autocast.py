"""CUDA's autocast on tensors of any device, so that mixed precision is counted without a GPU.

PyTorch knows which operators CUDA's autocast touches; what it does not offer is to apply
that to meta tensors. So the same operators get a kernel under a dispatch key that nothing
else uses, and the key is switched on for every tensor while the model's forward runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ridgeline.count.checkpoints import done_again_in

_C: Any = torch._C
_KEY_NAME = "AutocastHPU"

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
        self._cache: dict[int, torch.Tensor] | None = None  # while it is on

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Blocks can be run; what a checkpoint of theirs does again, it does as one of them."""
        library = torch.library.Library("aten", "IMPL")
        for name in _touched_by_cuda():
            library.impl(name, self._kernel(_operator(name)), _KEY_NAME)
        others = torch.library.Library("_", "IMPL")
        others.fallback(torch.library.fallthrough_kernel, _KEY_NAME)
        try:
            with done_again_in(lambda: self.on if self._cache is not None else nullcontext):
                yield
        finally:
            library._destroy()
            others._destroy()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Such a block, or one inside of another, which is nothing new."""
        if self._cache is not None:
            yield
            return
        self._cache = {}
        _switch(self._key, on=True)
        try:
            yield
        finally:
            _switch(self._key, on=False)
            self._cache = None

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
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if value.dtype in (dtype, torch.float64):
            return value
        is_weight = value.requires_grad and value.is_leaf and value.dtype == torch.float32
        if not is_weight or self._cache is None:
            return value.to(dtype)
        if id(value) not in self._cache:
            self._cache[id(value)] = value.to(dtype)
        return self._cache[id(value)]


def _touched_by_cuda() -> list[str]:
    names = _C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    return [name for name in names if name.startswith("aten::")]


def _switch(key: Any, *, on: bool) -> None:
    _C._dispatch_tls_set_dispatch_key_excluded(key, not on)
    _C._dispatch_tls_set_dispatch_key_included(key, on)


def _operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _target(name: str, low: torch.dtype, args: tuple[Any, ...]) -> torch.dtype:
    if name in LOWERED:
        return low
    if name in PROMOTED:
        wide = any(isinstance(a, torch.Tensor) and a.dtype == torch.float32 for a in args)
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

    torch.autocast.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = original  # type: ignore[method-assign]

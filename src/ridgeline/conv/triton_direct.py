"""A direct convolution for a GPU: multiply-adds one after the other, in fp32, no tensor cores.

cuDNN's legacy interface has a name for it and does it for no shape. A program computes a block of
output channels at a block of positions: for every channel and tap one outer product of weights and
inputs. Imported only where Triton is installed.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from ridgeline.conv.algorithms import default_gradients, in_layout
from ridgeline.records import ConvShape

CHANNELS, POSITIONS = 16, 128  # of a block


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _direct_kernel(  # type: ignore[no-untyped-def]
    x, w, y, channels, height, width, filters, rows, columns, groups,
    stride_h, stride_w, pad_h, pad_w, gap_h, gap_w,
    x_n, x_c, x_h, x_w, w_k, w_c, w_r, w_s, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr,  # noqa: N803
    CHANNELS: tl.constexpr, POSITIONS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    place = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    k = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    sample, group = tl.program_id(2) // groups, tl.program_id(2) % groups
    p, q = place // columns, place % columns
    is_place, is_filter = place < rows * columns, k < filters
    sums = tl.zeros((CHANNELS, POSITIONS), dtype=tl.float32)
    for c in range(channels):
        for r in tl.static_range(R):
            for s in tl.static_range(S):
                row, column = p * stride_h - pad_h + r * gap_h, q * stride_w - pad_w + s * gap_w
                is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
                from_x = sample * x_n + (group * channels + c) * x_c + row * x_h + column * x_w
                value = tl.load(x + from_x, mask=is_place & is_inside, other=0.0)
                from_w = (group * filters + k) * w_k + c * w_c + r * w_r + s * w_s
                factor = tl.load(w + from_w, mask=is_filter, other=0.0)
                sums += factor.to(tl.float32)[:, None] * value.to(tl.float32)[None, :]
    to_y = sample * y_n + (group * filters + k)[:, None] * y_k + (p * y_p + q * y_q)[None, :]
    tl.store(y + to_y, sums.to(y.dtype.element_ty), mask=is_filter[:, None] & is_place[None, :])


def launch(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """Run the kernel; the output has the layout of the input."""
    n, _, p, q = shape.output_shape
    filters = shape.k // shape.groups
    y = in_layout(x.new_empty(shape.output_shape), is_nhwc=x.stride(1) == 1 and shape.c > 1)
    grid = (triton.cdiv(p * q, POSITIONS), triton.cdiv(filters, CHANNELS), n * shape.groups)
    _direct_kernel[grid](
        x, w, y, shape.c // shape.groups, shape.h, shape.w, filters, p, q, shape.groups,
        *shape.stride, *shape.padding, *shape.dilation, *x.stride(), *w.stride(), *y.stride(),
        R=shape.r, S=shape.s, CHANNELS=CHANNELS, POSITIONS=POSITIONS,
    )  # fmt: skip
    return y


class _Direct(torch.autograd.Function):
    """The forward pass by the kernel; the gradients are PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.shape = shape
        return launch(x, w, shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        return (*default_gradients(ctx.shape, x, w, gradient, needed), None)


def direct(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """A convolution by the kernel."""
    result: Tensor = _Direct.apply(x, w, shape)
    return result

"""Convolution algorithms: what each is, what it cannot do, and our own for a CPU.

Each of ours computes in its own way, so no two names can run the same code:

    direct        one multiply-add after the other over channels and taps; no matrix product
    gemm          im2col, then one matrix product for each sample and group
    winograd      F(2x2,3x3): tiles of 4x4 give 2x2 outputs with 16 products instead of 36
    winograd 4x4  F(4x4,3x3): tiles of 6x6 give 4x4 outputs with 36 products instead of 144
    fft           a product in the frequency domain

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, https://arxiv.org/abs/1509.09308
has the transforms of Winograd's. A convolution here is what networks call so: a correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from math import ceil, log2, prod
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ridgeline.errors import RidgelineError
from ridgeline.records import ConvShape

Count = Callable[[ConvShape], int]
Forward = Callable[[Tensor, Tensor, ConvShape], Tensor]  # of input and weight, without a bias

FORWARD, INPUT_GRAD, WEIGHT_GRAD = "forward", "input-grad", "weight-grad"
DEFAULT, BENCHMARK, FIND, GUESS = "default", "benchmark", "find", "guess"
CHOOSERS = (FIND, GUESS)  # they run one of the other algorithms
PHASES = {"infer": (FORWARD,), "train": (FORWARD, INPUT_GRAD, WEIGHT_GRAD)}  # of a mode
HALVES = (torch.float16, torch.bfloat16)
COMPLEX_BYTES = 2  # numbers of a complex one


class UnsupportedError(Exception):
    """An algorithm cannot do a convolution, for this reason."""


def never(shape: ConvShape, dtype: torch.dtype) -> str:
    """The refusal of an algorithm that takes every shape."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to compute a convolution."""

    name: str
    forward: Forward
    refusal: Callable[[ConvShape, torch.dtype], str] = never  # why it cannot; "" if it can
    workspace: Callable[[ConvShape, torch.dtype], int] | None = None  # bytes beside the operands
    flops: Callable[[ConvShape], int] | None = None  # that it executes, by its formula
    describe: Callable[[ConvShape, torch.dtype], str] = field(default=lambda shape, dtype: "")
    phases: tuple[str, ...] = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)  # that are its own

    def refuse(self, shape: ConvShape, dtype: torch.dtype, phase: str = FORWARD) -> str:
        """Why it cannot do a pass of a convolution; empty if it can."""
        if phase not in self.phases:
            return f"it is an algorithm of the forward pass; {phase} is PyTorch's own"
        return self.refusal(shape, dtype)


def check_shape(shape: ConvShape) -> None:
    """Refuse what is no convolution."""
    if shape.c % shape.groups or shape.k % shape.groups:
        raise RidgelineError(
            f"{shape.groups} groups do not divide {shape.c} and {shape.k} channels",
            hint="both numbers of channels are multiples of the groups",
        )
    if min(shape.output_shape) < 1:
        raise RidgelineError(
            f"the window of {shape} is larger than its padded input",
            hint="choose a larger input, more padding or a smaller kernel",
        )


def pad_input(x: Tensor, shape: ConvShape, *, below: int = 0, right: int = 0) -> Tensor:
    """The input with its zeros around it, and more of them below and on the right."""
    top, left = shape.padding
    return F.pad(x, (left, left + right, top, top + below))


# ---------------------------------------------------------------- direct


class _Direct(torch.autograd.Function):
    """Shifted multiply-adds; both gradients are such sums, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.shape = shape
        groups, n = shape.groups, shape.n
        padded = pad_input(_widen(x), shape).unflatten(1, (groups, -1))
        weight = _widen(w).unflatten(0, (groups, -1))
        out: Tensor = padded.new_zeros(n, groups, shape.k // groups, *shape.output_shape[2:])
        for c in range(weight.shape[2]):
            for tap, window in _windows(shape):
                factor = weight[:, :, c, *tap]
                out.addcmul_(padded[:, :, c : c + 1, *window], factor[None, :, :, None, None])
        return out.flatten(1, 2).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        shape: ConvShape = ctx.shape
        grad = _widen(gradient).unflatten(1, (shape.groups, -1))
        of_x = _direct_input_grad(grad, _widen(w), shape) if ctx.needs_input_grad[0] else None
        of_w = _direct_weight_grad(grad, _widen(x), shape) if ctx.needs_input_grad[1] else None
        return (
            None if of_x is None else of_x.to(x.dtype),
            None if of_w is None else of_w.to(w.dtype),
            None,
        )


def _widen(tensor: Tensor) -> Tensor:
    """Sums of halves are gathered in fp32."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def _windows(shape: ConvShape) -> Iterator[tuple[tuple[int, int], tuple[slice, slice]]]:
    """Each tap of the kernel, with the part of the padded input that it meets."""
    sizes = shape.output_shape[2:]
    for tap in product(range(shape.r), range(shape.s)):
        starts = [gap * at for gap, at in zip(shape.dilation, tap, strict=True)]
        rows, columns = (
            slice(start, start + step * (size - 1) + 1, step)
            for start, step, size in zip(starts, shape.stride, sizes, strict=True)
        )
        yield tap, (rows, columns)


def _direct_input_grad(grad: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    (top, left), weight = shape.padding, w.unflatten(0, (shape.groups, -1))
    channels = shape.c // shape.groups
    padded = grad.new_zeros(shape.n, shape.groups, channels, shape.h + 2 * top, shape.w + 2 * left)
    for k in range(weight.shape[1]):
        for tap, window in _windows(shape):
            factor = weight[:, k, :, *tap][None, :, :, None, None]
            padded[:, :, :, *window].addcmul_(grad[:, :, k : k + 1], factor)
    return padded.flatten(1, 2)[:, :, top : top + shape.h, left : left + shape.w]


def _direct_weight_grad(grad: Tensor, x: Tensor, shape: ConvShape) -> Tensor:
    padded = pad_input(x, shape).unflatten(1, (shape.groups, -1))
    result = grad.new_empty(shape.groups, shape.k // shape.groups, *shape.weight_shape[1:])
    for c in range(result.shape[2]):
        for tap, window in _windows(shape):
            products = grad * padded[:, :, c : c + 1, *window]
            result[:, :, c, *tap] = products.sum((0, 3, 4))
    return result.flatten(0, 1)


def direct(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """One multiply-add after the other."""
    result: Tensor = _Direct.apply(x, w, shape)
    return result


# ---------------------------------------------------------------- gemm


def gemm(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """im2col: each column holds the window of one output; then a matrix product."""
    columns = F.unfold(
        x, (shape.r, shape.s), dilation=shape.dilation, padding=shape.padding, stride=shape.stride
    ).unflatten(1, (shape.groups, -1))
    matrix = w.reshape(shape.groups, shape.k // shape.groups, -1)
    result: Tensor = matrix @ columns
    return result.reshape(shape.output_shape)


def gemm_workspace(shape: ConvShape) -> int:
    """Elements of the columns."""
    n, _, p, q = shape.output_shape
    return n * shape.c * shape.r * shape.s * p * q


# ---------------------------------------------------------------- winograd

TRANSFORMS: dict[tuple[str, int], tuple[tuple[float, ...], ...]] = {  # by what, and the tile
    ("input", 2): ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ("weight", 2): ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    ("output", 2): ((1, 1, 1, 0), (0, 1, -1, -1)),
    ("input", 4): (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
    ("weight", 4): (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
    ("output", 4): (
        (1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1),
    ),
}  # fmt: skip


@cache
def _transform(kind: str, tile: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The transform of rows and columns at once: the Kronecker product of one with itself."""
    with torch.inference_mode(mode=False), torch.no_grad():
        one = torch.tensor(TRANSFORMS[kind, tile], dtype=torch.float64)
        return torch.kron(one, one).to(device, dtype)


def winograd(x: Tensor, w: Tensor, shape: ConvShape, *, tile: int) -> Tensor:
    """F(tile x tile, 3x3): transform tiles and weights, multiply, transform back."""
    side, groups = tile + 2, shape.groups
    n, k, p, q = shape.output_shape
    rows, columns = ceil(p / tile), ceil(q / tile)
    (top, left), size = shape.padding, (rows * tile + 2, columns * tile + 2)
    padded = pad_input(
        x, shape, below=size[0] - shape.h - 2 * top, right=size[1] - shape.w - 2 * left
    )
    tiles = padded.unfold(2, side, tile).unfold(3, side, tile)  # n, c, rows, columns, side, side
    flat = tiles.permute(4, 5, 1, 0, 2, 3).reshape(side * side, -1)
    transform = partial(_transform, tile=tile, dtype=x.dtype, device=x.device)
    inputs = (transform("input") @ flat).view(side * side, groups, shape.c // groups, -1)
    taps = w.permute(2, 3, 0, 1).reshape(9, -1)
    weights = (transform("weight") @ taps).view(side * side, groups, k // groups, -1)
    products = (weights @ inputs).view(side * side, -1)
    outputs = (transform("output") @ products).view(tile, tile, k, n, rows, columns)
    whole = outputs.permute(3, 2, 4, 0, 5, 1).reshape(n, k, rows * tile, columns * tile)
    return whole[:, :, :p, :q].contiguous()


def winograd_refusal(shape: ConvShape, dtype: torch.dtype) -> str:
    if (shape.r, shape.s) != (3, 3):
        return f"its transforms are of 3x3 kernels, and this one is {shape.r}x{shape.s}"
    if shape.stride != (1, 1):
        return f"its tiles overlap by stride 1, and this one is {_pair(shape.stride)}"
    if shape.dilation != (1, 1):
        return f"its tiles have no gaps, and the dilation is {_pair(shape.dilation)}"
    return ""


def _pair(sizes: tuple[int, int]) -> str:
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]}x{sizes[1]}"


def _tiles(shape: ConvShape, tile: int) -> int:
    n, _, p, q = shape.output_shape
    return n * ceil(p / tile) * ceil(q / tile)


def winograd_workspace(shape: ConvShape, *, tile: int) -> int:
    """Tiles before and after their transform, weights, products, and outputs in tiles, twice."""
    tiles, side = _tiles(shape, tile), (tile + 2) ** 2
    weights = side * prod(shape.weight_shape[:2])
    return 2 * side * shape.c * tiles + weights + (side + 2 * tile**2) * shape.k * tiles


def winograd_flops(shape: ConvShape, *, tile: int) -> int:
    """The products of tiles, and the transforms, which are dense matrix products here."""
    tiles, side, (k, channels) = _tiles(shape, tile), (tile + 2) ** 2, shape.weight_shape[:2]
    transforms = (
        side * side * shape.c * tiles + side * 9 * k * channels + tile**2 * side * k * tiles
    )
    return 2 * (side * k * channels * tiles + transforms)


# ---------------------------------------------------------------- fft


def fft(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """Multiply spectra of the padded input and of the kernel."""
    groups, (n, k, p, q) = shape.groups, shape.output_shape
    sizes = _fft_sizes(shape)
    spectrum = torch.fft.rfft2(pad_input(x, shape), s=sizes).unflatten(1, (groups, -1))
    kernel = torch.fft.rfft2(_dilate(w, shape), s=sizes).conj().unflatten(0, (groups, -1))
    products: Tensor = spectrum.permute(3, 4, 1, 0, 2) @ kernel.permute(3, 4, 0, 2, 1)
    whole = products.permute(3, 2, 4, 0, 1).reshape(n, k, *products.shape[:2])
    result: Tensor = torch.fft.irfft2(whole, s=sizes)
    return result[:, :, :p, :q].contiguous()


def _dilate(w: Tensor, shape: ConvShape) -> Tensor:
    """The kernel with the zeros of its dilation between the taps."""
    if shape.dilation == (1, 1):
        return w
    down, right = shape.dilation
    wide = w.new_zeros(*w.shape[:2], down * (shape.r - 1) + 1, right * (shape.s - 1) + 1)
    wide[:, :, ::down, ::right] = w
    return wide


def _fft_sizes(shape: ConvShape) -> tuple[int, int]:
    """Of the padded input, and up to a size with small factors: others take many times longer."""
    top, left = shape.padding
    return _next_smooth(shape.h + 2 * top), _next_smooth(shape.w + 2 * left)


def _next_smooth(size: int) -> int:
    """The next even number without a prime factor above 5."""
    while True:
        rest = size
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1 and size % 2 == 0:
            return size
        size += 1


def fft_refusal(shape: ConvShape, dtype: torch.dtype) -> str:
    if shape.stride != (1, 1):
        return f"it computes every position, and the stride is {_pair(shape.stride)}"
    if dtype in HALVES:
        return f"there is no transform of {str(dtype).removeprefix('torch.')}"
    return ""


def fft_workspace(shape: ConvShape) -> int:
    """Spectra of input, kernel and output."""
    rows, columns = _fft_sizes(shape)
    planes = sum(prod(of[:2]) for of in (shape.input_shape, shape.weight_shape, shape.output_shape))
    return COMPLEX_BYTES * planes * rows * (columns // 2 + 1)


def fft_flops(shape: ConvShape) -> int:
    """2.5 n log2(n) for each real transform of n numbers, 8 for each complex multiply-add."""
    rows, columns = _fft_sizes(shape)
    area, frequencies = rows * columns, rows * (columns // 2 + 1)
    planes = sum(prod(of[:2]) for of in (shape.input_shape, shape.weight_shape, shape.output_shape))
    multiply_adds = shape.n * prod(shape.weight_shape[:2]) * frequencies
    return int(2.5 * area * log2(area) * planes) + 8 * multiply_adds


# ---------------------------------------------------------------- PyTorch's own, and the fastest


def default(x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
    """What the library under PyTorch chooses."""
    return F.conv2d(x, w, None, shape.stride, shape.padding, shape.dilation, shape.groups)


def default_gradients(
    shape: ConvShape, x: Tensor, w: Tensor, gradient: Tensor, needed: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Both gradients as PyTorch computes them; None where one is not needed."""
    of_x, of_w, _ = torch.ops.aten.convolution_backward(
        gradient, x, w, None, shape.stride, shape.padding, shape.dilation, False, (0, 0),
        shape.groups, (*needed, False),
    )  # fmt: skip
    return of_x, of_w


def in_layout(tensor: Tensor, *, is_nhwc: bool) -> Tensor:
    """The same images, packed in memory with their channels last, or first."""
    if not is_nhwc:
        return tensor.contiguous()
    return tensor.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class Finder:
    """Tries every algorithm at the first call with a shape; from then on the fastest runs."""

    TRIES = 3

    def __init__(self, algorithms: Callable[[], Mapping[str, Algorithm]]) -> None:
        self._algorithms = algorithms
        self.chosen: dict[tuple[ConvShape, torch.dtype], Algorithm] = {}

    def forward(self, x: Tensor, w: Tensor, shape: ConvShape) -> Tensor:
        key = (shape, x.dtype)
        if key not in self.chosen:
            self.chosen[key] = self._find(x, w, shape)
        return self.chosen[key].forward(x, w, shape)

    def describe(self, shape: ConvShape, dtype: torch.dtype) -> str:
        chosen = self.chosen.get((shape, dtype))
        return chosen.name if chosen else ""

    def _find(self, x: Tensor, w: Tensor, shape: ConvShape) -> Algorithm:
        able = [one for one in self._algorithms().values() if not one.refuse(shape, x.dtype)]
        with torch.no_grad():
            return min(able, key=lambda one: self._time_s(one, x, w, shape))

    def _time_s(self, one: Algorithm, x: Tensor, w: Tensor, shape: ConvShape) -> float:
        """The shortest of a few calls; an algorithm that fails is never the fastest."""
        wait: Callable[[], object] = torch.cuda.synchronize if x.is_cuda else lambda: None
        times_s = []
        for _ in range(self.TRIES):
            start_s = perf_counter()
            try:
                one.forward(x, w, shape)
            except (RuntimeError, RidgelineError, UnsupportedError):
                return float("inf")
            wait()
            times_s.append(perf_counter() - start_s)
        return min(times_s)


def _model_flops(shape: ConvShape) -> int:
    return 2 * shape.macs


def _padded_elements(shape: ConvShape) -> int:
    (top, left), (n, c, h, w) = shape.padding, shape.input_shape
    return n * c * (h + 2 * top) * (w + 2 * left) if top or left else 0


def _bytes_of(elements: Count) -> Callable[[ConvShape, torch.dtype], int]:
    return lambda shape, dtype: elements(shape) * dtype.itemsize


def _cpu_algorithms() -> dict[str, Algorithm]:
    own = (
        Algorithm(name="direct", forward=direct,
                  workspace=_bytes_of(_padded_elements), flops=_model_flops),
        Algorithm(name="gemm", forward=gemm,
                  workspace=_bytes_of(gemm_workspace), flops=_model_flops),
        *(
            Algorithm(name=name, refusal=winograd_refusal,
                      forward=partial(winograd, tile=tile),
                      workspace=_bytes_of(partial(winograd_workspace, tile=tile)),
                      flops=partial(winograd_flops, tile=tile))
            for name, tile in (("winograd", 2), ("winograd 4x4", 4))
        ),
        Algorithm(name="fft", forward=fft, refusal=fft_refusal,
                  workspace=_bytes_of(fft_workspace), flops=fft_flops),
        Algorithm(name=DEFAULT, forward=default),
    )  # fmt: skip
    algorithms = {one.name: one for one in own}
    finder = Finder(lambda: {one.name: one for one in own})
    algorithms[FIND] = Algorithm(
        name=FIND,
        forward=finder.forward, describe=finder.describe, phases=(FORWARD,),
    )  # fmt: skip
    return algorithms


CPU_ALGORITHMS = _cpu_algorithms()

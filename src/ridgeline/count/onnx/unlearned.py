"""Stored tensors that no training changes, told by where they stand and what is in them.

A buffer and a parameter look the same in a file. These are no parameters: zeros that a product
takes as its data, and those that gates are multiplied with, element by element, as the states
before a cell's first step; tables of sines and cosines, with the frequencies they are made of;
and single numbers, as attention's scale, under a name that an exporter made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from ridgeline.count.onnx.node import NodeCall, Tensor
from ridgeline.count.onnx.row import Row

RANDOM = ("Random", "Bernoulli", "Multinomial")
LAYERS = ("Gemm", "MatMul", "FusedMatMul", "FusedGemm")
WAVES = ("Sin", "Cos")
ARITHMETIC = ("Mul", "Div", "Add", "Sub", "Max", "Min", "Where")
# val_70, onnx::Mul_12, 340, /attn/Sqrt_output_0, /Constant_1_output_0; a parameter has its path
MADE_UP = re.compile(r"val_\d+|onnx::\w+|\d+|.*_output_\d+|(.*/)?Constant(_\d+)?(:0)?")
CLOSE = 1e-3  # of sin² + cos² to 1; tables may be of 16 bits


class Constants:
    """The values of a graph that are made from stored and known ones alone."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.idents: set[int] = set()
        for row in rows:
            call = row.call
            if not call.op_type.startswith(RANDOM) and all(t in self for t in call.inputs):
                self.idents.update(t.ident for t in call.outputs)

    def __contains__(self, tensor: Tensor) -> bool:
        is_one = tensor.is_weight or tensor.is_fixed or tensor.ident in self.idents
        return is_one and tensor.slot is None


def first_states(rows: Sequence[Row], constants: Constants) -> set[int]:
    """Idents of zeros that are data. Zeros of a low-rank part of a weight are none."""
    weights = _making_weights(rows, constants)
    found: set[int] = set()
    for row in rows:
        for tensor in _zeros_as_data(row.call, constants):
            if row.call.op_type not in LAYERS or row.call.out.ident not in weights:
                found.add(tensor.ident)
    return found


def _zeros_as_data(call: NodeCall, constants: Constants) -> Iterator[Tensor]:
    """On the left of a layer's weight; or beside data, as large as the result: z·h, h - n."""
    if call.op_type not in (*LAYERS, "Mul", "Sub") or len(call.inputs) < 2 or not call.outputs:
        return
    left, right = call.inputs[:2]
    if call.op_type in LAYERS:
        if _is_zero(left) and right in constants:
            yield left
        return
    for one, other in ((left, right), (right, left))[: 1 + (call.op_type == "Mul")]:
        if _is_zero(one) and one.dims == call.out.dims and other not in constants:
            yield one


def _is_zero(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and tensor.is_float and tensor.is_zero


def _making_weights(rows: Sequence[Row], constants: Constants) -> set[int]:
    """Idents of constants that end as a factor of data, as W, A and B of x·(W + A·B)."""
    found: set[int] = set()
    for row in reversed(rows):
        call = row.call
        stays = [t for t in call.inputs if t in constants]
        if len(stays) < len(call.inputs):
            makes_one = row.kind in ("matmul", "conv", "gather")
        else:
            makes_one = any(t.ident in found for t in call.outputs)
        if makes_one:
            found.update(t.ident for t in stays)
    return found


def is_wave(call: NodeCall, tensor: Tensor, constants: Constants) -> bool:
    """Whether a constant is the angle of a sine or cosine."""
    return call.op_type in WAVES and not call.domain and tensor in constants


def is_of_code(call: NodeCall, tensor: Tensor) -> bool:
    """Whether a single number stands in the model's code, as a scale does."""
    if call.op_type not in ARITHMETIC or tensor.numel != 1:
        return False
    return MADE_UP.fullmatch(tensor.name) is not None


def is_matrix(tensor: Tensor) -> bool:
    """Frequencies are a vector, whatever its dimensions; the weights of a layer are not."""
    return sum(size > 1 for size in tensor.shape) > 1


def is_table_of_waves(tensor: Tensor) -> bool:
    """Whether sin² + cos² is 1 all over, the two side by side or in two halves."""
    value = tensor.value
    if value is None or not tensor.is_float or value.dtype == object or value.ndim < 2:
        return False
    size = value.shape[-1]
    if size < 4 or size % 2 or not value.size:
        return False
    with np.errstate(all="ignore"):
        squares = np.square(value.astype(np.float64))
    halves = squares[..., : size // 2] + squares[..., size // 2 :]
    beside = squares[..., ::2] + squares[..., 1::2]
    return any(bool((np.abs(sums - 1) < CLOSE).all()) for sums in (halves, beside))

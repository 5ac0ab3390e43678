"""Stored tensors that no training changes, told by where they stand and what is in them.

A buffer and a parameter look the same in a file. These are no parameters: zeros that a product
takes as its data, and those that gates are multiplied with, element by element, as the states
before a cell's first step; tables of sines and cosines, with the frequencies they are made of;
and, under a name that an exporter made up, single numbers, as attention's scale, and the ones and
zeros of a norm that has no scale and shift.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ridgeline.onnx.node import Constants, NodeCall, Tensor
from ridgeline.onnx.row import Row

LAYERS = ("Gemm", "MatMul", "FusedMatMul", "FusedGemm")
WAVES = ("Sin", "Cos")
ARITHMETIC = ("Mul", "Div", "Add", "Sub", "Max", "Min", "Where")
# val_70, onnx::Mul_12, 340, /attn/Sqrt_output_0, /Constant_1_output_0; a parameter has its path
MADE_UP = re.compile(r"val_\d+|onnx::\w+|\d+|.*_output_\d+|(.*/)?Constant(_\d+)?(:0)?")
NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization",
         "GroupNormalization", "RMSNormalization", "SimplifiedLayerNormalization")  # fmt: skip
SCALE, SHIFT = 1, 2  # operands of a norm
CLOSE = 1e-3  # of sin² + cos² to 1; tables may be of 16 bits

MOST_ALIKE = 16  # tables of the same mean
_Squares = np.ndarray[Any, np.dtype[np.float64]]


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


def is_of_plain_norm(call: NodeCall, place: int, tensor: Tensor) -> bool:
    """Whether it stands for the scale or shift of a norm that has none: ones, zeros."""
    if place not in (SCALE, SHIFT) or call.op_type not in NORMS:
        return False
    value = tensor.value
    if value is None or value.dtype == object or MADE_UP.fullmatch(tensor.name) is None:
        return False
    return bool((value == (1 if place == SCALE else 0)).all())


def is_matrix(tensor: Tensor) -> bool:
    """Frequencies are a vector, whatever its dimensions; the weights of a layer are not."""
    return sum(size > 1 for size in tensor.shape) > 1


def is_table_of_waves(tensor: Tensor) -> bool:
    """Whether sin² + cos² is 1 all over, the two side by side or in two halves."""
    squares = _squares(tensor)
    if squares is None:
        return False
    size = squares.shape[-1]
    if size < 4 or size % 2:
        return False
    halves = squares[..., : size // 2] + squares[..., size // 2 :]
    beside = squares[..., ::2] + squares[..., 1::2]
    return any(bool((np.abs(sums - 1) < CLOSE).all()) for sums in (halves, beside))


def waves_in_pairs(rows: Sequence[Row]) -> set[int]:
    """Idents of tables that data are multiplied with, of which one is the other's sine.

    One is found by the mean of the other, so not all need be compared with all.
    """
    alike: dict[tuple[int, ...], dict[int, _Squares]] = {}
    for row in rows:
        for tensor in row.call.inputs if row.call.op_type == "Mul" else ():
            if not tensor.is_weight or not is_matrix(tensor):
                continue
            if (squares := _squares(tensor)) is not None:
                alike.setdefault(squares.shape, {})[tensor.ident] = squares
    found: set[int] = set()
    for tables in alike.values():
        means = {ident: float(squares.mean()) for ident, squares in tables.items()}
        ordered = sorted(tables, key=lambda ident: means[ident])
        keys = [means[ident] for ident in ordered]
        for one, squares in tables.items():
            start = bisect_left(keys, 1 - means[one] - CLOSE)
            for other in ordered[start : start + MOST_ALIKE]:
                if means[other] > 1 - means[one] + CLOSE:
                    break
                if other != one and _are_waves(squares, tables[other]):
                    found.update((one, other))
    return found


def _are_waves(one: _Squares, other: _Squares) -> bool:
    """Whether they are 1 together all over; ones and zeros are too, so there must be others."""
    is_between = ((one > CLOSE) & (one < 1 - CLOSE)).any()
    return bool(is_between) and bool((np.abs(one + other - 1) < CLOSE).all())


def _squares(tensor: Tensor) -> _Squares | None:
    """Of the elements of a table whose numbers are known."""
    value = tensor.value
    if value is None or not tensor.is_float or value.dtype == object or value.ndim < 2:
        return None
    if not value.size:
        return None
    with np.errstate(all="ignore"):
        squares: _Squares = np.square(value.astype(np.float64))
    return squares

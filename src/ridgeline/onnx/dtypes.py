"""ONNX's element types: their short names, their bits, and which are floating-point."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    name: str  # as in all of ridgeline's tables: fp32, bf16, int4
    bits: int
    is_float: bool = False
    is_integer: bool = False


_BY_NUMBER = {  # TensorProto.DataType
    1: Dtype("fp32", 32, is_float=True),
    2: Dtype("uint8", 8, is_integer=True),
    3: Dtype("int8", 8, is_integer=True),
    4: Dtype("uint16", 16, is_integer=True),
    5: Dtype("int16", 16, is_integer=True),
    6: Dtype("int32", 32, is_integer=True),
    7: Dtype("int64", 64, is_integer=True),
    8: Dtype("string", 64),  # a reference; the text's own length is not known
    9: Dtype("bool", 8),
    10: Dtype("fp16", 16, is_float=True),
    11: Dtype("fp64", 64, is_float=True),
    12: Dtype("uint32", 32, is_integer=True),
    13: Dtype("uint64", 64, is_integer=True),
    14: Dtype("complex64", 64, is_float=True),
    15: Dtype("complex128", 128, is_float=True),
    16: Dtype("bf16", 16, is_float=True),
    17: Dtype("fp8_e4m3fn", 8, is_float=True),
    18: Dtype("fp8_e4m3fnuz", 8, is_float=True),
    19: Dtype("fp8_e5m2", 8, is_float=True),
    20: Dtype("fp8_e5m2fnuz", 8, is_float=True),
    21: Dtype("uint4", 4, is_integer=True),
    22: Dtype("int4", 4, is_integer=True),
    23: Dtype("fp4_e2m1", 4, is_float=True),
    24: Dtype("fp8_e8m0", 8, is_float=True),
    25: Dtype("uint2", 2, is_integer=True),
    26: Dtype("int2", 2, is_integer=True),
    27: Dtype("fp6_e2m3", 6, is_float=True),
    28: Dtype("fp6_e3m2", 6, is_float=True),
}
# the numbers that rules name
FP32, INT32, INT64, STRING, BOOL = 1, 6, 7, 8, 9
UNKNOWN = Dtype("unknown", 0)


def dtype_of(number: int) -> Dtype:
    return _BY_NUMBER.get(number, UNKNOWN)

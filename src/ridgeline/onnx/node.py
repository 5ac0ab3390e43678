"""A value of the graph, and one call of an operator as formulas see it: no weights are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

from ridgeline.costs.work import Call, MalformedError, Moved, Shape

if TYPE_CHECKING:
    import numpy as np


# ---------------------------------------------------------------- element types


@dataclass(frozen=True, slots=True)
class Dtype:
    name: str  # as in all of ridgeline's tables: fp32, bf16, int4
    bits: int
    is_float: bool = False
    is_integer: bool = False


UNKNOWN = Dtype("unknown", 0)
FP32, INT32, INT64, BOOL = 1, 6, 7, 9  # the numbers that rules name
_BITS = {  # in the order of TensorProto.DataType; of a string its reference
    "unknown": 0, "fp32": 32, "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "int32": 32,
    "int64": 64, "string": 64, "bool": 8, "fp16": 16, "fp64": 64, "uint32": 32, "uint64": 64,
    "complex64": 64, "complex128": 128, "bf16": 16, "fp8_e4m3fn": 8, "fp8_e4m3fnuz": 8,
    "fp8_e5m2": 8, "fp8_e5m2fnuz": 8, "uint4": 4, "int4": 4, "fp4_e2m1": 4, "fp8_e8m0": 8,
    "uint2": 2, "int2": 2, "fp6_e2m3": 6, "fp6_e3m2": 6,
}  # fmt: skip
_DTYPES = [
    Dtype(name, bits, name.startswith(("fp", "bf", "complex")), name.startswith(("int", "uint")))
    for name, bits in _BITS.items()
]


def dtype_of(number: int) -> Dtype:
    return _DTYPES[number] if 0 < number < len(_DTYPES) else UNKNOWN


# ---------------------------------------------------------------- values and calls


_IDENTS = count()
PHASES = ("input-grad", "weight-grad")
RANDOM = ("Random", "Bernoulli", "Multinomial")


def new_ident() -> int:
    """One that no value has yet."""
    return next(_IDENTS)


@dataclass(slots=True)
class Tensor:
    """A value of the graph: its type, and its elements where they are few and known."""

    name: str
    dims: Shape | None  # None: not known
    elem: int  # TensorProto.DataType
    dtype: Dtype
    value: np.ndarray[Any, Any] | None = None
    items: tuple[Tensor, ...] | None = None  # of a sequence
    is_weight: bool = False  # stored in the file
    ident: int = field(default_factory=new_ident)  # the same value under other names

    @property
    def shape(self) -> Shape:
        return self.dims or ()

    @property
    def is_known(self) -> bool:
        if self.items is not None:
            return all(item.is_known for item in self.items)
        return self.dims is not None and self.dtype is not UNKNOWN

    @property
    def numel(self) -> int:
        if self.items is not None:
            return sum(item.numel for item in self.items)
        return prod(self.dims) if self.dims is not None else 0

    @property
    def nbytes(self) -> int:
        """Packed as ONNX packs them: two int4 in a byte."""
        if self.items is not None:
            return sum(item.nbytes for item in self.items)
        return (self.numel * self.dtype.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.dtype.is_float

    @property
    def moved(self) -> Moved:
        return Moved(self.ident, self.nbytes, is_weight=self.is_weight)

    @property
    def moved_gradient(self) -> Moved:
        return Moved(("gradient", self.ident), self.nbytes, is_weight=self.is_weight)

    @property
    def is_zero(self) -> bool:
        return self.value is not None and self.value.dtype != object and not self.value.any()

    @property
    def first_value(self) -> float | None:
        """The number that the only element is, if it is known."""
        if self.value is None or self.value.size != 1 or self.value.dtype == object:
            return None
        return self.value.item()  # type: ignore[no-any-return]  # numpy's item is Any

    def bytes_of(self, elements: int) -> int:
        """So many elements of this type."""
        return (elements * self.dtype.bits + 7) // 8


def plain_domain(name: str) -> str:
    """The standard domain has two names; the shorter one is used here."""
    return "" if name == "ai.onnx" else name


def unknown_tensor(name: str) -> Tensor:
    return Tensor(name, None, 0, UNKNOWN)


@dataclass
class NodeCall(Call):
    """The input of every formula; one call of one operator."""

    name: str
    op_type: str
    domain: str  # "" is ai.onnx
    version: int  # of the domain's operator set
    attributes: Mapping[str, Any]
    operands: tuple[Tensor | None, ...]
    results: tuple[Tensor | None, ...]
    causal: str = "full"
    refused: str = ""  # why onnx's own inference does not take the node

    @property
    def op(self) -> str:
        return f"{self.domain or 'onnx'}::{self.op_type}"

    def attr(self, name: str, default: Any = None) -> Any:
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def int_attr(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise MalformedError(f"{name} is not a whole number")
        return value

    def int_list(self, name: str) -> list[int]:
        """An attribute that is a list of whole numbers; empty where it is left out."""
        values = self.attributes.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, int) for v in values):
            raise MalformedError(f"{name} is not a list of whole numbers")
        return values

    def get(self, index: int) -> Tensor | None:
        """An operand by its number, None where it is left out."""
        return self.operands[index] if index < len(self.operands) else None

    def has(self, index: int) -> bool:
        return self.get(index) is not None

    def operand(self, index: int) -> Tensor:
        """An operand that the operator cannot do without."""
        tensor = self.get(index)
        if tensor is None:
            raise MalformedError(f"operand {index} is missing")
        return tensor

    def __post_init__(self) -> None:
        self.inputs: tuple[Tensor, ...] = tuple(t for t in self.operands if t is not None)
        self.outputs: tuple[Tensor, ...] = ()
        self.set_results(self.results)

    def set_results(self, results: Sequence[Tensor | None]) -> None:
        self.results = tuple(results)
        self.outputs = tuple(t for t in results if t is not None)

    @property
    def x(self) -> Tensor:
        return self.operand(0)

    @property
    def out(self) -> Tensor:
        if not self.outputs:
            raise MalformedError("there is no result")
        return self.outputs[0]

    def moves(self, phases: Collection[str]) -> tuple[list[Moved], list[Moved]]:
        """The tensors that are read and written; backward reads and writes gradients, too."""
        if "forward" in phases:
            return [t.moved for t in self.inputs], [t.moved for t in self.outputs]
        sides = [is_weight for is_weight, phase in enumerate(PHASES) if phase in phases]
        written = [t.moved_gradient for t in self.inputs if t.is_float and t.is_weight in sides]
        gradients = [t.moved_gradient for t in self.outputs if t.is_float]
        return [*(t.moved for t in self.inputs), *gradients], written

    @property
    def dtype_name(self) -> str:
        """The precision of the work: that of the widest floating-point operand, else the result."""
        floats = [t.dtype for t in (*self.inputs, *self.outputs) if t.is_float]
        if floats:
            return max(floats, key=lambda dtype: dtype.bits).name
        tensors = (*self.outputs, *self.inputs)
        return tensors[0].dtype.name if tensors else ""


class Constants:
    """The values of a graph that are made from stored and known ones alone."""

    def __init__(self, calls: Iterable[NodeCall]) -> None:
        self.idents: set[int] = set()
        for call in calls:
            if not call.op_type.startswith(RANDOM) and all(t in self for t in call.inputs):
                self.idents.update(t.ident for t in call.outputs)

    def __contains__(self, tensor: object) -> bool:
        if not isinstance(tensor, Tensor):
            return False
        return tensor.is_weight or tensor.value is not None or tensor.ident in self.idents

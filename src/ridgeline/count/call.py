"""One operator call as the model made it, without tensors or cost; and the registry of formulas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch

from ridgeline.costs.work import Call, Entry, Moved, Phased, Registry, Work

DTYPE_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}


class TensorMeta(NamedTuple):
    """What is known of a tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    distinct: int  # elements that really exist: an expanded dimension counts once
    storage: int  # the number of its storage, which no other one of the trace has; 0: it has none
    ident: int  # same number in one call, same tensor: x * x reads x once
    view: tuple[int, ...] = ()  # where in its storage it begins, and its strides

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.distinct * self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    def bytes_of(self, elements: int) -> int:
        """So many elements of this type."""
        return elements * self.dtype.itemsize

    @property
    def moved(self) -> Moved:
        key = self.storage or ("tensor", self.ident)
        return Moved(key, self.nbytes, (self.shape, self.view))


def dtype_name(dtype: torch.dtype) -> str:
    """The short name used in tables: fp32, bf16, int64."""
    return DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


class OpCall(Call):
    """The input of every formula."""

    def __init__(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: tuple[TensorMeta, ...],
    ) -> None:
        self.operator = operator
        self.name = operator.name
        self.args = args
        self.kwargs = kwargs
        self.inputs: tuple[TensorMeta, ...] = tuple(_tensors((*args, *kwargs.values())))
        self.outputs: tuple[TensorMeta, ...] = outputs
        self.causal = "full"  # or "half": how causal attention is counted

    def get(self, argument: str, default: Any = None) -> Any:
        """The value of a schema argument by name, or its schema default."""
        if argument in self.kwargs:
            return self.kwargs[argument]
        if argument in self.operator.arguments:
            position = self.operator.arguments.index(argument)
            if position < len(self.args):
                return self.args[position]
        return self.operator.defaults.get(argument, default)

    @property
    def out(self) -> TensorMeta:
        return self.outputs[0]

    @property
    def written_bytes(self) -> int:
        """Each result once, and each argument that the operator writes into."""
        into = self._written_into
        return sum(t.nbytes for t in {t.ident: t for t in (*self.outputs, *into)}.values())

    @property
    def _written_into(self) -> tuple[TensorMeta, ...]:
        return tuple(_tensors([self.get(name) for name in self.operator.written]))

    def moves(self, _phases: Collection[str]) -> tuple[list[Moved], list[Moved]]:
        """The tensors that are read, those written into first, and those that are written."""
        into = {t.ident for t in self._written_into}
        inputs = sorted(self.inputs, key=lambda t: t.ident not in into)
        written = (*self.outputs, *self._written_into)
        return [t.moved for t in inputs], [t.moved for t in written]


def _tensors(values: Any) -> Iterator[TensorMeta]:
    for value in values:
        if isinstance(value, TensorMeta):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


# ---------------------------------------------------------------- the registry of formulas
# A name, the family, and a formula of costs/ on its call. To add an operator: write its formula in
# the file of its family in costs/, a row in formulas/ beside its relatives, one in tests/count/.

Formula = Callable[[OpCall], Work | Phased]


FORMULAS = Registry()
FREE: set[str] = set()  # operators that move no data


def add_rows(kind: str, rows: Mapping[str, Formula]) -> None:
    FORMULAS.add_rows(kind, rows, "aten")


def aten_names(names: str) -> frozenset[str]:
    """Names of operators of PyTorch's own library."""
    return frozenset(f"aten::{name}" for name in names.split())


class Operator:
    """What is known of an operator before it is called; one for each overload."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name: str = schema.name  # "aten::mm"; overloads share it
        self.overload: str = schema.overload_name
        self.arguments = tuple(a.name for a in schema.arguments)
        self.defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        self.written = tuple(a.name for a in schema.arguments if _is_written(a))
        is_alias = any(r.alias_info is not None and not _is_written(r) for r in schema.returns)
        self.entry = self._find_entry()
        self.is_free = (
            (is_alias and not self.written)
            or self.name in FREE
            or self.name.startswith(("profiler::", "prim::"))
        )
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.decomposes = (
            self.entry is None
            and not self.is_free
            and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        )

    def _find_entry(self) -> Entry | None:
        """The formula of this overload if there is one, else of the name.

        An in-place operator has the formula of its out-of-place form.
        """
        keys = (f"{self.name}.{self.overload}", self.name, self.name.removesuffix("_"))
        return next((FORMULAS[key] for key in keys if key in FORMULAS), None)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


@cache
def operator_of(func: Any) -> Operator:
    """The operator of an overload; forgotten when a new formula is registered."""
    return Operator(func)

"""What a formula gets and what it answers: operands, a call, and its work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, Protocol

from ridgeline.records import Cost

Shape = tuple[int, ...]
Terms = tuple[tuple[str, int], ...]
Part = tuple[int, Terms]  # a product of a formula: the number before it, and its factors
Each = tuple[int, int]  # FLOPs and transcendentals of an element


class Moved(NamedTuple):
    """A tensor that an operator reads or writes."""

    key: Hashable  # same key, same data
    nbytes: int
    part: Hashable = None  # the view of the data
    is_weight: bool = False  # the same in every iteration of a loop


class Operand(Protocol):
    """A tensor that an operator reads or writes: no values."""

    @property
    def shape(self) -> Shape: ...
    @property
    def numel(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def is_float(self) -> bool: ...
    def bytes_of(self, elements: int) -> int:
        """So many elements of its type."""
        ...


class Call:
    """One call of an operator, as PyTorch or an ONNX file makes it."""

    inputs: tuple[Any, ...]  # operands
    outputs: tuple[Any, ...]

    @property
    def is_float(self) -> bool:
        """Whether the call does floating-point work at all."""
        return any(t.is_float for t in self.inputs) or any(t.is_float for t in self.outputs)

    @property
    def read_bytes(self) -> int:
        """Each distinct operand once."""
        return sum(t.nbytes for t in {t.ident: t for t in self.inputs}.values())

    @property
    def written_bytes(self) -> int:
        return sum(t.nbytes for t in self.outputs)

    def moves(self, phases: Collection[str]) -> tuple[list[Moved], list[Moved]]:
        """The tensors that are read and those that are written in these phases."""
        raise NotImplementedError


class MalformedError(Exception):
    """An operator whose operands do not fit together; it is listed as unknown."""


def require(condition: bool, problem: str) -> None:
    """An operator that breaks a rule of its own has no count."""
    if not condition:
        raise MalformedError(problem)


def sum_parts(parts: Iterable[Part]) -> int:
    """The value of a written-out formula."""
    return sum(factor * prod(size for _, size in terms) for factor, terms in parts)


def named_part(name: str, flops: int) -> tuple[Part, ...]:
    """FLOPs that a formula has by name alone; nothing where there are none."""
    return ((1, ((name, flops),)),) if flops else ()


def formula_text(parts: Sequence[Part], *, phase: str = "") -> str:
    """`2·M·N·K + bias = 2·4·8·16 + 32 = 1056`, or `n = 64`: symbols, numbers and their sum.

    `phase` is that of the first product, where others are added to it.
    """
    if not parts:
        return ""
    symbols = [_product_text(factor, [name for name, _ in terms]) for factor, terms in parts]
    numbers = [_product_text(factor, [size for _, size in terms]) for factor, terms in parts]
    symbols[0] += f" ({phase})" if phase else ""
    sides = (" + ".join(symbols), " + ".join(numbers), str(sum_parts(parts)))
    return " = ".join(dict.fromkeys(sides))  # one term is its own product


def _product_text(factor: int, factors: Iterable[object]) -> str:
    return "·".join(map(str, factors if factor == 1 else (factor, *factors)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a formula answers. Bytes left at None are the default: each operand and result once."""

    macs: int = 0
    other_flops: int = 0
    transcendentals: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    parts: tuple[Part, ...] = ()  # the written-out formula, the largest product first
    rest: str = "other"  # the name of FLOPs that are in none of these products

    @classmethod
    def per_element(
        cls,
        n: int,
        flops: int,
        *,
        transcendentals: int = 0,
        read_bytes: int | None = None,
        written_bytes: int | None = None,
    ) -> Work:
        """So many FLOPs for each of n elements; so many transcendentals in all."""
        return cls(
            other_flops=flops * n,
            transcendentals=transcendentals,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            parts=((flops, (("n", n),)),),
        )

    def with_bytes(self, *, read: int | None = None, written: int | None = None) -> Work:
        """The same work, with these bytes instead of the default."""
        return replace(self, read_bytes=read, written_bytes=written)

    def parts_of(self, flops: int) -> tuple[Part, ...]:
        """The written-out formula: products and a named rest that add up to these FLOPs."""
        rest = flops - sum_parts(self.parts)
        is_written_out = self.parts and self.parts[0][0] and rest >= 0
        return (*self.parts, *named_part(self.rest, rest)) if is_written_out else ()

    def cost(self, call: Call) -> Cost:
        read, written = self.read_bytes, self.written_bytes
        return Cost(
            macs=self.macs,
            other_flops=self.other_flops,
            transcendentals=self.transcendentals,
            read_bytes=call.read_bytes if read is None else read,
            written_bytes=call.written_bytes if written is None else written,
        )


Phased = dict[str, Work]  # an operator that serves several phases at once

# ---------------------------------------------------------------- registries of formulas


@dataclass(frozen=True, slots=True)
class Entry:
    kind: str  # the family shown in tables: "conv", "matmul", "norm"
    function: Callable[[Any], Any]  # of a call: its Work, or one for each phase


class Registry(dict[str, Entry]):
    """Formulas by the names of operators, with their library: "aten::mm", "onnx::Conv"."""

    def add_rows(self, kind: str, rows: Mapping[str, Any], library: str) -> None:
        """Several names may be in one text."""
        for names, function in rows.items():
            for name in names.split():
                key = name if "::" in name else f"{library}::{name}"
                if key in self:
                    raise ValueError(f"two formulas for {key!r}: {self[key]} and {function}")
                self[key] = Entry(kind, function)

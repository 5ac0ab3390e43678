"""What the answer to a count is made of, whatever was counted: no torch here."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

from ridgeline.records import Cost

Shapes = tuple[tuple[int, ...], ...]
Terms = tuple[tuple[str, int], ...]
Part = tuple[int, Terms]  # a product of a formula: the number before it, and its factors


class Moved(NamedTuple):
    """A tensor that an operator reads or writes."""

    key: Hashable  # same key, same data
    nbytes: int
    part: Hashable = None  # the view of the data
    is_weight: bool = False  # the same in every iteration of a loop


class SeenTensor(Protocol):
    """An operand or a result: only its shape is shown."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class SeenCall(Protocol):
    """One call of an operator, as PyTorch or an ONNX file makes it."""

    @property
    def inputs(self) -> Sequence[SeenTensor]: ...
    @property
    def outputs(self) -> Sequence[SeenTensor]: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...
    def moves(self, phases: Collection[str]) -> tuple[list[Moved], list[Moved]]:
        """The tensors that are read and those that are written in these phases."""
        ...


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
    factor: int = 1  # the number before the terms in the written-out formula
    terms: Terms = ()  # the factors of the largest part, as in ("N", 32), ("Cout", 64)
    more: tuple[Part, ...] = ()  # products that are added to it in the written-out formula
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
            factor=flops,
            terms=(("n", n),),
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The products that are written out; none where none is."""
        return ((self.factor, self.terms), *self.more) if self.terms and self.factor else ()

    def parts_of(self, flops: int) -> tuple[Part, ...]:
        """The written-out formula: products and a named rest that add up to these FLOPs."""
        rest = flops - sum_parts(self.parts)
        return (*self.parts, *named_part(self.rest, rest)) if self.parts and rest >= 0 else ()

    def cost(self, call: SeenCall) -> Cost:
        read, written = self.read_bytes, self.written_bytes
        return Cost(
            macs=self.macs,
            other_flops=self.other_flops,
            transcendentals=self.transcendentals,
            read_bytes=call.read_bytes if read is None else read,
            written_bytes=call.written_bytes if written is None else written,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedBytes:
    """Each tensor moved once, whoever uses it; see docs/counting-conventions.md."""

    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes a step needs. Workspaces and allocator rounding are not included."""

    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int  # kept by autograd from forward to backward, and the outputs
    peak_bytes: int  # the most that is alive at once, of all the above and temporaries
    peak_at: str  # the operator during which that was


@dataclass(slots=True)
class ModuleCall:
    """What went in and out of a module the first time, and how often it ran."""

    type_name: str
    calls: int = 0
    input_shapes: Shapes = ()
    output_shapes: Shapes = ()


def shapes_text(shapes: Iterable[tuple[int, ...]]) -> str:
    """Shapes as people write them: 32x3x224x224, a scalar as ()."""
    return " ".join("x".join(map(str, shape)) or "()" for shape in shapes)

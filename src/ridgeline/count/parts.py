"""Records of a count, whatever was counted: no torch here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Shapes = tuple[tuple[int, ...], ...]


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

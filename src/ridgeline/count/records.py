"""Records of a count, of a PyTorch model or an ONNX file, and how to count. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.costs.work import Call, Part, Work, formula_text
from ridgeline.records import MODES, PRECISIONS, Cost
from ridgeline.settings import OPTIMIZERS, one_of

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
    output_bytes: int = 0  # of all its calls in the forward pass


def shapes_text(shapes: Iterable[tuple[int, ...]]) -> str:
    """Shapes as people write them: 32x3x224x224, a scalar as ()."""
    return " ".join("x".join(map(str, shape)) or "()" for shape in shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(Cost):
    """The cost of a whole step or phase, with the model's parameters beside it."""

    params: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """One operator call in one phase, and what it costs."""

    path: str
    op: str
    kind: str
    phase: str
    dtype: str
    cost: Cost
    work: Work | None  # None: no formula, bytes only
    call: Call
    is_recomputed: bool = False
    settings: str = ""  # of an ONNX node: the attributes that matter
    repeats: int = 1  # iterations of the loops around an ONNX node; all are in the cost

    @property
    def formula_parts(self) -> tuple[Part, ...]:
        """The written-out formula, whose sum is the FLOPs; none where it is not written out."""
        return self.work.parts_of(self.cost.flops) if self.work is not None else ()

    @property
    def formula(self) -> str:
        """The formula in symbols and with the numbers put in, or nothing if there is none."""
        return formula_text(self.formula_parts)


COSTS = ("macs", "other_flops", "flops", "transcendentals", "read_bytes", "written_bytes")
OP_COLUMNS = ("path", "op", "kind", "phase", "dtype", "input_shapes", "output_shapes", *COSTS,
              "formula", "has_formula", "is_recomputed", "settings")  # fmt: skip


def cost_dict(cost: Cost) -> dict[str, int]:
    return {name: getattr(cost, name) for name in COSTS}


def op_row(op: OpCost) -> dict[str, Any]:
    """A row of the table of operators."""
    return {
        **{name: getattr(op, name) for name in ("path", "op", "kind", "phase", "dtype")},
        "input_shapes": shapes_text(t.shape for t in op.call.inputs),
        "output_shapes": shapes_text(t.shape for t in op.call.outputs),
        **cost_dict(op.cost),
        "formula": op.formula,
        "has_formula": op.work is not None,
        "is_recomputed": op.is_recomputed,
        "settings": op.settings,
    }


# ---------------------------------------------------------------- how to count

CAUSAL = ("full", "half")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to count: everything but the model and its inputs."""

    mode: str = "infer"
    precision: str = "fp32"
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    causal: str = "full"

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("precision", self.precision, PRECISIONS)
        one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        one_of("causal", self.causal, CAUSAL)

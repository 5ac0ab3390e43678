"""The answer to a count: totals, phases, layers, and a row for every operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ridgeline.costs.work import Call, Part, Work, formula_text
from ridgeline.count.parts import FusedBytes, Memory, ModuleCall, shapes_text
from ridgeline.errors import RidgelineError
from ridgeline.records import PHASES, Cost

if TYPE_CHECKING:
    import pandas as pd


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


@dataclass(frozen=True, kw_only=True)
class CountResult:
    """What a model must do in one step. See `total`, `phase`, `ops`, `layers`, `memory`."""

    model: str
    batch_size: int
    mode: str
    precision: str
    optimizer: str | None
    params: int
    op_costs: tuple[OpCost, ...]
    modules: dict[str, ModuleCall]
    module_params: dict[str, tuple[int, int]]  # number and bytes that each module holds itself
    memory: Memory
    fused: FusedBytes
    traced_on: str  # "meta" or "real"
    notes: tuple[str, ...] = ()
    input_storages: frozenset[int] = frozenset()  # of what the model was given
    output_storages: frozenset[int] = frozenset()  # of what it returned
    storage_bytes: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def total(self) -> Total:
        return self._sum(self.op_costs)

    def phase(self, name: str) -> Total:
        """The cost of one phase; zero where the phase did not run."""
        if name not in PHASES:
            raise RidgelineError(
                f"there is no phase {name!r}", hint=f"choose one of {', '.join(PHASES)}"
            )
        return self._sum(op for op in self.op_costs if op.phase == name)

    @property
    def phases(self) -> dict[str, Total]:
        """The phases that ran, in order."""
        ran = {op.phase for op in self.op_costs}
        return {name: self.phase(name) for name in PHASES if name in ran}

    def _sum(self, ops: Iterable[OpCost]) -> Total:
        costs = [op.cost for op in ops]
        return Total(
            params=self.params,
            macs=sum(c.macs for c in costs),
            other_flops=sum(c.other_flops for c in costs),
            transcendentals=sum(c.transcendentals for c in costs),
            read_bytes=sum(c.read_bytes for c in costs),
            written_bytes=sum(c.written_bytes for c in costs),
        )

    @cached_property
    def unknown(self) -> dict[str, dict[str, float]]:
        """Operators without a formula: calls, bytes, and their share of all bytes."""
        found: dict[str, dict[str, float]] = {}
        for op in self.op_costs:
            if op.work is None:
                entry = found.setdefault(op.op, {"calls": 0, "bytes": 0, "share": 0.0})
                entry["calls"] += 1
                entry["bytes"] += op.cost.moved_bytes
        moved = self.total.moved_bytes
        for entry in found.values():
            entry["share"] = entry["bytes"] / moved if moved else 0.0
        return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))

    @property
    def coverage(self) -> float:
        """Share of the bytes moved by operators that have a formula; 1.0 is all of them.

        Operators that move no bytes count by their calls, so that an unknown one always shows.
        """
        share = sum(entry["share"] for entry in self.unknown.values())
        calls = sum(entry["calls"] for entry in self.unknown.values())
        return 1.0 - (share or calls / max(len(self.op_costs), 1))

    @property
    def intensity_range(self) -> tuple[float, float]:
        """FLOPs per byte moved (each operator moves its data) and fused (each tensor once)."""
        flops = self.total.flops
        moved, fused = self.total.moved_bytes, self.fused.total_bytes
        return (flops / moved if moved else 0.0, flops / fused if fused else 0.0)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """A row for every operator call and phase."""
        import pandas as pd

        return pd.DataFrame([op_row(op) for op in self.op_costs], columns=list(OP_COLUMNS))

    def layers(self, depth: int | None = None) -> pd.DataFrame:
        """A row for every module down to `depth` (None: all), in the order they first ran."""
        from ridgeline.count.layers import layer_table

        return layer_table(self, depth)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; see docs/count.md."""
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "mode": self.mode,
            "precision": self.precision,
            "optimizer": self.optimizer,
            **cost_dict(self.total),
            "params": self.params,
            "coverage": self.coverage,
            "phases": {name: cost_dict(cost) for name, cost in self.phases.items()},
            "unknown_ops": [{"op": op, **entry} for op, entry in self.unknown.items()],
            "fused_bytes": asdict(self.fused),
            "intensity_flops_per_byte": dict(
                zip(("moved", "fused"), self.intensity_range, strict=True)
            ),
            "memory": asdict(self.memory),
            "traced_on": self.traced_on,
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return (
            f"CountResult({self.model}, batch_size={self.batch_size}, {self.mode},"
            f" {self.precision}: macs={self.total.macs}, flops={self.total.flops},"
            f" params={self.params}, coverage={self.coverage:.4f})"
        )


OP_COLUMNS = (
    "path", "op", "kind", "phase", "dtype", "input_shapes", "output_shapes", "macs", "other_flops",
    "flops", "transcendentals", "read_bytes", "written_bytes", "formula", "has_formula",
    "is_recomputed", "settings",
)  # fmt: skip


def op_row(op: OpCost) -> tuple[Any, ...]:
    """The values of OP_COLUMNS for one operator call."""
    c = op.cost
    return (
        op.path, op.op, op.kind, op.phase, op.dtype,
        shapes_text(t.shape for t in op.call.inputs), shapes_text(t.shape for t in op.call.outputs),
        c.macs, c.other_flops, c.flops, c.transcendentals, c.read_bytes, c.written_bytes,
        op.formula, op.work is not None, op.is_recomputed, op.settings,
    )  # fmt: skip


def cost_dict(cost: Cost) -> dict[str, int]:
    return {
        "macs": cost.macs,
        "flops": cost.flops,
        "other_flops": cost.other_flops,
        "transcendentals": cost.transcendentals,
        "read_bytes": cost.read_bytes,
        "written_bytes": cost.written_bytes,
    }

"""The result of a count: totals, phases, layers, and a row for every operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ridgeline.costs.work import Terms, formula_text, named_part
from ridgeline.count.fused import OPTIMIZER, fused_scopes
from ridgeline.count.records import (
    COSTS,
    OP_COLUMNS,
    FusedBytes,
    Memory,
    ModuleCall,
    OpCost,
    Total,
    cost_dict,
    op_row,
    shapes_text,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import BACKWARD, PHASES, Cost
from ridgeline.tracing import MODEL

if TYPE_CHECKING:
    import pandas as pd

PRODUCT_FORMULAS = ("conv", "matmul", "attention", "recurrent")


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
    storage_changes: tuple[tuple[int, int], ...] = ()  # in time: bytes, negative where one ends

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
        sums = {f.name: sum(getattr(cost, f.name) for cost in costs) for f in fields(Cost)}
        return Total(params=self.params, **sums)

    @cached_property
    def unknown(self) -> dict[str, dict[str, float]]:
        """Operators without a formula: calls, bytes, and their share of all bytes."""
        entries: dict[str, dict[str, float]] = {}
        for op in self.op_costs:
            if op.work is None:
                entry = entries.setdefault(op.op, {"calls": 0, "bytes": 0, "share": 0.0})
                entry["calls"] += 1
                entry["bytes"] += op.cost.moved_bytes
        moved = self.total.moved_bytes
        for entry in entries.values():
            entry["share"] = entry["bytes"] / moved if moved else 0.0
        return dict(sorted(entries.items(), key=lambda item: -item[1]["bytes"]))

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

    @property
    def input_text(self) -> str:
        """The shapes of the model's inputs: 32x3x224x224."""
        return shapes_text(self.modules.get("", ModuleCall("")).input_shapes)

    @property
    def layer_output_bytes(self) -> int:
        """The outputs of all layers with parameters of their own; torchinfo shows twice as much."""
        containers = {parent for path in self.modules if path for parent in ancestors(path)[:-1]}
        return sum(
            call.output_bytes
            for path, call in self.modules.items()
            if path in self.module_params and path not in containers
        )

    def layers(self, depth: int | None = None) -> pd.DataFrame:
        """A row for every module down to `depth` (None: all), in the order they first ran."""
        import pandas as pd

        return pd.DataFrame(layer_rows(self, depth))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; see docs/count.md."""
        own = ("model", "batch_size", "mode", "precision", "optimizer")
        moved, fused = self.intensity_range
        return {
            **{name: getattr(self, name) for name in own},
            **cost_dict(self.total),
            "params": self.params,
            "coverage": self.coverage,
            "phases": {name: cost_dict(cost) for name, cost in self.phases.items()},
            "unknown_ops": [{"op": op, **entry} for op, entry in self.unknown.items()],
            "fused_bytes": asdict(self.fused),
            "intensity_flops_per_byte": {"moved": moved, "fused": fused},
            "memory": asdict(self.memory),
            "layer_output_bytes": self.layer_output_bytes,
            "traced_on": self.traced_on,
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return (
            f"CountResult({self.model}, batch_size={self.batch_size}, {self.mode},"
            f" {self.precision}: macs={self.total.macs}, flops={self.total.flops},"
            f" params={self.params}, coverage={self.coverage:.4f})"
        )


# ---------------------------------------------------------------- the table by module
# Each operator is added to its module and to all modules around it.


def ancestors(path: str) -> list[str]:
    """`a.b.c` → ["", "a", "a.b", "a.b.c"]: the whole model first."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts) + 1)]


def layer_rows(result: CountResult, depth: int | None) -> list[dict[str, Any]]:
    """One row for every module that ran, down to `depth` (0 is the whole model).

    Keys: path, type, depth, calls, input_shapes, output_shapes, params, macs, other_flops,
    flops, transcendentals, read_bytes, written_bytes, fused_bytes (each tensor once in forward
    and once in backward, without the optimizer), own_fused_bytes (the same of the operators that
    are in none of its modules), the flops of each phase, and a formula that adds up to the flops.
    """
    rows: dict[str, dict[str, Any]] = {}
    for path in result.modules:
        for ancestor in ancestors(path):
            rows.setdefault(ancestor, _empty(result, ancestor))
    for op in result.op_costs:
        for ancestor in ancestors(op.path):
            _add(rows.setdefault(ancestor, _empty(result, ancestor)), op)
    _add_params(rows, result)
    _add_fused(rows, result)
    _add_formulas(rows, result)
    return [row for row in rows.values() if depth is None or row["depth"] <= depth]


def _empty(result: CountResult, path: str) -> dict[str, Any]:
    call = result.modules.get(path, ModuleCall(""))
    return {
        "path": path or MODEL,
        "type": call.type_name,
        "depth": len(ancestors(path)) - 1,
        "calls": call.calls,
        "input_shapes": shapes_text(call.input_shapes),
        "output_shapes": shapes_text(call.output_shapes),
        "params": 0,
        **dict.fromkeys((*COSTS, "fused_bytes", "own_fused_bytes"), 0),
        **{flops_column(phase): 0 for phase in PHASES},
        "formula": "",
    }


def _add(row: dict[str, Any], op: OpCost) -> None:
    for name in COSTS:
        row[name] += getattr(op.cost, name)
    row[flops_column(op.phase)] += op.cost.flops


def flops_column(phase: str) -> str:
    return f"{phase.replace('-', '_')}_flops"


def _add_params(rows: dict[str, dict[str, Any]], result: CountResult) -> None:
    for path, (params, _) in result.module_params.items():
        for ancestor in ancestors(path):
            if ancestor in rows:
                rows[ancestor]["params"] += params


def _add_fused(rows: dict[str, dict[str, Any]], result: CountResult) -> None:
    """Of each module with all that is in it, and of its own operators alone."""

    def names_of(path: str) -> list[tuple[str, str]]:
        return [*(("fused_bytes", one) for one in ancestors(path)), ("own_fused_bytes", path)]

    lasting = result.input_storages | result.output_storages
    scopes = fused_scopes(result.op_costs, names_of, sizes=result.storage_bytes, lasting=lasting)
    for (column, path, direction), entries in scopes.items():
        if direction != OPTIMIZER:
            rows[path][column] += entries.total_bytes


def _add_formulas(rows: dict[str, dict[str, Any]], result: CountResult) -> None:
    """Formulas that add up to the FLOPs of their rows, in all calls and phases.

    A module's own heaviest forward operator is written out; the rest has names.
    """
    forward = [op for op in result.op_costs if op.phase == "forward"]
    own_flops: Counter[str] = Counter()
    calls = Counter((op.path, op.op, op.formula_parts) for op in forward)
    for op in forward:
        own_flops[op.path] += op.cost.flops
    for path, op in _heaviest(forward, result.modules).items():
        same = calls[op.path, op.op, op.formula_parts]
        rows[path]["formula"] = _row_formula(
            rows[path], op, calls=same, own_flops=own_flops[op.path]
        )


def _heaviest(forward: Iterable[OpCost], modules: Container[str]) -> dict[str, OpCost]:
    """The heaviest operator of each module that has a formula, products before the rest.

    A module of an ONNX file has no operators of its own: it has the node inside it where that is
    the only one with a formula.
    """
    best: dict[str, OpCost] = {}
    inside: dict[str, list[OpCost]] = {}
    for op in forward:
        if not op.formula_parts:
            continue
        for ancestor in ancestors(op.path)[:-1]:
            if ancestor not in modules:
                inside.setdefault(ancestor, []).append(op)
        best[op.path] = max(best.get(op.path, op), op, key=_rank)
    only = {path: ops[0] for path, ops in inside.items() if len(ops) == 1}
    return {**only, **best}


def _rank(op: OpCost) -> tuple[bool, int]:
    return op.kind in PRODUCT_FORMULAS, op.cost.flops


def _row_formula(row: dict[str, Any], op: OpCost, *, calls: int, own_flops: int) -> str:
    """One operator times its calls, then the rest of forward, then backward and the optimizer."""
    each: Terms = (("calls", calls),) if calls > 1 else ()
    written = [(factor, (*each, *terms)) for factor, terms in op.formula_parts]
    backward = sum(row[flops_column(phase)] for phase in BACKWARD)
    later = (*named_part("backward", backward), *named_part("optimizer", row["optimizer_flops"]))
    parts = (
        *written,
        *named_part("other", own_flops - calls * op.cost.flops),
        *named_part("submodules", row["forward_flops"] - own_flops),
        *later,
    )
    return formula_text(parts, phase="forward" if later else "")

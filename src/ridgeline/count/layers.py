"""The table by module: every operator's cost added to its module and all modules around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from ridgeline.costs.work import Terms, formula_text, named_part
from ridgeline.count.fused import OPTIMIZER, fused_scopes
from ridgeline.count.parts import ModuleCall, shapes_text
from ridgeline.records import BACKWARD, PHASES
from ridgeline.tracing import MODEL

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.count.result import CountResult, OpCost

PRODUCT_FORMULAS = ("conv", "matmul", "attention", "recurrent")


def ancestors(path: str) -> list[str]:
    """`a.b.c` → ["", "a", "a.b", "a.b.c"]: the whole model first."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts) + 1)]


def layer_table(result: CountResult, depth: int | None) -> pd.DataFrame:
    """`layer_rows` as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(layer_rows(result, depth))


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
        "macs": 0,
        "other_flops": 0,
        "flops": 0,
        "transcendentals": 0,
        "read_bytes": 0,
        "written_bytes": 0,
        "fused_bytes": 0,
        "own_fused_bytes": 0,
        **{flops_column(phase): 0 for phase in PHASES},
        "formula": "",
    }


def _add(row: dict[str, Any], op: OpCost) -> None:
    cost = op.cost
    row["macs"] += cost.macs
    row["other_flops"] += cost.other_flops
    row["flops"] += cost.flops
    row["transcendentals"] += cost.transcendentals
    row["read_bytes"] += cost.read_bytes
    row["written_bytes"] += cost.written_bytes
    row[flops_column(op.phase)] += cost.flops


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
    for (column, path, direction), found in scopes.items():
        if direction != OPTIMIZER:
            rows[path][column] += found.total_bytes


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

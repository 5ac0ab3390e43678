"""The table by module: every operator's cost added to its module and all modules around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.count.fused import OPTIMIZER, fused_scopes
from ridgeline.count.parts import ModuleCall, shapes_text
from ridgeline.records import PHASES

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
    are in none of its modules), the flops of each phase, and the formula of the module's own
    largest product.
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
        "path": path or "(model)",
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
        **{f"{phase.replace('-', '_')}_flops": 0 for phase in PHASES},
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
    row[f"{op.phase.replace('-', '_')}_flops"] += cost.flops


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
    """The forward formula of a module's own heaviest operator, products before the rest.

    A module of an ONNX file has no operators of its own: it has the formula of the node inside it
    where that is the only one with a formula.
    """
    best: dict[str, tuple[bool, int]] = {}
    only: dict[str, str] = {}  # of a module's nodes; nothing where there are several
    for op in result.op_costs:
        if op.phase != "forward" or not (formula := op.formula):
            continue
        for ancestor in ancestors(op.path)[:-1]:
            if ancestor not in result.modules:
                only[ancestor] = "" if ancestor in only else formula
        rank = (op.kind in PRODUCT_FORMULAS, op.cost.flops)
        if rank > best.get(op.path, (False, -1)):
            best[op.path] = rank
            rows[op.path]["formula"] = formula
    for path, formula in only.items():
        rows[path]["formula"] = rows[path]["formula"] or formula

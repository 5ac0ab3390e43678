"""Model work and executed work compared: of the step, each phase and each layer, with a cause.

Model FLOPs and bytes are counted from the graph; executed ones are those of hardware counters.
Products (convolutions, matrix products, attention) and all other FLOPs are compared apart, since
conventions differ for the others (see causes.py). What belongs to no layer is
`(optimizer)` or `(model)`: what the model does outside of its modules, the loss, sums of gradients.

A layer in one phase is the unit that is judged. The cause of a whole layer, phase or step is that
of the largest part of its difference; `where` is the layer with most of that part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from ridgeline.records import BACKWARD, RECOMPUTE
from ridgeline.roofline.causes import (
    AGREE,
    AGREES,
    BYTES_AGREE,
    UNKNOWN,
    LayerWork,
    agrees,
    find_bytes_cause,
    find_flops_cause,
    ratio,
    sum_known,
)
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.work import IN_NO_LAYER, OPTIMIZER, PRODUCTS, family

if TYPE_CHECKING:
    import pandas as pd

NO_PHASE = "(no phase)"
PHASES = ("forward", "backward", "optimizer", NO_PHASE)
COLUMNS = (
    "grain", "name", "kind", "launches", "time_s",
    "model_flops", "executed_flops", "flops_ratio", "cause", "where",
    "model_products", "executed_products", "products_ratio", "model_other", "executed_other",
    "model_bytes", "dram_bytes", "bytes_ratio", "bytes_cause", "bytes_where",
)  # fmt: skip
HALF, SINGLE = "flops_fp16_vector", "flops_fp32_vector"
GRADIENTS = "(gradients)"  # the layer of kernels that add them up
UNSCALING = "_amp_foreach_non_finite_check_and_unscale"  # in operators' and kernels' names


Key = tuple[str, str]  # layer, phase
ToKey = Callable[[str, str], Key]
Cells = dict[Key, LayerWork]


def reconcile(
    ops: pd.DataFrame,
    kernels: pd.DataFrame,
    *,
    precision: str,
    parts: int = 1,
    is_compiled: bool = False,
    copies: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """A row for the step, for each phase and for each layer, with COLUMNS.

    `ops` are the counted operators of one batch and `parts` the batches of a step; `kernels` is a
    table of kernels (columns: work.py) of one step, `copies` what the driver copied in it
    (layer, phase, moved_bytes), and `precision` that of the run. Layers come in the order of the
    model. What was not collected is not a number.
    """
    import pandas as pd

    has_layers, has_phases = (
        name in kernels and bool(kernels[name].fillna("").ne("").any())
        for name in ("layer", "phase")
    )

    def to_key(layer: str, phase: str) -> Key:
        """What the kernels never tell, phases or layers, is left out."""
        if phase == "optimizer":
            layer = OPTIMIZER
        elif not layer or layer.startswith("("):  # which a count and a profile name differently
            layer = IN_NO_LAYER
        return layer if has_layers else "", (phase or NO_PHASE) if has_phases else ""

    cells: Cells = {}
    _add_operators(cells, ops, parts, to_key)
    _add_kernels(cells, kernels, to_key)
    for row in [] if copies is None else _list_rows(copies):
        key = to_key(_text(row.get("layer")), _text(row.get("phase")))
        if key in cells:
            cells[key].copied_bytes += _known(row["moved_bytes"]) or 0.0
    for cell in cells.values():
        forward = cells.get((cell.layer, "forward"))
        again = forward.kernels & cell.kernels if forward and cell.phase == "backward" else set()
        cell.is_forward_again = any(family(name) in PRODUCTS for name in again)
        cell.precision, cell.is_compiled = precision, is_compiled
        cell.cause, cell.bytes_cause = find_flops_cause(cell), find_bytes_cause(cell)
    by_phase = _group_cells(cells, lambda cell: cell.phase)
    by_layer = _group_cells(cells, lambda cell: cell.layer)
    rows = [_make_row("step", "step", list(cells.values()))] if cells else []
    rows += [_make_row("phase", name, by_phase[name]) for name in PHASES if name in by_phase]
    if len(by_layer) > 1 or "" not in by_layer:
        rows += [_make_row("layer", name, mine) for name, mine in by_layer.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _find_cell(cells: Cells, key: Key) -> LayerWork:
    return cells.setdefault(key, LayerWork(layer=key[0], phase=key[1]))


def _add_operators(cells: Cells, ops: pd.DataFrame, parts: int, to_key: ToKey) -> None:
    """The counted work of each layer and phase; of several batches the optimizer runs once."""
    for op in ops.to_dict("records"):
        phase = _text(op["phase"])
        runs_in = "backward" if phase in BACKWARD else phase
        cell = _find_cell(cells, to_key(_text(op["path"]), runs_in))
        times = 1 if phase == "optimizer" else parts
        products, other = 2.0 * (_known(op["macs"]) or 0.0), _known(op["other_flops"]) or 0.0
        moved = sum(_known(op[name]) or 0.0 for name in ("read_bytes", "written_bytes"))
        cell.is_counted_again |= phase == RECOMPUTE and products > 0
        cell.model_products += products * times
        cell.model_other += other * times
        cell.model_bytes += moved * times
        cell.operators += times if moved else 0
        if products + other + moved >= cell.largest:
            cell.largest, cell.kind = products + other + moved, _text(op["kind"])


def _add_kernels(cells: Cells, kernels: pd.DataFrame, to_key: ToKey) -> None:
    """What the kernels of each layer and phase did; rows already stand for all their launches."""
    columns = [name for name in flops_columns(kernels) if kernels[name].notna().any()]
    numbers = [*columns, *(n for n in ("launches", "time_s", "dram_bytes") if n in kernels)]
    plain = kernels.assign(**{n: kernels[n].to_numpy(float, na_value=nan) for n in numbers})
    for row in _list_rows(plain):
        key = to_key(_text(row.get("layer")), _text(row.get("phase")))
        _add_kernel(_find_cell(cells, key), row, columns)


def _add_kernel(cell: LayerWork, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    name, is_sum = str(row["kernel"]), row.get("layer") == GRADIENTS
    time_s = _known(row.get("time_s")) or 0.0
    cell.kernels.add(name)
    cell.has_loss_scaling |= any(UNSCALING in text for text in (name, _text(row.get("op"))))
    cell.launches += _known(row.get("launches")) or 1.0
    cell.time_s += time_s
    flops = {column: value for column in columns if (value := _known(row[column])) is not None}
    matrix = {c: v for c, v in flops.items() if roof_of(c)[1] == "matrix" and v > 0}
    cell.tensor_precisions |= {roof_of(column)[0] for column in matrix}
    if len(flops) < len(columns):
        cell.uncounted += 1
        cell.uncounted_s += time_s
    if flops:
        whole, products = sum(flops.values()), sum(matrix.values())
        if not products and family(name) in PRODUCTS:
            products = whole  # products of fp32 and fp64 run on the vector units
            cell.converting += flops.get(HALF, 0.0) if flops.get(SINGLE) else 0.0
        cell.products = (cell.products or 0.0) + products
        cell.other = (cell.other or 0.0) + whole - products
        cell.half += flops.get(HALF, 0.0)
        cell.summed_flops += whole if is_sum else 0.0
    moved = _known(row.get("dram_bytes"))
    if moved is not None:
        cell.dram_bytes = (cell.dram_bytes or 0.0) + moved
        cell.summed_bytes += moved if is_sum else 0.0
        kind = family(name)
        cell.bytes_by_family[kind] = cell.bytes_by_family.get(kind, 0.0) + moved


def _list_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _known(value: Any) -> float | None:
    """A number of a table, or None: what was not counted is not zero."""
    return None if value is None or value != value else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _group_cells(cells: Cells, by: Callable[[LayerWork], str]) -> dict[str, list[LayerWork]]:
    groups: dict[str, list[LayerWork]] = {}
    for cell in cells.values():
        groups.setdefault(by(cell), []).append(cell)
    return groups


def _make_row(scope: str, name: str, cells: list[LayerWork]) -> dict[str, Any]:
    """Several cells as one."""
    model = sum(cell.model_flops for cell in cells)
    model_products = sum(cell.model_products for cell in cells)
    model_bytes = sum(cell.model_bytes for cell in cells)
    flops = sum_known(cell.flops for cell in cells)
    products = sum_known(cell.products for cell in cells)
    moved = sum_known(cell.dram_bytes for cell in cells)
    more_flops = [(c.layer, c.cause, (c.flops or 0.0) - c.model_flops) for c in cells]
    more_bytes = [(c.layer, c.bytes_cause, c.more_bytes) for c in cells]
    cause, where = _find_main_cause(more_flops, flops, model, AGREES)
    bytes_cause, bytes_where = _find_main_cause(more_bytes, moved, model_bytes, BYTES_AGREE)
    return {
        "grain": scope,
        "name": name,
        "kind": max(cells, key=lambda cell: cell.model_flops + cell.model_bytes).kind,
        "launches": sum(cell.launches for cell in cells),
        "time_s": sum(cell.time_s for cell in cells),
        "model_flops": model,
        "executed_flops": flops,
        "flops_ratio": ratio(flops, model),
        "cause": cause,
        "where": "" if scope == "layer" else where,
        "model_products": model_products,
        "executed_products": products,
        "products_ratio": ratio(products, model_products),
        "model_other": model - model_products,
        "executed_other": sum_known(cell.other for cell in cells),
        "model_bytes": model_bytes,
        "dram_bytes": moved,
        "bytes_ratio": ratio(moved, model_bytes),
        "bytes_cause": bytes_cause,
        "bytes_where": "" if scope == "layer" else bytes_where,
    }


def _find_main_cause(
    parts: list[tuple[str, str, float]], executed: float | None, model: float, tolerance: float
) -> tuple[str, str]:
    """The cause of the largest part of a difference, and the layer with most of that part."""
    if len(parts) == 1:
        return parts[0][1], parts[0][0]
    if executed is None:
        causes = {cause for _, cause, _ in parts}
        return (causes.pop() if len(causes) == 1 else UNKNOWN), ""
    if agrees(executed, model, tolerance):
        return AGREE, ""
    sign = 1 if executed > model else -1
    by_cause: dict[str, float] = {}
    for _, cause, difference in parts:
        if sign * difference > 0 and cause != AGREE:
            by_cause[cause] = by_cause.get(cause, 0.0) + sign * difference
    if not by_cause:
        return AGREE, ""
    main = max(by_cause, key=lambda cause: by_cause[cause])
    mine = [part for part in parts if part[1] == main]
    return main, max(mine, key=lambda part: sign * part[2])[0]

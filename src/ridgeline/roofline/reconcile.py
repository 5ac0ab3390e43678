"""Model work beside executed work: of the step, each phase and each layer, with a named cause.

Model FLOPs and bytes are counted from the graph; executed ones are those of hardware counters.
Products (convolutions, matrix products, attention) and all other FLOPs are compared apart, since
conventions differ for the others (see causes.py). What belongs to no layer is
`(optimizer)` or `(model)`: what the model does outside of its modules, the loss, sums of gradients.

A layer in one phase is the unit that is judged. The cause of a whole layer, phase or step is that
of the largest part of its difference; `where` is the layer with most of that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any

from ridgeline.records import BACKWARD, RECOMPUTE
from ridgeline.roofline.causes import (
    AGREE,
    AGREES,
    BYTES_AGREE,
    UNKNOWN,
    Piece,
    agrees,
    bytes_cause,
    flops_cause,
    ratio,
)
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.kernel_names import PRODUCTS, SPLIT_PRECISION, family
from ridgeline.roofline.kernel_work import OPTIMIZER
from ridgeline.roofline.static_work import IN_NO_LAYER

if TYPE_CHECKING:
    import pandas as pd

NO_PHASE = "(no phase)"
PHASES = ("forward", "backward", "optimizer", NO_PHASE)
LOWER = {"fp64": ("fp32", "tf32", "bf16", "fp16"), "fp32": ("tf32", "bf16", "fp16")}
COLUMNS = (
    "grain", "name", "kind", "launches", "time_s",
    "model_flops", "executed_flops", "flops_ratio", "cause", "where",
    "model_products", "executed_products", "products_ratio", "model_other", "executed_other",
    "model_bytes", "dram_bytes", "bytes_ratio", "bytes_cause", "bytes_where",
)  # fmt: skip
NO_WORK = {
    "model_products": 0.0, "model_other": 0.0, "model_bytes": 0.0, "operators": 0, "kind": "",
    "is_counted_again": False,
}  # fmt: skip
HALF, SINGLE = "flops_fp16_vector", "flops_fp32_vector"
GRADIENTS = "(gradients)"  # the layer of kernels that add them up
FULL = ("fp64", "fp32", "tf32")  # numbers of 16 bits are in none of these runs
UNSCALING = "_amp_foreach_non_finite_check_and_unscale"  # in operators' and kernels' names
Key = tuple[str, str]  # layer, phase


@dataclass(slots=True, kw_only=True)
class _Executed:
    """What the kernels of one layer and phase did."""

    launches: float = 0.0
    time_s: float = 0.0
    products: float | None = None
    other: float | None = None
    converting: float = 0.0
    half: float = 0.0
    summed_flops: float = 0.0
    summed_bytes: float = 0.0
    dram_bytes: float | None = None
    copied_bytes: float = 0.0
    bytes_by_family: dict[str, float] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    matrix: set[str] = field(default_factory=set)  # precisions of tensor cores that were at work
    has_loss_scaling: bool = False
    uncounted_s: float = 0.0
    uncounted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """One layer in one phase, judged."""

    layer: str
    phase: str
    piece: Piece
    time_s: float
    cause: str
    bytes_cause: str


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
    table of kernels (columns: counters.py) of one step, `copies` what the driver copied in it
    (layer, phase, moved_bytes), and `precision` that of the run. Layers come in the order of the
    model. What the capture does not tell is not a number.
    """
    import pandas as pd

    cells = _cells(ops, kernels, copies, precision=precision, parts=parts, is_compiled=is_compiled)
    by_phase = _grouped(cells, lambda cell: cell.phase)
    rows = [_row("step", "step", cells)] if cells else []
    rows += [_row("phase", name, by_phase[name]) for name in PHASES if name in by_phase]
    layers = _grouped(cells, lambda cell: cell.layer)
    if len(layers) > 1 or "" not in layers:
        rows += [_row("layer", name, mine) for name, mine in layers.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _cells(
    ops: pd.DataFrame,
    kernels: pd.DataFrame,
    copies: pd.DataFrame | None,
    *,
    precision: str,
    parts: int,
    is_compiled: bool,
) -> list[_Cell]:
    """Every layer in every phase. What the kernels never tell, phases or layers, is left out."""
    has_layers = "layer" in kernels and kernels["layer"].fillna("").ne("").any()
    has_phases = "phase" in kernels and kernels["phase"].fillna("").ne("").any()

    def key(layer: str, phase: str) -> Key:
        return layer if has_layers else "", phase if has_phases else ""

    model = _model(ops, parts, key)
    executed = _executed(kernels, key)
    for place, copied_bytes in _copied(copies, key).items():
        if place in model or place in executed:
            executed.setdefault(place, _Executed()).copied_bytes = copied_bytes
    found = []
    for place in dict.fromkeys([*model, *executed]):
        done = executed.get(place, _Executed())
        forward = executed.get((place[0], "forward"))
        again = forward.names & done.names if forward and place[1] == "backward" else set()
        piece = Piece(
            **model.get(place, {}),
            **_told(done),
            phase=place[1],
            is_half=precision not in FULL,
            is_lower=bool(done.matrix & set(LOWER.get(precision, ()))),
            is_forward_again=any(family(name) in PRODUCTS for name in again),
            is_compiled=is_compiled,
        )
        found.append(
            _Cell(layer=place[0], phase=place[1], piece=piece, time_s=done.time_s,
                  cause=flops_cause(piece), bytes_cause=bytes_cause(piece))
        )  # fmt: skip
    return found


def _told(done: _Executed) -> dict[str, Any]:
    return {
        "launches": done.launches,
        "products": done.products,
        "other": done.other,
        "converting": done.converting,
        "half": done.half,
        "summed_flops": done.summed_flops,
        "summed_bytes": done.summed_bytes,
        "dram_bytes": done.dram_bytes,
        "copied_bytes": done.copied_bytes,
        "bytes_by_family": done.bytes_by_family,
        "families": frozenset(map(family, done.names)),
        "has_matrix": bool(done.matrix),
        "has_loss_scaling": done.has_loss_scaling,
        "uncounted_share": _share(done),
        "has_split_name": any(SPLIT_PRECISION.search(name) for name in done.names),
    }


def _share(done: _Executed) -> float:
    """How much of the time is that of kernels without counters; all where times do not tell."""
    if not done.uncounted:
        return 0.0
    return done.uncounted_s / done.time_s if done.uncounted_s else 1.0


def _model(
    ops: pd.DataFrame, parts: int, key: Callable[[str, str], Key]
) -> dict[Key, dict[str, Any]]:
    """The counted work of each layer and phase; of several batches the optimizer runs once."""
    found: dict[Key, dict[str, Any]] = {}
    largest: dict[Key, float] = {}
    for op in ops.to_dict("records"):
        is_once, phase = op["phase"] == "optimizer", _text(op["phase"])
        runs_in = "backward" if phase in BACKWARD else phase
        place = key(_layer(_text(op["path"]), runs_in), runs_in)
        times = 1 if is_once else parts
        products, other = 2.0 * (_known(op["macs"]) or 0.0), _known(op["other_flops"]) or 0.0
        moved = sum(_known(op[name]) or 0.0 for name in ("read_bytes", "written_bytes"))
        mine = found.setdefault(place, {**NO_WORK})
        mine["is_counted_again"] |= phase == RECOMPUTE and products > 0
        mine["model_products"] += products * times
        mine["model_other"] += other * times
        mine["model_bytes"] += moved * times
        mine["operators"] += times if moved else 0
        if products + other + moved >= largest.get(place, 0.0):
            largest[place], mine["kind"] = products + other + moved, _text(op["kind"])
    return found


def _layer(layer: str, phase: str) -> str:
    """What belongs to no module is one: a count and a profile tell it apart in other ways."""
    if phase == "optimizer":
        return OPTIMIZER
    return layer if layer and not layer.startswith("(") else IN_NO_LAYER


def _executed(kernels: pd.DataFrame, key: Callable[[str, str], Key]) -> dict[Key, _Executed]:
    """What the kernels of each layer and phase did; rows already stand for all their launches."""
    found: dict[Key, _Executed] = {}
    columns = [name for name in flops_columns(kernels) if kernels[name].notna().any()]
    numbers = [*columns, *(n for n in ("launches", "time_s", "dram_bytes") if n in kernels)]
    plain = kernels.assign(**{n: kernels[n].to_numpy(float, na_value=nan) for n in numbers})
    for row in _rows(plain):
        _add(found.setdefault(_place(row, key), _Executed()), row, columns)
    return found


def _copied(copies: pd.DataFrame | None, key: Callable[[str, str], Key]) -> dict[Key, float]:
    """Bytes that the driver moved for each layer and phase."""
    found: dict[Key, float] = {}
    for row in [] if copies is None else _rows(copies):
        place = _place(row, key)
        found[place] = found.get(place, 0.0) + (_known(row["moved_bytes"]) or 0.0)
    return found


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _place(row: Mapping[str, Any], key: Callable[[str, str], Key]) -> Key:
    """Where what a row tells was done."""
    layer, phase = (_text(row.get(name)) for name in ("layer", "phase"))
    return key(_layer(layer, phase), phase or NO_PHASE)


def _add(mine: _Executed, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    name, is_sum = str(row["kernel"]), row.get("layer") == GRADIENTS
    mine.names.add(name)
    mine.has_loss_scaling |= any(UNSCALING in text for text in (name, _text(row.get("op"))))
    mine.launches += _known(row.get("launches")) or 1.0
    mine.time_s += _known(row.get("time_s")) or 0.0
    flops = {column: value for column in columns if (value := _known(row[column])) is not None}
    matrix = {c: v for c, v in flops.items() if roof_of(c)[1] == "matrix" and v > 0}
    mine.matrix |= {roof_of(column)[0] for column in matrix}
    if len(flops) < len(columns):
        mine.uncounted += 1
        mine.uncounted_s += _known(row.get("time_s")) or 0.0
    if flops:
        whole = sum(flops.values())
        products = sum(matrix.values())
        if not products and family(name) in PRODUCTS:
            products = whole  # products of fp32 and fp64 run on the vector units
            mine.converting += flops.get(HALF, 0.0) if flops.get(SINGLE) else 0.0
        mine.products = (mine.products or 0.0) + products
        mine.other = (mine.other or 0.0) + whole - products
        mine.half += flops.get(HALF, 0.0)
        mine.summed_flops += whole if is_sum else 0.0
    moved = _known(row.get("dram_bytes"))
    if moved is not None:
        mine.dram_bytes = (mine.dram_bytes or 0.0) + moved
        mine.summed_bytes += moved if is_sum else 0.0
        kind = family(name)
        mine.bytes_by_family[kind] = mine.bytes_by_family.get(kind, 0.0) + moved


def _known(value: Any) -> float | None:
    """A number of a table, or None: what was not counted is not zero."""
    return None if value is None or value != value else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _grouped(cells: Iterable[_Cell], by: Callable[[_Cell], str]) -> dict[str, list[_Cell]]:
    found: dict[str, list[_Cell]] = {}
    for cell in cells:
        found.setdefault(by(cell), []).append(cell)
    return found


def _row(grain: str, name: str, cells: list[_Cell]) -> dict[str, Any]:
    """Several cells as one."""
    pieces = [cell.piece for cell in cells]
    model = sum(piece.model_flops for piece in pieces)
    flops = _sum(piece.flops for piece in pieces)
    products, model_products = (
        _sum(p.products for p in pieces), sum(p.model_products for p in pieces)
    )  # fmt: skip
    moved, model_bytes = (
        _sum(p.dram_bytes for p in pieces), sum(p.model_bytes for p in pieces)
    )  # fmt: skip
    cause, where = _main_cause(
        [(cell.layer, cell.cause, (cell.piece.flops or 0.0) - cell.piece.model_flops)
         for cell in cells],
        flops, model, AGREES,
    )  # fmt: skip
    bytes_why, bytes_where = _main_cause(
        [(cell.layer, cell.bytes_cause, (cell.piece.dram_bytes or 0.0) - cell.piece.model_bytes)
         for cell in cells],
        moved, model_bytes, BYTES_AGREE,
    )  # fmt: skip
    return {
        "grain": grain,
        "name": name,
        "kind": max(pieces, key=lambda p: p.model_flops + p.model_bytes).kind,
        "launches": sum(piece.launches for piece in pieces),
        "time_s": sum(cell.time_s for cell in cells),
        "model_flops": model,
        "executed_flops": flops,
        "flops_ratio": ratio(flops, model),
        "cause": cause,
        "where": "" if grain == "layer" else where,
        "model_products": model_products,
        "executed_products": products,
        "products_ratio": ratio(products, model_products),
        "model_other": model - model_products,
        "executed_other": _sum(piece.other for piece in pieces),
        "model_bytes": model_bytes,
        "dram_bytes": moved,
        "bytes_ratio": ratio(moved, model_bytes),
        "bytes_cause": bytes_why,
        "bytes_where": "" if grain == "layer" else bytes_where,
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _main_cause(
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

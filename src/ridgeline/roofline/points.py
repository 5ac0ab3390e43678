"""The points of one run at every grain, each with its floor, bound, efficiency and headroom.

A point's work is `static` (counted from the graph: what the mathematics needs) or `counter` (what
the hardware did); its time is always a clock's. A point is never made by dividing a rate by a
bandwidth: where the work or the time is not known, the point has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgeline.records import BACKWARD
from ridgeline.roofline.floors import BOUNDS, add_floors, flops_columns
from ridgeline.roofline.kernel_work import find_kernel_work, has_work, sum_work
from ridgeline.roofline.roofs import GRAPH, Roofs
from ridgeline.roofline.static_work import find_static_work, grouped, in_layers

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
PHASE_ORDER = ("forward", "backward", *BACKWARD, "optimizer")

COLUMNS = (
    "run_id", "env", "device", "model", "label", "mode", "precision", "batch_size",
    "grain", "name", "layer", "phase", "kind", "shapes", "product_sides", "provenance",
    "time_provenance",
    "flops", "dram_bytes", "least_bytes", "fused_bytes", "l3_bytes", "l2_bytes", "l1_bytes",
    "launches", "ai", "ai_high", "time_s", "attained_flops_per_s",
    *(f"{name}_s" for name in BOUNDS), "floor_s", "bound", "efficiency", "headroom_s",
    "fused_floor_s", "peak_flops_per_s", "peak_bytes_per_s", "roof_source",
)  # fmt: skip
"""Of a table of points; FLOPs by roof follow them. `dram_bytes` are the bytes at the DRAM level: of
a counter point those that were read, of a static point the moved bytes. Moved, fused and least
bytes are defined in docs/counting-conventions.md."""


OF_RUN = ("run_id", "model", "label", "mode", "precision", "batch_size")
OF_ROOFS = {"env": "env", "device": "device", "source": "roof_source"}
NO_WORK = {"flops": 0.0, "dram_bytes": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run measured, as far as a roofline needs it."""

    run_id: str
    model: str
    mode: str
    precision: str
    batch_size: int | None
    label: str = ""
    step_time_s: float
    phase_times_s: Mapping[str, float] = field(default_factory=dict)  # forward, backward, …
    kernel_launches: int | None = None  # of a step, where a profiler saw them
    parts: int = 1  # batches of a step
    is_compiled: bool = False
    is_graph: bool = False  # launches are replayed from a graph
    layers_without_gaps: bool = False  # layer times are the device's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a step must do: the operators, and the bytes if each tensor moved once.

    Those of a layer are of its own forward and backward operators.
    """

    ops: pd.DataFrame
    fused_bytes: float | None = None
    layer_fused_bytes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Counted work, grouped: the same for every run of a configuration."""

    step: pd.DataFrame
    phases: pd.DataFrame
    layers: pd.DataFrame


def prepare(
    counted: Counted, roofs: Roofs, *, precision: str, parts: int = 1, is_compiled: bool = False
) -> Prepared:
    """Group counted operators by step, phase and layer."""
    pieces = find_static_work(
        counted.ops,
        precision=precision,
        cache_level=roofs.cache_level,
        cache_bytes=roofs.cache_bytes,
        parts=parts,
        is_fused=is_compiled,
    )
    step = grouped(pieces.assign(grain="step"), ["grain"])
    if counted.fused_bytes is not None:
        once = pieces.loc[pieces["phase"].eq("optimizer"), "dram_bytes"].sum()
        again = max(counted.fused_bytes - once, 0.0)  # the optimizer runs once in all parts
        step["fused_bytes"] = counted.fused_bytes + (parts - 1) * again
        if is_compiled:
            step["least_bytes"] = step["fused_bytes"]
    return Prepared(
        step=step.assign(layer="", phase=ALL, kind="step", input_shapes=""),
        phases=_phases(pieces),
        layers=_layers(pieces, counted, parts),
    )


def run_points(
    measured: Measured,
    roofs: Roofs,
    *,
    counted: Counted | None = None,
    layers: pd.DataFrame | None = None,
    kernels: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """All points of a run."""
    ready = None
    if counted is not None:
        ready = prepare(
            counted,
            roofs,
            precision=measured.precision,
            parts=measured.parts,
            is_compiled=measured.is_compiled,
        )
    found = raw_points(measured, roofs, ready, layers, kernels)
    return finished([(measured, roofs, table) for table in found])


def raw_points(
    measured: Measured,
    roofs: Roofs,
    prepared: Prepared | None,
    layers: pd.DataFrame | None,
    kernels: pd.DataFrame | None,
) -> list[pd.DataFrame]:
    """Tables of placed pieces, not yet `finished`."""
    found: list[pd.DataFrame] = []
    if prepared is not None:
        found += _static_points(measured, roofs, prepared, layers)
    if kernels is not None:
        found += _counter_points(measured, roofs, kernels, layers)
    return [table for table in found if len(table)]


def _static_points(
    measured: Measured, roofs: Roofs, prepared: Prepared, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    import pandas as pd

    step = prepared.step.assign(name=measured.model, time_s=measured.step_time_s)
    if measured.kernel_launches is not None:
        step["launches"] = measured.kernel_launches
    times = prepared.phases["phase"].map(dict(measured.phase_times_s)).astype(float)
    coarse = pd.concat([step, prepared.phases.assign(time_s=times)], ignore_index=True)
    found = [add_floors(coarse, roofs, is_graph=measured.is_graph)]
    if layers is not None:
        counted = _of_mode(prepared.layers, measured.mode)
        timed = _with_times(counted, layers, is_whole=True)
        within = measured.is_graph or measured.layers_without_gaps
        found.append(add_floors(timed, _without_host(roofs, measured), is_graph=within))
    return [table.assign(provenance="static") for table in found]


def _of_mode(layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """In inference, forward is all there is."""
    return layers if mode == "train" else layers[layers["phase"].eq(ALL)]


def _without_host(roofs: Roofs, measured: Measured) -> Roofs:
    """Layer times without the host's gaps know no launch cost but that of a graph."""
    if not measured.layers_without_gaps or GRAPH in roofs.launch_s:
        return roofs
    return replace(roofs, launch_s={})


def _phases(pieces: pd.DataFrame) -> pd.DataFrame:
    """Forward, backward and optimizer, and the parts of backward."""
    import pandas as pd

    apart = grouped(pieces, ["phase"])
    backward = pieces[pieces["phase"].isin(BACKWARD)]
    if len(backward):
        whole = grouped(backward.assign(phase="backward"), ["phase"])
        apart = pd.concat([apart, whole], ignore_index=True)
    order = apart["phase"].map({name: place for place, name in enumerate(PHASE_ORDER)})
    apart = apart.iloc[order.argsort(kind="stable")]
    return apart.assign(grain="phase", name=apart["phase"], layer="", kind="phase", input_shapes="")


def _layers(pieces: pd.DataFrame, counted: Counted, parts: int) -> pd.DataFrame:
    """A row per layer, and one for each direction."""
    import pandas as pd

    whole = grouped(pieces, ["layer"]).assign(phase=ALL)
    fused = whole["layer"].map(dict(counted.layer_fused_bytes)).astype(float)
    whole["fused_bytes"] = (fused * parts).clip(upper=whole["dram_bytes"])
    direction = pieces["phase"].mask(pieces["phase"].isin(BACKWARD), "backward")
    ways = pieces.assign(phase=direction)
    apart = grouped(ways[direction.isin(["forward", "backward"])], ["layer", "phase"])
    table = pd.concat([whole, apart], ignore_index=True).assign(grain="layer")
    sides = _sides(pieces)
    return table.assign(
        name=table["layer"], product_sides=[sides.get(name, "") for name in table["layer"]]
    )


def _sides(pieces: pd.DataFrame) -> dict[str, str]:
    """By layer: the sides of its largest product, `768x50257`."""
    products = pieces[pieces["product_sides"].ne("")].sort_values("flops", ascending=False)
    first = products.drop_duplicates("layer")
    return dict(zip(first["layer"], first["product_sides"], strict=True))


def _with_times(
    table: pd.DataFrame, layers: pd.DataFrame, *, is_whole: bool = False
) -> pd.DataFrame:
    """Measured time and kind of each layer; those that were timed alone stay, too.

    `is_whole`: the table has all work of the model, so a module that is not in it has none.
    """
    import pandas as pd

    layers = _outside_as_one(layers)
    names = layers["layer"].tolist()
    times = {
        (name, phase): time_s
        for phase, column in ((ALL, "time_s"), ("forward", "forward_s"), ("backward", "backward_s"))
        for name, time_s in zip(names, layers[column].tolist(), strict=True)
    }
    kinds = dict(zip(names, layers["kind"].tolist(), strict=True))
    shapes = dict(zip(names, layers["input_shape"].tolist(), strict=True))
    rows = table["layer"].tolist()
    timed = [times.get(key) for key in zip(rows, table["phase"].tolist(), strict=True)]
    joined = table.assign(
        time_s=pd.Series(timed, index=table.index, dtype=float),
        kind=_told(kinds, rows, table["kind"].tolist()),
        input_shapes=_told(shapes, rows, table["input_shapes"].tolist()),
    )
    counted = set(rows)
    alone = [
        {"layer": name, "name": name, "grain": "layer", "phase": ALL, "time_s": times[name, ALL],
         "kind": kinds[name], "input_shapes": shapes[name],
         **(NO_WORK if is_whole and not name.startswith("(") else {})}
        for name in names
        if name not in counted and times[name, ALL] > 0
    ]  # fmt: skip
    if alone:
        joined = pd.concat([joined, pd.DataFrame(alone)], ignore_index=True)
    time_s = joined["time_s"].astype(float)
    return joined.assign(time_s=time_s.where(time_s > 0))


def _outside_as_one(layers: pd.DataFrame) -> pd.DataFrame:
    """Layer times in which all that is in no layer has one row."""
    named = layers.assign(layer=in_layers(layers["layer"]))
    groups = named.groupby("layer", sort=False)
    told = groups[["kind", "input_shape"]].first()
    times = groups[["time_s", "forward_s", "backward_s"]].sum(min_count=1)
    return told.join(times).reset_index()


def _told(known: Mapping[str, Any], rows: Sequence[str], otherwise: Sequence[Any]) -> list[Any]:
    """What the timed layer says of itself; where it says nothing, what was counted does."""
    found = []
    for name, spare in zip(rows, otherwise, strict=True):
        value = known.get(name)
        found.append(value if isinstance(value, str) and value else spare)
    return found


def _counter_points(
    measured: Measured, roofs: Roofs, kernels: pd.DataFrame, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    """Kernels, and their sums by layer, phase and step; times of sums are those of the run.

    Kernels without counters have names and times: they are points, and their sums are not, so that
    they do not stand in the way of what was counted from the graph.
    """
    pieces = find_kernel_work(kernels)
    found = [placed_kernels(pieces, roofs)]
    if has_work(pieces):
        found = [*_counter_sums(measured, roofs, pieces, layers), *found]
    return [table.assign(provenance="counter") for table in found]


def placed_kernels(pieces: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """Kernels under the roofs; a kernel's own time begins after its launch."""
    alone = pieces.assign(grain="kernel", name=pieces["kernel"])
    return add_floors(alone, replace(roofs, launch_s={}))


def _counter_sums(
    measured: Measured, roofs: Roofs, pieces: pd.DataFrame, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    step = sum_work(pieces.assign(grain="step"), ["grain"])
    step = step.assign(name=measured.model, layer="", phase=ALL, kind="step",
                       time_s=measured.step_time_s)  # fmt: skip
    found = [add_floors(step, roofs, is_graph=measured.is_graph)]
    phases = sum_work(pieces[pieces["phase"].ne("")], ["phase"])
    if len(phases):
        times = phases["phase"].map(dict(measured.phase_times_s)).astype(float)
        phases = phases.assign(grain="phase", name=phases["phase"], layer="", kind="phase",
                               time_s=times)  # fmt: skip
        found.append(add_floors(phases, roofs, is_graph=measured.is_graph))
    named = pieces.assign(layer=in_layers(pieces["layer"]))
    by_layer = sum_work(named[named["layer"].ne("")], ["layer"])
    if len(by_layer):
        rows = by_layer.assign(grain="layer", name=by_layer["layer"], phase=ALL, kind="")
        if layers is not None:
            rows = _with_times(rows.drop(columns="time_s").assign(input_shapes=""), layers)
            rows = rows[rows["flops"].notna() | rows["dram_bytes"].notna()]
        within = measured.is_graph or measured.layers_without_gaps
        found.append(add_floors(rows, _without_host(roofs, measured), is_graph=within))
    return found


def finished(tables: Sequence[tuple[Measured, Roofs, pd.DataFrame]]) -> pd.DataFrame:
    """Tables of placed pieces as one, with the columns that every point has, in their order."""
    import numpy as np
    import pandas as pd

    if not tables:
        return pd.DataFrame(columns=list(COLUMNS))
    points = pd.concat([table for _, _, table in tables], ignore_index=True)
    points = points.rename(columns={"input_shapes": "shapes"})
    lengths = [len(table) for _, _, table in tables]

    def spread(values: list[Any]) -> Any:
        return np.repeat(np.array(values, dtype=object), lengths)

    for name in OF_RUN:
        points[name] = spread([getattr(measured, name) for measured, _, _ in tables])
    for name, column in OF_ROOFS.items():
        points[column] = spread([getattr(roofs, name) for _, roofs, _ in tables])
    slopes = spread([roofs.bandwidth.get("dram", float("nan")) for _, roofs, _ in tables])
    has_sizes = points["batch_size"].notna().all()  # a capture has none
    points["batch_size"] = points["batch_size"].astype("int64" if has_sizes else "float64")
    points["peak_bytes_per_s"] = slopes.astype(float)
    for name in ("flops", "dram_bytes"):  # a capture of times alone has neither
        points[name] = points[name].astype(float) if name in points else float("nan")
    moved = points["dram_bytes"].where(points["dram_bytes"] > 0)
    flops = points["flops"].where(points["flops"] > 0)
    points["ai"] = flops / moved
    fused = points.get("fused_bytes", moved)
    points["ai_high"] = (flops / fused.where(fused > 0)).fillna(points["ai"])
    points["attained_flops_per_s"] = flops / points["time_s"].where(points["time_s"] > 0)
    points["peak_flops_per_s"] = points["roofed_flops"] / points["compute_s"]
    points["fused_floor_s"] = _fused_floor_s(points)
    by = points["time_provenance"].fillna("measured") if "time_provenance" in points else "measured"
    points["time_provenance"] = pd.Series(by, points.index).where(points["time_s"].notna(), "")
    for name in ("shapes", "product_sides", "kind", "layer"):
        points[name] = points[name].fillna("") if name in points else ""
    return points.reindex(columns=[*COLUMNS, *sorted(flops_columns(points))])


def _fused_floor_s(points: pd.DataFrame) -> pd.Series:
    """The floor if each tensor moved once, whoever uses it, and launches were free."""
    if "fused_bytes" not in points:
        return points["floor_s"] * float("nan")
    moving_s = points["fused_bytes"] / points["peak_bytes_per_s"]
    return points["compute_s"].fillna(0.0).clip(lower=moving_s).where(moving_s.notna())

"""The points of one run at every scope, each with its floor, bound, efficiency and headroom.

A point's work is `static` (counted from the graph: what the mathematics needs) or `counter` (what
the hardware did); its time is always a clock's. A point is never made by dividing a rate by a
bandwidth: where the work or the time is not known, the point has none.

A capture, made elsewhere or of a program, has its kernels, and all of them as one. Often nobody
timed the step around them, so the time of the whole is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ridgeline.records import BACKWARD
from ridgeline.roofline.floors import BOUNDS, add_floors, flops_columns
from ridgeline.roofline.roofs import GRAPH, Roofs
from ridgeline.roofline.work import (
    LEVEL_BYTES,
    find_kernel_work,
    find_static_work,
    has_counters,
    merge_outside,
    sum_kernel_work,
    sum_static_work,
)

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
CAPTURE = "capture"  # the scope of all kernels of a capture
PHASE_ORDER = ("forward", "backward", *BACKWARD, "optimizer")
LAYER_TIMES = {ALL: "time_s", "forward": "forward_s", "backward": "backward_s"}

COLUMNS = (
    "run_id", "env", "device", "model", "label", "mode", "precision", "batch_size",
    "grain", "name", "layer", "phase", "kind", "shapes", "product_sides", "provenance",
    "time_provenance",
    "flops", "dram_bytes", "least_bytes", "fused_bytes", "l3_bytes", "l2_bytes", "l1_bytes",
    "launches", "ai", "ai_high", "time_s", "attained_flops_per_s",
    *(f"{name}_s" for name in BOUNDS), "floor_s", "bound", "efficiency", "headroom_s",
    "fused_floor_s", "peak_flops_per_s", "peak_bytes_per_s", "roof_source",
)  # fmt: skip
"""Of a table of points; FLOPs by roof follow them. `grain` is the scope: step, phase, layer, kernel
or capture. `dram_bytes` are the bytes at the DRAM level: of a counter point those that were read,
of a static point the moved bytes. Moved, fused and least bytes are defined in
docs/counting-conventions.md."""

RUN_COLUMNS = ("run_id", "model", "label", "mode", "precision", "batch_size")
ROOF_COLUMNS = {"env": "env", "device": "device", "source": "roof_source"}
NO_WORK = {"flops": 0.0, "dram_bytes": 0.0}
SAME_LAUNCH = ("kernel", "grid", "block", "layer", "phase", "op", "device")
CACHE_BYTES = tuple(name for name in LEVEL_BYTES if name != "dram_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """What a run measured and how, as far as floors and findings need it."""

    run_id: str
    model: str
    mode: str
    precision: str
    batch_size: int | None
    label: str = ""
    step_time_s: float
    phase_times_s: Mapping[str, float] = field(default_factory=dict)  # forward, backward, …
    kernel_launches: int | None = None  # of a step, where a profiler saw them
    kernel_time_s: float | None = None
    layer_sum_s: float | None = None  # of all layers
    system_s: float | None = None  # of a step: what the operating system took, on all cores
    cores: float = 1.0  # that were at work
    parts: int = 1  # batches of a step
    is_compiled: bool = False
    is_channels_last: bool = False
    is_tuned: bool = False  # cuDNN may try its algorithms
    is_graph: bool = False  # launches are replayed from a graph
    layers_without_gaps: bool = False  # layer times are the device's own


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedStep:
    """What a step must do: the operators, and the bytes if each tensor moved once.

    Those of a layer are of its own forward and backward operators.
    """

    ops: pd.DataFrame
    fused_bytes: float | None = None
    layer_fused_bytes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticWork:
    """Counted work, grouped: the same for every run of a configuration."""

    step: pd.DataFrame
    phases: pd.DataFrame
    layers: pd.DataFrame


# ---------------------------------------------------------------- counted work


def group_static_work(
    counted: CountedStep, roofs: Roofs, *, precision: str, parts: int = 1, is_compiled: bool = False
) -> StaticWork:
    """Group counted operators by step, phase and layer."""
    work = find_static_work(
        counted.ops,
        precision=precision,
        cache_level=roofs.cache_level,
        cache_bytes=roofs.cache_bytes,
        parts=parts,
        is_fused=is_compiled,
    )
    step = sum_static_work(work.assign(grain="step"), ["grain"])
    if counted.fused_bytes is not None:
        once = work.loc[work["phase"].eq("optimizer"), "dram_bytes"].sum()
        again = max(counted.fused_bytes - once, 0.0)  # the optimizer runs once in all parts
        step["fused_bytes"] = counted.fused_bytes + (parts - 1) * again
        if is_compiled:
            step["least_bytes"] = step["fused_bytes"]
    return StaticWork(
        step=step.assign(layer="", phase=ALL, kind="step", input_shapes=""),
        phases=_group_phases(work),
        layers=_group_layers(work, counted, parts),
    )


def _group_phases(work: pd.DataFrame) -> pd.DataFrame:
    """Forward, backward and optimizer, and the parts of backward."""
    import pandas as pd

    backward = work[work["phase"].isin(BACKWARD)].assign(phase="backward")
    phases = sum_static_work(work, ["phase"])
    if len(backward):
        phases = pd.concat([phases, sum_static_work(backward, ["phase"])], ignore_index=True)
    order = phases["phase"].map({name: rank for rank, name in enumerate(PHASE_ORDER)})
    phases = phases.iloc[order.argsort(kind="stable")]
    return phases.assign(grain="phase", name=phases["phase"], layer="", kind="phase",
                         input_shapes="")  # fmt: skip


def _group_layers(work: pd.DataFrame, counted: CountedStep, parts: int) -> pd.DataFrame:
    """A row per layer, and one for each direction."""
    import pandas as pd

    whole = sum_static_work(work, ["layer"]).assign(phase=ALL)
    fused = whole["layer"].map(dict(counted.layer_fused_bytes)).astype(float)
    whole["fused_bytes"] = (fused * parts).clip(upper=whole["dram_bytes"])
    direction = work["phase"].mask(work["phase"].isin(BACKWARD), "backward")
    directed = work.assign(phase=direction)[direction.isin(["forward", "backward"])]
    table = pd.concat([whole, sum_static_work(directed, ["layer", "phase"])], ignore_index=True)
    products = work[work["product_sides"].ne("")].sort_values("flops", ascending=False)
    sides = products.drop_duplicates("layer").set_index("layer")["product_sides"]  # of the largest
    return table.assign(
        grain="layer",
        name=table["layer"],
        product_sides=table["layer"].map(sides).astype(object).fillna(""),
    )


# ---------------------------------------------------------------- a run


def find_run_floors(
    measured: MeasuredStep,
    roofs: Roofs,
    static: StaticWork | None,
    layers: pd.DataFrame | None,
    kernels: pd.DataFrame | None,
) -> list[pd.DataFrame]:
    """Tables of work with floors, for `join_points`; `layers` are the timed ones."""
    tables: list[pd.DataFrame] = []
    if static is not None:
        tables += _find_static_floors(measured, roofs, static, layers)
    if kernels is not None:
        tables += _find_counter_floors(measured, roofs, kernels, layers)
    return [table for table in tables if len(table)]


def _find_static_floors(
    measured: MeasuredStep, roofs: Roofs, static: StaticWork, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    import pandas as pd

    step = static.step.assign(name=measured.model, time_s=measured.step_time_s)
    if measured.kernel_launches is not None:
        step["launches"] = measured.kernel_launches
    times = static.phases["phase"].map(dict(measured.phase_times_s)).astype(float)
    coarse = pd.concat([step, static.phases.assign(time_s=times)], ignore_index=True)
    tables = [add_floors(coarse, roofs, is_graph=measured.is_graph)]
    if layers is not None:
        work = static.layers
        if measured.mode != "train":  # forward is all there is
            work = work[work["phase"].eq(ALL)]
        tables.append(_find_layer_floors(measured, roofs, _add_times(work, layers, is_whole=True)))
    return [table.assign(provenance="static") for table in tables]


def _find_layer_floors(measured: MeasuredStep, roofs: Roofs, work: pd.DataFrame) -> pd.DataFrame:
    """Layer times without the host's gaps know no launch cost but that of a graph."""
    if measured.layers_without_gaps and GRAPH not in roofs.launch_s:
        roofs = replace(roofs, launch_s={})
    return add_floors(work, roofs, is_graph=measured.is_graph or measured.layers_without_gaps)


def _add_times(work: pd.DataFrame, layers: pd.DataFrame, *, is_whole: bool = False) -> pd.DataFrame:
    """Measured time and kind of each layer; those that were timed and not counted stay, too.

    `is_whole`: the table has all work of the model, so a module that is not in it has none.
    """
    import pandas as pd

    named = layers.assign(layer=merge_outside(layers["layer"]))
    by_layer = named.groupby("layer", sort=False)
    timed = by_layer[["kind", "input_shape"]].first()
    timed = timed.join(by_layer[list(LAYER_TIMES.values())].sum(min_count=1))
    times_s = pd.concat({phase: timed[column] for phase, column in LAYER_TIMES.items()})
    keys = pd.MultiIndex.from_frame(work[["phase", "layer"]])
    joined = work.assign(
        time_s=times_s.reindex(keys).to_numpy(dtype=float),
        kind=_prefer_text(work["layer"].map(timed["kind"]), work["kind"]),
        input_shapes=_prefer_text(work["layer"].map(timed["input_shape"]), work["input_shapes"]),
    )
    alone = timed[~timed.index.isin(work["layer"]) & timed["time_s"].gt(0)].reset_index()
    if len(alone):
        rows = alone[["layer", "time_s", "kind"]].assign(
            name=alone["layer"], grain="layer", phase=ALL, input_shapes=alone["input_shape"]
        )
        if is_whole:
            is_module = ~rows["layer"].str.startswith("(")
            rows = rows.assign(**{name: is_module.map({True: zero}).astype(float)
                                  for name, zero in NO_WORK.items()})  # fmt: skip
        joined = pd.concat([joined, rows], ignore_index=True)
    return joined.assign(time_s=joined["time_s"].where(joined["time_s"] > 0))


def _prefer_text(texts: pd.Series, otherwise: pd.Series) -> pd.Series:
    """What the timed layer says of itself; where it says nothing, what was counted does."""
    return texts.where(texts.notna() & texts.ne(""), otherwise)


def _find_counter_floors(
    measured: MeasuredStep, roofs: Roofs, kernels: pd.DataFrame, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    """Kernels, and their sums by layer, phase and step; times of sums are those of the run.

    Kernels without counters have names and times: they are points, and their sums are not, so that
    they do not stand in the way of what was counted from the graph.
    """
    work = find_kernel_work(kernels)
    tables = [_find_kernel_floors(work, roofs)]
    if has_counters(work):
        tables = [*_find_sum_floors(measured, roofs, work, layers), *tables]
    return [table.assign(provenance="counter") for table in tables]


def _find_kernel_floors(work: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """Kernels under the roofs; a kernel's own time begins after its launch."""
    named = work.assign(grain="kernel", name=work["kernel"])
    return add_floors(named, replace(roofs, launch_s={}))


def _find_sum_floors(
    measured: MeasuredStep, roofs: Roofs, work: pd.DataFrame, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    step = sum_kernel_work(work.assign(grain="step"), ["grain"])
    step = step.assign(name=measured.model, layer="", phase=ALL, kind="step",
                       time_s=measured.step_time_s)  # fmt: skip
    tables = [add_floors(step, roofs, is_graph=measured.is_graph)]
    phases = sum_kernel_work(work[work["phase"].ne("")], ["phase"])
    if len(phases):
        times = phases["phase"].map(dict(measured.phase_times_s)).astype(float)
        phases = phases.assign(grain="phase", name=phases["phase"], layer="", kind="phase",
                               time_s=times)  # fmt: skip
        tables.append(add_floors(phases, roofs, is_graph=measured.is_graph))
    named = work.assign(layer=merge_outside(work["layer"]))
    by_layer = sum_kernel_work(named[named["layer"].ne("")], ["layer"])
    if len(by_layer):
        rows = by_layer.assign(grain="layer", name=by_layer["layer"], phase=ALL, kind="")
        if layers is not None:
            rows = _add_times(rows.drop(columns="time_s").assign(input_shapes=""), layers)
            rows = rows[rows["flops"].notna() | rows["dram_bytes"].notna()]
        tables.append(_find_layer_floors(measured, roofs, rows))
    return tables


# ---------------------------------------------------------------- a capture


def find_capture_floors(
    run_id: str, name: str, roofs: Roofs, kernels: pd.DataFrame
) -> list[tuple[MeasuredStep, Roofs, pd.DataFrame]]:
    """The whole of a capture and its kernels, for `join_points`; equal launches are one kernel."""
    known = kernels[is_complete(kernels)]
    if known.empty:  # the work of some kernels must not be set against the bytes of others
        known = _drop_partly_known(kernels, _list_known_amounts(kernels))
    known = _drop_partly_known(known, CACHE_BYTES)
    work = find_kernel_work(group_identical_launches(known))
    whole = sum_kernel_work(work.assign(grain=CAPTURE), ["grain"])
    whole = whole.assign(name=name, layer="", phase=ALL, kind=CAPTURE)
    step = MeasuredStep(run_id=run_id, model=name, mode=CAPTURE, precision="", batch_size=None,
                        label=name, step_time_s=float(whole["time_s"].sum()))  # fmt: skip
    every = find_kernel_work(group_identical_launches(kernels))
    is_counted = "time_source" in kernels and kernels["time_source"].eq("counter").any()
    source = {"provenance": "counter", "time_provenance": "counter" if is_counted else "measured"}
    tables = [add_floors(whole, replace(roofs, launch_s={})), _find_kernel_floors(every, roofs)]
    return [
        (step, roofs, table.assign(headroom_s=table["headroom_s"].where(table["floor_s"].notna()),
                                   **source))
        for table in tables
        if len(table)
    ]  # fmt: skip


def _drop_partly_known(kernels: pd.DataFrame, amounts: Sequence[str]) -> pd.DataFrame:
    """Without those amounts that are known of some kernels alone."""
    partly = [name for name in amounts if name in kernels and kernels[name].isna().any()]
    return kernels.assign(**dict.fromkeys(partly, float("nan")))


def group_identical_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Launches of the same kernel, grid, block and layer as one row; sums of what is known.

    Where all is known of some of them, the others are left out.
    """
    if "launches" not in kernels:
        kernels = kernels.assign(launches=1)
    by = [name for name in SAME_LAUNCH if name in kernels]
    columns = ("launches", "time_s", *LEVEL_BYTES, *flops_columns(kernels))
    amounts = [name for name in columns if name in kernels]
    same = kernels.assign(**{name: kernels[name].fillna("") for name in by})
    is_whole = is_complete(same)
    if not is_whole.all():
        some = is_whole.groupby([same[name] for name in by]).transform("any")
        same = same[is_whole | ~some]
    for name in (cache for cache in CACHE_BYTES if cache in same):  # of all alike, or not known
        gaps = same[name].isna()
        if gaps.any():
            same[name] = same[name].mask(gaps.groupby([same[one] for one in by]).transform("any"))
    return same.groupby(by, sort=False)[amounts].sum(min_count=1).reset_index()


def is_complete(kernels: pd.DataFrame) -> pd.Series[bool]:
    """Of which kernels time, FLOPs and bytes are known, as far as they are of any."""
    return kernels[_list_known_amounts(kernels)].notna().all(axis=1)


def _list_known_amounts(kernels: pd.DataFrame) -> list[str]:
    """Amounts that are known of any kernel."""
    names = [name for name in ("time_s", "dram_bytes", *flops_columns(kernels)) if name in kernels]
    return [name for name in names if kernels[name].notna().any()]


# ---------------------------------------------------------------- the table of points


def join_points(tables: Sequence[tuple[MeasuredStep, Roofs, pd.DataFrame]]) -> pd.DataFrame:
    """Tables of work with floors as one, with COLUMNS."""
    import pandas as pd

    if not tables:
        return pd.DataFrame(columns=list(COLUMNS))
    points = pd.concat([
        table.assign(
            **{name: getattr(step, name) for name in RUN_COLUMNS},
            **{column: getattr(roofs, name) for name, column in ROOF_COLUMNS.items()},
            peak_bytes_per_s=roofs.bandwidth.get("dram", float("nan")),
        )
        for step, roofs, table in tables
    ], ignore_index=True)  # fmt: skip
    points = points.rename(columns={"input_shapes": "shapes"})
    if points["batch_size"].notna().all():  # a capture has none
        points["batch_size"] = points["batch_size"].astype("int64")
    for name in ("flops", "dram_bytes"):  # a capture of times alone has neither
        points[name] = points[name].astype(float) if name in points else float("nan")
    moved = points["dram_bytes"].where(points["dram_bytes"] > 0)
    flops = points["flops"].where(points["flops"] > 0)
    points["ai"] = flops / moved
    fused = points.get("fused_bytes", moved)
    points["ai_high"] = (flops / fused.where(fused > 0)).fillna(points["ai"])
    points["attained_flops_per_s"] = flops / points["time_s"].where(points["time_s"] > 0)
    points["peak_flops_per_s"] = points["roofed_flops"] / points["compute_s"]
    if "fused_bytes" in points:  # the floor if each tensor moved once and launches were free
        moving_s = points["fused_bytes"] / points["peak_bytes_per_s"]
        floor_s = points["compute_s"].fillna(0.0).clip(lower=moving_s)
        points["fused_floor_s"] = floor_s.where(moving_s.notna())
    by = points["time_provenance"].fillna("measured") if "time_provenance" in points else "measured"
    points["time_provenance"] = pd.Series(by, points.index).where(points["time_s"].notna(), "")
    for name in ("shapes", "product_sides", "kind", "layer"):
        points[name] = points[name].fillna("") if name in points else ""
    return points.reindex(columns=[*COLUMNS, *sorted(flops_columns(points))])

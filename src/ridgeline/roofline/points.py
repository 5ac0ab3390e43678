"""The points of one run at every grain, each with its floor, bound, efficiency and headroom.

A point's work is `static` (counted from the graph: what the mathematics needs) or `counter` (what
the hardware did); its time is always a clock's. A point is never made by dividing a rate by a
bandwidth: where the work or the time is not known, the point has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.roofline.counters import kernel_pieces, summed
from ridgeline.roofline.place import BOUNDS, flops_columns, place
from ridgeline.roofline.roofs import GRAPH, Roofs
from ridgeline.roofline.static import BACKWARD, grouped, static_pieces

if TYPE_CHECKING:
    import pandas as pd

GRAINS = ("step", "phase", "layer", "kernel")
ALL = "all"
PHASE_ORDER = ("forward", "backward", "input-grad", "weight-grad", "optimizer")

COLUMNS = (  # of a table of points; FLOPs by roof follow them
    "run_id", "env", "device", "model", "label", "mode", "precision", "batch_size",
    "grain", "name", "layer", "phase", "kind", "shapes", "provenance", "time_provenance",
    "flops", "dram_bytes", "least_bytes", "ideal_bytes", "l3_bytes", "l2_bytes", "l1_bytes",
    "launches", "ai", "ai_high", "time_s", "attained_flops_per_s",
    *(f"{name}_s" for name in BOUNDS), "floor_s", "bound", "efficiency", "headroom_s",
    "fused_floor_s", "peak_flops_per_s", "peak_bytes_per_s", "roof_source",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run measured, as far as a roofline needs it."""

    run_id: str
    model: str
    mode: str
    precision: str
    batch_size: int
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
    """What a step must do: the operators, and the least bytes if each tensor moved once."""

    ops: pd.DataFrame
    ideal_bytes: float | None = None
    layer_ideal_bytes: Mapping[str, float] = field(default_factory=dict)


def run_points(
    measured: Measured,
    roofs: Roofs,
    *,
    counted: Counted | None = None,
    layers: pd.DataFrame | None = None,
    kernels: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """All points of a run."""
    import pandas as pd

    found: list[pd.DataFrame] = []
    if counted is not None:
        found += _static_points(measured, roofs, counted, layers)
    if kernels is not None:
        found += _counter_points(measured, roofs, kernels, layers)
    found = [table for table in found if len(table)]
    if not found:
        return pd.DataFrame(columns=list(COLUMNS))
    return finished(pd.concat(found, ignore_index=True), measured, roofs)


def _static_points(
    measured: Measured, roofs: Roofs, counted: Counted, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    pieces = static_pieces(
        counted.ops,
        precision=measured.precision,
        cache_level=roofs.cache_level,
        cache_bytes=roofs.cache_bytes,
        parts=measured.parts,
        is_fused=measured.is_compiled,
    )
    found = [
        place(_step(pieces, measured, counted), roofs, is_graph=measured.is_graph),
        place(_phases(pieces, measured), roofs, is_graph=measured.is_graph),
    ]
    by_layer = _layers(pieces, measured, counted, layers)
    within = measured.is_graph or measured.layers_without_gaps
    found.append(place(by_layer, _without_host(roofs, measured), is_graph=within))
    return [table.assign(provenance="static") for table in found]


def _without_host(roofs: Roofs, measured: Measured) -> Roofs:
    """Layer times without the host's gaps know no launch cost but that of a graph."""
    from dataclasses import replace

    if not measured.layers_without_gaps or GRAPH in roofs.launch_s:
        return roofs
    return replace(roofs, launch_s={})


def _step(pieces: pd.DataFrame, measured: Measured, counted: Counted) -> pd.DataFrame:
    """The whole step."""
    step = grouped(pieces.assign(grain="step"), ["grain"])
    if counted.ideal_bytes is not None:
        step["ideal_bytes"] = counted.ideal_bytes * measured.parts
        if measured.is_compiled:
            step["least_bytes"] = step["ideal_bytes"]
    if measured.kernel_launches is not None:
        step["launches"] = measured.kernel_launches
    return step.assign(
        name=measured.model,
        layer="",
        phase=ALL,
        kind="step",
        input_shapes="",
        time_s=measured.step_time_s,
    )


def _phases(pieces: pd.DataFrame, measured: Measured) -> pd.DataFrame:
    """Forward, backward and optimizer with their times; the two halves of backward without."""
    import pandas as pd

    apart = grouped(pieces, ["phase"])
    backward = pieces[pieces["phase"].isin(BACKWARD)]
    if len(backward):
        whole = grouped(backward.assign(phase="backward"), ["phase"])
        apart = pd.concat([apart, whole], ignore_index=True)
    apart["time_s"] = apart["phase"].map(dict(measured.phase_times_s)).astype(float)
    order = apart["phase"].map({name: place for place, name in enumerate(PHASE_ORDER)})
    apart = apart.iloc[order.argsort(kind="stable")]
    return apart.assign(grain="phase", name=apart["phase"], layer="", kind="phase", input_shapes="")


def _layers(
    pieces: pd.DataFrame, measured: Measured, counted: Counted, layers: pd.DataFrame | None
) -> pd.DataFrame:
    """A row per layer, and in training one for each direction, joined with the measured times."""
    import pandas as pd

    whole = grouped(pieces, ["layer"]).assign(phase=ALL)
    ideal = whole["layer"].map(dict(counted.layer_ideal_bytes)).astype(float)
    whole["ideal_bytes"] = ideal.clip(upper=whole["dram_bytes"])
    found = [whole]
    if measured.mode == "train":
        direction = pieces["phase"].mask(pieces["phase"].isin(BACKWARD), "backward")
        ways = pieces.assign(phase=direction)
        found.append(grouped(ways[direction.isin(["forward", "backward"])], ["layer", "phase"]))
    table = pd.concat(found, ignore_index=True).assign(grain="layer")
    table["name"] = table["layer"]
    if layers is None:
        return table.assign(time_s=float("nan"))
    return _with_times(table, layers)


def _with_times(table: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Measured time and kind of each layer; layers that were timed and not counted stay, too."""
    import pandas as pd

    times = pd.concat(
        [
            pd.DataFrame({"layer": layers["layer"], "phase": phase, "time_s": layers[column]})
            for phase, column in (
                (ALL, "time_s"),
                ("forward", "forward_s"),
                ("backward", "backward_s"),
            )
        ]
    )
    kinds = layers.set_index("layer")["kind"]
    shapes = layers.set_index("layer")["input_shape"]
    counted = set(table["layer"])
    alone = times[(times["phase"] == ALL) & ~times["layer"].isin(counted) & times["time_s"].gt(0)]
    only = alone.assign(grain="layer", name=alone["layer"])
    joined = table.merge(times, on=["layer", "phase"], how="left")
    joined = pd.concat([joined, only], ignore_index=True)
    kind = joined["layer"].map(kinds)
    joined["kind"] = kind.where(kind.notna() & kind.ne(""), joined["kind"])
    shape = joined["layer"].map(shapes)
    joined["input_shapes"] = shape.where(shape.notna() & shape.ne(""), joined["input_shapes"])
    joined.loc[joined["time_s"].le(0), "time_s"] = float("nan")
    return joined


def _counter_points(
    measured: Measured, roofs: Roofs, kernels: pd.DataFrame, layers: pd.DataFrame | None
) -> list[pd.DataFrame]:
    """Kernels, and their sums by layer, phase and step; times of sums are those of the run."""
    import pandas as pd

    pieces = kernel_pieces(kernels)
    alone = pieces.assign(grain="kernel", name=pieces["kernel"])
    step = summed(pieces.assign(grain="step"), ["grain"])
    step = step.assign(name=measured.model, layer="", phase=ALL, kind="step",
                       time_s=measured.step_time_s)  # fmt: skip
    found = [place(step, roofs, is_graph=measured.is_graph)]
    phases = summed(pieces[pieces["phase"].ne("")], ["phase"])
    if len(phases):
        times = phases["phase"].map(dict(measured.phase_times_s)).astype(float)
        phases = phases.assign(grain="phase", name=phases["phase"], layer="", kind="phase",
                               time_s=times)  # fmt: skip
        found.append(place(phases, roofs, is_graph=measured.is_graph))
    by_layer = summed(pieces[pieces["layer"].ne("")], ["layer"])
    inside = _without_host(roofs, measured)
    if len(by_layer):
        rows = by_layer.assign(grain="layer", name=by_layer["layer"], phase=ALL, kind="")
        if layers is not None:
            rows = _with_times(rows.drop(columns="time_s").assign(input_shapes=""), layers)
            rows = rows[rows["flops"].notna() | rows.get("dram_bytes", pd.Series()).notna()]
        found.append(place(rows, inside, is_graph=True))
    no_launch = Roofs(env=roofs.env, device=roofs.device, compute=roofs.compute,
                      bandwidth=roofs.bandwidth)  # fmt: skip
    found.append(place(alone, no_launch))  # a kernel's own time begins after its launch
    return [table.assign(provenance="counter") for table in found]


def finished(points: pd.DataFrame, measured: Measured, roofs: Roofs) -> pd.DataFrame:
    """The columns that every point has, in their order."""
    points = points.rename(columns={"input_shapes": "shapes"})
    known = points["dram_bytes"].where(points["dram_bytes"] > 0)
    flops = points["flops"].where(points["flops"] > 0)
    points["ai"] = flops / known
    least = points.get("ideal_bytes", known)
    points["ai_high"] = (flops / least.where(least > 0)).fillna(points["ai"])
    points["attained_flops_per_s"] = flops / points["time_s"]
    points["peak_flops_per_s"] = flops / points["compute_s"]
    points["peak_bytes_per_s"] = roofs.bandwidth.get("dram")
    points["fused_floor_s"] = _fused_floor_s(points, roofs)
    points["roof_source"] = roofs.source
    points["time_provenance"] = points["time_s"].notna().map({True: "measured", False: ""})
    same: dict[str, Any] = {
        "run_id": measured.run_id,
        "env": roofs.env,
        "device": roofs.device,
        "model": measured.model,
        "label": measured.label,
        "mode": measured.mode,
        "precision": measured.precision,
        "batch_size": measured.batch_size,
    }
    points = points.assign(**same)
    for name in ("shapes", "kind", "layer"):
        points[name] = points[name].fillna("") if name in points else ""
    return points.reindex(columns=[*COLUMNS, *sorted(flops_columns(points))])


def _fused_floor_s(points: pd.DataFrame, roofs: Roofs) -> pd.Series:
    """The floor if each tensor moved once, whoever uses it, and launches were free."""
    rate = roofs.bandwidth.get("dram")
    if not rate or "ideal_bytes" not in points:
        return points["floor_s"] * float("nan")
    moving_s = points["ideal_bytes"] / rate
    return points["compute_s"].fillna(0.0).clip(lower=moving_s).where(moving_s.notna())

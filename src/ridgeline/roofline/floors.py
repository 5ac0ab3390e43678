"""Floors of work items under their roofs, of time and of energy: the arithmetic of the roofline.

    floor_s = max(Σ F_p / peak_p, max over levels B_level / bandwidth_level, launches · launch cost)
    efficiency = floor_s / time_s,   headroom_s = time_s − floor_s

`bound` names the largest term. What is not known (a level without bytes or without a roof) takes no
part; work that has no roof of its own or as a stand-in leaves an item without a floor. An item that
is known to have no work has none either, and all of its time is headroom. Where an item has
`least_bytes`, which DRAM must deliver, the floor uses them instead of `dram_bytes`.

In joules, F FLOPs and Q bytes that take t seconds are Σ j_per_flop · F + Σ j_per_byte · Q +
constant power · t. The energy floor has the bytes that DRAM must deliver, and t at its floor: that
of the roofline, or the time in which the power cap lets these joules flow, whichever is longer.
Joules of a step are `measured` where a meter counted them, else `modelled`. Those of layers are
always modelled, and scaled so that they add up to those of a measured step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any

from ridgeline.machine.energy_fit import ANY
from ridgeline.machine.passport import EnergyModel, Passport
from ridgeline.roofline.roofs import LEVELS, Roofs
from ridgeline.units import format_ratio

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

FLOPS_PREFIX = "flops_"
BOUNDS = ("compute", *LEVELS, "launch")
UNROOFED = 0.01  # of the FLOPs that have a roof: what others may come to beside them
SAME_UNITS = {"fp16": "bf16", "bf16": "fp16"}  # the price of one stands in for the other's
CAP_ROUNDS = 30
OTHER_STEP = 2.0  # times the step that was timed: joules of such a step are not its own
UNPRICED = 0.01  # of the FLOPs of a point: more without a price, and its joules are not known
SCOPES = ("step", "phase", "layer")
MODELLED = ("modelled_j", "energy_floor_j", "cap_s")
ENERGY_COLUMNS = (
    "run_id", "env", "device", "model", "label", "mode", "precision", "batch_size", "input_size",
    "seq_len", "grain", "name", "layer", "phase", "provenance", "flops", "dram_bytes", "ai",
    "time_s", "floor_s", "cap_s", "energy_j", "energy_provenance", "modelled_j", "energy_floor_j",
    "energy_efficiency", "flops_j", "bytes_j", "busy_j", "constant_j", "flops_share", "bytes_share",
    "busy_share", "constant_share", "power_w", "flops_per_j", "energy_j_per_sample",
    "time_s_per_sample", "is_on_front", "finding",
)  # fmt: skip
"""Of a table of energies. Shares are of `energy_j`: what is left to 1 is not explained."""
SAMPLE = ("input_size", "seq_len")
SAME_SAMPLE = ("env", "model", "mode", *SAMPLE)
"""Columns that tell steps apart whose samples are of unlike work."""


def roof_of(column: str) -> tuple[str, str]:
    """The precision and path of a FLOPs column: `flops_fp16_matrix` → fp16, matrix."""
    precision, _, path = column.removeprefix(FLOPS_PREFIX).rpartition("_")
    return precision, path


def flops_column(precision: str, path: str) -> str:
    return f"{FLOPS_PREFIX}{precision}_{path}"


def flops_columns(work: pd.DataFrame) -> list[str]:
    """The columns that hold FLOPs of one roof; `flops_…` columns of other meaning are not."""
    return [
        name
        for name in work.columns
        if str(name).startswith(FLOPS_PREFIX) and str(name).endswith(("_matrix", "_vector"))
    ]


def add_floors(work: pd.DataFrame, roofs: Roofs, *, is_graph: bool = False) -> pd.DataFrame:
    """The work with its floors, bounds, efficiencies and headrooms; nothing else changes."""
    import numpy as np

    each_s = roofs.launch(is_graph=is_graph)
    terms = np.column_stack(
        [
            _compute_s(work, roofs),
            *(_memory_s(work, roofs, level) for level in LEVELS),
            _numbers(work, "launches") * (nan if each_s is None else each_s),
        ]
    )
    roofed = _roofed_flops(work, roofs)
    filled = np.nan_to_num(terms, nan=-1.0)
    floor_s = filled.max(axis=1)  # -1: nothing is known
    is_unroofed = _numbers(work, "flops") - roofed > UNROOFED * roofed
    has_floor, is_idle = (floor_s > 0) & ~is_unroofed, (floor_s == 0) & ~is_unroofed
    floor_s = np.where(has_floor, floor_s, np.nan)
    bound = np.array(BOUNDS, dtype=object)[filled.argmax(axis=1)]
    bound[~has_floor] = None
    time_s = _numbers(work, "time_s")
    time_s = np.where(time_s > 0, time_s, np.nan)
    return work.assign(
        **{f"{name}_s": terms[:, number] for number, name in enumerate(BOUNDS)},
        roofed_flops=roofed,
        floor_s=floor_s,
        bound=bound,
        efficiency=floor_s / time_s,
        headroom_s=time_s - np.where(is_idle, 0.0, floor_s),
    )


def _numbers(work: pd.DataFrame, column: str) -> Numbers:
    """A column as floats; not a number where it is absent."""
    import numpy as np

    if column not in work:
        return np.full(len(work), np.nan)
    return work[column].to_numpy(dtype=float, na_value=np.nan)


def _compute_s(work: pd.DataFrame, roofs: Roofs) -> Numbers:
    """Σ F_p / peak_p; unknown where no FLOPs of any precision are known, or no roof is."""
    import numpy as np

    total, is_known = np.zeros(len(work)), np.zeros(len(work), dtype=bool)
    for column in flops_columns(work):
        peak = roofs.peak(*roof_of(column))
        if peak:
            part = _numbers(work, column) / peak
            is_known |= ~np.isnan(part)
            total += np.nan_to_num(part)
    return np.where(is_known, total, np.nan)


def _roofed_flops(work: pd.DataFrame, roofs: Roofs) -> Numbers:
    """The FLOPs for which a roof is known; all of them where none is."""
    import numpy as np

    columns = flops_columns(work)
    known = [column for column in columns if roofs.peak(*roof_of(column))]
    if not roofs.flats or not columns or len(known) == len(columns):
        return _numbers(work, "flops")
    return np.array(work[known].astype(float).sum(axis=1).to_numpy())


def _memory_s(work: pd.DataFrame, roofs: Roofs, level: str) -> Numbers:
    import numpy as np

    moved = _numbers(work, f"{level}_bytes")
    if level == "dram" and "least_bytes" in work:
        least = _numbers(work, "least_bytes")
        moved = np.where(np.isnan(least), moved, least)
    return moved / roofs.bandwidth.get(level, np.nan)


# ---------------------------------------------------------------- joules: one precision of a device


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRoofline:
    """Work per second, joules and watts of one precision, as functions of the intensity."""

    precision: str
    j_per_flop: float
    j_per_byte: float
    constant_power_w: float
    flops_per_s: float
    bytes_per_s: float
    power_cap_w: float | None = None
    busy_power_w: float = 0.0  # a part of constant power: that of kernels
    clock_exponent: float = 0.0  # joules of work are as clock ** exponent

    @property
    def time_balance(self) -> float:
        """The intensity above which time is bound by FLOPs: the ridge."""
        return self.flops_per_s / self.bytes_per_s

    @property
    def energy_balance(self) -> float:
        """The intensity at which FLOPs and bytes cost the same."""
        return self.j_per_byte / self.j_per_flop if self.j_per_flop else inf

    @property
    def half_intensity(self) -> float:
        """Where work per joule is half of its best, constant power included and no power cap."""
        constant_j = self.constant_power_w / self.flops_per_s
        share = self.j_per_flop / (self.j_per_flop + constant_j)
        bound = self.j_per_byte / (self.j_per_flop + constant_j)  # share · energy balance
        if bound >= self.time_balance:
            return bound
        return (bound + (1 - share) * self.time_balance) / (2 - share)

    @property
    def is_racing_right(self) -> bool:
        """Whether what is bound by FLOPs in time is so in energy, too: then finishing soon saves
        joules."""
        return self.half_intensity <= self.time_balance

    def j_of_flop(self, intensity: float) -> float:
        """Joules of a FLOP and of the bytes that go with it, without constant power."""
        return self.j_per_flop + self.j_per_byte / intensity

    def cap_flops_per_s(self, intensity: float) -> float:
        """The rate at which the power cap is reached: the ceiling that it sets."""
        import numpy as np

        (time_s,) = find_capped_time(
            np.array([self.j_of_flop(intensity)]),
            np.array([1 / min(self.flops_per_s, self.bytes_per_s * intensity)]),
            above_w=(self.power_cap_w or inf) - self.constant_power_w + self.busy_power_w,
            busy_w=self.busy_power_w,
            exponent=self.clock_exponent,
        )
        return float(1 / time_s) if time_s > 0 else inf  # else the fit denies the cap

    def attainable_flops_per_s(self, intensity: float) -> float:
        """The time roofline, with the ceiling of the power cap."""
        roof = min(self.flops_per_s, self.bytes_per_s * intensity)
        return min(roof, self.cap_flops_per_s(intensity))

    def attainable_flops_per_j(self, intensity: float) -> float:
        """The arch: work per joule of work that runs at the time roofline."""
        return self.attainable_flops_per_s(intensity) / self.power_w(intensity)

    def power_w(self, intensity: float) -> float:
        """What work at the time roofline draws; never more than the cap."""
        rate = self.attainable_flops_per_s(intensity)
        power_w = self.constant_power_w + self.j_of_flop(intensity) * rate
        return min(power_w, max(self.power_cap_w or inf, self.constant_power_w))


def find_energy_rooflines(model: EnergyModel, roofs: Roofs) -> list[EnergyRoofline]:
    """One for each precision with a price and a roof; of one price for all, that of fp32."""
    bandwidth, byte = roofs.bandwidth.get("dram"), model.j_per_byte.get("dram")
    if not bandwidth or byte is None:
        return []
    found = []
    for name, price in model.j_per_flop.items():
        precision = "fp32" if name == ANY else name
        known = [roofs.flats.get(f"{precision} {path}") or 0.0 for path in ("matrix", "vector")]
        if max(known):
            found.append(
                EnergyRoofline(
                    precision=precision,
                    j_per_flop=price.value,
                    j_per_byte=byte.value,
                    constant_power_w=model.working_power_w,
                    flops_per_s=max(known),
                    bytes_per_s=bandwidth,
                    power_cap_w=model.power_cap_w,
                    busy_power_w=model.working_power_w - model.constant_power_w.value,
                    clock_exponent=model.clock_exponent.value if model.clock_exponent else 0.0,
                )
            )
    return sorted(found, key=lambda one: -one.flops_per_s)


def describe_balances(passport: Passport | None, roofs: Roofs) -> list[str]:
    """Time and energy balance of each precision of a machine, and what they mean."""
    model = passport.energy_model(roofs.device) if passport is not None else None
    lines = []
    for one in find_energy_rooflines(model, roofs) if model is not None else ():
        meaning = "finishing soon saves joules"
        if not one.is_racing_right:
            meaning = "bytes still cost joules where they no longer cost time"
        balance = "not known" if one.energy_balance == inf else format_ratio(one.energy_balance)
        lines.append(
            f"{roofs.env}, {one.precision}: time balance {format_ratio(one.time_balance)} FLOP/B,"
            f" energy balance {balance}, half of the best work per joule at"
            f" {format_ratio(one.half_intensity)}: {meaning}"
        )
    return lines


# ---------------------------------------------------------------- joules: the points of runs


def add_energies(
    work: pd.DataFrame,
    model: EnergyModel,
    step_s: float | None = None,
    kernel_s: float | None = None,
) -> pd.DataFrame:
    """Points of one run with the joules of their work and their energy floors.

    `step_s` is the time of a step whose joules were measured; `kernel_s` is what its kernels take.
    """
    import numpy as np

    is_step = work["grain"].eq("step")
    time_s = work["time_s"].mask(is_step, step_s) if step_s else work["time_s"]
    busy_s = time_s.mask(is_step, np.minimum(time_s, kernel_s)) if kernel_s else time_s
    flops_j = _price_flops(work, model)
    least = work["least_bytes"].fillna(work["dram_bytes"])
    dram_j = least * _price_of_byte(model, "dram")
    cached_j = sum(
        (work[f"{level}_bytes"] - work["dram_bytes"]).clip(lower=0.0).fillna(0.0)
        * model.j_per_byte[level].value
        for level in LEVELS
        if level != "dram" and level in model.j_per_byte
    )
    floor_s = work["floor_s"].to_numpy(float)
    constant_w = model.constant_power_w.value
    busy_w = model.working_power_w - constant_w
    cap_s = find_capped_time(
        (flops_j + dram_j).to_numpy(float),
        floor_s,
        above_w=(model.power_cap_w or inf) - constant_w,
        busy_w=busy_w,
        exponent=model.clock_exponent.value if model.clock_exponent else 0.0,
    )
    is_capped = cap_s > floor_s
    uncapped_j = flops_j + dram_j + model.working_power_w * floor_s
    bytes_j = dram_j + cached_j
    constant_j, busy_j = constant_w * time_s, busy_w * busy_s
    return work.assign(
        flops_j=flops_j,
        bytes_j=bytes_j,
        busy_j=busy_j,
        constant_j=constant_j,
        cap_s=cap_s,
        modelled_j=flops_j + bytes_j + busy_j + constant_j,
        energy_floor_j=uncapped_j.mask(is_capped, (model.power_cap_w or 0.0) * cap_s),
    )


def find_capped_time(
    work_j: Numbers, floor_s: Numbers, *, above_w: float, busy_w: float, exponent: float
) -> Numbers:
    """The time in which work reaches the power cap; less than its floor where the cap is far.

    Joules are those at the highest clock. A cap lowers the clock, and with it the joules of work.
    `above_w` is the cap without constant power.
    """
    import numpy as np

    if above_w == inf or above_w <= busy_w:
        return np.full_like(work_j, np.nan)  # there is no cap, or the fit denies it
    plain_s = work_j / (above_w - busy_w)
    time_s = np.fmax(plain_s, floor_s)
    with np.errstate(divide="ignore", invalid="ignore"):  # of work that takes no time
        for _ in range(CAP_ROUNDS):  # half of each correction, or it would swing
            cheaper = np.minimum(1.0, floor_s / time_s) ** exponent
            time_s = np.sqrt(time_s * (work_j + busy_w * time_s) * cheaper / above_w)
    return np.where(plain_s > floor_s, time_s, plain_s)


def _price_flops(work: pd.DataFrame, model: EnergyModel) -> pd.Series:
    """Joules of the FLOPs; not known where many of them have no price."""
    columns = flops_columns(work)
    prices = {column: price_of_flop(model, roof_of(column)[0]) for column in columns}
    flops = work[columns].fillna(0.0)
    priced = [column for column in columns if prices[column] is not None]
    total_j = sum((flops[c] * float(prices[c] or 0.0) for c in priced), 0.0 * work["flops"])
    unpriced = flops.drop(columns=priced).sum(axis=1)
    return total_j.where(unpriced <= UNPRICED * work["flops"])


def price_of_flop(model: EnergyModel, precision: str) -> float | None:
    """Joules of a FLOP; of fp16, those of bf16 where that alone was measured, and vice versa."""
    names = (precision, SAME_UNITS.get(precision, precision), ANY)
    return next((model.j_per_flop[name].value for name in names if name in model.j_per_flop), None)


def _price_of_byte(model: EnergyModel, level: str) -> float:
    return model.j_per_byte[level].value if level in model.j_per_byte else 0.0


def find_energies(
    points: pd.DataFrame, runs: pd.DataFrame, models: Mapping[str, EnergyModel]
) -> pd.DataFrame:
    """Energies of all runs that have joules, measured or modelled; `models` are by run."""
    import pandas as pd

    scoped = points[points["grain"].isin(SCOPES)]
    by_run = {str(run_id): table for run_id, table in scoped.groupby("run_id", sort=False)}
    tables = []
    for run in runs.to_dict("records"):
        mine, model = by_run.get(str(run["run_id"])), models.get(str(run["run_id"]))
        step_j = run.get("energy_j_per_step")
        if mine is None or (model is None and not (step_j and step_j == step_j)):
            continue
        is_step = mine["grain"].eq("step")
        samples = run["images_processed"] / run["measured_iters"]
        step_s = _energy_step_s(run)
        if model is None:
            mine = mine[is_step]
        else:
            mine = add_energies(mine, model, step_s, _known(run, "kernel_time_s"))
        sizes = {name: str(run.get(name) or "") for name in SAMPLE}
        tables.append(_add_joules(mine, step_j, samples, step_s).assign(**sizes))
    known = [table for table in tables if len(table)]
    if not known:
        return pd.DataFrame(columns=list(ENERGY_COLUMNS))
    joined = pd.concat(known, ignore_index=True)
    return joined.assign(is_on_front=find_front(joined)).reindex(columns=list(ENERGY_COLUMNS))


def _known(run: Mapping[Hashable, Any], name: str) -> float | None:
    """A number of a run, if it has one."""
    value = run.get(name)
    return float(value) if value and value == value else None


def _energy_step_s(run: Mapping[Hashable, Any]) -> float | None:
    """The time of a step while its joules were measured; none if it is that of another step."""
    step_j, power_w = _known(run, "energy_j_per_step"), _known(run, "mean_power_w")
    usual_s = run["images_processed"] / run["measured_iters"] / run["images_per_sec"]
    step_s = step_j / power_w if step_j and power_w else None
    return step_s if step_s and usual_s / OTHER_STEP < step_s < OTHER_STEP * usual_s else None


def _add_joules(
    work: pd.DataFrame, step_j: float | None, samples: float, step_s: float | None
) -> pd.DataFrame:
    """Joules of each point, where they come from, and what of them is explained."""
    parts = [f"{name}_j" for name in ("flops", "bytes", "busy", "constant")]
    work = work.reindex(columns=[*dict.fromkeys([*work.columns, *parts, *MODELLED])])
    is_step = work["grain"].eq("step")
    energy_j, source = work["modelled_j"].astype(float), is_step.map({True: "modelled"})
    if step_j and step_j == step_j:
        energy_j = _scale_layers(work, step_j).mask(is_step, step_j)
        source = is_step.map({True: "measured"})
    return work.assign(
        energy_j=energy_j,
        energy_provenance=source.fillna("modelled"),
        **{part.replace("_j", "_share"): work[part] / energy_j for part in parts},
        energy_efficiency=work["energy_floor_j"] / energy_j,
        power_w=energy_j / (work["time_s"].mask(is_step, step_s) if step_s else work["time_s"]),
        flops_per_j=work["flops"] / energy_j,
        energy_j_per_sample=(energy_j / samples).where(is_step),
        time_s_per_sample=(work["time_s"] / samples).where(is_step),
    )[energy_j.gt(0)]


def _scale_layers(work: pd.DataFrame, step_j: float) -> pd.Series:
    """Modelled joules; those of layers by the factor that makes them those of the step."""
    modelled_j = work["modelled_j"].astype(float)
    is_layer = work["grain"].eq("layer")
    of_whole = modelled_j.where(is_layer & work["phase"].eq("all"))
    total_j = of_whole.groupby(work["provenance"]).transform("sum")
    return modelled_j.mask(is_layer, modelled_j * step_j / total_j.where(total_j > 0))


def find_front(energies: pd.DataFrame) -> pd.Series:
    """Steps that no other step on samples of the same work beats in time and joules."""
    by = list(SAME_SAMPLE)
    steps = energies[energies["grain"].eq("step")]
    ordered = steps.sort_values(["time_s_per_sample", "energy_j_per_sample"])
    least_j = ordered.groupby(by)["energy_j_per_sample"].cummin()
    before_j = least_j.groupby([ordered[name] for name in by]).shift().fillna(inf)
    is_better = ordered["energy_j_per_sample"] < before_j
    return is_better.reindex(energies.index, fill_value=False)

"""A machine with its runs and points, and the configurations that its figures show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.cases import (
    ENVIRONMENT,
    NETWORK,
    PLACE,
    SETTINGS,
    describe_settings,
    find_differing_each,
    key,
    number_configurations,
    read_all_settings,
)
from ridgeline.report.figures.style import COLOURS, colours
from ridgeline.report.study import Machine, Study
from ridgeline.report.text import listed, no_rows
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("model", "precision", "batch_size")  # colour, mark and number tell these apart
FURTHER = tuple(name for name in SETTINGS if name not in (*NAMED, *PLACE))
LONGEST_NAME = 80
LONGEST_DEVICE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One machine as the figures show it."""

    name: str  # safe in a file name, and no other view has it
    machine: Machine
    runs: pd.DataFrame  # with the columns of `add_configurations`
    points: pd.DataFrame
    # points of imported captures: the whole of each, and its kernels
    captures: pd.DataFrame = field(default_factory=no_rows)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # on counters, by run
    colours: Mapping[str, str] = field(default_factory=dict)  # by model or capture, in all figures

    def colours_of(self, models: Iterable[str]) -> dict[str, str]:
        """The colours of some models and captures, in the order of these."""
        names = list(dict.fromkeys(models))
        given = {**colours(names), **self.colours}
        return {name: given[name] for name in names}

    @property
    def roofs(self) -> Roofs:
        return self.machine.roofs

    @property
    def datasheet(self) -> Roofs | None:
        """Published roofs, where they are not the only ones."""
        return None if self.roofs.source == "datasheet" else self.machine.datasheet

    @property
    def device(self) -> str:
        """The device as people know it."""
        name = short_device(self.roofs.device_name) or self.machine.env
        whole = self.roofs.whole_env
        return f"{name}, {self.machine.env[len(whole) + 1 :].replace('-', ' ')}" if whole else name

    def roofs_label(self, drawn: Sequence[str]) -> str:
        """Where the roofs come from, and the clock of those that are drawn, for a title."""
        text = {
            "measured": "roofs as measured",
            "one core": "roofs of one core, as measured",
            "interpolated": "roofs of some threads, between those of one core and of all",
            "datasheet": "roofs of the datasheet, not measured",
            "given": "roofs as given",
        }.get(self.roofs.source, "")
        if self.roofs.others:
            text += {
                "measured": ", others as measured",
                "datasheet": ", others of the datasheet",
            }.get(self.roofs.others, "")
        text += self.clock_label(drawn)
        if self.roofs.is_quick:
            text += " (quick)"
        return text + (
            "; datasheet dashed and in brackets" if text and self.datasheet is not None else ""
        )

    def clock_label(self, drawn: Sequence[str]) -> str:
        """` at 1.98 GHz`, or a range where the measured ceilings that are drawn had several."""
        clocks = [self.roofs.clocks_hz[name] for name in drawn if name in self.roofs.clocks_hz]
        if self.roofs.source != "measured" or not clocks:
            return ""
        ends = dict.fromkeys(si(clock, "Hz") for clock in (min(clocks), max(clocks)))
        return f" at {' to '.join(ends)}"

    def title(self, heading: str, drawn: Sequence[str]) -> str:
        """The heading of a figure with the source of its roofs, as one line."""
        text = self.roofs_label(drawn)
        return f"{heading} ({text})" if text else heading

    @property
    def has_roofs(self) -> bool:
        return bool(self.roofs.compute or self.roofs.bandwidth)


def machine_views(study: Study) -> list[MachineView]:
    """One for each machine, also for two devices of one host."""
    views: list[MachineView] = []
    everywhere = add_configurations(study.runs)
    names = {"machines"}  # roofline_machines is the figure of all
    for machine in study.machines:
        name = _choose_name(machine, names)
        names.add(name.casefold())
        runs = everywhere[_filter_runs(machine, study)] if len(everywhere) else everywhere
        views.append(
            MachineView(name=name, machine=machine, runs=runs,
                        points=_filter_points(machine, study.points),
                        captures=_filter_points(machine, study.capture_points), notes=study.notes)
        )  # fmt: skip
    return _add_colours(views)


def _add_colours(views: Sequence[MachineView]) -> list[MachineView]:
    """With a colour for each model and capture: one for all machines, where there are enough."""
    every = dict.fromkeys(name for view in views for name in _list_models(view))
    if len(every) <= len(COLOURS):
        return [replace(view, colours=colours(every)) for view in views]
    return [replace(view, colours=colours(_list_models(view))) for view in views]


def _list_models(view: MachineView) -> list[str]:
    """The models and captures of a machine; of more than there are colours, the longest first."""
    import pandas as pd

    runs = view.runs.rename(columns={"step_median_s": "time_s"})
    tables = [table for table in (runs, view.points, view.captures) if len(table)]
    if not tables:
        return []
    known = pd.concat([table[["model", "time_s"]] for table in tables])
    names = list(dict.fromkeys(known["model"]))
    if len(names) <= len(COLOURS):
        return names
    longest = known.groupby("model")["time_s"].max().fillna(0.0)
    return sorted(names, key=lambda name: -longest[name])


def merge_same_roofs(every: list[MachineView]) -> list[MachineView]:
    """All machines as one, where the user gave them the same roofs; else as they are."""
    there = [view for view in every if len(view.points) or len(view.captures)]
    roofs = [view.roofs for view in there]
    are_given = all(one.source == "given" and not one.others for one in roofs)
    if len(there) < 2 or not are_given or any(
        (one.flats, one.bandwidth) != (roofs[0].flats, roofs[0].bandwidth) for one in roofs
    ):  # fmt: skip
        return every
    name = listed(dict.fromkeys(view.device for view in there))
    merged = replace(roofs[0], env=name, device_name=name)
    return _add_colours([
        replace(
            there[0],
            name="given",
            machine=Machine(roofs=merged),
            runs=_concatenate([view.runs for view in there]),
            points=_concatenate([view.points for view in there]),
            captures=_concatenate([view.captures for view in there]),
        )
    ])  # fmt: skip


def _concatenate(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    known = [table for table in tables if len(table)]
    return pd.concat(known) if known else tables[0]


def _filter_points(machine: Machine, points: pd.DataFrame) -> pd.DataFrame:
    """The points of one machine's device."""
    if not len(points):
        return points
    return points[points["env"].eq(machine.env) & points["device"].eq(machine.roofs.device)]


def _filter_runs(machine: Machine, study: Study) -> pd.Series:
    """Which runs are of the machine's device; two GPUs of a kind are told apart by their points."""
    runs = study.runs
    here = runs["env"].eq(machine.env)
    here &= runs["device_name"].fillna("").eq(machine.roofs.device_name)
    if len(study.points):
        devices = study.points.drop_duplicates("run_id").set_index("run_id")["device"]
        device = runs["run_id"].map(devices)
        here &= device.isna() | device.eq(machine.roofs.device)
    return here


def _choose_name(machine: Machine, taken: set[str]) -> str:
    name = safe_name(machine.env)
    if name.casefold() in taken:
        name = safe_name(f"{name}-{machine.roofs.device}")
    number, free = 2, name
    while free.casefold() in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def safe_name(text: str) -> str:
    """Only letters, digits, dots, dashes and underscores; never empty, never hidden."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return safe[:LONGEST_NAME].rstrip("-.") or "machine"


def short_device(name: str) -> str:
    """A device's name without what does not tell it apart."""
    name = re.sub(r"\((?:R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", "", name)
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_DEVICE else name[: LONGEST_DEVICE - 1].rstrip() + "…"


# ---------------------------------------------------------------- configurations


def add_configurations(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of all machines with columns that say which belong together.

    configuration  a number for each set of settings
    anywhere       the same number on every machine, where nothing but the machine differs
    network        what its model is, with its sizes
    is_chosen      whether it stands for its repeats: the one with the median step time
    variant        what tells it from others of the same model, precision and batch: "infer"
    """
    if not len(runs):
        return runs
    settings = read_all_settings(runs)
    number = number_configurations(settings)
    ordered = runs.assign(configuration=number).sort_values(["step_median_s", "run_id"])
    place = ordered.groupby("configuration").cumcount()
    repeats = ordered.groupby("configuration")["run_id"].transform("size")
    chosen = place.eq((repeats - 1) // 2)
    differing = find_differing_each(settings, by=NAMED, among=FURTHER)
    return runs.assign(
        configuration=number,
        anywhere=_number_anywhere(settings, differing),
        is_chosen=chosen.reindex(runs.index),
        network=[repr([one[name] for name in NETWORK]) for one in settings],
        variant=[
            ", ".join(describe_settings(one, by))
            for one, by in zip(settings, differing, strict=True)
        ],
    )


def _number_anywhere(
    settings: Iterable[Mapping[str, Any]], differing: Iterable[Sequence[str]]
) -> list[int]:
    numbers: dict[tuple[Any, ...], int] = {}
    places = []
    for one, names in zip(settings, differing, strict=True):
        circumstances = [one[name] for name in ENVIRONMENT if name in names]
        same = (*key(one, but=(*PLACE, *ENVIRONMENT)), *circumstances)
        places.append(numbers.setdefault(same, len(numbers)))
    return places


def add_lines(runs: pd.DataFrame) -> pd.DataFrame:
    """For each run which line through the batches it is on, and what tells the lines apart.

    line     a number for runs that differ in nothing but the batch
    setting  in words, beside model and precision; "default" where nothing is unusual
    """
    settings = read_all_settings(runs)
    each = find_differing_each(settings, by=("model", "precision"), among=FURTHER)
    several = {name for names in each for name in names}
    names = [name for name in FURTHER if name in several]
    keys = [(one["model"], one["precision"], *(one[name] for name in names)) for one in settings]
    numbers = {line: number for number, line in enumerate(dict.fromkeys(keys))}
    return runs[["run_id"]].assign(
        line=[numbers[line] for line in keys],
        setting=[", ".join(describe_settings(one, names)) or "default" for one in settings],
    )


def short_name(row: Any, *, with_precision: bool = False) -> str:
    """`resnet50, 128` or `resnet50, amp, 32, compiled` of a run or a joined point; of a capture its
    label."""
    if row.get("mode") == CAPTURE:
        return str(row["model"])
    parts = [str(row["model"]), str(row["precision"]) if with_precision else ""]
    parts += [f"{row['batch_size']:.0f}", str(row.get("variant") or "")]
    return ", ".join(part for part in parts if part)


def short_names(points: pd.DataFrame) -> dict[Any, str]:
    """Short names by row, with the precision where there are several."""
    several = points["precision"].nunique() > 1
    return {index: short_name(row, with_precision=several) for index, row in points.iterrows()}


def select_points(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Points of the runs that stand for their configuration, with what tells it apart."""
    if not len(points) or not len(runs):
        return points.iloc[:0].assign(configuration=0, network=None, variant="")
    wanted = runs.loc[runs["is_chosen"], ["run_id", "configuration", "network", "variant"]]
    return points.merge(wanted, on="run_id", how="inner")


def select_steps(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Steps with a rate, with `is_first`: a step counted both ways needs its name once."""
    steps = select_points(points, runs)
    steps = steps[steps["grain"].eq("step") & steps["attained_flops_per_s"].gt(0)]
    return steps.assign(is_first=~steps.duplicated("configuration"))


def append_captures(steps: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    """Steps, and after them whole captures with a rate, each a configuration of its own."""
    import pandas as pd

    whole = captures[captures["grain"].eq(CAPTURE)] if len(captures) else captures
    whole = whole[whole["attained_flops_per_s"].gt(0)] if len(whole) else whole
    if not len(whole):
        return steps
    own = range(-1, -1 - len(whole), -1)  # no run has a number below zero
    whole = whole.assign(configuration=own, network="", variant="", is_first=True)
    return pd.concat([steps, whole], ignore_index=True) if len(steps) else whole


def repeat_range(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Lowest and highest rate of each configuration's repeats, by configuration and provenance."""
    steps = points[points["grain"].eq("step") & points["attained_flops_per_s"].gt(0)]
    joined = steps.merge(runs[["run_id", "configuration"]], on="run_id", how="inner")
    rates = joined.groupby(["configuration", "provenance"])["attained_flops_per_s"]
    return rates.agg(["min", "max"])

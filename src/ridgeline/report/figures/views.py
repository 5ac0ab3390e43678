"""A machine with its runs and points, the configurations that its figures show, and captions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.configurations import (
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
from ridgeline.report.text import counted, listed, no_rows
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import format_percent, si

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("model", "precision", "batch_size")  # colour, mark and number tell these apart
FURTHER = tuple(name for name in SETTINGS if name not in (*NAMED, *PLACE))
ROOF_SOURCES = {
    "measured": "roofs as measured",
    "one core": "roofs of one core, as measured",
    "interpolated": "roofs of some threads, between those of one core and of all",
    "datasheet": "roofs of the datasheet, not measured",
    "given": "roofs as given",
}
OTHER_SOURCES = {"measured": ", others as measured", "datasheet": ", others of the datasheet"}
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
        known = {**colours(names), **self.colours}
        return {name: known[name] for name in names}

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

    def roofs_label(self, ceilings: Sequence[str]) -> str:
        """Where the roofs come from, and the clock of those that are drawn, for a title."""
        text = ROOF_SOURCES.get(self.roofs.source, "")
        text += OTHER_SOURCES.get(self.roofs.others, "")
        text += self.clock_label(ceilings) + (" (quick)" if self.roofs.is_quick else "")
        has_both = text and self.datasheet is not None
        return text + ("; datasheet dashed and in brackets" if has_both else "")

    def clock_label(self, ceilings: Sequence[str]) -> str:
        """` at 1.98 GHz`, or a range where the measured ceilings that are drawn had several."""
        clocks = [self.roofs.clocks_hz[name] for name in ceilings if name in self.roofs.clocks_hz]
        if self.roofs.source != "measured" or not clocks:
            return ""
        ends = dict.fromkeys(si(clock, "Hz") for clock in (min(clocks), max(clocks)))
        return f" at {' to '.join(ends)}"

    def title(self, heading: str, ceilings: Sequence[str]) -> str:
        """The heading of a figure with the source of its roofs, as one line."""
        text = self.roofs_label(ceilings)
        return f"{heading} ({text})" if text else heading

    @property
    def has_roofs(self) -> bool:
        return bool(self.roofs.compute or self.roofs.bandwidth)


def list_views(study: Study) -> list[MachineView]:
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


def merge_same_roofs(views: list[MachineView]) -> list[MachineView]:
    """All machines as one, where the user gave them the same roofs; else as they are."""
    import pandas as pd

    used = [view for view in views if len(view.points) or len(view.captures)]
    roofs = [view.roofs for view in used]
    is_user_supplied = all(one.source == "given" and not one.others for one in roofs)
    if len(used) < 2 or not is_user_supplied or any(
        (one.flats, one.bandwidth) != (roofs[0].flats, roofs[0].bandwidth) for one in roofs
    ):  # fmt: skip
        return views
    name = listed(dict.fromkeys(view.device for view in used))
    merged = replace(roofs[0], env=name, device_name=name)
    return _add_colours([
        replace(
            used[0],
            name="given",
            machine=Machine(roofs=merged),
            runs=pd.concat([view.runs for view in used]),
            points=pd.concat([view.points for view in used]),
            captures=pd.concat([view.captures for view in used]),
        )
    ])  # fmt: skip


def _filter_points(machine: Machine, points: pd.DataFrame) -> pd.DataFrame:
    """The points of one machine's device."""
    if not len(points):
        return points
    return points[points["env"].eq(machine.env) & points["device"].eq(machine.roofs.device)]


def _filter_runs(machine: Machine, study: Study) -> pd.Series:
    """Which runs are of the machine's device; two GPUs of a kind are told apart by their points."""
    runs = study.runs
    is_here = runs["env"].eq(machine.env)
    is_here &= runs["device_name"].fillna("").eq(machine.roofs.device_name)
    if len(study.points):
        devices = study.points.drop_duplicates("run_id").set_index("run_id")["device"]
        device = runs["run_id"].map(devices)
        is_here &= device.isna() | device.eq(machine.roofs.device)
    return is_here


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
    rank = ordered.groupby("configuration").cumcount()
    repeats = ordered.groupby("configuration")["run_id"].transform("size")
    chosen = rank.eq((repeats - 1) // 2)
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
    keys = [
        (*key(one, but=(*PLACE, *ENVIRONMENT)),
         *(one[name] for name in ENVIRONMENT if name in names))
        for one, names in zip(settings, differing, strict=True)
    ]  # fmt: skip
    return [numbers.setdefault(same, len(numbers)) for same in keys]


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
    chosen = runs.loc[runs["is_chosen"], ["run_id", "configuration", "network", "variant"]]
    return points.merge(chosen, on="run_id", how="inner")


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


def find_repeat_ranges(view: MachineView) -> dict[Any, tuple[float, float]]:
    """Lowest and highest rate of repeats, by configuration and provenance; a capture has none."""
    if not len(view.runs) or not len(view.points):
        return {}
    steps = view.points[view.points["grain"].eq("step") & view.points["attained_flops_per_s"].gt(0)]
    joined = steps.merge(view.runs[["run_id", "configuration"]], on="run_id", how="inner")
    rates = joined.groupby(["configuration", "provenance"])["attained_flops_per_s"]
    return {key: (float(rate.min()), float(rate.max())) for key, rate in rates}


# ---------------------------------------------------------------- captions


def count_steps(*tables: pd.DataFrame) -> str:
    """`7 steps`, `1 capture`: one counted both ways is one step."""
    firsts = [points[points["is_first"]] for points in tables]
    captures = sum(int(points["mode"].eq(CAPTURE).sum()) for points in firsts)
    steps = sum(len(points) for points in firsts) - captures
    texts = [counted(steps, "step")] if steps or not captures else []
    return listed([*texts, *([counted(captures, "capture")] if captures else [])])


def describe_fastest(points: pd.DataFrame) -> str:
    """Which point has the highest rate, and how near to its roof it is."""
    row = points.nlargest(1, "attained_flops_per_s").iloc[0]
    name = short_name(row, with_precision=True)
    text = f"The highest rate is {si(row['attained_flops_per_s'], 'FLOP/s')} ({name}"
    if row["efficiency"] == row["efficiency"]:
        text += f"; {format_percent(row['efficiency'])} of the possible, bound by"
        text += f" {name_bound(str(row['bound']))}"
    return f"{text})."


def count_bounds(points: pd.DataFrame) -> str:
    """`5 are bound by compute, 2 by DRAM.`"""
    counts = points["bound"].dropna().value_counts()
    if counts.empty:
        return ""
    first, *others = [f"by {name_bound(str(name))}" for name in counts.index]
    verb = "is" if counts.iloc[0] == 1 else "are"
    texts = [f"{counts.iloc[0]} {verb} bound {first}"]
    texts += [f"{number} {text}" for number, text in zip(counts.iloc[1:], others, strict=True)]
    return f"{', '.join(texts)}."


def name_bound(bound: str) -> str:
    return {"compute": "compute", "launch": "launches"}.get(bound, bound.upper())


def describe_flags(*tables: pd.DataFrame) -> str:
    """How many have a ring with an exclamation mark, and what is wrong with the first."""
    flags = [str(text) for points in tables for text in points["flag"] if text]
    if not flags:
        return ""
    first = flags[0].split("; likely")[0]
    if len(flags) == 1:
        return f"1 is marked with !: {first}."
    return f"{len(flags)} are marked with ! (the first: {first})."


def describe_undrawn(points: pd.DataFrame) -> str:
    """How many kernels cannot be drawn, and why; each is counted once."""
    reasons = {
        "whose time is not known": points["time_s"].isna(),
        "whose FLOPs are not known": points["flops"].isna(),
        "without FLOPs": points["flops"].le(0),
        "whose DRAM traffic is not known": points["dram_bytes"].isna(),
        "without DRAM traffic": points["dram_bytes"].le(0),
    }
    texts, is_left = [], points["run_id"].notna()
    for reason, applies in reasons.items():
        number = int((is_left & applies).sum())
        is_left &= ~applies
        texts += [f"{number} {reason}"] if number else []
    number = int((~is_left).sum())
    have = "has" if number == 1 else "have"
    return f"{number} of all {len(points)} {have} no place in it: {listed(texts)}." if texts else ""


def name_colours(points: pd.DataFrame) -> str:
    """Over the colours of a legend: what they stand for."""
    is_capture = points["mode"].eq(CAPTURE)
    if not is_capture.any():
        return "model"
    return "capture" if is_capture.all() else "model or capture"


def join_sentences(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)

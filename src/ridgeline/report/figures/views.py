"""A machine with its runs and points, the configurations that its figures show, and captions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from ridgeline.report.configurations import Case
from ridgeline.report.figures.style import colours
from ridgeline.report.study import Machine, Study
from ridgeline.report.text import listed, no_rows, safe_name
from ridgeline.roofline.floors import ENERGY_COLUMNS
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd

MODES = {"train": "training", "infer": "inference"}
ROOF_SOURCES = {
    "measured": "roofs as measured",
    "one core": "roofs of one core, as measured",
    "interpolated": "roofs of some threads, between those of one core and of all",
    "datasheet": "roofs of the datasheet, not measured",
    "given": "roofs as given",
}
OTHER_SOURCES = {"measured": ", others as measured", "datasheet": ", others of the datasheet"}
LONGEST_DEVICE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One machine as the figures show it."""

    name: str  # safe in a file name, and no other view has it
    machine: Machine
    steps: pd.DataFrame  # a row per configuration
    points: pd.DataFrame  # of runs and captures, with their configurations
    energies: pd.DataFrame = field(default_factory=no_rows)  # of the same, with joules
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
    def device(self) -> str:
        """The device as people know it."""
        name = short_device(self.roofs.device_name) or self.machine.env
        if self.machine.passport is None and self.machine.env.endswith("-cpu"):
            name += " (CPU)"
        whole = self.roofs.whole_env
        return f"{name}, {self.machine.env[len(whole) + 1 :].replace('-', ' ')}" if whole else name

    def roofs_label(self, ceilings: Sequence[str]) -> str:
        """Where the roofs come from, and the clock of those that are drawn, for a title."""
        roofs = self.roofs
        text = ROOF_SOURCES.get(roofs.source, "") + OTHER_SOURCES.get(roofs.others, "")
        clocks = [roofs.clocks_hz[name] for name in ceilings if name in roofs.clocks_hz]
        if roofs.source == "measured" and clocks:
            ends = dict.fromkeys(si(clock, "Hz") for clock in (min(clocks), max(clocks)))
            text += f" at {' to '.join(ends)}"
        text += " (quick)" if roofs.is_quick else ""
        has_both = text and self.machine.published is not None
        return text + ("; datasheet dashed and in brackets" if has_both else "")


def list_views(study: Study) -> list[MachineView]:
    """One for each machine, also for two devices of one host."""
    joules = study.energies.reindex(columns=list(ENERGY_COLUMNS))
    points, energies = (_name_configurations(study, table) for table in (study.points, joules))
    known = colours([*study.runs.get("model", ()), *points["model"]])
    views: list[MachineView] = []
    names: set[str] = set()
    for machine in study.machines:
        name = _choose_name(machine, names)
        names.add(name.casefold())
        mine, joules = (table[_is_of(machine, table)] for table in (points, energies))
        views.append(MachineView(name=name, machine=machine, steps=_list_steps(study, machine),
                                 points=mine, energies=joules, notes=study.notes,
                                 colours=known))  # fmt: skip
    return views


def _name_configurations(study: Study, points: pd.DataFrame) -> pd.DataFrame:
    """Points with `configuration`, its title; `variant`; and `is_chosen`, whether the run stands
    for its repeats. A capture is a configuration of its own.
    """
    run_ids, variants = points["run_id"].astype(str), name_variants(study.cases)
    titles = {run_id: case.title for run_id, case in study.case_of.items()}
    is_capture = points["mode"].eq(CAPTURE)
    named = points.assign(
        configuration=run_ids.map(titles).mask(is_capture, run_ids),
        variant=run_ids.map(variants).mask(is_capture, ""),
        is_chosen=is_capture | run_ids.isin([case.run_id for case in study.cases]),
    )
    return named[named["configuration"].notna()]


def name_variants(cases: Sequence[Case]) -> dict[str, str]:
    """By run, what its configuration is called beside model, precision and batch, without what all
    share.
    """
    modes = {case.mode for case in cases}
    shared = set.intersection(*(set(case.extras) for case in cases)) if len(cases) > 1 else set()
    variants: dict[str, str] = {}
    for case in cases:
        words = [case.mode] if len(modes) > 1 else []
        words += [word for word in case.extras if word not in shared]
        variants |= dict.fromkeys(case.run_ids, ", ".join(words))
    return variants


def _list_steps(study: Study, machine: Machine) -> pd.DataFrame:
    """A row per configuration; low_s and high_s span the 95 % intervals of all its repeats."""
    import pandas as pd

    variants = name_variants(study.cases)
    rows = [
        {
            "configuration": case.title, "variant": variants[case.run_id], "model": case.model,
            "mode": case.mode, "precision": case.precision, "batch_size": case.batch_size,
            "time_s": case.step_s, "low_s": case.ends_s[0], "high_s": case.ends_s[1],
            "rate": case.samples_per_s,
        }
        for case in study.cases
        if (case.env, case.run["device"]) == (machine.env, machine.roofs.device)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _is_of(machine: Machine, table: pd.DataFrame) -> pd.Series:
    """Which runs or points are of a device of a machine."""
    return table["env"].eq(machine.env) & table["device"].eq(machine.roofs.device)


def _choose_name(machine: Machine, taken: set[str]) -> str:
    name = safe_name(machine.env, otherwise="machine")
    others = (f"{name}-{number}" for number in count(2))
    names = chain([name, safe_name(f"{name}-{machine.roofs.device}", otherwise=name)], others)
    return next(free for free in names if free.casefold() not in taken)


def short_device(name: str) -> str:
    """A device's name without what does not tell it apart."""
    name = re.sub(r"\((?:R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", "", name)
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_DEVICE else name[: LONGEST_DEVICE - 1].rstrip() + "…"


# ---------------------------------------------------------------- names and choices


def short_name(row: Any, *, with_precision: bool = False) -> str:
    """`resnet50, 128` or `resnet50, amp, 32, compiled` of a run or point; a capture's label."""
    if row.get("mode") == CAPTURE:
        return str(row["model"])
    parts = [str(row["model"]), str(row["precision"]) if with_precision else ""]
    parts += [f"{row['batch_size']:.0f}", str(row.get("variant") or "")]
    return ", ".join(part for part in parts if part)


def name_modes(rows: pd.DataFrame) -> str:
    """`training`, `training and inference`; nothing for captures alone."""
    return listed(word for mode, word in MODES.items() if rows["mode"].eq(mode).any())

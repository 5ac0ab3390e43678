"""A machine with what ran there, and a name for it that can be part of a file name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ridgeline.report.figures.configurations import configured
from ridgeline.report.figures.style import COLOURS, colours
from ridgeline.report.rows import no_rows
from ridgeline.report.study import Machine, Study
from ridgeline.report.words import listed
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd

LONGEST_NAME = 80
LONGEST_DEVICE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the figures of one machine are about."""

    name: str  # safe in a file name, and no other subject has it
    machine: Machine
    runs: pd.DataFrame  # with the columns of `configured`
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

    def roofs_told(self, drawn: Sequence[str]) -> str:
        """Where the roofs come from, and the clock of those that are drawn, for a title."""
        told = {
            "measured": "roofs as measured",
            "one core": "roofs of one core, as measured",
            "interpolated": "roofs of some threads, between those of one core and of all",
            "datasheet": "roofs of the datasheet, not measured",
            "given": "roofs as given",
        }.get(self.roofs.source, "")
        if self.roofs.others:
            told += {
                "measured": ", others as measured",
                "datasheet": ", others of the datasheet",
            }.get(self.roofs.others, "")
        told += self.clock_told(drawn)
        if self.roofs.is_quick:
            told += " (quick)"
        return told + (
            "; datasheet dashed and in brackets" if told and self.datasheet is not None else ""
        )

    def clock_told(self, drawn: Sequence[str]) -> str:
        """` at 1.98 GHz`, or a range where the measured ceilings that are drawn had several."""
        clocks = [self.roofs.clocks_hz[name] for name in drawn if name in self.roofs.clocks_hz]
        if self.roofs.source != "measured" or not clocks:
            return ""
        ends = dict.fromkeys(si(clock, "Hz") for clock in (min(clocks), max(clocks)))
        return f" at {' to '.join(ends)}"

    def title(self, heading: str, drawn: Sequence[str]) -> str:
        """The heading of a figure with the source of its roofs, as one line."""
        told = self.roofs_told(drawn)
        return f"{heading} ({told})" if told else heading

    @property
    def has_roofs(self) -> bool:
        return bool(self.roofs.compute or self.roofs.bandwidth)


def subjects(study: Study) -> list[Subject]:
    """One for each machine, also for two devices of one host."""
    found: list[Subject] = []
    everywhere = configured(study.runs)
    names = {"machines"}  # roofline_machines is the figure of all
    for machine in study.machines:
        name = _free_name(machine, names)
        names.add(name.casefold())
        runs = everywhere[_is_of(machine, study)] if len(everywhere) else everywhere
        found.append(
            Subject(name=name, machine=machine, runs=runs, points=_here(machine, study.points),
                    captures=_here(machine, study.capture_points), notes=study.notes)
        )  # fmt: skip
    return _coloured(found)


def _coloured(found: Sequence[Subject]) -> list[Subject]:
    """With a colour for each model and capture: one for all machines, where there are enough."""
    every = dict.fromkeys(name for subject in found for name in _models(subject))
    if len(every) <= len(COLOURS):
        return [replace(subject, colours=colours(every)) for subject in found]
    return [replace(subject, colours=colours(_models(subject))) for subject in found]


def _models(subject: Subject) -> list[str]:
    """The models and captures of a machine; of more than there are colours, the longest first."""
    import pandas as pd

    runs = subject.runs.rename(columns={"step_median_s": "time_s"})
    tables = [table for table in (runs, subject.points, subject.captures) if len(table)]
    if not tables:
        return []
    known = pd.concat([table[["model", "time_s"]] for table in tables])
    names = list(dict.fromkeys(known["model"]))
    if len(names) <= len(COLOURS):
        return names
    longest = known.groupby("model")["time_s"].max().fillna(0.0)
    return sorted(names, key=lambda name: -longest[name])


def under_same_roofs(every: list[Subject]) -> list[Subject]:
    """All machines as one, where the user gave them the same roofs; else as they are."""
    there = [subject for subject in every if len(subject.points) or len(subject.captures)]
    roofs = [subject.roofs for subject in there]
    are_given = all(one.source == "given" and not one.others for one in roofs)
    if len(there) < 2 or not are_given or any(
        (one.flats, one.bandwidth) != (roofs[0].flats, roofs[0].bandwidth) for one in roofs
    ):  # fmt: skip
        return every
    name = listed(dict.fromkeys(subject.device for subject in there))
    merged = replace(roofs[0], env=name, device_name=name)
    return _coloured([
        replace(
            there[0],
            name="given",
            machine=Machine(roofs=merged),
            runs=_together([subject.runs for subject in there]),
            points=_together([subject.points for subject in there]),
            captures=_together([subject.captures for subject in there]),
        )
    ])  # fmt: skip


def _together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    known = [table for table in tables if len(table)]
    return pd.concat(known) if known else tables[0]


def _here(machine: Machine, points: pd.DataFrame) -> pd.DataFrame:
    """The points of one machine's device."""
    if not len(points):
        return points
    return points[points["env"].eq(machine.env) & points["device"].eq(machine.roofs.device)]


def _is_of(machine: Machine, study: Study) -> pd.Series:
    """Which runs are of the machine's device; two GPUs of a kind are told apart by their points."""
    runs = study.runs
    here = runs["env"].eq(machine.env)
    here &= runs["device_name"].fillna("").eq(machine.roofs.device_name)
    if len(study.points):
        devices = study.points.drop_duplicates("run_id").set_index("run_id")["device"]
        device = runs["run_id"].map(devices)
        here &= device.isna() | device.eq(machine.roofs.device)
    return here


def _free_name(machine: Machine, taken: set[str]) -> str:
    name = safe_name(machine.env)
    if name.casefold() in taken:
        name = safe_name(f"{name}-{machine.roofs.device}")
    number, free = 2, name
    while free.casefold() in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def safe_name(text: str) -> str:
    """Only letters, digits, dots, dashes and underscores; never empty, never hidden."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return kept[:LONGEST_NAME].rstrip("-.") or "machine"


def short_device(name: str) -> str:
    """A device's name without what does not tell it apart."""
    name = re.sub(r"\((?:R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", "", name)
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_DEVICE else name[: LONGEST_DEVICE - 1].rstrip() + "…"

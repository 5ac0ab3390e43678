"""Configurations of a study: runs with the same settings, as one, and which differ in what.

A configuration that was run several times is represented by the run with the middle step time (of
two, the faster), so that all its numbers belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.configuration import SETTINGS, all_settings, in_words, key, telling, unusual
from ridgeline.report.run_facts import layers_add_up
from ridgeline.report.study import Study
from ridgeline.report.text import number, plain, records

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLayer:
    """A layer of a run, both directions as one."""

    name: str
    kind: str
    bound: str | None  # what sets its floor
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration: its settings, the run that stands for it, and where its step is placed."""

    settings: Mapping[str, Any]
    run: Mapping[str, Any]  # a row of study.runs
    run_ids: tuple[str, ...]
    step_times_s: tuple[float, ...]  # of each of its runs
    step: Mapping[str, Any] = field(default_factory=dict)  # a row of study.points; empty: no place
    phases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layers: Sequence[TimedLayer] = ()  # that were timed, if they add up to the step
    more: str = ""  # what tells it from others that look the same

    @property
    def env(self) -> str:
        return str(self.settings["env"])

    @property
    def model(self) -> str:
        return str(self.settings["model"])

    @property
    def mode(self) -> str:
        return str(self.settings["mode"])

    @property
    def precision(self) -> str:
        return str(self.settings["precision"])

    @property
    def batch_size(self) -> int:
        return int(self.settings["batch_size"])

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    @property
    def kind(self) -> str:
        return "training" if self.mode == "train" else "inference"

    @property
    def family(self) -> str:
        """Its name without the batch size: `resnet50, amp training`."""
        return ", ".join([self.model, f"{self.precision} {self.kind}", *self.extras])

    @property
    def title(self) -> str:
        """`resnet50, batch 32, amp training, channels last`."""
        name = [self.model, f"batch {self.batch_size}", f"{self.precision} {self.kind}"]
        return ", ".join([*name, *self.extras])

    @property
    def extras(self) -> list[str]:
        """What is unusual about it, or tells it from others."""
        return [*unusual(self.settings), *([self.more] if self.more else [])]

    @property
    def step_s(self) -> float:
        return float(self.run["step_median_s"])

    @property
    def samples_per_step(self) -> float:
        return samples_per_step(self.run)

    @property
    def samples_per_s(self) -> float:
        return samples_per_s(self.run)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the throughput, 95 %."""
        low, high = (number(self.run.get(f"step_interval_{end}_s")) for end in ("low", "high"))
        if not low or not high:
            return None
        return self.samples_per_step / high, self.samples_per_step / low

    @property
    def floor_s(self) -> float | None:
        return number(self.step.get("floor_s"))

    @property
    def efficiency(self) -> float | None:
        return number(self.step.get("efficiency"))

    @property
    def bound(self) -> str | None:
        bound = self.step.get("bound")
        return bound if isinstance(bound, str) else None

    @property
    def intensity(self) -> float | None:
        return number(self.step.get("ai"))

    @property
    def is_gpu(self) -> bool:
        return self.run.get("backend") == "cuda"


def samples_per_step(run: Mapping[str, Any]) -> float:
    """Of a row of study.runs; a step may be made of several batches."""
    samples, steps = number(run.get("images_processed")), number(run.get("measured_iters"))
    return samples / steps if samples and steps else float(run["batch_size"])


def samples_per_s(run: Mapping[str, Any]) -> float:
    """Of the median step, as efficiency is: a few slow steps do not move it."""
    return samples_per_step(run) / float(run["step_median_s"])


def cases(study: Study) -> list[Case]:
    """The configurations of a study, machine by machine in the order of the runs."""
    if study.runs.empty:
        return []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row, one in zip(records(study.runs), all_settings(study.runs), strict=True):
        settings.setdefault(key(one), one)
        groups.setdefault(key(one), []).append(row)
    middles = {same: _middle(rows) for same, rows in groups.items()}
    steps, phases = _places(study.points)
    layers = _timed_layers(study, [str(run["run_id"]) for run in middles.values()])
    found = [
        Case(
            settings=settings[same],
            run=middles[same],
            run_ids=tuple(str(row["run_id"]) for row in rows),
            step_times_s=tuple(float(row["step_median_s"]) for row in rows),
            step=steps.get(run_id := str(middles[same]["run_id"]), {}),
            phases=phases.get(run_id, {}),
            layers=layers.get(run_id, ()),
        )
        for same, rows in groups.items()
    ]
    machines = {env: n for n, env in enumerate(dict.fromkeys(case.env for case in found))}
    return sorted(_told_apart(found), key=lambda case: machines[case.env])


def _middle(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_time = sorted(rows, key=lambda row: (float(row["step_median_s"]), str(row["run_id"])))
    return by_time[(len(by_time) - 1) // 2]


def misfits(study: Study) -> set[str]:
    """Runs whose layers do not add up to their step."""
    return {run.run_id for run in study.raw_runs if not layers_add_up(run)}


def _timed_layers(study: Study, run_ids: Iterable[str]) -> dict[str, list[TimedLayer]]:
    """The timed layers of runs, where they explain the step; counters before counts."""
    points = study.points
    if points.empty:
        return {}
    wanted = set(run_ids) - misfits(study)
    timed = points[points["grain"].eq("layer") & points["phase"].eq("all") & points["time_s"].gt(0)]
    timed = timed[["run_id", "layer", "kind", "bound", "time_s", "provenance"]]
    timed = timed.sort_values("provenance", kind="stable").drop_duplicates(["run_id", "layer"])
    found: dict[str, list[TimedLayer]] = {}
    for row in records(timed):
        if (run_id := str(row["run_id"])) in wanted:
            found.setdefault(run_id, []).append(
                TimedLayer(name=str(row["layer"]), kind=str(plain(row["kind"]) or ""),
                           bound=plain(row["bound"]), time_s=float(row["time_s"]))
            )  # fmt: skip
    return found


def _places(
    points: pd.DataFrame,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, dict[str, Any]]]]:
    """Where each run's step and phases are; counters, where there are any, before counts."""
    steps: dict[str, dict[str, Any]] = {}
    phases: dict[str, dict[str, dict[str, Any]]] = {}
    if points.empty:
        return steps, phases
    coarse = points[points["grain"].isin(["step", "phase"])]
    for row in records(coarse.sort_values("provenance", kind="stable")):
        run_id = str(row["run_id"])
        if row["grain"] == "step":
            steps.setdefault(run_id, row)
        else:
            phases.setdefault(run_id, {}).setdefault(str(row["phase"]), row)
    return steps, phases


def _told_apart(found: Sequence[Case]) -> list[Case]:
    """With what distinguishes configurations of one family, beside their batch sizes."""
    families: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for case in found:
        families.setdefault((case.env, case.family), []).append(case.settings)
    among = [name for name in SETTINGS if name != "batch_size"]
    told = {family: telling(same, among) for family, same in families.items()}
    return [
        replace(case, more=", ".join(in_words(case.settings, told[case.env, case.family])))
        for case in found
    ]


def alike(found: Iterable[Case], *, but: Sequence[str]) -> list[list[Case]]:
    """Groups of at least two configurations that differ in the settings `but` and in no other.

    A label is a name: it counts only where nothing else tells runs apart.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in found:
        groups.setdefault(key(case.settings, but=(*but, "label")), []).append(case)
    parts = [part for group in groups.values() for part in _by_label(group, but)]
    return [part for part in parts if len(part) > 1]


def _by_label(group: Sequence[Case], but: Sequence[str]) -> list[list[Case]]:
    if len({tuple(case.settings[name] for name in but) for case in group}) == len(group):
        return [list(group)]
    labels: dict[Any, list[Case]] = {}
    for case in group:
        labels.setdefault(case.settings["label"], []).append(case)
    return list(labels.values())


def series(found: Iterable[Case]) -> list[list[Case]]:
    """Configurations that differ in their batch size alone, the smallest first."""
    return [
        sorted(group, key=lambda case: case.batch_size)
        for group in alike(found, but=("batch_size",))
    ]


def largest(found: Iterable[Case], *by: str) -> list[Case]:
    """Of each combination of the settings `by`, the configuration with the largest batch."""
    best: dict[tuple[Any, ...], Case] = {}
    for case in found:
        key = tuple(case.settings[name] for name in by)
        if key not in best or case.batch_size > best[key].batch_size:
            best[key] = case
    return list(best.values())


def short_names(study: Study) -> dict[str, str]:
    """`R1`, `R2`, … for the runs of a study, in the order in which they were made."""
    if study.runs.empty:
        return {}
    return {str(run_id): f"R{n}" for n, run_id in enumerate(study.runs["run_id"], start=1)}

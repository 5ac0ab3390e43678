"""Configurations: which runs are repeats of one, in what two differ, and which run stands for one.

Runs that agree in all SETTINGS are repeats of one configuration. A setting that is as usual (no
compiler, one batch a step, synthetic data) is None here, whether it was written down or not.

A label, the number of threads, the version of torch and environment variables differ between
machines and between days in any case: they separate runs of one machine that agree in everything
else, and name nothing more.

A configuration that was run several times is represented by the run with the middle step time (of
two, the faster), so that all its numbers belong together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.run_facts import LOADING, SYNTHETIC, layers_add_up
from ridgeline.report.study import Study
from ridgeline.report.text import number, plain, records

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("env", "backend", "device_name")
NETWORK = ("model", "digest", "config")  # a changed file, or other sizes, is another network
WORK = (*NETWORK, "batch_size", "mode", "precision", "input_size", "seq_len")
OPTIONS = (
    "optimizer", "compile", "channels_last", "grad_accum_steps", "deterministic",
    "cudnn_benchmark", "data_root", *LOADING,
)  # fmt: skip
ENVIRONMENT = ("label", "threads", "torch_version", "environment")
SETTINGS = (*PLACE, *WORK, *OPTIONS, *ENVIRONMENT)

USUAL: dict[str, Any] = {"grad_accum_steps": 1, "data_root": "synthetic"}
USUAL_OPTIMIZER = "sgd"
BARE = (
    "model", "mode", "precision", "optimizer", "label", "env", "backend", "device_name",
    "environment",
)  # fmt: skip
WORDS = {
    "batch_size": "batch {}", "input_size": "input {}", "seq_len": "length {}",
    "compile": "compile {}", "grad_accum_steps": "{} batches a step", "data_root": "data {}",
    "workers": "{} workers", "prefetch_factor": "prefetch {}", "threads": "{} threads",
    "torch_version": "torch {}", "digest": "version {:.6}",
}  # fmt: skip
FLAGS = {
    "channels_last": "channels last", "deterministic": "deterministic",
    "cudnn_benchmark": "cuDNN search", "pin_memory": "pinned memory", "augment": "augmented",
    "compile": "compiled",
}  # fmt: skip


def read_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """All SETTINGS of a run, from its row in the table of runs."""
    found = {name: _setting(name, row.get(name)) for name in SETTINGS}
    if found["data_root"] in SYNTHETIC:
        found |= dict.fromkeys(LOADING)
    return found


def _setting(name: str, value: Any) -> Any:
    known = plain(value)
    return None if known is False or known == "" or known == USUAL.get(name) else known


def key(settings: Mapping[str, Any], *, but: Iterable[str] = ()) -> tuple[Any, ...]:
    """Equal for runs that agree in all settings `but` some."""
    left_out = set(but)
    return tuple(settings[name] for name in SETTINGS if name not in left_out)


def number_configurations(found: Iterable[Mapping[str, Any]]) -> list[int]:
    """For each of some settings the number of its configuration, by first appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(key(one), len(numbers)) for one in found]


def read_all_settings(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The settings of every row of the table of runs."""
    return [read_settings(row) for row in records(runs[[n for n in SETTINGS if n in runs]])]


def find_differing(
    found: Sequence[Mapping[str, Any]], among: Iterable[str] = SETTINGS
) -> list[str]:
    """The settings that tell some configurations apart."""
    names = list(among)
    told = [name for name in names if name not in ENVIRONMENT and _differs(found, name)]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        groups.setdefault(key(one, but=ENVIRONMENT), []).append(one)
    told += [
        name
        for name in names
        if name in ENVIRONMENT and any(_differs(same, name) for same in groups.values())
    ]
    return told


def find_differing_each(
    found: Sequence[Mapping[str, Any]], *, by: Sequence[str], among: Sequence[str]
) -> list[list[str]]:
    """For each of some settings those `among` which tell it from others that agree in `by`."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        groups.setdefault(tuple(one[name] for name in by), []).append(one)
    told = {same: find_differing(group, among) for same, group in groups.items()}
    return [told[tuple(one[name] for name in by)] for one in found]


def describe_differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of some settings, in words, those in which they differ.

    Label and threads are among them wherever they differ. Place, model, batch, mode and precision
    are not: a table has columns for these.
    """
    shown = (*PLACE, "model", "batch_size", "mode", "precision")
    told = find_differing_each(found, by=("model",), among=[n for n in SETTINGS if n not in shown])
    always = [name for name in ("label", "threads") if _differs(found, name)]
    return [
        ", ".join(describe_settings(one, dict.fromkeys((*always, *names))))
        for one, names in zip(found, told, strict=True)
    ]


def _differs(found: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting takes several values; inference has no optimizer, which is no value."""
    values = {one[name] for one in found}
    return len(values - {None} if name == "optimizer" else values) > 1


def describe_settings(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Some settings: `compile default`, `input 224`; what is usual needs no word."""
    return [text for name in names if (text := word(name, settings[name]))]


def word(name: str, value: Any) -> str:
    """One setting in words."""
    if value is None or value is False:
        return ""
    if value is True:
        return FLAGS.get(name, name.replace("_", " "))
    if name == "config":
        return describe_config(str(value))
    if name in BARE:
        return str(value)
    text = WORDS.get(name, name + " {}").format(value)
    return text.removesuffix("s") if value == 1 else text  # 1 thread, 1 worker


def describe_unusual(settings: Mapping[str, Any]) -> list[str]:
    """In words, those settings that are not what one would assume."""
    names = [name for name in ("config", *OPTIONS) if name != "optimizer"]
    optimizer = settings.get("optimizer")
    used = [] if optimizer in (None, USUAL_OPTIMIZER) else [str(optimizer)]
    return [*used, *describe_settings({name: settings.get(name) for name in names}, names)]


def describe_config(text: str) -> str:
    """`hidden=64 layers=2` of such a cell."""
    try:
        config = json.loads(text)
    except ValueError:
        return text
    if not isinstance(config, dict):
        return text
    return " ".join(f"{name}={value}" for name, value in config.items())


# ---------------------------------------------------------------- runs of one configuration


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
        return [*describe_unusual(self.settings), *([self.more] if self.more else [])]

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
    for row, one in zip(records(study.runs), read_all_settings(study.runs), strict=True):
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


def find_misfits(study: Study) -> set[str]:
    """Runs whose layers do not add up to their step."""
    return {run.run_id for run in study.raw_runs if not layers_add_up(run)}


def _timed_layers(study: Study, run_ids: Iterable[str]) -> dict[str, list[TimedLayer]]:
    """The timed layers of runs, where they explain the step; counters before counts."""
    points = study.points
    if points.empty:
        return {}
    wanted = set(run_ids) - find_misfits(study)
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
    told = {family: find_differing(same, among) for family, same in families.items()}
    return [
        replace(case, more=", ".join(describe_settings(case.settings, told[case.env, case.family])))
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

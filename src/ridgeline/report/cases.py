"""Configurations of a study: runs with the same settings, as one, and which differ in what.

A configuration that was run several times is represented by the run with the middle step time (of
two, the faster), so that all its numbers belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from ridgeline.report.study import Study

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (  # runs that agree in all of them are repeats
    "env", "model", "mode", "precision", "batch_size", "input_size", "seq_len", "compile",
    "channels_last", "grad_accum_steps", "optimizer", "deterministic", "cudnn_benchmark",
    "data_root", "config", "threads", "torch_version",
)  # fmt: skip
SOFTWARE = ("threads", "torch_version")  # that differ between machines in any case
SYNTHETIC = ("synthetic", "synthetic-host", None)
USUAL_OPTIMIZER = "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration: its settings, the run that stands for it, and where its step is placed."""

    settings: Mapping[str, Any]
    run: Mapping[str, Any]  # a row of study.runs
    run_ids: tuple[str, ...]
    step_times_s: tuple[float, ...]  # of each of its runs
    step: Mapping[str, Any] = field(default_factory=dict)  # a row of study.points; empty: no place
    phases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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
        return ", ".join([self.model, f"{self.precision} {self.kind}", *self._extras()])

    @property
    def title(self) -> str:
        """`resnet50, batch 32, amp training, channels last`."""
        name = [self.model, f"batch {self.batch_size}", f"{self.precision} {self.kind}"]
        return ", ".join([*name, *self._extras()])

    def _extras(self) -> list[str]:
        return [*unusual(self.settings), *([self.more] if self.more else [])]

    @property
    def step_s(self) -> float:
        return float(self.run["step_median_s"])

    @property
    def samples_per_step(self) -> float:
        samples = number(self.run.get("images_processed"))
        steps = number(self.run.get("measured_iters"))
        return samples / steps if samples and steps else float(self.batch_size)

    @property
    def samples_per_s(self) -> float:
        """Of the median step: a few slow steps do not move it."""
        return self.samples_per_step / self.step_s

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


def number(value: Any) -> float | None:
    """A finite number, or None: tables say not-a-number for what is not known."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if isfinite(found) else None


def plain(value: Any) -> Any:
    """A cell as a plain value: None for nothing, int for a whole number of numpy's."""
    if value is None or value != value:
        return None
    item = value.item() if hasattr(value, "item") else value
    return int(item) if isinstance(item, float) and item.is_integer() else item


def config_text(config: Any) -> str | None:
    """`hidden=64 layers=2`, of a model that was configured."""
    if not isinstance(config, Mapping) or not config:
        return None
    return " ".join(f"{name}={config[name]}" for name in sorted(config, key=str))


def unusual(settings: Mapping[str, Any]) -> list[str]:
    """In words, those settings that are not what one would assume."""
    found = []
    if settings.get("compile"):
        found.append(f"compile {settings['compile']}")
    if settings.get("channels_last"):
        found.append("channels last")
    parts = settings.get("grad_accum_steps") or 1
    if parts > 1:
        found.append(f"{parts} batches a step")
    if settings.get("optimizer") not in (None, USUAL_OPTIMIZER):
        found.append(str(settings["optimizer"]))
    found += [
        text
        for name, text in (("deterministic", "deterministic"), ("cudnn_benchmark", "cuDNN search"))
        if settings.get(name)
    ]
    if settings.get("config"):
        found.append(str(settings["config"]))
    if settings.get("data_root") not in SYNTHETIC:
        found.append(f"data {settings['data_root']}")
    return found


def cases(study: Study) -> list[Case]:
    """The configurations of a study, machine by machine in the order of the runs."""
    if study.runs.empty:
        return []
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    configs = {run.run_id: config_text(run.asked.get("config")) for run in study.raw_runs}
    for row in records(study.runs):
        row["config"] = configs.get(str(row["run_id"]))
        groups.setdefault(tuple(plain(row.get(name)) for name in SETTINGS), []).append(row)
    steps, phases = _places(study.points)
    found = [_case(key, rows, steps, phases) for key, rows in groups.items()]
    machines = list(dict.fromkeys(case.env for case in found))
    return sorted(_told_apart(found), key=lambda case: machines.index(case.env))


def _case(
    key: tuple[Any, ...],
    rows: Sequence[Mapping[str, Any]],
    steps: Mapping[str, Mapping[str, Any]],
    phases: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Case:
    by_time = sorted(rows, key=lambda row: float(row["step_median_s"]))
    middle = by_time[(len(by_time) - 1) // 2]
    run_id = str(middle["run_id"])
    return Case(
        settings=dict(zip(SETTINGS, key, strict=True)),
        run=middle,
        run_ids=tuple(str(row["run_id"]) for row in rows),
        step_times_s=tuple(float(row["step_median_s"]) for row in rows),
        step=steps.get(run_id, {}),
        phases=phases.get(run_id, {}),
    )


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, as mappings."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


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
    """With what distinguishes configurations that would have the same title."""
    same: dict[tuple[str, str], list[Case]] = {}
    for case in found:
        same.setdefault((case.env, case.title), []).append(case)
    return [
        replace(case, more=_difference(case, same[case.env, case.title]))
        if len(same[case.env, case.title]) > 1
        else case
        for case in found
    ]


def _difference(case: Case, others: Sequence[Case]) -> str:
    names = {"input_size": "input", "seq_len": "length", "torch_version": "torch"}
    differ = [
        name for name in SETTINGS if len({repr(other.settings[name]) for other in others}) > 1
    ]
    return ", ".join(f"{names.get(name, name)} {case.settings[name]}" for name in differ)


def alike(found: Iterable[Case], *, but: Sequence[str]) -> list[list[Case]]:
    """Groups of at least two configurations that differ in the settings `but` and in no other."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in found:
        key = tuple(value for name, value in case.settings.items() if name not in but)
        groups.setdefault(key, []).append(case)
    return [group for group in groups.values() if len(group) > 1]


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

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
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.text import group_by, number, plain, records
from ridgeline.settings import LOADING, STEP_SETTINGS, SYNTHETIC, SYNTHETIC_HOST, WORDS, Settings

if TYPE_CHECKING:
    import pandas as pd

# The settings are columns of study.runs. Those of a step are the fields of `Settings` that have no
# other column there, so that a new one needs no word here.
PLACE = ("env", "backend", "device_name")
NETWORK = ("model", "digest", "config")  # a changed file, or other sizes, is another network
WORK = (*NETWORK, "batch_size", "mode", "precision", "input_size", "seq_len")
OPTIONS = ("optimizer", "compile", *STEP_SETTINGS, "data_root", *LOADING)
ENVIRONMENT = ("label", "threads", "torch_version", "environment")
SETTINGS = (*PLACE, *WORK, *OPTIONS, *ENVIRONMENT)

NO_DATA = (SYNTHETIC, SYNTHETIC_HOST, None)  # inputs that nobody has to read
DEFAULTS = {f.name: f.default for f in fields(Settings)}
USUAL: dict[str, Any] = {name: DEFAULTS[name] for name in STEP_SETTINGS}
USUAL |= {"data_root": DEFAULTS["data"]}
BARE = (
    "model", "mode", "precision", "optimizer", "label", "env", "backend", "device_name",
    "environment",
)  # fmt: skip
TEXTS = {
    "batch_size": "batch {}", "input_size": "input {}", "seq_len": "length {}",
    "data_root": "data {}", "threads": "{} threads", "torch_version": "torch {}",
    "digest": "version {:.6}", "power_limit_w": "{} W",
    **{f.name: str(f.metadata[WORDS]) for f in fields(Settings) if WORDS in f.metadata},
}  # fmt: skip


def read_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """All SETTINGS of a run, from its row in the table of runs; None is the usual value."""
    known = {name: plain(row.get(name)) for name in SETTINGS}
    settings = {
        name: None if value is False or value in ("", USUAL.get(name)) else value
        for name, value in known.items()
    }
    if settings["data_root"] in NO_DATA:
        settings |= dict.fromkeys(LOADING)
    return settings


def read_all_settings(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The settings of every row of the table of runs."""
    return [read_settings(row) for row in records(runs[[n for n in SETTINGS if n in runs]])]


def key(settings: Mapping[str, Any], *, but: Iterable[str] = ()) -> tuple[Any, ...]:
    """A key that is equal for runs that agree in all settings `but` some."""
    left_out = set(but)
    return tuple(settings[name] for name in SETTINGS if name not in left_out)


def find_differing(
    every: Sequence[Mapping[str, Any]], among: Iterable[str] = SETTINGS
) -> list[str]:
    """The settings that distinguish some configurations; those of ENVIRONMENT come last."""
    names = list(among)
    groups = group_by(every, (key(one, but=ENVIRONMENT) for one in every)).values()
    main = [name for name in names if name not in ENVIRONMENT and _differs(every, name)]
    rest = [name for name in names if name in ENVIRONMENT]
    return [*main, *(name for name in rest if any(_differs(same, name) for same in groups))]


def _differs(every: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting takes several values; inference has no optimizer, which is no value."""
    values = {one[name] for one in every}
    return len(values - {None} if name == "optimizer" else values) > 1


def describe_settings(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Some settings: `compile default`, `input 224`; what is usual needs no word."""
    return [text for name in names if (text := word(name, settings[name]))]


def word(name: str, value: Any) -> str:
    """One setting in words."""
    if value is None or value is False:
        return ""
    if value is True:
        return TEXTS.get(name, name.replace("_", " "))
    if name == "config":
        return describe_config(str(value))
    if name in BARE:
        return str(value)
    text = TEXTS.get(name, name.replace("_", " ") + " {}").format(value)
    return text.removesuffix("s") if value == 1 else text  # 1 thread, 1 worker


def describe_config(text: str) -> str:
    """`hidden=64 layers=2` of a cell with sizes in JSON."""
    try:
        return " ".join(f"{name}={value}" for name, value in json.loads(text).items())
    except (ValueError, AttributeError):
        return text


# ---------------------------------------------------------------- runs of one configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration: its settings, the run that stands for it, and where its step is placed."""

    settings: Mapping[str, Any]
    run: Mapping[str, Any]  # a row of study.runs
    run_ids: tuple[str, ...]
    step_times_s: tuple[float, ...]  # of each of its runs
    ends_s: tuple[float, float]  # of the 95 % intervals of all of them
    step: Mapping[str, Any]  # a row of study.points; empty: it has no place
    env: str
    model: str
    mode: str
    precision: str
    batch_size: int
    run_id: str
    step_s: float
    samples_per_s: float
    floor_s: float | None
    efficiency: float | None
    bound: str | None
    work: str | None  # where its FLOPs and bytes are from: "static" or "counter"
    more: tuple[str, ...] = ()  # what distinguishes it from others that look the same

    @property
    def family(self) -> str:
        """Its name without the batch size: `resnet50, amp training`."""
        return ", ".join([self.model, self._kind, *self.extras])

    @property
    def title(self) -> str:
        """`resnet50, batch 32, amp training, channels last`."""
        return ", ".join([self.model, f"batch {self.batch_size}", self._kind, *self.extras])

    @property
    def _kind(self) -> str:
        return f"{self.precision} {'training' if self.mode == 'train' else 'inference'}"

    @property
    def extras(self) -> list[str]:
        """What is unusual about it, or tells it from others."""
        unusual = {name: self.settings[name] for name in ("config", *OPTIONS)}
        if unusual["optimizer"] == DEFAULTS["optimizer"]:
            unusual["optimizer"] = None
        return list(dict.fromkeys([*describe_settings(unusual, unusual), *self.more]))


def add_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """The table of runs with `samples_per_s`, as RunResult has it, and its interval.

    They are those of the median step. A step may be made of several batches.
    """
    if runs.empty:
        return runs
    per_step = (runs["images_processed"] / runs["measured_iters"]).fillna(runs["batch_size"])
    times = runs.reindex(columns=["step_interval_low_s", "step_interval_high_s"]).astype(float)
    return runs.assign(
        samples_per_s=per_step / runs["step_median_s"],
        samples_per_s_low=per_step / times["step_interval_high_s"],
        samples_per_s_high=per_step / times["step_interval_low_s"],
    )


def find_cases(runs: pd.DataFrame, points: pd.DataFrame) -> list[Case]:
    """The configurations of a study, machine by machine in the order of its runs."""
    if runs.empty:
        return []
    settings = read_all_settings(runs)
    pairs = list(zip(settings, records(runs), strict=True))
    groups = group_by(pairs, (key(one) for one in settings))
    steps = _read_steps(points)
    every = [_make_case(same[0][0], [row for _, row in same], steps) for same in groups.values()]
    machines = list(dict.fromkeys(case.env for case in every))
    return sorted(_distinguish(every), key=lambda case: machines.index(case.env))


def _make_case(
    settings: Mapping[str, Any], rows: list[dict[str, Any]], steps: Mapping[str, dict[str, Any]]
) -> Case:
    """The configuration of some runs; the one with the middle step time stands for it."""
    by_time = sorted(rows, key=lambda row: (float(row["step_median_s"]), str(row["run_id"])))
    middle = by_time[(len(by_time) - 1) // 2]
    step = steps.get(str(middle["run_id"]), {})
    return Case(
        settings=settings,
        run=middle,
        run_ids=tuple(str(row["run_id"]) for row in rows),
        step_times_s=tuple(float(row["step_median_s"]) for row in rows),
        ends_s=(
            min(_read_end("low", row) for row in rows),
            max(_read_end("high", row) for row in rows),
        ),
        step=step,
        env=str(settings["env"]),
        model=str(settings["model"]),
        mode=str(settings["mode"]),
        precision=str(settings["precision"]),
        batch_size=int(settings["batch_size"]),
        run_id=str(middle["run_id"]),
        step_s=float(middle["step_median_s"]),
        samples_per_s=float(middle["samples_per_s"]),
        floor_s=number(step.get("floor_s")),
        efficiency=number(step.get("efficiency")),
        bound=plain(step.get("bound")),
        work=step.get("provenance"),
    )


def _read_end(end: str, row: Mapping[str, Any]) -> float:
    """Of the interval of a step; a run without one, as an imported one, is its time alone."""
    return number(row.get(f"step_interval_{end}_s")) or float(row["step_median_s"])


def _read_steps(points: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Where each run's step is; by counters, where there are any, before counts."""
    if points.empty:
        return {}
    steps = points[points["grain"].eq("step")].sort_values("provenance", kind="stable")
    return {str(row["run_id"]): row for row in records(steps)[::-1]}


def _distinguish(every: Sequence[Case]) -> list[Case]:
    """With what distinguishes configurations of one family, beside their batch sizes."""
    families = [(case.env, case.family) for case in every]
    groups = group_by((case.settings for case in every), families)
    among = [name for name in SETTINGS if name != "batch_size"]
    names = {family: find_differing(same, among) for family, same in groups.items()}
    return [
        replace(case, more=tuple(describe_settings(case.settings, names[family])))
        for case, family in zip(every, families, strict=True)
    ]


def alike(every: Iterable[Case], *, but: Sequence[str]) -> list[list[Case]]:
    """Groups of at least two configurations that differ in the settings `but` and in no other.

    A label is a name: it counts only where nothing else distinguishes runs.
    """
    chosen = list(every)
    groups = group_by(chosen, (key(case.settings, but=(*but, "label")) for case in chosen))
    parts: list[list[Case]] = []
    for group in groups.values():
        if len({tuple(case.settings[name] for name in but) for case in group}) == len(group):
            parts.append(group)
        else:
            parts += group_by(group, (case.settings["label"] for case in group)).values()
    return [part for part in parts if len(part) > 1]


def series(every: Iterable[Case]) -> list[list[Case]]:
    """Configurations that differ in their batch size alone, the smallest first."""
    groups = alike(every, but=("batch_size",))
    return [sorted(group, key=lambda case: case.batch_size) for group in groups]


def largest(every: Iterable[Case], *by: str) -> list[Case]:
    """Of each combination of the settings `by`, the configuration with the largest batch."""
    chosen = list(every)
    groups = group_by(chosen, (tuple(case.settings[name] for name in by) for case in chosen))
    return [max(group, key=lambda case: case.batch_size) for group in groups.values()]

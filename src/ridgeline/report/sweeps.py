"""Sweeps as the report shows them: every case of the plan, with its run or why it has none.

Read from `sweeps/NAME` in the results folder, as `ridgeline sweep` writes it:

cases.csv           the plan: a row per case of every stage
finished/ID.json    how a case ended
shards/NAME.json    what ran cases: the node, its devices, how far its passport has drifted
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.report.configurations import DEFAULTS, word
from ridgeline.report.study import BUSY, Study
from ridgeline.report.text import counted, group_by, number, records

DONE, NOT_RUN = "done", "not run yet"
NOT_VARIED = ("stage", "case_id", "repeat", "digest", "what")  # columns of the plan
SWITCHES = {"True": "yes", "False": "no"}
OWN_SIZE = "the model's own"
MOST_CURVES = 14  # of a chart: seven colours that people can tell apart, drawn through and dashed
QUANTITIES = {  # of a run: what it is, and its unit
    "time_s": ("time of a step", "s"),
    "samples_per_s": ("throughput", "samples/s"),
    "sample_j": ("energy", "J/sample"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCase:
    """One case of a plan and what came of it."""

    case_id: str
    stages: tuple[str, ...]
    settings: Mapping[str, str]  # as cases.csv has them
    status: str
    reason: str = ""
    run_id: str = ""  # of its result, if the report has it
    node: str = ""
    device: str = ""
    device_uuid: str = ""
    values: Mapping[str, float | None]  # by QUANTITIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Cases that differ in the swept quantity, and in no other, on one kind of device."""

    name: str
    cases: Sequence[tuple[float, SweptCase]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves that belong into one picture."""

    title: str
    curves: Sequence[Curve]


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """A sweep: its cases, what was varied, and notes on what they ran on."""

    name: str
    cases: tuple[SweptCase, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def shown(self) -> list[SweptCase]:
        """The cases without those of a stage that has not begun."""
        begun = {case.stages[0] for case in self.cases if case.status != NOT_RUN}
        return [case for case in self.cases if case.status != NOT_RUN or begun & {*case.stages}]

    @cached_property
    def varied(self) -> list[str]:
        """The settings that have several values in the plan."""
        names = dict.fromkeys(name for case in self.cases for name in case.settings)
        return [name for name in names if len({self.value(c, name) for c in self.cases}) > 1]

    @cached_property
    def swept(self) -> str:
        """Of the settings that are numbers, the one with the most values; empty if none is."""
        sizes = {name: len(self._numbers(name)) for name in self.varied}
        best = max(sizes, key=lambda name: sizes[name], default="")
        return best if sizes.get(best, 0) > 1 else ""

    def value(self, case: SweptCase, name: str) -> str:
        """A setting of a case as text; the plan leaves defaults out."""
        text = case.settings.get(name) or read_default(name)
        return SWITCHES.get(text, text)

    def describe(self, case: SweptCase, names: Iterable[str]) -> str:
        """`resnet50, amp, channels last`."""
        texts = [describe_setting(name, self.value(case, name)) for name in names]
        return ", ".join(text for text in texts if text)

    def name_case(self, case: SweptCase) -> str:
        """Its model, and what else is varied."""
        return self.describe(case, dict.fromkeys(["model", *self.varied]))

    def _numbers(self, name: str) -> set[float]:
        every = [number(self.value(case, name)) for case in self.cases]
        return {value for value in every if value is not None}

    def count_stages(self) -> list[dict[str, Any]]:
        """How many cases of each stage ended how."""
        names = dict.fromkeys(stage for case in self.cases for stage in case.stages)
        rows = []
        for stage in names:
            ended = Counter(case.status for case in self.cases if stage in case.stages)
            rows.append({
                "stage": stage,
                "cases": ended.total(),
                "done": ended[DONE],
                "failed": ended.total() - ended[DONE] - ended[NOT_RUN],
                "not_run": ended[NOT_RUN],
            })  # fmt: skip
        return rows

    def count_devices(self) -> list[dict[str, Any]]:
        """Which node and device made how many results."""
        made = Counter((case.node, case.device, case.device_uuid)
                       for case in self.cases if case.status == DONE)  # fmt: skip
        return [{"node": node, "device": device, "uuid": uuid, "cases": count}
                for (node, device, uuid), count in made.items()]  # fmt: skip

    def charts(self) -> list[Chart]:
        """Curves against the swept quantity. Devices of unlike kinds never share a chart."""
        if not self.swept:
            return []
        lines = [name for name in self.varied if name not in (self.swept, "mode")]
        apart = ["mode"] if "mode" in self.varied else []
        while lines and self._count_curves(lines, apart) > MOST_CURVES:
            apart.append(lines.pop(0))
        groups = group_by(self.shown, ((c.device, self.describe(c, apart)) for c in self.shown))
        devices = {device for device, _ in groups}
        charts = []
        for (device, title), cases in groups.items():
            words = [title, device if len(devices) > 1 else ""]
            curves = self._make_curves(cases, lines)
            if any(len({x for x, _ in curve.cases}) > 1 for curve in curves):
                charts.append(Chart(title=", ".join(filter(None, words)), curves=curves))
        return charts

    def _count_curves(self, lines: Sequence[str], apart: Sequence[str]) -> int:
        groups = group_by(
            (self.describe(c, lines) for c in self.shown),
            ((c.device, self.describe(c, apart)) for c in self.shown),
        )
        return max(len(set(names)) for names in groups.values())

    def _make_curves(self, cases: Sequence[SweptCase], lines: Sequence[str]) -> list[Curve]:
        groups = group_by(cases, (self.describe(case, lines) for case in cases))
        curves = []
        for name, same in groups.items():
            placed = [(number(self.value(case, self.swept)), case) for case in same]
            known = [(x, case) for x, case in placed if x is not None]
            curves.append(Curve(name=name, cases=sorted(known, key=lambda pair: pair[0])))
        return curves


def read_default(name: str) -> str:
    """What a setting is that the plan leaves out."""
    if name in ("input_size", "seq_len"):
        return OWN_SIZE
    default = DEFAULTS.get(name)
    return "" if default is None else str(default)


def describe_setting(name: str, text: str) -> str:
    """`batch 8`, `channels last`; what is off needs no word."""
    return word(name, {"yes": True, "no": False, "": None}.get(text, text))


def name_quantity(name: str) -> str:
    return name.replace("_", " ")


# ---------------------------------------------------------------- reading


def read_sweeps(study: Study) -> list[SweepResults]:
    """The sweeps that runs of a study belong to."""
    runs = {str(row["run_id"]): row for row in records(study.runs)}
    uuids = {run.run_id: run.result.device_uuid or "" for run in study.raw_runs}
    found = []
    for folder in sorted((study.results / "sweeps").glob("*/cases.csv")):
        sweep = _read_sweep(folder.parent, runs, uuids)
        made = [case.run_id for case in sweep.cases if case.run_id]
        if busy := sum(run_id in study.disturbed for run_id in made):
            note = f"{BUSY} during {busy} of {counted(len(made), 'run')}, which took longer by it"
            sweep = replace(sweep, notes=(*sweep.notes, note))
        if made:
            found.append(sweep)
    return found


def read_case_runs(results: Path, name: str) -> SweepResults:
    """A sweep with the ids of its runs alone, whatever study they are in."""
    folder = results / "sweeps" / name
    if not (folder / "cases.csv").is_file():
        known = ", ".join(list_sweeps(results))
        raise RidgelineError(
            f"there is no sweep {name!r} in {results}",
            hint=f"there are {known}" if known else "`ridgeline sweep FILE.yaml` makes one",
        )
    return _read_sweep(folder, None, {})


def list_sweeps(results: Path) -> list[str]:
    return sorted(path.parent.name for path in (results / "sweeps").glob("*/cases.csv"))


def _read_sweep(
    folder: Path, runs: Mapping[str, Mapping[str, Any]] | None, uuids: Mapping[str, str]
) -> SweepResults:
    """`runs` are rows of the table of runs by their ids; None: any id will do."""
    records, shards = _read_all(folder / "finished"), _read_all(folder / "shards")
    cases = []
    for case_id, rows in _read_plan(folder / "cases.csv").items():
        record = records.get(case_id, {})
        shard = shards.get(str(record.get("shard")), {})
        run_ids = [str(one) for one in record.get("run_ids") or () if runs is None or one in runs]
        run = (runs or {}).get(run_ids[0], {}) if run_ids else {}
        status, reason = str(record.get("status", NOT_RUN)), str(record.get("reason", ""))
        cases.append(SweptCase(
            case_id=case_id,
            stages=tuple(row["stage"] for row in rows),
            settings={name: text for name, text in rows[0].items() if name not in NOT_VARIED},
            status=status,
            reason=reason if reason != status else "",
            run_id=run_ids[0] if run_ids else "",
            node=str(run.get("hostname") or shard.get("host", "")),
            device=str(run.get("device_name") or ""),
            device_uuid=uuids.get(run_ids[0], "") if run_ids else "",
            values=_read_values(run),
        ))  # fmt: skip
    by_time = sorted(shards.values(), key=lambda shard: str(shard.get("started")))
    drifts = {shard.get("host"): shard.get("drift") for shard in by_time
              if shard.get("has_drifted")}  # fmt: skip
    notes = tuple(f"{host}: {text}" for host, text in drifts.items())
    return SweepResults(name=folder.name, cases=_sort(_fill_devices(cases)), notes=notes)


def _read_plan(path: Path) -> dict[str, list[dict[str, str]]]:
    """The rows of each case: one for each stage that has it."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row.get("case_id") and row.get("stage")]
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    texts = [{name: text or "" for name, text in row.items() if name} for row in rows]
    return group_by(texts, (row["case_id"] for row in texts))


def _read_all(folder: Path) -> dict[str, dict[str, Any]]:
    """The JSON files of a folder by their names; what cannot be read is left out."""
    found = {}
    for path in folder.glob("*.json"):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            found[path.stem] = content
    return found


def _read_values(run: Mapping[str, Any]) -> dict[str, float | None]:
    if not run:
        return {}
    return {
        "time_s": number(run["step_median_s"]),
        "samples_per_s": number(run["samples_per_s"]),
        "sample_j": number(run.get("energy_j_per_sample")),
    }


def _fill_devices(cases: Sequence[SweptCase]) -> list[SweptCase]:
    """A case without a result is shown with those that it would be compared with."""

    def key(case: SweptCase) -> tuple[str, ...]:
        return tuple(case.settings.get(name, "") for name in ("model", "mode", "backend", "gpu"))

    known = {key(case): case.device for case in cases if case.device}
    only = next(iter(known.values()), "")
    return [case if case.device else replace(case, device=known.get(key(case), only))
            for case in cases]  # fmt: skip


def _sort(cases: Sequence[SweptCase]) -> tuple[SweptCase, ...]:
    """By their settings: numbers by size, others in the order of the plan."""
    names = list(dict.fromkeys(name for case in cases for name in case.settings))
    ranks = {
        name: {text: n for n, text in enumerate(dict.fromkeys(c.settings.get(name) for c in cases))}
        for name in names
    }

    def key(case: SweptCase) -> list[float]:
        texts = [(name, case.settings.get(name)) for name in names]
        sizes = [(number(text), ranks[name][text]) for name, text in texts]
        return [rank if size is None else size for size, rank in sizes]

    return tuple(sorted(cases, key=key))


# ---------------------------------------------------------------- two values of a sweep


def choose_runs_of_value(sweep: SweepResults, text: str) -> tuple[str, list[str], str]:
    """Of `precision=fp32`: the setting, the runs that have the value, and what has no result."""
    name, equals, value = (part.strip() for part in text.partition("="))
    known = {"models": "model"}.get(name, name.replace("-", "_"))
    if not equals or known not in sweep.varied:
        raise RidgelineError(
            f"{text!r} is no value of the sweep {sweep.name}",
            hint=f"write SETTING=VALUE; the sweep varies {', '.join(sweep.varied) or 'nothing'}",
        )
    values = list(dict.fromkeys(sweep.value(case, known) for case in sweep.cases))
    value = SWITCHES.get(value.capitalize(), value)
    chosen = next((one for one in values if one.casefold() == value.casefold()), None)
    if chosen is None:
        raise RidgelineError(f"no case of the sweep {sweep.name} has {known}={value}",
                             hint=f"{known} is {', '.join(values)}")  # fmt: skip
    cases = [case for case in sweep.cases if sweep.value(case, known) == chosen]
    absent = Counter(case.status for case in cases if not case.run_id)
    runs = [case.run_id for case in cases if case.run_id]
    note = ", ".join(f"{count} {status}" for status, count in absent.items())
    lost = counted(absent.total(), "case")
    return known, runs, f"{known}={value}: {lost} without a result ({note})" if absent else ""


# ---------------------------------------------------------------- the page and report.md


def describe_for_page(
    study: Study, rows: Mapping[str, int], words: Callable[[Iterable[object]], list[int]]
) -> list[dict[str, Any]]:
    """What the page draws of each sweep. `rows` are places of runs, `words` numbers of texts."""
    return [_describe_sweep(sweep, rows, words) for sweep in read_sweeps(study)]


def _describe_sweep(
    sweep: SweepResults, rows: Mapping[str, int], words: Callable[[Iterable[object]], list[int]]
) -> dict[str, Any]:
    places = {case.case_id: place for place, case in enumerate(sweep.shown)}
    texts = {
        "id": [case.case_id for case in sweep.shown],
        "title": [sweep.name_case(case) for case in sweep.shown],
        "of_stages": [", ".join(case.stages) for case in sweep.shown],
        "status": [case.status for case in sweep.shown],
        "reason": [case.reason for case in sweep.shown],
        "node": [case.node for case in sweep.shown],
        "device": [case.device for case in sweep.shown],
        "uuid": [case.device_uuid for case in sweep.shown],
    }  # fmt: skip
    return {
        "name": sweep.name,
        "swept": name_quantity(sweep.swept),
        "stages": sweep.count_stages(),
        "devices": sweep.count_devices(),
        "notes": list(sweep.notes),
        "count": len(sweep.shown),
        "run": [rows.get(case.run_id, -1) for case in sweep.shown],
        "settings": [{"name": name_quantity(name),
                      "text": words(sweep.value(case, name) for case in sweep.shown)}
                     for name in sweep.varied],
        **{name: words(column) for name, column in texts.items()},
        "charts": [
            {"title": chart.title,
             "curves": [{"name": curve.name or sweep.name,
                         "cases": [[x, places[case.case_id]] for x, case in curve.cases]}
                        for curve in chart.curves]}
            for chart in sweep.charts()
        ],
    }  # fmt: skip


def describe_for_text(study: Study) -> list[dict[str, Any]]:
    """What report.md says of each sweep: how cases ended, why some failed, what made them."""
    described = []
    for sweep in read_sweeps(study):
        lost = [case for case in sweep.cases if case.status not in (DONE, NOT_RUN)]
        described.append(
            {
                "name": sweep.name,
                "stages": sweep.count_stages(),
                "devices": sweep.count_devices(),
                "notes": sweep.notes,
                "failures": [(sweep.name_case(one), one.status, one.reason) for one in lost],
            }
        )
    return described

"""What the page is made from: words for the template, a payload for the scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.report.page.captures import capture_sentences, capture_sources, with_captures
from ridgeline.report.page.columns import Words, is_missing
from ridgeline.report.page.executed import executed_payload
from ridgeline.report.page.machines import Card, card, roofs_payload
from ridgeline.report.page.points import chosen, point_columns
from ridgeline.report.page.runs import run_columns
from ridgeline.report.study import Study
from ridgeline.report.summary import WORDS, Summary, sentence, summary
from ridgeline.report.text import counted, listed
from ridgeline.roofline.findings import NO_BOUND, saving, saving_basis
from ridgeline.version import __version__

FORMAT = 1  # of the payload
MOST_NAMES = 3  # in the title
COUNTED = {"static": "counted from the graph", "counter": "that hardware counters saw"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One of the largest headrooms, in words."""

    name: str
    where: str
    saves: str
    basis: str  # under which condition
    floor_share: float  # of the piece's time, for its bar
    held_by: str
    meaning: str
    advice: str
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One of the headline, with where its numbers come from."""

    text: str
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that a page says."""

    title: str
    made_by: str
    headline: tuple[Sentence, ...]
    headrooms: tuple[Headroom, ...]
    no_bound: str  # said with the headrooms
    machines: tuple[Card, ...]
    stages: tuple[Mapping[str, str], ...]
    problems: tuple[str, ...]
    left_out: tuple[str, ...]
    has_runs: bool
    has_points: bool
    payload: Mapping[str, Any]


def content(study: Study, *, title: str | None) -> Content:
    """The words and the payload of a study's page."""
    told = summary(study)
    titles = {one.run_id: one.title for one in told.configurations}
    kept = chosen(study)
    words = Words()
    runs = with_captures(run_columns(study, words), study, words)
    place = {words.texts[text]: row for row, text in enumerate(runs.get("id", ()))}
    points = point_columns(kept.points, place, words)
    first = next((place.get(str(f["run_id"])) for f in told.findings), None)
    payload = {
        "format": FORMAT,
        "machines": [roofs_payload(machine, study) for machine in study.machines],
        "runs": runs,
        "points": points,
        "executed": executed_payload(study, place, words),
        "first_run": first,
        "words": words.texts,  # last: the columns above fill it
    }
    return Content(
        title=title or _title(study),
        made_by=f"ridgeline {__version__}",
        headline=tuple(_headline(told, study)),
        headrooms=tuple(_headroom(row, titles, study) for row in told.findings),
        no_bound=NO_BOUND,
        machines=tuple(card(machine, study) for machine in study.machines),
        stages=study.stages,
        problems=study.problems,
        left_out=kept.left_out,
        has_runs=not study.runs.empty,
        has_points=bool(points["count"]),
        payload=payload,
    )


def _headline(told: Summary, study: Study) -> list[Sentence]:
    """Sentences are known by their text: the same numbers are of the same run."""
    if study.runs.empty:
        told_of = zip(capture_sentences(study), capture_sources(study), strict=True)
        return [Sentence(text=text, provenance=source) for text, source in told_of]
    runs = {sentence(one): one for one in told.configurations}
    return [
        Sentence(
            text=text,
            provenance=_provenance(one.run_id, one.work, study) if (one := runs.get(text)) else "",
        )
        for text in told.headline
    ]


def _title(study: Study) -> str:
    if study.runs.empty and len(study.captures):
        return _few([str(label) for label in study.captures["label"]], "capture")
    if study.runs.empty:
        return "Roofline report"
    models = list(dict.fromkeys(map(str, study.runs["model"])))
    machines = list(dict.fromkeys(map(str, study.runs["env"])))
    return f"{_few(models, 'model')} on {_few(machines, 'machine')}"


def _few(names: list[str], kind: str) -> str:
    """Up to three names; of more, how many there are."""
    return listed(names) if len(names) <= MOST_NAMES else counted(len(names), kind)


def _headroom(row: Mapping[str, Any], titles: Mapping[str, str], study: Study) -> Headroom:
    run_id, name = str(row["run_id"]), str(row["layer"])
    bound = row["bound"]
    efficiency = row["efficiency"]
    return Headroom(
        name=name,
        where=f"{titles.get(run_id, row['model'])}, on {row['env']}",
        saves=saving(row),
        basis=saving_basis(row),
        floor_share=0.0 if is_missing(efficiency) else min(1.0, max(0.0, float(efficiency))),
        held_by=WORDS.get(bound, bound) if isinstance(bound, str) else "not known",
        meaning=str(row["meaning"]),
        advice=str(row["advice"]),
        provenance=_provenance(run_id, _work_of(run_id, name, study), study),
    )


def _work_of(run_id: str, name: str, study: Study) -> str | None:
    """Where the work of a layer or a phase is from; counters, where there are any, come first."""
    points = study.points
    mine = points[points["run_id"].eq(run_id) & points["grain"].isin(["layer", "phase"])]
    known = sorted(set(mine.loc[mine["name"].eq(name), "provenance"]))
    return str(known[0]) if known else None


def _provenance(run_id: str, work: str | None, study: Study) -> str:
    where = f"(results in {study.results.name})"
    if work not in COUNTED:
        return f"time: measured, run {run_id} {where}"
    return (
        f"time: measured, run {run_id}; floor: derived from the work {COUNTED[work]} and the roofs"
        f" of the machine {where}"
    )

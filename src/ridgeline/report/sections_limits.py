"""The section of report.md that says what was not measured, and what is known less well."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.report.configurations import ENVIRONMENT, NO_DATA, PLACE, alike, series
from ridgeline.report.hypotheses import OPEN
from ridgeline.report.markup import markdown_line
from ridgeline.report.sections import Material
from ridgeline.report.text import counted, listed, number, some
from ridgeline.units import format_percent

FINE = ("done", "cached")  # stages of which nothing need be said
NOT_MEASURED = {
    "datasheet": "were not measured; they are those of its datasheet",
    "given": "were given by the user, all or some of them, and not measured",
}
UNSTEADY = 0.1  # by which a roof moved while it was measured


def limitations(material: Material) -> Iterator[str]:
    """What was not measured, and what is known less well than it looks."""
    study = material.study
    found = [*_of_roofs(material), *_of_points(material), *_of_runs(material)]
    found += [f"{verdict.name} was not decided: {_uncapped(verdict.evidence)}"
              for verdict in material.verdicts if verdict.outcome == OPEN]  # fmt: skip
    skipped = [s for s in study.stages if s["status"] not in FINE]
    found += [f"Stage {s['stage']} is {s['status']}: {s['reason']}" for s in skipped]
    found += [f"Reading the results: {problem}" for problem in study.problems]
    yield "\n".join(f"- {markdown_line(_ended(item))}" for item in found)


def _uncapped(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


def _of_roofs(material: Material) -> Iterator[str]:
    machines = material.study.machines
    quick = [m.env for m in machines if m.roofs.is_quick]
    if quick:
        yield (
            f"The roofs of {listed(quick)} were measured quickly; they may be a few per cent too"
            " low, which makes efficiencies look better than they are"
        )
    for machine in machines:
        noise = machine.passport.noise if machine.passport else 0.0
        if noise > UNSTEADY:
            yield (
                f"While the roofs of {machine.env} were measured, the least steady of them moved by"
                f" {format_percent(noise)}"
            )
        if machine.roofs.source in NOT_MEASURED:
            yield f"The roofs of {machine.env} {NOT_MEASURED[machine.roofs.source]}"
        if machine.roofs.basis:
            yield f"The roofs of {machine.env}: {machine.roofs.basis}"


def _of_points(material: Material) -> Iterator[str]:
    points = material.study.points
    if points.empty:
        return
    has_counters = (points["provenance"].eq("counter") & points["flops"].notna()).any()
    if not has_counters and material.study.captures.empty:
        yield (
            "No hardware counters were read: FLOPs and bytes are those of the mathematics, not"
            " those that were executed, and no kernel has a place of its own"
        )
    yield (
        "Counted bytes are a range, from each tensor moved once to every operator moving all its"
        " operands. The memory floor counts what cannot stay in the last cache, by the size of each"
        " operator; what a library really moves lies somewhere in the range"
    )
    coverage = material.study.runs.get("coverage")
    partial = coverage.dropna() if coverage is not None else None
    if partial is not None and len(partial) and float(partial.min()) < 1:
        yield (
            "Not all operators have a formula: in the worst case those with one hold"
            f" {format_percent(float(partial.min()))} of the bytes"
        )


def _of_runs(material: Material) -> Iterator[str]:
    runs, cases = material.study.runs, material.cases
    if runs.empty:
        return
    bare = [case.title for case in cases if not case.step]
    if bare:
        yield f"No place on a roofline, for want of a count or of roofs: {some(bare)}"
    for env in material.envs:
        mine = [case for case in cases if case.env == env]
        without = [case for case in mine if not number(case.run.get("energy_j_per_sample"))]
        if without:
            which = "any configuration" if len(without) == len(mine) else (
                f"{len(without)} of {counted(len(mine), 'configuration')}")  # fmt: skip
            yield f"Energy was not measured for {which} on {env}{_why_no_energy(material, env)}"
        clockless = [case for case in mine if not number(case.run.get("clock_hz"))]
        if len(clockless) == len(mine):
            yield f"The clock of {env} during the runs is not known"
    single = [case for case in cases if len(case.run_ids) == 1]
    if single:
        yield (
            f"{counted(len(single), 'configuration')} of {len(cases)}"
            f" {'was' if len(single) == 1 else 'were'} run once: how much another run would differ"
            " is not known"
        )
    few = int(runs["measured_iters"].min())
    yield f"The shortest run timed {counted(few, 'step')}"
    yield from _not_varied(material)
    if all(case.settings["data_root"] in NO_DATA for case in cases):
        yield (
            "All inputs were made up in advance, so what reading and preparing real data would cost"
            " is not in these times"
        )


def _not_varied(material: Material) -> Iterator[str]:
    """Comparisons that the choice of configurations does not allow."""
    cases = material.cases
    if not alike(cases, but=("precision",)):
        yield (
            "Nothing was run in two precisions with all else equal, so what a lower one gains is"
            " not known"
        )
    grown = {group[0].env for group in series(cases)}
    fixed = [env for env in material.envs if env not in grown]
    if fixed:
        yield f"On {listed(fixed)}, nothing was run with several batch sizes"
    shared = [
        group
        for group in alike(cases, but=(*PLACE, *ENVIRONMENT))
        if len({case.env for case in group}) > 1
    ]
    if len(material.envs) > 1 and not shared:
        yield "No configuration ran on more than one machine, so the machines are not compared"


def _why_no_energy(material: Material, env: str) -> str:
    """The first reason that a run of this machine gives."""
    mine = {run_id for case in material.cases if case.env == env for run_id in case.run_ids}
    for run in material.study.raw_runs:
        reasons = run.found.get("energy_reasons") or ()
        if run.run_id in mine and not run.found.get("energy") and reasons:
            return f" ({reasons[0]})"
    return ""

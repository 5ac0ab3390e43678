"""The values that report.md is written from: numbers and tables, section by section.

What the sections say about them stands in templates/report.md.j2.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, groupby
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ridgeline.findings import NO_BOUND, OVERLAPS, SYSTEM
from ridgeline.machine.describe import Description
from ridgeline.records import BACKWARD, PHASES, Provenance
from ridgeline.report import tables
from ridgeline.report.configurations import (
    NETWORK,
    NO_DATA,
    Case,
    largest,
)
from ridgeline.report.markup import Markdown, code_block, markdown
from ridgeline.report.profiled import Profiled, describe_gap, describe_trust, profiled, programs
from ridgeline.report.statements import (
    FAILED,
    HELD,
    OPEN,
    PARTLY,
    Statement,
    Verdict,
    find_gaps,
)
from ridgeline.report.study import Study
from ridgeline.report.summary import WORDS
from ridgeline.report.tables import GIGA, MS, SHOWN, Column, compact, quantity, share, text
from ridgeline.report.text import capped, counted, listed, number, plain, records
from ridgeline.report.views import environment_text
from ridgeline.roofline.causes import CAUSES
from ridgeline.roofline.roofs import LEVELS, work_unit

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.report.figures import Figure

MOST_ROWS = 60  # of a table in the report; the CSV files have all
MOST_FINDINGS = MOST_KERNELS = 10
LOW_EFFICIENCY = 0.5
FINE = ("done", "cached")  # stages of which nothing need be said
CASE = (text("run"), text("env", "machine"), text("configuration"))
MATRIX = ("machine", "model", "mode", "precision", "settings", "batch sizes", "runs")
PHASE_COLUMNS = ("model", "mode", "precision", "batch", "settings")
SPLIT = ("data", "copy", "forward", "backward", "optimizer")
GAPS = {
    "step_s": "step", "floor_s": "floor of the work", "kernels_s": "kernels beyond it",
    "waiting_s": "device idle", "rest_s": "above the floor", "data_s": "of it data",
    "optimizer_s": "of it optimizer",
}  # fmt: skip
CONDITIONS = (
    quantity("energy_j_per_step", "energy (J/step)"),
    quantity("energy_j_per_sample", "energy (J/sample)"),
    quantity("mean_power_w", "power (W)"), quantity("idle_power_w", "idle (W)"),
    quantity("clock_hz", "clock (MHz)", 1e6),
    quantity("memory_clock_hz", "memory clock (MHz)", 1e6),
    quantity("temperature_c", "temperature (°C)"), text("throttle_reasons", "held down by"),
)  # fmt: skip
FIGURE_SECTIONS = {"throughput": "measurement", "runtime": "measurement", "training": "analysis",
                   "batch": "analysis"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that the sections are written from."""

    study: Study
    cases: Sequence[Case]
    names: dict[str, str]  # R1, R2, … by run id
    statements: Sequence[Statement]
    verdicts: Sequence[Verdict]

    @property
    def envs(self) -> list[str]:
        return list(dict.fromkeys(case.env for case in self.cases))

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(case.model for case in self.cases))

    @property
    def titles(self) -> dict[str, str]:
        return {run_id: case.title for case in self.cases for run_id in case.run_ids}

    def cite(self, run_ids: Iterable[str]) -> str:
        """`R1, R3–R5`: the runs that a statement is about."""
        numbers = sorted(int(self.names[run_id][1:]) for run_id in set(run_ids) & set(self.names))
        spans = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
        return ", ".join(_cite_span([f"R{n}" for _, n in span]) for _, span in spans)


def _cite_span(names: Sequence[str]) -> str:
    return f"{names[0]}–{names[-1]}" if len(names) > 2 else ", ".join(names)


def table(content: pd.DataFrame, columns: Sequence[Column]) -> Markdown:
    """A table for people; columns in which nothing is known are left out, and rows beyond many."""
    if content.empty:
        return Markdown()
    known = [c for c in columns if c.name in content and _has_values(content, c)]
    shown = tables.as_markdown(content.head(MOST_ROWS), known)
    left = len(content) - MOST_ROWS
    more = f"\n\n{counted(left, 'more row')} in the CSV file of this table." if left > 0 else ""
    return Markdown(shown + more)


def _has_values(content: pd.DataFrame, column: Column) -> bool:
    return any(plain(value) not in (None, "") for value in content[column.name])


# ---------------------------------------------------------------- abstract and design


def abstract_values(material: Material) -> dict[str, Any]:
    """The study in a paragraph."""
    runs = material.study.runs
    outcomes = []
    for outcome in (HELD, PARTLY, FAILED, OPEN):
        names = [verdict.name for verdict in material.verdicts if verdict.outcome == outcome]
        outcomes += [f"{listed(names)} {outcome}"] if names else []
    return {
        "runs": len(runs),
        "models": material.models,
        "reached": [_find_reached(material, env) for env in material.envs],
        "outcomes": outcomes,
        "warned": int(runs["warnings"].fillna(0).gt(0).sum()) if "warnings" in runs else 0,
    }


def _find_reached(material: Material, env: str) -> dict[str, Any]:
    """How near the steps of one machine are to their floors, and what sets these."""
    placed = [case for case in material.cases if case.env == env and case.efficiency]
    bounds = [case.bound or "" for case in placed]
    common = max(dict.fromkeys(bounds), key=bounds.count, default="")
    return {
        "env": env,
        "shares": sorted(case.efficiency or 0.0 for case in placed),
        "bound": WORDS.get(common, common),
        "often": bounds.count(common),
    }


def design_values(material: Material) -> dict[str, Any]:
    """Machines, as far as a passport describes them, and the matrix of configurations."""
    study = material.study
    return {
        "machines": [
            (machine.roofs, study.device_label(machine),
             machine.passport.description if machine.passport else Description())
            for machine in study.machines
        ],
        "matrix": table(_matrix(material), [text(name) for name in MATRIX]),
    }  # fmt: skip


def _matrix(material: Material) -> pd.DataFrame:
    import pandas as pd

    sizes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for case in material.cases:
        same = (case.env, case.model, case.mode, case.precision, ", ".join(case.extras))
        sizes[same] += [case.batch_size] * len(case.run_ids)
    rows = [(*same, ", ".join(map(str, sorted(set(mine)))), len(mine))
            for same, mine in sizes.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=list(MATRIX))


# ---------------------------------------------------------------- counts and measurements


def complexity_values(material: Material) -> dict[str, Any]:
    """What the steps must do."""
    return {
        "counts": table(tables.complexity_table(material.study), SHOWN["complexity"]),
        "phases": _phase_table(material),
    }


def _phase_table(material: Material) -> Markdown:
    """FLOPs by phase, of each network at its largest batch."""
    import pandas as pd

    points = material.study.points
    points = points[points["grain"].eq("phase") & points["provenance"].eq("static")]
    by_phase = points.pivot_table("flops", "run_id", "phase").reindex(columns=list(PHASES))
    chosen = largest(material.cases, *NETWORK, "mode", "precision")
    rows = [
        {"run_id": case.run_id, "model": case.model, "mode": case.mode, "batch": case.batch_size,
         "precision": case.precision, "settings": ", ".join(case.extras)}
        for case in chosen
    ]  # fmt: skip
    phases = pd.DataFrame(rows, columns=["run_id", *PHASE_COLUMNS]).join(by_phase, "run_id")
    back = phases[list(BACKWARD)].sum(axis=1)
    phases["ratio"] = (back / phases["forward"]).where(back > 0)
    columns = [quantity(phase, phase, GIGA) for phase in PHASES]
    return table(
        phases[phases["forward"] > 0],
        [*map(text, PHASE_COLUMNS), *columns, quantity("ratio", "backward / forward")],
    )


def measurement_values(material: Material) -> dict[str, Any]:
    """What was measured, run by run."""
    runs = tables.runs_table(material.study, material.cases)
    if runs.empty:
        return {"runs": ""}
    times = runs.reindex(columns=["forward_s", "backward_s"]).astype(float)
    split = runs.assign(ratio=times["backward_s"] / times["forward_s"])
    metered = [column.name for column in CONDITIONS if column.name in runs]
    known = runs[runs[metered].replace("", None).notna().any(axis=1)]
    warnings = [
        (material.names[run.run_id], "; ".join(w.partition("; ")[0] for w in run.result.warnings))
        for run in material.study.raw_runs
        if run.result.warnings and run.run_id in material.names
    ]
    return {
        "runs": table(runs, compact(SHOWN["runs"])),
        "split": table(
            split,
            [*CASE, quantity("step_median_s", "step (ms)", MS),
             *(quantity(f"{phase}_s", f"{phase} (ms)", MS) for phase in SPLIT),
             quantity("ratio", "backward / forward"), share("busy_fraction", "device busy")],
        ),
        "conditions": table(known, [*CASE, *CONDITIONS]),
        "warnings": warnings,  # without the advice that follows each
    }  # fmt: skip


def roofline_values(material: Material) -> dict[str, Any]:
    """Roofs, points and what to fix first, in the order of the page and of the terminal."""
    study, cases = material.study, material.cases
    points = tables.points_table(study, cases, scopes=("step", "phase"))
    timed = points[points["grain"].eq("phase") & points["time_s"].notna()]
    timed = timed[timed["run_id"].isin([case.run_id for case in cases])]
    columns = compact(SHOWN["roofline_points"])
    findings = tables.for_people("findings", tables.findings_table(study, cases))
    first = findings.head(MOST_FINDINGS)
    return {
        "ceilings": table(tables.ceilings_table(study), SHOWN["ceilings"]),
        "steps": table(points[points["grain"].eq("step")],
                       [column for column in columns if column.name != "piece"]),
        "phases": table(timed, columns),
        "findings": table(first, compact(SHOWN["findings"])),
        "no_bound": NO_BOUND,
        "energies": [markdown(text) for text in study.energy_sentences],
        "overlaps": f"Of {SYSTEM}: {OVERLAPS}." if first["layer"].eq(SYSTEM).any() else "",
    }  # fmt: skip


# ---------------------------------------------------------------- what the hardware did


def executed_values(material: Material) -> dict[str, Any]:
    """Totals, phases, layers and kernels of each profiled run; captures from elsewhere."""
    study = material.study
    profiles = profiled(study)
    titles = material.titles
    named = {one.run_id: f"{material.names.get(one.run_id)}, {titles.get(one.run_id)}"
             for one in profiles}  # fmt: skip
    captures = [column for column in SHOWN["captures"] if column.name != "files"]
    return {
        "totals": _totals_table(material, profiles),
        "profiles": [(named[one.run_id], _join_notes(one, one.warnings)) for one in profiles],
        **_differences(material),
        "captures": table(study.captures, captures),
        "capture_notes": list(_capture_notes(study)),
        "kernels": _longest_kernels(material, profiles),
        "most_kernels": MOST_KERNELS,
    }


def _join_notes(one: Profiled, more: Sequence[str] = ()) -> str:
    """The launch gap and how far the counters can be trusted."""
    return ". ".join(
        capped(note) for note in (describe_gap(one), describe_trust(one), *more) if note
    )


def _capture_notes(study: Study) -> Iterator[tuple[str, str]]:
    own = programs(study)
    for run_id, label in study.captures.reindex(columns=["run_id", "label"]).to_numpy():
        notes = [_join_notes(own[run_id])] if run_id in own else []
        if notes := [*notes, *study.notes.get(run_id, ())]:
            yield str(label), ". ".join(notes)


def _totals_table(material: Material, profiles: Sequence[Profiled]) -> Markdown:
    import pandas as pd

    titles = material.titles
    rows = [
        {
            **asdict(one),
            "run": material.names.get(one.run_id),
            "configuration": titles.get(one.run_id),
            "gap": None if one.gap_s is None else one.gap_s / one.step_time_s,
            **one.flops_by_roof,
        }
        for one in profiles
    ]
    roofs = dict.fromkeys(roof for one in profiles for roof in one.flops_by_roof)
    return table(
        pd.DataFrame(rows),
        [text("run"), text("configuration"), text("launches"),
         quantity("kernel_time_s", "kernels (ms)", MS), quantity("step_time_s", "step (ms)", MS),
         share("gap", "device idle"),
         *(quantity(roof, f"{roof} (G{work_unit(roof)})", GIGA) for roof in roofs),
         *(quantity(f"{level}_bytes", f"{level.upper()} (GB)", GIGA) for level in LEVELS)],
    )  # fmt: skip


def _differences(material: Material) -> dict[str, Any]:
    """Model beside executed work of steps and phases."""
    rows = tables.reconcile_table(material.study, material.cases)
    if rows.empty:
        return {"coarse": ""}
    coarse = rows[rows["grain"].isin(["step", "phase"])]
    named = dict.fromkeys([*coarse["cause"], *coarse["bytes_cause"]])
    return {
        "coarse": table(coarse, [*SHOWN["reconcile"], text("where", "mostly in")]),
        "causes": [(cause, CAUSES[cause]) for cause in named if cause in CAUSES],
    }


def _longest_kernels(material: Material, profiles: Sequence[Profiled]) -> Markdown:
    """The kernels of the slowest profiled run, and of each capture."""
    kernels = tables.kernels_table(material.study, material.cases)
    if kernels.empty:
        return Markdown()
    slowest = max(profiles, key=lambda one: one.step_time_s).run_id if profiles else None
    captures = material.study.captures
    captured = () if captures.empty else captures["run_id"]
    shown = kernels[kernels["run_id"].isin([slowest, *captured])]
    return table(shown.groupby("run_id", sort=False).head(MOST_KERNELS), SHOWN["kernels"])


# ---------------------------------------------------------------- analysis and limitations


def analysis_values(material: Material) -> dict[str, Any]:
    """The gap as a table, the hypotheses."""
    import pandas as pd

    rows = [
        {
            "run": material.names.get(gap.case.run_id),
            "env": gap.case.env,
            "configuration": gap.case.title,
            "step_s": gap.case.step_s,
            **{name: getattr(gap, name) for name in GAPS if name != "step_s"},
        }
        for gap in find_gaps(material.cases)
    ]
    columns = [quantity(name, f"{header} (ms)", MS) for name, header in GAPS.items()]
    return {
        "far_from_floor": sum((case.efficiency or 1) < LOW_EFFICIENCY for case in material.cases),
        "gaps": table(pd.DataFrame(rows), [*CASE, *columns]),
    }  # fmt: skip


def limit_values(material: Material) -> dict[str, Any]:
    """What was not measured, and what is known less well than it looks."""
    study, cases = material.study, material.cases
    points, runs = study.points, study.runs
    has_counters = (points["provenance"].eq("counter") & points["flops"].notna()).any()
    coverage = [float(share) for share in runs["coverage"].dropna()] if "coverage" in runs else []
    unmetered = [case for case in cases if not number(case.run.get("energy_j_per_sample"))]
    reasons = [reason for run in study.raw_runs for reason in run.result.energy_reasons]
    return {
        "has_counters": has_counters or not study.captures.empty,
        "coverage": min(coverage, default=1.0),
        "without_energy": len(unmetered),
        "energy_reasons": list(dict.fromkeys(reasons)),
        "fewest_steps": int(runs["measured_iters"].min()) if len(runs) else 0,
        "is_synthetic": all(case.settings["data_root"] in NO_DATA for case in cases),
        "stages": [stage for stage in study.stages if stage["status"] not in FINE],
    }


# ---------------------------------------------------------------- appendix and figures


def appendix_values(material: Material) -> dict[str, Any]:
    """Every command, every version."""
    study = material.study
    made = {run.run_id: (run.request.label, run.made.time) for run in study.raw_runs}
    commands = "\n".join(_commands(material))
    return {
        "commands": Markdown(code_block(commands, "sh") if commands else ""),
        "runs": [(name, run_id, *made.get(run_id, ("", "")))
                 for run_id, name in material.names.items()],
        "captures": table(study.captures, [
            text("label", "capture"), text("files", "file or program"),
            text("device_name", "device"), text("timestamp", "time"), text("run_id", "stored as"),
        ]),
        "versions": _versions(material),
    }  # fmt: skip


def _commands(material: Material) -> Iterator[str]:
    """The commands, each with what it made."""
    by_command: dict[str, list[str]] = defaultdict(list)
    for machine in material.study.machines:
        made_by = machine.passport.provenance.command if machine.passport else ()
        if made_by:
            by_command[shlex.join(made_by)].append(f"roofs of {machine.env}")
    for run in material.study.raw_runs:
        if run.made.command and run.run_id in material.names:
            variables = environment_text(run.made.environment)
            words = f"{variables} {shlex.join(run.made.command)}".strip()
            by_command[words].append(material.names[run.run_id])
    for row in records(material.study.captures):
        by_command[str(row["command"])].append(str(row["label"]))
    for command, names in by_command.items():
        yield f"# {' '.join(', '.join(names).split())}\n{command}"


def _versions(material: Material) -> list[tuple[str, tuple[str, ...]]]:
    """What runs were made with, one row for each set of versions."""
    runs = defaultdict(list)
    for run in material.study.raw_runs:
        runs[_list_versions(run.made)].append(run.run_id)
    rows = [(material.cite(run_ids), versions) for versions, run_ids in runs.items()]
    return rows if any(any(versions) for _, versions in rows) else []


def _list_versions(made: Provenance) -> tuple[str, ...]:
    commit = made.ridgeline_commit.sha if made.ridgeline_commit else ""
    known = (
        made.host.name, made.host.os, made.python, made.ridgeline, made.libraries.get("torch"),
        made.backends.get("cuda"), made.backends.get("cudnn"), commit[:10],
    )  # fmt: skip
    return tuple(str(value or "") for value in known)


def arrange_figures(figures: Sequence[Figure], folder: Path) -> dict[str, Markdown]:
    """The figures of each section, numbered through the report."""
    sections: dict[str, list[Figure]] = {"measurement": [], "roofline": [], "analysis": []}
    for figure in figures:
        sections[FIGURE_SECTIONS.get(figure.kind, "roofline")].append(figure)
    n = count(1)
    return {
        section: Markdown("\n\n".join(_show_figure(figure, next(n), folder) for figure in mine))
        for section, mine in sections.items()
    }


def _show_figure(figure: Figure, n: int, folder: Path) -> str:
    """A picture with its number, title and caption; its path is relative to the report."""
    path = quote(Path(relpath(Path(figure.path).resolve(), folder.resolve())).as_posix())
    title = markdown(figure.title).rstrip(".")
    return f"![{title}]({path})\n\n*Figure {n}.* **{title}.** {markdown(figure.caption)}"


VALUES: dict[str, Callable[[Material], dict[str, Any]]] = {  # of the sections, by their names there
    "abstract": abstract_values, "design": design_values, "complexity": complexity_values,
    "measurement": measurement_values, "roofline": roofline_values, "executed": executed_values,
    "analysis": analysis_values, "limits": limit_values, "appendix": appendix_values,
}  # fmt: skip

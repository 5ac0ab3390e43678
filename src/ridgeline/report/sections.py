"""The values that report.md is written from: numbers and tables, section by section.

What the sections say about them stands in templates/report.md.j2.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ridgeline.findings import NO_BOUND, OVERLAPS, SYSTEM
from ridgeline.machine.describe import Description
from ridgeline.report import tables
from ridgeline.report.configurations import ENVIRONMENT, NO_DATA, PLACE, Case, alike
from ridgeline.report.convolutions import (
    OF_CONVOLUTIONS,
    describe_totals,
    largest_losses,
    whole_networks,
)
from ridgeline.report.executed import Executed, describe_times, describe_trust
from ridgeline.report.hypotheses import OUTCOMES, Verdict
from ridgeline.report.predictions import PREDICTION
from ridgeline.report.study import Study
from ridgeline.report.summary import write_headline
from ridgeline.report.sweeps import read_sweeps
from ridgeline.report.tables import MS, SHOWN, Column, compact, quantity, share, text
from ridgeline.report.text import (
    Markdown,
    capped,
    code_block,
    counted,
    group_by,
    listed,
    markdown,
    number,
    records,
)
from ridgeline.report.views import SPLIT, environment_text, versions_text
from ridgeline.roofline.causes import CAUSES

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.report.figures import Figure

MOST_ROWS = 60  # of a table in the report; the CSV files have all
MOST_FINDINGS = 10
LOW_EFFICIENCY = 0.5
FINE = ("done", "cached")  # stages of which nothing need be said
CASE = (text("run"), text("env", "machine"), text("configuration"))
MATRIX = ("machine", "model", "mode", "precision", "settings", "batch sizes", "runs")
CONDITIONS = (
    quantity("energy_j_per_step", "energy (J/step)"),
    quantity("energy_j_per_sample", "energy (J/sample)"),
    quantity("mean_power_w", "power (W)"), quantity("idle_power_w", "idle (W)"),
    quantity("clock_hz", "clock (MHz)", 1e6),
    quantity("memory_clock_hz", "memory clock (MHz)", 1e6),
    quantity("temperature_c", "temperature (°C)"), text("throttle_reasons", "held down by"),
)  # fmt: skip
WIDTH = {"fp64": 0, "fp32": 1, "tf32": 2, "amp": 3, "bf16": 3, "fp16": 4, "fp8": 5}
REPEATS_DIFFER = 0.05  # between the slowest and the fastest, as a share of the fastest
CAUSE = "likely cause: "
SPEED_UPS = (
    text("configuration"), text("env", "machine"), text("from"), text("to"),
    quantity("from_s", "from (ms)", MS), quantity("to_s", "to (ms)", MS),
    quantity("speed_up", "speed-up"), quantity("floors", "ratio of floors"),
    text("from_bound", "bound from"), text("to_bound", "bound to"),
)  # fmt: skip
FIGURE_SECTIONS = {"throughput": "measurement", "runtime": "measurement", "sweep": "sweeps",
                   "training": "training", PREDICTION: "predictions",
                   **dict.fromkeys(OF_CONVOLUTIONS, "convolutions")}  # fmt: skip


def cite(study: Study, run_ids: Iterable[str]) -> str:
    """`R1, R3–R5`: the runs that a statement is about."""
    numbers = sorted(int(study.names[run_id][1:]) for run_id in set(run_ids) & set(study.names))
    texts: list[str] = []
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        span = [f"R{n}" for _, n in pairs]
        texts += [f"{span[0]}–{span[-1]}"] if len(span) > 2 else span
    return ", ".join(texts)


def table(content: pd.DataFrame, columns: Sequence[Column]) -> Markdown:
    """A table for people; columns in which nothing is known are left out, and rows beyond many."""
    if content.empty:
        return Markdown()
    known = tables.known_columns(content, columns)
    shown = tables.as_markdown(content.head(MOST_ROWS), known)
    left = len(content) - MOST_ROWS
    more = f"\n\n{counted(left, 'more row')} in the CSV file of this table." if left > 0 else ""
    return Markdown(shown + more)


def list_tables(study: Study) -> dict[str, Markdown]:
    """The tables of a study that stand in the report as they are, by name."""
    every = tables.tables(study)
    points = every.pop("roofline_points")
    steps = points[points["grain"].eq("step")]
    is_chosen = points["run_id"].isin([case.run_id for case in study.cases])
    phases = points[points["grain"].eq("phase") & points["time_s"].notna() & is_chosen]
    throughput = every["throughput"]
    every["throughput"] = throughput if throughput["n"].gt(1).any() else throughput.head(0)
    every["captures"] = every["captures"].drop(columns="files", errors="ignore")
    shown = {name: tables.for_people(name, content) for name, content in every.items()}
    shown["findings"] = shown["findings"].head(MOST_FINDINGS)
    columns = compact(SHOWN["roofline_points"])
    return {
        **{name: table(content, compact(SHOWN[name])) for name, content in shown.items()},
        "steps": table(steps.drop(columns="part"), columns),
        "phases": table(phases, columns),
    }


# ---------------------------------------------------------------- abstract and design


def abstract_values(study: Study) -> dict[str, Any]:
    """The study in a paragraph."""
    runs = study.runs
    return {
        "runs": len(runs),
        "models": list(dict.fromkeys(case.model for case in study.cases)),
        "envs": list(dict.fromkeys(case.env for case in study.cases)),
        "headline": write_headline(study),
        "warned": int(runs["warnings"].fillna(0).gt(0).sum()) if "warnings" in runs else 0,
    }


def list_outcomes(verdicts: Sequence[Verdict]) -> list[str]:
    """`H1 and H3 held`, `H2 cannot be decided here`."""
    names = group_by((one.name for one in verdicts), (one.outcome for one in verdicts))
    return [f"{listed(names[outcome])} {outcome}" for outcome in OUTCOMES if outcome in names]


def design_values(study: Study) -> dict[str, Any]:
    """Machines, as far as a passport describes them, and the matrix of configurations."""
    return {
        "machines": [
            (machine.roofs, study.device_label(machine),
             machine.passport.description if machine.passport else Description())
            for machine in study.machines
        ],
        "notes": [(machine.env, machine.note) for machine in study.machines if machine.note],
        "matrix": table(_matrix(study), [text(name) for name in MATRIX]),
    }  # fmt: skip


def _matrix(study: Study) -> pd.DataFrame:
    import pandas as pd

    sizes: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for case in study.cases:
        same = (case.env, case.model, case.mode, case.precision, ", ".join(case.extras))
        sizes[same] += [case.batch_size] * len(case.run_ids)
    rows = [(*same, ", ".join(map(str, sorted(set(mine)))), len(mine))
            for same, mine in sizes.items()]  # fmt: skip
    return pd.DataFrame(rows, columns=list(MATRIX))


# ---------------------------------------------------------------- measurements


def measurement_values(study: Study) -> dict[str, Any]:
    """What was measured, run by run."""
    runs = tables.name_runs(study, study.runs)
    if runs.empty:
        return {}
    times = runs.reindex(columns=["forward_s", "backward_s"]).astype(float)
    split = runs.assign(ratio=times["backward_s"] / times["forward_s"])
    metered = [column.name for column in CONDITIONS if column.name in runs]
    known = runs[runs[metered].replace("", None).notna().any(axis=1)]
    warnings = [
        (
            study.names[run.run_id],
            "; ".join(w.partition("; ")[0] for w in run.result.warnings),
        )
        for run in study.raw_runs
        if run.result.warnings and run.run_id in study.names
    ]
    return {
        "split": table(
            split,
            [*CASE, quantity("step_median_s", "step (ms)", MS),
             *(quantity(f"{phase}_s", f"{phase} (ms)", MS) for phase in SPLIT),
             quantity("ratio", "backward / forward"), share("busy_fraction", "device busy")],
        ),
        "conditions": table(known, [*CASE, *CONDITIONS]),
        "warnings": warnings,  # without the advice that follows each
    }  # fmt: skip


def sweep_values(study: Study) -> dict[str, Any]:
    """How cases of each sweep ended, and why some failed."""
    return {"every": read_sweeps(study), "most_failures": MOST_FINDINGS}


def roofline_values(study: Study) -> dict[str, Any]:
    """What to know about the findings, and joules in sentences."""
    findings = tables.for_people("findings", tables.findings_table(study)).head(MOST_FINDINGS)
    return {
        "no_bound": NO_BOUND,
        "energies": [markdown(text) for text in study.energy_sentences],
        "overlaps": f"Of {SYSTEM}: {OVERLAPS}." if findings["layer"].eq(SYSTEM).any() else "",
    }


# ---------------------------------------------------------------- what the hardware did


def executed_values(study: Study) -> dict[str, Any]:
    """Notes on profiled runs and captures; model beside executed work of steps and phases."""
    profiles = [one for run_id, one in study.executed.items() if run_id in study.names]
    return {
        "profiles": [
            (f"{study.names[one.run_id]}, {study.case_of[one.run_id].title}",
             _join_notes(one, one.result.warnings)) for one in profiles
        ],
        **_differences(study),
        "capture_notes": list(_capture_notes(study)),
    }  # fmt: skip


def _join_notes(one: Executed, more: Sequence[str] = ()) -> str:
    """The launch gap and how far the counters can be trusted."""
    times = describe_times(one) if one.step_time_s else ""
    return ". ".join(capped(note) for note in (times, describe_trust(one), *more) if note)


def _capture_notes(study: Study) -> Iterator[tuple[str, str]]:
    executed = study.executed
    for run_id, label in study.captures.reindex(columns=["run_id", "label"]).to_numpy():
        one = executed[run_id]
        notes = [_join_notes(one)] if one.result.tier else []  # a program that was profiled here
        if notes := [*notes, *study.notes.get(run_id, ())]:
            yield str(label), ". ".join(notes)


def _differences(study: Study) -> dict[str, Any]:
    """Model beside executed work of steps and phases."""
    rows = tables.name_runs(study, study.reconciled)
    if rows.empty:
        return {"coarse": ""}
    coarse = rows[rows["grain"].isin(["step", "phase"])]
    named = dict.fromkeys([*coarse["cause"], *coarse["bytes_cause"]])
    return {
        "coarse": table(coarse, [*SHOWN["reconcile"], text("where", "mostly in")]),
        "causes": [(cause, CAUSES[cause]) for cause in named if cause in CAUSES],
    }


# ---------------------------------------------------------------- analysis and limitations


def convolution_values(study: Study) -> dict[str, Any]:
    """What PyTorch's choice of algorithms costs, and whole networks under each."""
    found = study.convolutions
    return {
        "totals": describe_totals(found),
        "losses": _texts_table(largest_losses(found)),
        "networks": _texts_table(whole_networks(found)),
    }


def _texts_table(rows: Sequence[dict[str, str]]) -> Markdown | str:
    if not rows:
        return ""
    import pandas as pd

    return table(pd.DataFrame(rows), [text(name) for name in rows[0]])


def analysis_values(study: Study) -> dict[str, Any]:
    """Precisions and machines side by side, and what does not fit."""
    import pandas as pd

    quiet = [case for case in study.cases if case.run_id not in study.disturbed]
    return {
        "far_from_floor": sum((case.efficiency or 1) < LOW_EFFICIENCY for case in study.cases),
        "speed_ups": table(pd.DataFrame(find_speed_ups(quiet)), SPEED_UPS),
        "flags": find_flags(study),
        "repeats": find_repeats_apart(study),
        "busy": [case for case in study.cases if case.run_id in study.disturbed],
    }


def find_speed_ups(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Configurations that differ in precision, or in machine, alone: how many times as fast."""
    pairs = []
    for group in alike(cases, but=("precision",)):
        base, *others = sorted(group, key=lambda case: WIDTH.get(case.precision, len(WIDTH)))
        pairs += [(base, case, base.precision, case.precision) for case in others]
    for group in alike(cases, but=(*PLACE, *ENVIRONMENT)):
        base, *others = sorted(group, key=lambda case: -case.step_s)
        pairs += [(base, case, base.env, case.env) for case in others if case.env != base.env]
    return [
        {
            "configuration": base.title,
            "env": base.env,
            "from": left,
            "to": right,
            "from_s": base.step_s,
            "to_s": case.step_s,
            "speed_up": base.step_s / case.step_s,
            "floors": _floor_ratio(base, case),
            "from_bound": base.bound,
            "to_bound": case.bound,
        }
        for base, case, left, right in pairs
    ]


def _floor_ratio(base: Case, case: Case) -> float | None:
    """How much lower the floor of the second is, where both are of the same kind."""
    if base.work != case.work:
        return None
    return base.floor_s / case.floor_s if base.floor_s and case.floor_s else None


def find_flags(study: Study) -> list[dict[str, Any]]:
    """What the sanity checks flagged, by machine and likely cause, and the farthest of each."""
    flagged = study.points[study.points["flag"].fillna("").ne("")]
    causes = flagged["flag"].map(lambda flag: str(flag).partition(CAUSE)[2])
    return [
        {
            "cause": cause,
            "points": len(rows),
            "farthest": records(rows.nlargest(1, "efficiency"))[0],
            "runs": cite(study, rows["run_id"]),
        }
        for (_, cause), rows in flagged.groupby(["env", causes], sort=False)
    ]


def find_repeats_apart(study: Study) -> list[tuple[Case, float, float]]:
    """Repeats of one configuration that differ, with the fastest and the slowest."""
    ends = [(case, min(case.step_times_s), max(case.step_times_s)) for case in study.cases]
    return [(case, low, high) for case, low, high in ends if high > (1 + REPEATS_DIFFER) * low]


def limit_values(study: Study) -> dict[str, Any]:
    """What was not measured, and what is known less well than it looks."""
    cases = study.cases
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


def appendix_values(study: Study) -> dict[str, Any]:
    """Every command, every version."""
    made = {run.run_id: (run.request.label, run.made.time) for run in study.raw_runs}
    commands = "\n".join(_commands(study))
    return {
        "commands": Markdown(code_block(commands, "sh") if commands else ""),
        "runs": [(name, run_id, *made.get(run_id, ("", "")))
                 for run_id, name in study.names.items()],
        "captures": table(study.captures, [
            text("label", "capture"), text("files", "file or program"),
            text("device_name", "device"), text("timestamp", "time"), text("run_id", "stored as"),
        ]),
        "versions": _list_versions(study),
    }  # fmt: skip


def _commands(study: Study) -> Iterator[str]:
    """The commands, each with what it made."""
    by_command: dict[str, list[str]] = defaultdict(list)
    for machine in study.machines:
        made_by = machine.passport.provenance.command if machine.passport else ()
        if made_by:
            by_command[shlex.join(made_by)].append(f"roofs of {machine.env}")
    for run in study.raw_runs:
        if run.made.command and run.run_id in study.names:
            variables = environment_text(run.made.environment)
            words = f"{variables} {shlex.join(run.made.command)}".strip()
            by_command[words].append(study.names[run.run_id])
    for row in records(study.captures):
        by_command[str(row["command"])].append(str(row["label"]))
    for command, names in by_command.items():
        yield f"# {' '.join(', '.join(names).split())}\n{command}"


def _list_versions(study: Study) -> list[tuple[str, str, str, str]]:
    """What runs were made with, one row for each set of versions: runs, host, system, versions."""
    runs = defaultdict(list)
    for run in study.raw_runs:
        host = run.made.host
        runs[host.name or "", host.os or "", versions_text(run.made)].append(run.run_id)
    return [(cite(study, run_ids), *versions) for versions, run_ids in runs.items()]


def arrange_figures(figures: Sequence[Figure], folder: Path) -> dict[str, Markdown]:
    """The figures of each section, numbered through the report."""
    names = ("measurement", "training", "sweeps", "roofline", "convolutions", "predictions")
    sections: dict[str, list[Figure]] = {name: [] for name in names}
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


VALUES: dict[str, Callable[[Study], dict[str, Any]]] = {  # of the sections, by their names there
    "abstract": abstract_values, "design": design_values,
    "measurement": measurement_values, "roofline": roofline_values, "executed": executed_values,
    "convolutions": convolution_values,
    "analysis": analysis_values, "limits": limit_values, "appendix": appendix_values,
    "sweeps": sweep_values,
}  # fmt: skip

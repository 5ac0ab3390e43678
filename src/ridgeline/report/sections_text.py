"""The sections of report.md that argue: abstract, design, analysis, limitations, appendix."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import LOWER_BOUND
from ridgeline.report.analysis import TOPICS, of_all
from ridgeline.report.analysis_gap import gaps, shares
from ridgeline.report.hypotheses import FAILED, HELD, HYPOTHESES, OPEN, PARTLY
from ridgeline.report.markup import code_block, markdown, markdown_table
from ridgeline.report.sections import Material, cited, statement_line, table
from ridgeline.report.sections_data import CASE, figures
from ridgeline.report.study import Machine
from ridgeline.report.summary import WORDS
from ridgeline.report.tables import MS, quantity, text
from ridgeline.report.text import capped, counted, listed, number, records, some, span
from ridgeline.report.views import environment_text
from ridgeline.units import format_bytes, format_flops, format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd

LOW_EFFICIENCY = 0.5
LONG_WAIT = 0.1  # of a step
MOST_CAPTURES = 4  # in the abstract
GAP_HEADERS = (
    ("step_s", "step"), ("floor_s", "floor of the work"), ("kernels_s", "kernels beyond it"),
    ("waiting_s", "device idle"), ("rest_s", "above the floor"), ("data_s", "of it data"),
    ("optimizer_s", "of it optimizer"),
)  # fmt: skip


def abstract(material: Material) -> Iterator[str]:
    """The study in a paragraph."""
    captured = list(_captured(material))
    if not material.cases and not captured:
        yield "The results folder holds no completed run yet."
        return
    sentences = captured
    if material.cases:
        sentences = [_extent(material), *(_reached(material, env) for env in material.envs)]
        sentences += [*captured, _outcomes(material), _doubts(material)]
    yield " ".join(markdown(sentence) for sentence in sentences if sentence)


def _extent(material: Material) -> str:
    models = list(dict.fromkeys(case.model for case in material.cases))
    machines = [f"{env}{_device(material, env)}" for env in material.envs]
    return (
        f"This study holds {counted(len(material.study.runs), 'run')} of"
        f" {counted(len(material.cases), 'configuration')} of {counted(len(models), 'network')}"
        f" ({some(models, joint=', ')}) on {listed(machines)}."
    )


def _captured(material: Material) -> Iterator[str]:
    """What was executed elsewhere, capture by capture."""
    captures = records(material.study.captures)
    for row in captures[:MOST_CAPTURES]:
        device, flops, moved = row["device_name"], number(row["flops"]), number(row["dram_bytes"])
        text = f"The capture {row['label']}{f' ({device})' if device else ''} holds"
        text += f" {counted(int(row['launches']), 'kernel launch', 'kernel launches')}"
        text += f" in {format_time(row['time_s'])}" if number(row["time_s"]) else ""
        notes = " ".join(material.study.notes.get(row["run_id"], ()))
        least = "at least " if LOWER_BOUND in notes else ""
        text += f", {least}{format_flops(flops)}" if flops is not None else ""
        text += f", {format_bytes(moved)} of DRAM traffic" if moved is not None else ""
        efficiency = number(row["efficiency"])
        if efficiency is not None:
            bound = str(row["bound"])
            text += f": {format_percent(efficiency)} of what the roofs allow; the floor is set by"
            text += f" {WORDS.get(bound, bound)}"
        yield f"{text}."
    if len(captures) > MOST_CAPTURES:
        yield f"There are {len(captures) - MOST_CAPTURES} more."


def _device(material: Material, env: str) -> str:
    machine = material.study.machine(env)
    name = machine.roofs.device_name if machine else ""
    return f" ({name})" if name else ""


def _reached(material: Material, env: str) -> str:
    """How near the steps of one machine are to their floors, and what sets these."""
    placed = [case for case in material.cases if case.env == env and case.efficiency]
    if not placed:
        return f"For {env}, no floors are known."
    reached = [case.efficiency or 0.0 for case in placed]
    bounds = [case.bound for case in placed]
    common = max(dict.fromkeys(bounds), key=bounds.count)
    ends = span(format_percent(min(reached)), format_percent(max(reached)))
    middle = f" ({format_percent(median(reached))} in the middle)" if len(reached) > 2 else ""
    share = of_all(bounds.count(common), len(bounds))
    text = (
        f"On {env}, a step reaches {ends}{middle} of what the roofs allow; the floor is set by"
        f" {WORDS.get(common or '', str(common))} in {share}."
    )
    waits = [(share, gap) for share, gap in shares(gaps(placed), "waiting_s") if share > LONG_WAIT]
    if waits:
        longest, most = waits[-1]
        text += (
            f" In {counted(len(waits), 'configuration')} the device waits for the host for more"
            f" than a tenth of the step, at most {format_percent(longest)}"
            f" ({most.case.title})."
        )
    return text


def _outcomes(material: Material) -> str:
    """Which hypotheses held."""
    texts = []
    for outcome in (HELD, PARTLY, FAILED, OPEN):
        names = [verdict.name for verdict in material.verdicts if verdict.outcome == outcome]
        if names:
            texts.append(f"{listed(names)} {outcome}")
    return f"Of the hypotheses below, {listed(texts)}."


def _doubts(material: Material) -> str:
    runs = material.study.runs
    warned = int(runs["warnings"].fillna(0).gt(0).sum()) if "warnings" in runs else 0
    if not warned:
        return ""
    return (
        f"{warned} of {counted(len(runs), 'run')} came with warnings, so the limitations at the end"
        " belong to the result."
    )


def design(material: Material) -> Iterator[str]:
    """Aim, hypotheses, machines and the matrix of configurations."""
    yield (
        "For each network and machine, three questions: how fast could a step be, how fast is it,"
        " and what is the time in between spent on. The first is answered by counting the work of a"
        " step and measuring the roofs of the machine, the second by timing steps, the third by"
        " setting both side by side."
    )
    yield "### Hypotheses"
    yield markdown_table(["", "claim", "how it is tested"],
                         [[h.name, h.claim, h.rule] for h in HYPOTHESES])  # fmt: skip
    yield "### Machines"
    yield _machines(material)
    yield "### Configurations"
    matrix = _matrix(material)
    if len(matrix):
        yield table(matrix, [text("env", "machine"), text("model"), text("mode"), text("precision"),
                             text("settings"), text("batches", "batch sizes"),
                             text("runs")])  # fmt: skip
    else:
        yield "None."


def _machines(material: Material) -> str:
    headers = ["machine", "device", "processor", "memory", "system", "driver", "roofs"]
    study = material.study
    rows = [_machine(machine, study.device_label(machine)) for machine in study.machines]
    return markdown_table(headers, rows) if rows else "None."


def _machine(machine: Machine, device: str) -> list[str]:
    roofs = machine.roofs
    told: Mapping[str, Any] = machine.passport.description if machine.passport else {}
    cpu = told.get("cpu") or {}
    cores = cpu.get("usable_cores")
    memory = number((told.get("memory") or {}).get("total_bytes"))
    return [
        roofs.env,
        f"{roofs.device_name or 'not named'}{f' ({device})' if device else ''}",
        f"{cpu.get('model', '')}{f', {cores} cores' if cores else ''}",
        format_bytes(memory) if memory else "",
        str(told.get("os") or ""),
        str((told.get("drivers") or {}).get("NVIDIA driver") or "")
        if roofs.device != "cpu"
        else "",
        _source(machine),
    ]


def _source(machine: Machine) -> str:
    roofs = machine.roofs
    if roofs.basis:
        return roofs.basis
    if roofs.source != "measured":
        return roofs.source
    when = f" {roofs.measured_at[:10]}" if roofs.measured_at else ""
    return f"measured{when}{' (quick)' if roofs.is_quick else ''}"


def _matrix(material: Material) -> pd.DataFrame:
    import pandas as pd

    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for case in material.cases:
        told = ", ".join(case.extras)
        key = (case.env, case.model, case.mode, case.precision, told)
        row = rows.setdefault(key, {"batches": set(), "runs": 0})
        row["batches"].add(case.batch_size)
        row["runs"] += len(case.run_ids)
    names = ("env", "model", "mode", "precision", "settings")
    return pd.DataFrame(
        [
            {
                **dict(zip(names, key, strict=True)),
                "batches": ", ".join(str(size) for size in sorted(row["batches"])),
                "runs": row["runs"],
            }
            for key, row in rows.items()
        ]
    )


def analysis(material: Material) -> Iterator[str]:
    """The statements by topic, the gap as a table, the hypotheses."""
    if not material.statements:
        yield "No run was timed here, so there is no step to take apart."
        return
    yield (
        "All sentences here were written from the data; in brackets is where their numbers come"
        " from and which runs they are about. Where a configuration was run several times, its run"
        " with the middle step time stands for it."
    )
    low = [case for case in material.cases if (case.efficiency or 1) < LOW_EFFICIENCY]
    if low:
        yield (
            f"What sets the floor is not always what limits the step now: in {len(low)} of"
            f" {counted(len(material.cases), 'configuration')} less than half of the step is"
            " explained by its floor, and the rest has other reasons, taken apart below."
        )
    for topic, title in TOPICS.items():
        mine = [s for s in material.statements if s.topic == topic]
        if mine:
            yield f"### {title}"
            yield "\n".join(statement_line(s, material.names) for s in mine)
        if topic == "gap" and mine:
            yield from _gap_table(material)
    yield from figures(material, "analysis")
    yield "### Hypotheses, tested"
    yield markdown_table(
        ["", "claim", "outcome", "evidence", "runs"],
        [[v.name, v.claim, v.outcome, v.evidence, cited(v.run_ids, material.names)]
         for v in material.verdicts],
    )  # fmt: skip


def _gap_table(material: Material) -> Iterator[str]:
    import pandas as pd

    rows = [
        {
            "run": material.names.get(gap.case.run_id),
            "env": gap.case.env,
            "configuration": gap.case.title,
            "step_s": gap.case.step_s,
            **{name: getattr(gap, name) for name, _ in GAP_HEADERS[1:]},
        }
        for gap in gaps(material.cases)
    ]
    if not rows:
        return
    yield (
        "Each step taken apart. The floor of the work (without launches), the time of the kernels"
        " beyond it and the time without kernels add up to the step; where kernels were not timed,"
        " all that is above the floor is one number. Data and optimizer are parts of the same step,"
        " not further ones."
    )
    parts = [quantity(name, f"{header} (ms)", MS) for name, header in GAP_HEADERS]
    yield table(pd.DataFrame(rows), [*CASE, *parts])


def appendix(material: Material) -> Iterator[str]:
    """Every command, every version."""
    study = material.study
    has_captures = not study.captures.empty
    commands = "\n".join(_commands(material))
    if commands:
        yield "### Commands"
        kinds = (("run", bool(material.names)), ("capture", has_captures))
        what = listed(f"each {kind}" for kind, is_here in kinds if is_here) or "all"
        yield f"{capped(what)} can be made again with the command that made it:"
        yield code_block(commands, "sh")
    known = {run.run_id: run for run in study.raw_runs}
    rows = []
    for run_id, name in material.names.items():
        run = known.get(run_id)
        label = str(run.asked.get("label") or "") if run else ""
        made = run.provenance if run else {}
        rows.append([name, run_id, label, str(made.get("time") or "")])
    if rows:
        yield "### Runs"
        yield markdown_table(["run", "stored as", "label", "time"], rows)
    if has_captures:
        yield "### Captures"
        yield "The time is that at which a capture was taken into the results folder."
        yield table(study.captures, [text("label", "capture"), text("files", "file or program"),
                                     text("device_name", "device"), text("timestamp", "time"),
                                     text("run_id", "stored as")])  # fmt: skip
    yield "### Versions"
    yield from _versions(material)
    if study.stages:
        yield "### Stages"
        stages = [[s["stage"], s["status"], s["reason"]] for s in study.stages]
        yield markdown_table(["stage", "status", "reason"], stages)


def _commands(material: Material) -> Iterator[str]:
    by_command: dict[str, list[str]] = {}
    for machine in material.study.machines:
        command = machine.passport.provenance.get("command") if machine.passport else None
        if command:
            by_command.setdefault(_shell(command), []).append(f"roofs of {machine.env}")
    for run in material.study.raw_runs:
        command = run.provenance.get("command")
        if command and run.run_id in material.names:
            words = f"{environment_text(run.made.environment)} {_shell(command)}".strip()
            by_command.setdefault(words, []).append(material.names[run.run_id])
    for row in records(material.study.captures):
        by_command.setdefault(str(row["command"]), []).append(str(row["label"]))
    for command, names in by_command.items():
        yield f"# {' '.join(', '.join(names).split())}\n{command}"


def _shell(command: Any) -> str:
    return shlex.join(str(word) for word in command) if isinstance(command, list) else str(command)


def _versions(material: Material) -> Iterator[str]:
    """What runs and captures were made with, one row for each set of versions."""
    runs: dict[tuple[str, ...], list[str]] = {}
    captures: dict[tuple[str, ...], list[str]] = {}
    for run in material.study.raw_runs:
        runs.setdefault(_software(run.provenance), []).append(run.run_id)
    names = {row["run_id"]: str(row["label"]) for row in records(material.study.captures)}
    for capture in material.study.raw_captures:
        captures.setdefault(_software(capture.provenance), []).append(names[capture.run_id])
    if not any(any(told) for told in (*runs, *captures)):
        yield "Not known."
        return
    what = "runs and captures" if captures else "runs"
    headers = [what, "host", "system", "Python", "ridgeline", "torch", "CUDA", "cuDNN", "commit"]
    rows = [[cited(ids, material.names), *row] for row, ids in runs.items()]
    rows += [[some(labels, joint=", "), *row] for row, labels in captures.items()]
    yield markdown_table(headers, rows)


def _software(made: Mapping[str, Any]) -> tuple[str, ...]:
    host, libraries = made.get("host") or {}, made.get("libraries") or {}
    backends, commit = made.get("backends") or {}, made.get("ridgeline_commit") or {}
    told = (
        host.get("name"), host.get("os"), made.get("python"), made.get("ridgeline"),
        libraries.get("torch"), backends.get("cuda"), backends.get("cudnn"),
        str(commit.get("sha") or "")[:10],
    )  # fmt: skip
    return tuple(str(value or "") for value in told)

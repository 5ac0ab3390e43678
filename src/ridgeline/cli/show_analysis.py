"""The end of `ridgeline analyze`: what it found, in the terminal or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.cli import show_runs, show_study
from ridgeline.cli.tables import print_text, screen
from ridgeline.findings import saving, saving_basis
from ridgeline.report.summary import summary

if TYPE_CHECKING:
    from ridgeline.pipeline.analyze import Analysis
    from ridgeline.report.study import Study

MOST_WARNINGS = 2  # of a run
FINDING_KEYS = (
    "layer", "bound", "efficiency", "headroom_s", "advice", "meaning", "share", "time_s", "floor_s",
    "kind", "model", "batch_size", "precision", "run_id",
)  # fmt: skip


def as_json(analysis: Analysis) -> dict[str, Any]:
    """The answer for programs."""
    study, page, runner = analysis.study, analysis.outputs.page, analysis.runner
    findings = [] if study is None else show_study.rows(study.findings)
    return {
        "report": str(page) if page is not None else None,
        "machine": analysis.machine,
        "runs": [show_runs.run_to_json(run, runner.results) for run in runner.runs],
        "findings": [{key: row.get(key) for key in FINDING_KEYS} for row in findings],
        "stages": analysis.stages.to_dict(),
        "problems": [*analysis.problems, *(study.problems if study is not None else ())],
    }


def show(analysis: Analysis, study: Study, *, quiet: bool) -> None:
    """How fast it could be, what holds it back, what to try; the report's path last."""
    console = screen()
    texts = summary(study)
    for line in (*texts.headline, ""):
        print_text(console, line)
    show_study.print_steps(study)
    if texts.findings:
        print_text(console, "What to try first:")
        for line in finding_lines(texts.findings):
            print_text(console, line)
    show_study.print_flags(study)
    if not quiet:
        _advise(analysis, study)
    if analysis.outputs.page is not None:
        print(analysis.outputs.page)


def finding_lines(findings: Sequence[dict[str, Any]]) -> list[str]:
    """A numbered line for each; advice that was given already is not given again."""
    lines, numbers = [], dict[str, int]()
    for number, row in enumerate(findings, start=1):
        where = f"{row['layer']} of {row['model']} (batch {row['batch_size']}, {row['precision']})"
        first = numbers.setdefault(str(row["advice"]), number)
        advice = f"Try: {row['advice']}." if first == number else f"Try what {first}. says."
        estimate = f"An estimate of what it could save: {saving(row)}, {saving_basis(row)}."
        lines.append(f"{number}. {where} {row['meaning']}. {estimate} {advice}")
    return lines


def warning_lines(study: Study) -> list[str]:
    """What the measurements themselves warn of, the first few of each run."""
    lines = []
    for run in study.raw_runs:
        warnings, request = run.result.warnings, run.request
        name = f"{request.model}, batch {request.batch_size}, {run.result.precision}"
        lines += [f"{name}: {text}" for text in warnings[:MOST_WARNINGS]]
        if len(warnings) > MOST_WARNINGS:
            lines.append(f"{name}: and {len(warnings) - MOST_WARNINGS} more, in the report")
    return lines


def _advise(analysis: Analysis, study: Study) -> None:
    """Beside the answer: what was skipped, what to know, where else to look."""
    for stage in analysis.stages.done:
        if stage.status in ("skipped", "failed", "cached") or "busy meanwhile" in stage.reason:
            print(f"{stage.stage}: {stage.status}: {stage.reason}", file=sys.stderr)
    show_runs.advise(
        [*analysis.problems, *analysis.outputs.notes, *study.problems, *warning_lines(study)],
        quiet=False,
    )
    outputs = analysis.outputs
    if outputs.markdown is not None:
        figures = study.results / "figures"
        print(f"also {outputs.markdown}, {outputs.points}, {figures}", file=sys.stderr)

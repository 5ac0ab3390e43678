"""`ridgeline report`: the page and report.md from what is stored."""

from __future__ import annotations

from pathlib import Path

from ridgeline.cli import options as opt
from ridgeline.cli.messages import print_json, show_message, show_notes
from ridgeline.plain import plain_text

EXAMPLES = """
[bold]Examples[/]

  ridgeline report
  ridgeline report resnet50 vgg16 --title "Two networks on one card"
  ridgeline report --hypotheses mine.yaml
  ridgeline report --json | jq -r .report
"""


@opt.takes_groups
def report(
    stored: opt.StoredRuns,
    title: opt.Title = None,
    figures: opt.Figures = True,
    notebook: opt.Notebook = False,
    hypotheses: Path | None = opt.option(
        None, "Your own hypotheses, in YAML: claims and comparisons of results.", metavar="FILE"
    ),
    *,
    output: opt.Output,
) -> None:
    """Write the page, report.md, figures and tables of what is stored; nothing is run.

    What you wrote into the places for your own words in report.md stays there.
    """
    from ridgeline.cli.interrupts import import_figures, stop_if_pressed
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.outputs import write_points, write_report
    from ridgeline.report.hypotheses import judge_hypotheses, read_own_hypotheses

    own = read_own_hypotheses(hypotheses) if hypotheses is not None else ()
    study = stored.read(output)
    if figures:
        import_figures()
    with progress_bar(4, quiet=output.quiet, first="points") as progress:
        made = write_points(study, figures=figures, on_progress=lambda name: stop_if_pressed())
        write_report(
            study, made, title=title, notebook=notebook, own_hypotheses=own,
            on_progress=progress.start,
        )  # fmt: skip
    show_notes(made.notes)
    verdicts = judge_hypotheses(study, own)[: len(own)]
    if output.as_json:
        content = {
            "report": str(made.page),
            "markdown": str(made.markdown),
            "notebook": str(made.notebook) if made.notebook else None,
            "points_csv": str(made.points),
            "figures": [str(figure.path) for figure in made.figures],
            "tables": [str(path) for path in made.tables],
            "problems": list(study.problems),
            "hypotheses": [
                {
                    "name": one.name,
                    "claim": one.hypothesis.claim,
                    "test": one.hypothesis.rule,
                    "outcome": one.outcome,
                    "evidence": one.evidence,
                    "runs": list(one.run_ids),
                }
                for one in verdicts
            ],
        }
        print_json(content)
        return
    if not output.quiet:
        counts = f"{len(made.figures)} figures, {len(made.tables)} tables"
        show_message(f"wrote {made.markdown}, {made.points}, {counts}")
    for one in verdicts:
        print(plain_text(f"{one.name} {one.outcome}: {one.hypothesis.claim}\n  {one.evidence}"))
    print(made.page)

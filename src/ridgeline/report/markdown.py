"""`report.md`: a study written up, with a place for its author's own words in every section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ridgeline.report import sections_data, sections_executed, sections_limits, sections_text
from ridgeline.report.configurations import cases, short_names
from ridgeline.report.hypotheses import verdicts
from ridgeline.report.markup import markdown
from ridgeline.report.sections import FigureLike, Material
from ridgeline.report.statements import analyse
from ridgeline.report.study import Study
from ridgeline.report.text import listed
from ridgeline.report.user_sections import place, write_keeping

SECTIONS: dict[str, tuple[str, Callable[[Material], Iterator[str]]]] = {
    "abstract": ("Abstract", sections_text.abstract),
    "experiment-design": ("Experiment design", sections_text.design),
    "complexity": ("Complexity", sections_data.complexity),
    "measurement": ("Measurement", sections_data.measurement),
    "roofline": ("Roofline", sections_data.roofline),
    "executed": ("What the hardware did", sections_executed.executed),
    "analysis": ("Analysis", sections_text.analysis),
    "limitations": ("Limitations", sections_limits.limitations),
    "appendix": ("Appendix", sections_text.appendix),
}
HEAD = """<!--
Made by ridgeline from the stored runs. What you write between a line "yours: NAME" and its
"/yours" stays when this file is made again; everything else is written anew.
-->"""
MOST_NAMES = 4


def write_report_md(
    study: Study,
    path: Path,
    figures: Sequence[FigureLike] = (),
    *,
    title: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the report; what its author wrote into an older one stays.

    An older file that was changed outside of its places for own words is kept beside the new one;
    the new one begins with a sentence about it, and `tell` gets the same.
    """
    text = report_text(study, figures, folder=path.parent, title=title)
    kept = write_keeping(path, text, note=lambda kept: f"> {markdown(_kept(path, kept))}")
    if kept is not None:
        tell(_kept(path, kept))
    return path


def _kept(path: Path, kept: Path) -> str:
    return (
        f"{path.name} had been changed outside of the places for own words, or was not made by"
        f" ridgeline; as it was, it is kept as {kept.name}"
    )


def report_text(
    study: Study,
    figures: Sequence[FigureLike] = (),
    *,
    folder: Path,
    title: str | None = None,
) -> str:
    """The report with empty places."""
    found = cases(study)
    material = Material(
        study=study,
        cases=found,
        names=short_names(study),
        statements=analyse(study, found),
        verdicts=verdicts(study, found),
        figures=figures,
        folder=folder,
    )
    blocks = [HEAD, f"# {markdown(title or default_title(material))}"]
    for name, (heading, write) in SECTIONS.items():
        blocks += [f"## {heading}", *write(material), place(name)]
    return "\n\n".join(blocks) + "\n"


def default_title(material: Material) -> str:
    """`Roofline study of resnet50 and vgg16 on nvidia-h200`."""
    models = list(dict.fromkeys(case.model for case in material.cases))
    if not models:
        return "Roofline study"
    if len(models) > MOST_NAMES:
        models = [*models[:MOST_NAMES], f"{len(models) - MOST_NAMES} more"]
    return f"Roofline study of {listed(models)} on {listed(material.envs)}"

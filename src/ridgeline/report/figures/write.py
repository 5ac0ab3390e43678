"""Which figures a study allows, and their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.report.figures import (
    batch,
    classic,
    hierarchical,
    machines,
    runtime,
    throughput,
    timing,
    training,
)
from ridgeline.report.figures.figure import KINDS, Drawing, Figure
from ridgeline.report.figures.style import DPI, in_style
from ridgeline.report.figures.subjects import Subject, subjects
from ridgeline.report.study import Study

FORMATS = ("png", "svg", "pdf")

OF_ONE: dict[str, tuple[str, Callable[[Subject], Drawing | None]]] = {
    "classic": ("roofline_{}", classic.draw_steps),
    "layers": ("roofline_{}_layers", classic.draw_layers),
    "kernels": ("roofline_{}_kernels", classic.draw_kernels),
    "hierarchical": ("roofline_{}_hierarchical", hierarchical.draw_levels),
    "time": ("roofline_{}_time", timing.draw_times),
    "training": ("roofline_{}_training", training.draw_phases),
    "batch": ("roofline_{}_batch", batch.draw_trajectories),
    "throughput": ("throughput_{}", throughput.draw_throughput),
}
OF_ALL: dict[str, tuple[str, Callable[[Sequence[Subject]], Drawing | None]]] = {
    "machines": ("roofline_machines", machines.draw_machines),
    "runtime": ("runtime", runtime.draw_runtimes),
}


def write_figures(
    study: Study,
    folder: Path,
    *,
    formats: Sequence[str] = ("png", "svg"),
    kinds: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Figure]:
    """Write all figures that can be drawn, or those of some `kinds`; the others are absent.

    `tell` gets the name of each figure when its drawing begins.
    """
    _check("format", formats, FORMATS)
    _check("kind of figure", kinds or (), KINDS)
    found = []
    with in_style():
        for kind, env, name, draw in _planned(study):
            if kinds is not None and kind not in kinds:
                continue
            tell(name)
            drawing = draw()
            if drawing is not None:
                paths = _saved(drawing, folder, name, formats)
                found.append(
                    Figure(path=paths[0], paths=paths, kind=kind, env=env, title=drawing.title,
                           caption=drawing.caption)
                )  # fmt: skip
    return found


def _planned(study: Study) -> Iterator[tuple[str, str, str, Callable[[], Drawing | None]]]:
    """Kind, environment, file name and drawing of each figure that may be possible."""
    every = subjects(study)
    for subject in every:
        for kind, (name, draw) in OF_ONE.items():
            yield kind, subject.machine.env, name.format(subject.name), _bound(draw, subject)
    for kind, (name, draw_all) in OF_ALL.items():
        yield kind, "", name, _bound(draw_all, every)


def _bound(draw: Callable[[Any], Drawing | None], what: Any) -> Callable[[], Drawing | None]:
    return lambda: draw(what)


def _saved(drawing: Drawing, folder: Path, name: str, formats: Sequence[str]) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"{name}.{ending}" for ending in formats)
    for path, ending in zip(paths, formats, strict=True):
        drawing.canvas.savefig(path, dpi=DPI, metadata=_metadata(drawing, ending))
    return paths


def _metadata(drawing: Drawing, ending: str) -> dict[str, Any]:
    """Title and caption go with the picture; the time does not, so that it can be remade."""
    if ending == "pdf":
        return {"Title": drawing.title, "Subject": drawing.caption, "CreationDate": None}
    about: dict[str, Any] = {"Title": drawing.title, "Description": drawing.caption}
    return about | ({"Date": None} if ending == "svg" else {"Software": None})


def _check(what: str, asked: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in asked if name not in known]
    if unknown or (what == "format" and not asked):
        raise RidgelineError(
            f"no {what} is called {', '.join(map(repr, unknown))}"
            if unknown
            else f"no {what} is asked for",
            hint=f"there are {', '.join(known)}",
        )

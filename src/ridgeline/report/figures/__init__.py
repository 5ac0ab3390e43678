"""Figures for a paper, from what a study holds. See docs/figures.md.

Here are the kinds of figures and their files; the drawing is in

views.py      a machine with its runs and points; runs of the same settings as one; captions
times.py      throughput against batch, bars of step times, sweeps, convolutions
energy.py     work per joule, power, joules against time of a sample
rooflines.py  steps, layers, kernels and memory levels under the roofs
labels.py     marks, and texts that keep clear of each other, of marks and of lines
style.py      size, fonts, colours, marks, ticks, legend
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.report.convolutions import OF_CONVOLUTIONS
from ridgeline.report.figures import energy, rooflines, times
from ridgeline.report.figures.style import DPI, Drawing, in_style
from ridgeline.report.figures.views import MachineView, list_views
from ridgeline.report.predictions import PREDICTION
from ridgeline.report.study import Study
from ridgeline.report.sweeps import read_sweeps
from ridgeline.report.text import safe_name
from ridgeline.store import IN_RESULTS, whole_file, writing

__all__ = ["FORMATS", "KINDS", "Figure", "write_figure", "write_figures"]

ELSEWHERE = f"--out DIR, {IN_RESULTS}"
FORMATS = ("png", "svg", "pdf")

# kind: file name, and the drawing of one machine
FOR_EACH: dict[str, tuple[str, Callable[[MachineView], Drawing | None]]] = {
    "classic": ("roofline_{}", rooflines.draw_steps),
    "layers": ("roofline_{}_layers", rooflines.draw_layers),
    "kernels": ("roofline_{}_kernels", rooflines.draw_kernels),
    "hierarchical": ("roofline_{}_hierarchical", rooflines.draw_levels),
    "throughput": ("throughput_{}", times.draw_throughput),
    "energy": ("energy_{}", energy.draw_arch),
    "power": ("power_{}", energy.draw_power),
    "joules": ("joules_{}", energy.draw_front),
}
ENERGY_KINDS = ("energy", "power", "joules")
RUNTIME, TRAINING, SWEEP = "runtime", "training", "sweep"  # of all machines; one for each sweep
KINDS = (*FOR_EACH, RUNTIME, TRAINING, PREDICTION, SWEEP, *OF_CONVOLUTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure on disk."""

    path: Path  # in the first of its formats
    paths: tuple[Path, ...]
    kind: str  # one of KINDS
    env: str  # "" for a figure of several machines
    title: str
    caption: str


def write_figures(
    study: Study,
    folder: Path,
    *,
    formats: Sequence[str] = ("png", "svg"),
    kinds: Sequence[str] | None = None,
    on_progress: Callable[[str], None] = lambda name: None,
) -> list[Figure]:
    """Write all figures that can be drawn, or those of some `kinds`; the others are absent.

    `on_progress` gets the name of each figure when its drawing begins.
    """
    _check_names("format", formats, FORMATS)
    _check_names("kind of figure", kinds or (), KINDS)
    figures = []
    with _drawing():
        for kind, env, name, draw in _list_figures(study):
            if kinds is not None and kind not in kinds:
                continue
            on_progress(name)
            if (drawing := draw()) is not None:
                paths = [folder / f"{name}.{ending}" for ending in formats]
                figures.append(_write(drawing, paths, kind, env))
    return figures


def write_figure(study: Study, path: Path, *, kind: str = "classic") -> Figure:
    """Write one figure to a file; its ending is the format. Several machines are an error."""
    _check_names("format", [_ending_of(path)], FORMATS)
    _check_names("kind of figure", [kind], KINDS)
    with _drawing():
        planned = [(env, draw()) for one, env, _, draw in _list_figures(study)
                   if one == kind]  # fmt: skip
        drawings = [(env, drawing) for env, drawing in planned if drawing is not None]
        if len(drawings) == 1:
            ((env, drawing),) = drawings
            return _write(drawing, [path], kind, env)
    if not drawings:
        raise RidgelineError(
            f"there are 0 figures of kind {kind!r} to write to {path}",
            hint="nothing chosen has FLOPs, bytes, a time and roofs; see the notes above",
        )
    envs = " or ".join(f"`ridgeline roofline {env} …`" for env, _ in drawings)
    raise RidgelineError(
        f"there are {len(drawings)} figures of kind {kind!r}, one for each machine, and"
        f" {path} is one file",
        hint=f"choose one machine: {envs}; or name a folder with --out DIR",
    )


@contextmanager
def _drawing() -> Iterator[None]:
    with in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name of the results folder
        yield


def _list_figures(study: Study) -> Iterator[tuple[str, str, str, Callable[[], Drawing | None]]]:
    """Kind, environment, file name and drawing of each figure that may be possible."""
    views = list_views(study)
    for view in views:
        for kind, (name, draw) in FOR_EACH.items():
            yield kind, view.machine.env, name.format(view.name), partial(draw, view)
    yield RUNTIME, "", RUNTIME, partial(times.draw_runtimes, views)
    yield TRAINING, "", TRAINING, partial(times.draw_trainings, study)
    yield PREDICTION, "", PREDICTION, partial(times.draw_predictions, study)
    for sweep in read_sweeps(study):
        name = safe_name(f"{SWEEP}_{sweep.name}", otherwise=SWEEP)
        yield SWEEP, "", name, partial(times.draw_sweep, sweep)
    for kind, name, draw_one in times.list_conv_drawings(study.convolutions, study.machines):
        yield kind, "", name, draw_one


def _write(drawing: Drawing, paths: Sequence[Path], kind: str, env: str) -> Figure:
    for path in paths:
        _save(drawing, path)
    return Figure(path=paths[0], paths=tuple(paths), kind=kind, env=env, title=drawing.title,
                  caption=drawing.caption)  # fmt: skip


def _save(drawing: Drawing, path: Path, elsewhere: str = ELSEWHERE) -> None:
    ending = _ending_of(path)
    with writing(path.parent, elsewhere=elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            metadata = _describe_file(drawing, ending)
            drawing.canvas.savefig(file, format=ending, dpi=DPI, metadata=metadata)


def _describe_file(drawing: Drawing, ending: str) -> dict[str, Any]:
    """Title and caption go with the picture; the time does not, so that it can be remade."""
    title, caption = drawing.title, drawing.caption
    if ending == "pdf":
        return {"Title": title, "Subject": caption, "CreationDate": None}
    no_date = {"Date": None} if ending == "svg" else {"Software": None}
    return {"Title": title, "Description": caption, **no_date}


def _ending_of(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        problem = f"no {what} is called {', '.join(map(repr, unknown))}"
        raise RidgelineError(problem, hint=f"there are {', '.join(known)}")

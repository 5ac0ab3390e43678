"""Which figures a study allows, and their files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.report.figures import parts, step_times, steps, timing
from ridgeline.report.figures.machine_views import MachineView, machine_views, merge_same_roofs
from ridgeline.report.figures.rooflines import draw_machine
from ridgeline.report.figures.style import DPI, Drawing, in_style, make_drawing
from ridgeline.report.study import Study
from ridgeline.roofline.roofs import Roofs
from ridgeline.store import IN_RESULTS, whole_file, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
UNDRAWN = "\ufffd"
ELSEWHERE = f"--out DIR, {IN_RESULTS}"
FORMATS = ("png", "svg", "pdf")

OF_ONE: dict[str, tuple[str, Callable[[MachineView], Drawing | None]]] = {
    "classic": ("roofline_{}", steps.draw_steps),
    "layers": ("roofline_{}_layers", parts.draw_layers),
    "kernels": ("roofline_{}_kernels", parts.draw_kernels),
    "hierarchical": ("roofline_{}_hierarchical", parts.draw_levels),
    "time": ("roofline_{}_time", timing.draw_times),
    "training": ("roofline_{}_training", parts.draw_phases),
    "batch": ("roofline_{}_batch", steps.draw_trajectories),
    "throughput": ("throughput_{}", step_times.draw_throughput),
}
OF_ALL: dict[str, tuple[str, Callable[[Sequence[MachineView]], Drawing | None]]] = {
    "machines": ("roofline_machines", steps.draw_machines),
    "runtime": ("runtime", step_times.draw_runtimes),
}
KINDS = (
    "classic", "layers", "kernels", "hierarchical", "time", "training", "batch", "machines",
    "throughput", "runtime",
)  # fmt: skip


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
    tell: Callable[[str], None] = lambda name: None,
) -> list[Figure]:
    """Write all figures that can be drawn, or those of some `kinds`; the others are absent.

    `tell` gets the name of each figure when its drawing begins.
    """
    _check("format", formats, FORMATS)
    _check("kind of figure", kinds or (), KINDS)
    figures = []
    with in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name of the results folder
        for kind, env, name, draw in _plan(machine_views(study)):
            if kinds is not None and kind not in kinds:
                continue
            tell(name)
            drawing = draw()
            if drawing is not None:
                paths = tuple(folder / f"{name}.{ending}" for ending in formats)
                for path, ending in zip(paths, formats, strict=True):
                    _save(drawing, path, ending)
                figures.append(
                    Figure(path=paths[0], paths=paths, kind=kind, env=env, title=drawing.title,
                           caption=drawing.caption)
                )  # fmt: skip
    return figures


def write_figure(study: Study, path: Path, *, kind: str = "classic") -> Figure:
    """Write one figure to a file; its ending is the format.

    Several machines are an error, unless their roofs are the same because they were given.
    """
    ending = path.suffix.lower().removeprefix(".")
    _check("format", [ending], FORMATS)
    _check("kind of figure", [kind], KINDS)
    with in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        every = machine_views(study)
        if kind in OF_ONE:
            every = merge_same_roofs(every)
        planned = [(env, draw()) for one, env, _, draw in _plan(every) if one == kind]
        drawn = [(env, drawing) for env, drawing in planned if drawing is not None]
        if len(drawn) != 1:
            envs = " or ".join(f"`ridgeline roofline {env} …`" for env, _ in drawn)
            raise RidgelineError(
                f"there are {len(drawn)} figures of kind {kind!r}, one for each machine, and {path}"
                " is one file" if drawn
                else f"there are 0 figures of kind {kind!r} to write to {path}",
                hint=f"choose one machine: {envs}; or name a folder with --out DIR"
                if drawn
                else "nothing chosen has FLOPs, bytes, a time and roofs; see the notes above",
            )  # fmt: skip
        env, drawing = drawn[0]
        _save(drawing, path, ending)
    return Figure(path=path, paths=(path,), kind=kind, env=env, title=drawing.title,
                  caption=drawing.caption)  # fmt: skip


def write_machine(roofs: Roofs, datasheet: Roofs | None, path: Path, *, title: str) -> None:
    """Write the roofs of a machine alone to a PNG or SVG, by the path's ending."""
    with in_style():
        drawing = make_drawing(draw_machine(roofs, datasheet, title=title), title, "")
        _save(drawing, path, path.suffix.removeprefix("."), "--png FILE")


def _plan(
    every: Sequence[MachineView],
) -> Iterator[tuple[str, str, str, Callable[[], Drawing | None]]]:
    """Kind, environment, file name and drawing of each figure that may be possible."""
    for view in every:
        for kind, (name, draw) in OF_ONE.items():
            yield kind, view.machine.env, name.format(view.name), partial(draw, view)
    for kind, (name, draw_all) in OF_ALL.items():
        yield kind, "", name, partial(draw_all, every)


def _save(drawing: Drawing, path: Path, ending: str, elsewhere: str = ELSEWHERE) -> None:
    _replace_control(drawing.canvas)
    with writing(path.parent, elsewhere=elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            drawing.canvas.savefig(
                file, format=ending, dpi=DPI, metadata=_metadata(drawing, ending)
            )


def _replace_control(canvas: Canvas) -> None:
    """No XML file may hold control characters, and no font draws them."""
    from matplotlib.text import Text

    for text in canvas.findobj(Text):
        assert isinstance(text, Text)
        if _CONTROL.search(text.get_text()):
            text.set_text(_CONTROL.sub(UNDRAWN, text.get_text()))


def _metadata(drawing: Drawing, ending: str) -> dict[str, Any]:
    """Title and caption go with the picture; the time does not, so that it can be remade."""
    title, caption = (_CONTROL.sub(UNDRAWN, text) for text in (drawing.title, drawing.caption))
    if ending == "pdf":
        return {"Title": title, "MachineView": caption, "CreationDate": None}
    about: dict[str, Any] = {"Title": title, "Description": caption}
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

"""Which figures a study allows, and their files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ridgeline.report.figures.subjects import Subject, subjects, under_same_roofs
from ridgeline.report.study import Study
from ridgeline.store import IN_RESULTS, whole_file, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
UNDRAWN = "\ufffd"
ELSEWHERE = f"--out DIR, {IN_RESULTS}"
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
    with in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # in a name of the results folder
        for kind, env, name, draw in _planned(subjects(study)):
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


def write_figure(study: Study, path: Path, *, kind: str = "classic") -> Figure:
    """Write one figure to a file; its ending is the format.

    Several machines are an error, unless their roofs are the same because they were given.
    """
    ending = path.suffix.lower().removeprefix(".")
    _check("format", [ending], FORMATS)
    _check("kind of figure", [kind], KINDS)
    with in_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        every = subjects(study)
        if kind in OF_ONE:
            every = under_same_roofs(every)
        planned = [(env, draw()) for one, env, _, draw in _planned(every) if one == kind]
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


def _planned(
    every: Sequence[Subject],
) -> Iterator[tuple[str, str, str, Callable[[], Drawing | None]]]:
    """Kind, environment, file name and drawing of each figure that may be possible."""
    for subject in every:
        for kind, (name, draw) in OF_ONE.items():
            yield kind, subject.machine.env, name.format(subject.name), _bound(draw, subject)
    for kind, (name, draw_all) in OF_ALL.items():
        yield kind, "", name, _bound(draw_all, every)


def _bound(draw: Callable[[Any], Drawing | None], what: Any) -> Callable[[], Drawing | None]:
    return lambda: draw(what)


def _saved(drawing: Drawing, folder: Path, name: str, formats: Sequence[str]) -> tuple[Path, ...]:
    paths = tuple(folder / f"{name}.{ending}" for ending in formats)
    for path, ending in zip(paths, formats, strict=True):
        _save(drawing, path, ending)
    return paths


def _save(drawing: Drawing, path: Path, ending: str) -> None:
    _without_control(drawing.canvas)
    with writing(path.parent, elsewhere=ELSEWHERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            drawing.canvas.savefig(
                file, format=ending, dpi=DPI, metadata=_metadata(drawing, ending)
            )


def _without_control(canvas: Canvas) -> None:
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
        return {"Title": title, "Subject": caption, "CreationDate": None}
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

"""What tracing fixes: ways through the code and numbers that are decided by tensors.

torch's older exporter runs the model once and writes down the operators that it sees. What Python
does with a tensor's elements or sizes leaves no trace: the file has the outcome of that one run.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WAY, NUMBER = "way", "number"
READS = {  # how Python gets at what is in a tensor
    "__bool__": WAY, "__int__": NUMBER, "__float__": NUMBER, "__index__": NUMBER,
    "item": NUMBER, "tolist": NUMBER, "numpy": NUMBER,
}  # fmt: skip
SIZES = ("aten::size", "aten::dim", "aten::numel")
INPUTS = "prim::Param"  # the node whose results are the graph's inputs, then the weights
OURS = (__file__, torch._tensor.__file__)
LIBRARIES = Path(sysconfig.get_path("purelib"))
MOST_TOLD = 3

Inputs = Sequence[Sequence[bool]]  # which axes of each input tensor are open


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A place in the code where a tensor decides, and what is as it was traced."""

    place: str  # net.py:14
    what: str  # WAY or NUMBER
    by_sizes: bool  # of tensors, and not by their elements
    in_library: bool  # the place is not in code of the user's own


@contextmanager
def watched(inputs: Inputs) -> Iterator[list[Fixed]]:
    """What is fixed while torch traces a model of such input tensors; each place once."""
    found: dict[Fixed, None] = {}
    told: list[Fixed] = []
    kept = {name: Tensor.__dict__.get(name) for name in READS}
    for name, what in READS.items():
        setattr(Tensor, name, _watching(getattr(Tensor, name), what, inputs, found))
    try:
        yield told
    finally:
        for name, method in kept.items():
            if method is None:
                delattr(Tensor, name)
            else:
                setattr(Tensor, name, method)
        told += found


def _watching(
    method: Callable[..., Any], what: str, inputs: Inputs, found: dict[Fixed, None]
) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch._C._get_tracing_state() is not None:
            place, in_library = _place()
            by_elements = Fixed(place=place, what=what, by_sizes=False, in_library=in_library)
            if by_elements not in found and (by := _decided_by(tensor, inputs)) is not None:
                found.setdefault(replace(by_elements, by_sizes=by == "sizes"))
        return method(tensor, *args, **kwargs)

    return read


def _decided_by(tensor: Tensor, inputs: Inputs) -> str | None:
    """Whether elements of the inputs made it, or sizes; None where the same is made always.

    Of an input it is known which sizes are open; of what is made from it, all may be.
    """
    trace_of = torch._C._get_value_trace  # type: ignore[attr-defined]  # torch does not tell
    todo, seen, found = [trace_of(tensor)], set[str](), None
    while todo:
        value = todo.pop()
        if value.debugName() in seen:
            continue
        seen.add(value.debugName())
        node = value.node()
        if node.kind() in SIZES:
            found = "sizes" if _is_open(node, inputs) else found
        elif node.kind() == INPUTS:
            given = [v.debugName() for v in node.outputs()][: len(inputs)]
            if value.debugName() in given:
                return "elements"
        else:
            todo += node.inputs()
    return found


def _is_open(size: Any, inputs: Inputs) -> bool:
    """Whether a node that gives a size may give another one for other inputs."""
    of, *axes = size.inputs()
    if of.node().kind() != INPUTS:
        return True
    given = [value.debugName() for value in of.node().outputs()][: len(inputs)]
    if of.debugName() not in given:
        return False  # a weight
    sides = inputs[given.index(of.debugName())]
    axis = axes[0].toIValue() if axes else None
    if isinstance(axis, int) and -len(sides) <= axis < len(sides):
        return sides[axis]
    return any(sides)


def _place() -> tuple[str, bool]:
    """The line that runs, by a short name of its file; and whether that is a library's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in OURS:
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    in_library = path.is_relative_to(LIBRARIES)
    folders = [folder for folder in (LIBRARIES, Path.cwd()) if path.is_relative_to(folder)]
    name = path.relative_to(folders[0]) if folders else path.name
    return f"{name}:{frame.f_lineno}", in_library


# ---------------------------------------------------------------- words


def has_values(fixed: Sequence[Fixed]) -> bool:
    """Whether elements of the inputs decide anything."""
    return any(not one.by_sizes for one in fixed)


def notes(fixed: Sequence[Fixed], *, has_open: bool) -> list[str]:
    """In words; what sizes decide is told where some of them are left open.

    Libraries look at sizes all over, to check them: these places are not told.
    """
    found = []
    for what, said in SAID.items():
        if places := [one.place for one in fixed if one.what == what and not one.by_sizes]:
            found.append(f"{_listed(places)}: {said}")
    sized = [one for one in fixed if one.by_sizes and one.what == WAY and not one.in_library]
    if has_open and (places := [one.place for one in sized]):
        found.append(f"{_listed(places)}: {SAID_OF_SIZES}")
    return found


SAID = {
    WAY: "the values of a tensor decide which way the code goes;"
    " the file has the way that was traced, and takes it for every input",
    NUMBER: "a number is taken from the values of a tensor;"
    " the file has the number that was traced, for every input",
}
SAID_OF_SIZES = (
    "the size of a tensor decides which way the code goes; the file has the way of the traced size"
)


def _listed(places: Sequence[str]) -> str:
    more = len(places) - MOST_TOLD
    told = ", ".join(places[:MOST_TOLD])
    return f"{told} and {more} more places" if more > 0 else told

"""The records of this package: a drawing in memory, and a figure on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KINDS = (
    "classic", "layers", "kernels", "hierarchical", "time", "training", "batch", "machines",
    "throughput", "runtime",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture that is not saved yet."""

    canvas: Canvas
    title: str
    caption: str  # what is seen, in one or two sentences with numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure on disk."""

    path: Path  # in the first of its formats
    paths: tuple[Path, ...]
    kind: str  # one of KINDS
    env: str  # "" for a figure of several machines
    title: str
    caption: str

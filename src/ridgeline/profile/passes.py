"""Groups of metrics that one run of a kernel can count.

A second pass over a kernel costs ten times the first, because memory is saved and restored around
it. So metrics that do not fit into one pass are counted by processes of their own. What fits is
asked of ncu with a tiny kernel, once for a chip; the answers are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.store import atomic_write_text

SASS = "__sass_"  # counted by instrumented code, never beside the chip's own counters
Ask = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics that are counted together."""

    metrics: tuple[str, ...]
    passes: int


def grouped(
    atoms: Sequence[tuple[str, ...]],
    ask: Ask,
    parts: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    is_of_few: Callable[[Sequence[str]], bool] = lambda atom: False,
) -> tuple[Group, ...]:
    """Few groups, each of one pass if it can be.

    `parts` are what a total consists of: one that takes several passes is counted part by part.
    What only few kernels need fills groups of its own, and all others join the last of these.
    """
    atoms = [part for atom in atoms for part in _in_one_pass(atom, ask, parts)]
    instrumented = [atom for atom in atoms if SASS in atom[0]]
    counted = [atom for atom in atoms if SASS not in atom[0]]
    of_few = _packed([atom for atom in counted if is_of_few(atom)], ask)
    of_all = [atom for atom in counted if not is_of_few(atom)]
    return (*_packed(instrumented, ask), *_packed(of_all, ask, into=of_few[::-1]))


def _in_one_pass(
    atom: tuple[str, ...], ask: Ask, parts: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, ...]]:
    members = parts.get(atom[0], ()) if len(atom) == 1 else ()
    return [(name,) for name in members] if members and ask(atom) > 1 else [atom]


def _packed(
    atoms: Sequence[tuple[str, ...]], ask: Ask, into: Sequence[Group] = ()
) -> tuple[Group, ...]:
    """Each in the first group that has room for it, of those that there are or a new one."""
    if not atoms:
        return tuple(into)
    groups = [group.metrics for group in into]
    passes = [group.passes for group in into]
    together = tuple(name for atom in (*groups, *atoms) for name in atom)
    if all(count == 1 for count in passes) and ask(together) == 1:
        return (Group(together, 1),)
    for atom in atoms:
        for number, group in enumerate(groups):
            if passes[number] == 1 and ask((*group, *atom)) == 1:
                groups[number] = (*group, *atom)
                break
        else:
            groups.append(atom)
            passes.append(ask(atom))
    return tuple(Group(group, count) for group, count in zip(groups, passes, strict=True))


@dataclass(slots=True)
class Remembered:
    """Answers about a chip, kept between commands; a file that cannot be used is done without."""

    path: Path | None
    _answers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content = _kept(self.path)
        if isinstance(content, dict):
            self._answers = {k: v for k, v in content.items() if isinstance(v, int) and v > 0}

    def asking(self, ask: Ask) -> Ask:
        """Ask only what is not known yet."""

        def answer(metrics: Sequence[str]) -> int:
            key = ",".join(sorted(metrics))
            if key not in self._answers:
                self._answers[key] = ask(metrics)
                _keep(self.path, self._answers)
            return self._answers[key]

        return answer


def remembered_names(path: Path | None, ask: Callable[[], frozenset[str]]) -> frozenset[str]:
    """The metrics of a chip, asked once; without the name of a device they are asked each time."""
    content = _kept(path)
    if isinstance(content, list) and content:
        return frozenset(map(str, content))
    names = ask()
    _keep(path, sorted(names))
    return names


def _kept(path: Path | None) -> Any:
    """What a file holds; None where it cannot be read."""
    if path is not None:
        with suppress(OSError, ValueError, RecursionError):
            return json.loads(path.read_text(encoding="utf-8"))
    return None


def _keep(path: Path | None, content: Any) -> None:
    """Write a file; where that is not possible, the same is asked again next time."""
    if path is not None:
        with suppress(RidgelineError, OSError):
            atomic_write_text(path, json.dumps(content, indent=1))


def cache_path(what: str, *, version: str, device: str) -> Path | None:
    """Where the answers about a device are kept; None where it has no name."""
    if not device:
        return None
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in some containers
        return None
    name = sha256(f"{version}\n{device}".encode()).hexdigest()[:16]
    return root / "ridgeline" / f"{what}-{name}.json"

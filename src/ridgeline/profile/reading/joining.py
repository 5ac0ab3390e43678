"""Several files of one capture: metrics that were exported, or collected, in parts.

Files belong together when they tell different things of the same kernels: of the same process and
numbers, or, where the program was run once for each part, of the same kernels in the same order on
the same device. Files that tell the same things of other kernels of one process are parts of one
table. Everything else stays a capture of its own.

Metrics are joined before quantities are made of them, since one may need those of several files:
reads and writes, a rate and the time. What tells a thing is known by the names of the metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import Capture
from ridgeline.profile.counter_ways import is_of_tensor_instructions, is_of_time
from ridgeline.profile.quantities import Quantities, find, settled
from ridgeline.profile.reading.assemble import from_counters
from ridgeline.profile.reading.counters import Counters, Part

if TYPE_CHECKING:
    import pandas as pd

NO_USE = "adds nothing that is used"
BETWEEN = " + "  # the names of files that were joined
_SAME = ("id", "kernel", "grid", "block", "compute_capability")
_PROCESS = ("host", "process_id")
_TIME = "counter_time_s"


def join_captures(parts: Sequence[Part]) -> tuple[list[Capture], list[RidgelineError]]:
    """A capture of all that belong together, in the place of the first; and what is refused."""
    captures, refused = [], []
    for part in join_parts(parts):
        try:
            captures.append(part if isinstance(part, Capture) else from_counters(part))
        except RidgelineError as error:
            refused.append(error)
    return captures, refused


def join_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts, with those that belong together as one, in the place of the first."""
    found: list[Part | list[Counters]] = []
    for part in with_all_rows(parts):
        if isinstance(part, Capture):
            found.append(part)
            continue
        groups = (one for one in found if isinstance(one, list) and belongs_to(part, one))
        group = next(groups, None)
        if group is None:
            found.append([part])
        else:
            group.append(part)
    joined: list[Part] = []
    for one in found:
        joined += _of_use(one) if isinstance(one, list) else [one]
    return joined


def with_all_rows(parts: Sequence[Part]) -> list[Part]:
    """Tables that were cut between their rows as one, in the place of the first."""
    found: list[Part] = []
    for part in parts:
        for place, other in enumerate(found):
            if goes_on(part, other):
                assert isinstance(part, Counters) and isinstance(other, Counters)
                found[place] = _stacked(other, part)
                break
        else:
            found.append(part)
    return found


def goes_on(part: Part, other: Part) -> bool:
    """Whether it tells the same metrics of other kernels of the same process."""
    if not isinstance(part, Counters) or not isinstance(other, Counters):
        return False
    if part.names != other.names or part.kind != other.kind or part.file == other.file:
        return False
    if any(part.texts[name].iloc[0] != other.texts[name].iloc[0] for name in _PROCESS):
        return False
    is_of_one = all(
        one.texts[name].nunique() == 1 for one in (part, other) for name in _PROCESS
    ) and bool(part.texts["process_id"].iloc[0])
    return is_of_one and set(part.texts["id"]).isdisjoint(other.texts["id"])


def _stacked(a: Counters, b: Counters) -> Counters:
    """One table, in the order of the kernels' numbers."""
    import pandas as pd

    texts = pd.concat([a.texts, b.texts], ignore_index=True)
    order = texts["id"].astype(int).sort_values(kind="stable").index
    metrics = pd.concat([a.metrics, b.metrics], ignore_index=True)
    times = [*a.times, *b.times]
    return replace(
        a,
        file=f"{a.file}{BETWEEN}{b.file}",
        texts=texts.loc[order].reset_index(drop=True),
        metrics=metrics.loc[order].reset_index(drop=True),
        times=[times[number] for number in order],
        about={key: tuple(dict.fromkeys((*a.about[key], *b.about[key]))) for key in a.about},
        has_rules=a.has_rules or b.has_rules,
        remarks=tuple(dict.fromkeys((*a.remarks, *b.remarks))),
        unsound=tuple(dict.fromkeys((*a.unsound, *b.unsound))),
        left_out=(*a.left_out, *b.left_out),
        logs=(*a.logs, *b.logs),
    )


def belongs_to(part: Counters, group: Sequence[Counters]) -> bool:
    """Whether it tells something else about the kernels of a group."""
    if not _are_same(part, group[0]) or any(part.file == other.file for other in group):
        return False
    names = _all_names(group)
    if not names or not part.names:  # it has nothing of use, and can do no harm
        return True
    return _are_different(names, part.names, part.capability)


def _all_names(parts: Sequence[Counters]) -> frozenset[str]:
    return frozenset[str]().union(*(part.names for part in parts))


def _are_same(a: Counters, b: Counters) -> bool:
    """Whether both are of the same kernels in the same order."""
    if len(a.texts) != len(b.texts) or a.times != b.times:
        return False
    return all(bool((a.texts[name].array == b.texts[name].array).all()) for name in _SAME)


def _are_different(a: frozenset[str], b: frozenset[str], capability: str | None) -> bool:
    """Whether nothing but time is told by both, and there is more than time.

    A quantity may be told by both where it is more with the metrics of both than of either.
    """
    if any(not is_of_time(name) and not is_of_tensor_instructions(name) for name in a & b):
        return False
    alone, other, both = (_told(names, capability) for names in (a, b, a | b))
    shared = alone.keys() & other.keys()
    if _TIME in shared and both.keys() == {_TIME}:
        return False
    if not alone.keys() | other.keys() <= both.keys():  # counters hide a guess
        return False
    return all(both[name] > max(alone[name], other[name]) for name in shared - {_TIME})


def _told(names: frozenset[str], capability: str | None) -> dict[str, float]:
    """What each quantity would be if all these metrics were 1."""
    table = _if_all_were_1(names, capability).table
    return {str(name): float(table[name].iloc[0]) for name in table.columns}


@lru_cache(maxsize=64)
def _if_all_were_1(names: frozenset[str], capability: str | None) -> Quantities:
    import pandas as pd

    return find(pd.DataFrame(1.0, index=[0], columns=sorted(names)), compute_capability=capability)


def _of_use(group: Sequence[Counters]) -> list[Part]:
    """The group as one, and those that add nothing to it and tell something by themselves."""
    if len(group) == 1:
        return [*group]
    used = set(_if_all_were_1(_all_names(group), group[0].capability).metrics)
    known: set[str] = set()
    parts: list[Counters] = []
    useless: list[Counters] = []
    others: list[Part] = []
    for part in group:
        is_of_use = bool((part.names - known) & used)
        known |= part.names
        if is_of_use:
            parts.append(part)
        elif _told(part.names, part.capability):
            others.append(part)
        else:
            useless.append(replace(part, remarks=(*part.remarks, f"{part.file} {NO_USE}")))
    together = [*parts, *useless]  # what is of use first: of several times the first is kept
    return [*([join(together)] if together else []), *others]


def join(parts: Sequence[Counters]) -> Counters:
    """One with the metrics of all; what several have, time, is the first's."""
    found, *others = parts
    for other in others:
        found = _joined(found, other)
    return replace(found, remarks=(*found.remarks, *_other_runs(parts)))


def _joined(a: Counters, b: Counters) -> Counters:
    import pandas as pd

    a_metrics, b_metrics, said = _each_with_its_time(a, b)
    added = [name for name in b_metrics.columns if name not in a.names]
    kept = [name for name in a_metrics.columns if name not in added]
    return replace(
        a,
        file=f"{a.file}{BETWEEN}{b.file}",
        texts=_with_devices(a, b),
        metrics=pd.concat([a_metrics[kept], b_metrics[added]], axis=1),
        about={
            **{key: a.about[key] or b.about[key] for key in a.about},
            "passes": (*a.about["passes"], *b.about["passes"]),
        },
        has_rules=a.has_rules or b.has_rules,
        remarks=(*a.remarks, *b.remarks, *said),
        unsound=(*a.unsound, *b.unsound),
        left_out=(*a.left_out, *b.left_out),
        logs=(*a.logs, *b.logs),
    )


def _with_devices(a: Counters, b: Counters) -> pd.DataFrame:
    """The texts of the first; with the names of devices, if only the second has them."""
    if a.about["device"] or not b.about["device"]:
        return a.texts
    return a.texts.assign(device=b.texts["device"].array)


def _each_with_its_time(
    a: Counters, b: Counters
) -> tuple[pd.DataFrame, pd.DataFrame, Collection[str]]:
    """The metrics of both. Where both tell time, rates go with their own; the first's stays."""
    if not _tells_time(a) or not _tells_time(b):
        return a.metrics, b.metrics, ()
    (a_metrics, a_said), (b_metrics, b_said) = settled(a.metrics), settled(b.metrics)
    of_time = [name for name in b_metrics.columns if is_of_time(str(name))]
    return a_metrics, b_metrics.drop(columns=of_time), (*a_said, *b_said)


def _tells_time(part: Counters) -> bool:
    return _TIME in _told(part.names, part.capability)


def _other_runs(parts: Sequence[Counters]) -> list[str]:
    """What is to be said of files whose processes are not those of the first."""
    processes = [set(part.texts["process_id"].unique()) for part in parts]
    timed = next((f", time from {part.file}" for part in parts if _tells_time(part)), "")
    return [
        f"{part.file} is of another run of the same kernels: joined by their order{timed}"
        for part, found in zip(parts, processes, strict=True)
        if found != processes[0]
    ]

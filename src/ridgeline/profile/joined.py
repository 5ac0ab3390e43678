"""What two profilers saw of one step, joined kernel by kernel.

Both saw the same operators, by number. Within an operator kernels follow in the same order. Where
nothing is numbered (compiled code, a program without marks) the whole sequences are laid side by
side by the names of the kernels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import TEXTS
from ridgeline.profile.kernel_names import short_name
from ridgeline.profile.operators import NOWHERE, RANGE, may_use_tensor_cores

if TYPE_CHECKING:
    import pandas as pd

_INDEX = re.compile(rf"{RANGE}(\d+)")
KEPT = (  # of a capture that stands in for the trace, beside its FLOPs
    "kernel", "grid", "block", "stream", "index", "counter_time_s", "dram_bytes",
    "dram_read_bytes", "dram_write_bytes", "l2_bytes", "l1_bytes",
)  # fmt: skip
NOT_COUNTERS = frozenset({"kernel", "launches", "time_s", *TEXTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The kernels of a step with all that is known of each."""

    kernels: pd.DataFrame
    extra: int  # kernels that were counted and are not in the step


def index_of(nvtx: str) -> int:
    """The number of the operator in whose range a kernel was launched."""
    found = _INDEX.search(nvtx)
    return int(found[1]) if found else NOWHERE


def without_trace(captures: Sequence[pd.DataFrame]) -> Joined:
    """Counters of every group beside those of the first, with whichever time was counted."""
    first = captures[0].assign(index=NOWHERE)
    columns = [*KEPT, *(name for name in first if str(name).startswith("flops_"))]
    base = first[[name for name in columns if name in first]].assign(start_s=0.0)
    result = side_by_side(base, captures[1:])
    kernels = result.kernels
    timed = kernels.assign(time_s=kernels.get("counter_time_s"), time_source="counter")
    return replace(result, kernels=timed)


def side_by_side(trace: pd.DataFrame, captures: Sequence[pd.DataFrame]) -> Joined:
    """`join_counters` for kernels without numbers: the whole sequences are one operator."""
    unnumbered = [capture.assign(nvtx="") for capture in captures]
    return join_counters(trace.assign(index=NOWHERE), unnumbered, [])


def join_counters(
    trace: pd.DataFrame,
    captures: Sequence[pd.DataFrame],
    calls: Sequence[Mapping[str, Any]],
    of_products: Collection[int] = (),
) -> Joined:
    """Counters of every group beside the kernels of the trace.

    `of_products` are the captures that looked only at operators which tensor cores may do: what
    they passed over did no such work.
    """
    others = {int(call["index"]) for call in calls if not may_use_tensor_cores(str(call["op"]))}
    passed_over = trace["index"].isin(others).to_numpy()
    table = trace.drop(columns=["start_s"]).reset_index(drop=True)
    extra = 0
    for number, capture in enumerate(captures):
        places, left = _places(trace, capture, calls)
        table = _with_counters(table, capture, places, passed_over & (number in of_products))
        extra = max(extra, left)
    table = with_places(table, calls).assign(launches=1, time_source="profiler")
    return Joined(kernels=table.drop(columns=["index"]), extra=extra)


def _with_counters(
    table: pd.DataFrame, capture: pd.DataFrame, places: Sequence[Any], did_none: Any
) -> pd.DataFrame:
    """The table with the counters of a capture; `did_none` are the rows with no such work."""
    import pandas as pd

    counters = capture[[str(name) for name in capture if name not in NOT_COUNTERS]]
    found = counters.reindex([-1 if place is None else place for place in places])
    columns: dict[str, pd.Series[float]] = {}
    for name in map(str, counters):
        values = pd.Series(found[name].to_numpy(dtype=float), index=table.index)
        if name.startswith("flops_"):  # parts of one sum
            values = values.mask(did_none & values.isna(), 0.0)
            columns[name] = table[name] + values if name in table else values
        else:  # the same again: time is counted in more than one group
            columns[name] = table[name].fillna(values) if name in table else values
    return table.assign(**columns)


def with_places(table: pd.DataFrame, calls: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Layer, phase and operator of each row, by the number of its operator."""
    known = {int(call["index"]): call for call in calls}
    nothing: Mapping[str, Any] = {"layer": "", "phase": "", "op": ""}
    places = [known.get(int(index), nothing) for index in table["index"]]
    return table.assign(
        **{name: [str(place[name]) for place in places] for name in ("layer", "phase", "op")}
    )


def _places(
    trace: pd.DataFrame, capture: pd.DataFrame, calls: Sequence[Mapping[str, Any]]
) -> tuple[list[Any], int]:
    """For every kernel of the trace the row of the capture that counted it, or its like."""
    counted: dict[int, list[int]] = defaultdict(list)
    for row, nvtx in enumerate(capture["nvtx"]):
        counted[index_of(nvtx)].append(row)
    like = {int(call["index"]): int(call["like"]) for call in calls}
    mine: dict[int, list[int]] = defaultdict(list)
    for row, index in enumerate(trace["index"]):
        mine[int(index)].append(row)
    names = [short_name(name) for name in trace["kernel"]]
    theirs = [short_name(name) for name in capture["kernel"]]
    places: list[Any] = [None] * len(trace)
    used: set[int] = set()
    for index, rows in mine.items():
        for source in dict.fromkeys((index, like.get(index, index))):
            candidates = counted.get(source, [])
            if candidates:
                for row, place in _pairs(rows, candidates, names, theirs):
                    places[row] = place
                    used.add(place)
                break
    return places, len(capture) - len(used)


def _pairs(
    rows: Sequence[int], candidates: Sequence[int], names: Sequence[str], theirs: Sequence[str]
) -> list[tuple[int, int]]:
    """Pairs of the same name in the same order."""
    ours, others = [names[row] for row in rows], [theirs[row] for row in candidates]
    if ours == others:
        return list(zip(rows, candidates, strict=True))
    matcher = SequenceMatcher(None, ours, others, autojunk=False)
    return [
        (rows[block.a + step], candidates[block.b + step])
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    ]

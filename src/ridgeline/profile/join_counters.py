"""The trace and the counters of one step, joined kernel by kernel.

Both have the same operators, by number. Within an operator kernels follow in the same order. Where
nothing is numbered (compiled code, a program without marks) the whole sequences are laid side by
side by the names of the kernels, of which profilers agree on the function's own name only.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import TEXTS
from ridgeline.profile.operators import NOWHERE, RANGE

if TYPE_CHECKING:
    import pandas as pd

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_MANGLED = re.compile(r"_Z(?P<is_nested>N[rVK]*(?:St)?)?L?(?=\d)")
_SIZE = re.compile(r"[1-9]\d{0,3}")
_LIBRARIES = ("libstdc++.so.6", "libc++abi.dylib")  # that know how compilers spell names


@lru_cache(maxsize=4096)
def short_name(kernel: str) -> str:
    """The function's own name: what all profilers agree on, whatever they do with templates."""
    name = demangled(kernel) if kernel.startswith("_Z") else kernel
    start = _MANGLED.match(name)
    if start is not None:  # too long for a trace, which has cut it off
        return _last_identifier(name[start.end() :], bool(start["is_nested"])) or kernel
    name = _without_templates(_ANONYMOUS.sub("", name)).partition("(")[0].strip()
    return re.split(r"::|\s", name)[-1] or kernel


def demangled(name: str) -> str:
    """`void f<int>(int)` of `_Z1fIiEvT_`; the name itself where that cannot be told."""
    library = _library()
    if library is None:
        return name
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        library.free(ctypes.c_void_p(found))


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def _without_templates(name: str) -> str:
    """`a::b::type f` of `a<int>::b<g<1>>::type f<2>`; what is not closed reaches to the end."""
    kept, depth = [], 0
    for place, sign in enumerate(name):
        if sign == "<":
            depth += 1
        elif sign == ">" and depth and name[place - 1] != "-":
            depth -= 1
        elif not depth:
            kept.append(sign)
    return "".join(kept)


def _last_identifier(mangled: str, is_nested: bool) -> str:
    """`Kernel` of `7cutlass6KernelI…`: identifiers with their lengths, until something else.

    Without a nesting the first is the name, and what follows are its arguments.
    """
    name = ""
    while (size := _SIZE.match(mangled)) is not None:
        end = size.end() + int(size[0])
        name, mangled = mangled[size.end() : end], mangled[end:]
        if not is_nested:
            break
    return name


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
) -> Joined:
    """Counters of every group beside the kernels of the trace."""
    table = trace.drop(columns=["start_s"]).reset_index(drop=True)
    extra = 0
    for capture in captures:
        places, left = _places(trace, capture)
        table = _with_counters(table, capture, places)
        extra = max(extra, left)
    table = with_places(table, calls).assign(launches=1, time_source="profiler")
    return Joined(kernels=table.drop(columns=["index"]), extra=extra)


def _with_counters(
    table: pd.DataFrame, capture: pd.DataFrame, places: Sequence[Any]
) -> pd.DataFrame:
    """The table with the counters of a capture."""
    import pandas as pd

    counters = capture[[str(name) for name in capture if name not in NOT_COUNTERS]]
    found = counters.reindex([-1 if place is None else place for place in places])
    columns: dict[str, pd.Series[float]] = {}
    for name in map(str, counters):
        values = pd.Series(found[name].to_numpy(dtype=float), index=table.index)
        if name.startswith("flops_"):  # parts of one sum
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


def _places(trace: pd.DataFrame, capture: pd.DataFrame) -> tuple[list[Any], int]:
    """For every kernel of the trace the row of the capture that counted it."""
    counted: dict[int, list[int]] = defaultdict(list)
    for row, nvtx in enumerate(capture["nvtx"]):
        counted[index_of(nvtx)].append(row)
    mine: dict[int, list[int]] = defaultdict(list)
    for row, index in enumerate(trace["index"]):
        mine[int(index)].append(row)
    names = [short_name(name) for name in trace["kernel"]]
    theirs = [short_name(name) for name in capture["kernel"]]
    places: list[Any] = [None] * len(trace)
    used: set[int] = set()
    for index, rows in mine.items():
        for row, place in _pairs(rows, counted.get(index, []), names, theirs):
            places[row] = place
            used.add(place)
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

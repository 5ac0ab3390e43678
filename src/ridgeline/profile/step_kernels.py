"""The kernels of one step: as torch's profiler saw them, joined with their counters, and checked.

The trace has order, time and operator of every kernel. Copies and fills by the driver are no
kernels, and no counter sees them. A copy of a tensor in the same order and type is such a one.
Bytes are those of the device's memory: a copy within it reads and writes.

Trace and counters have the same operators, by number. Within an operator the n-th kernel of a name
is the same in both; where nothing is numbered (compiled code), within the step. Of a kernel's name
profilers agree on the function's own only.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import TEXTS
from ridgeline.errors import RidgelineError
from ridgeline.profile.profile_step import KNOWN_WORK, SIDE, Job
from ridgeline.tracing import RANGE

if TYPE_CHECKING:
    import pandas as pd

NOWHERE = -1  # the number of what was launched outside every operator

# ---------------------------------------------------------------- the trace

_COPIES = ("gpu_memcpy", "gpu_memset")  # categories of events
_WITHIN = "DtoD"  # in the name of a copy that stays on the device
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_EVENT_TYPES = {
    "cat": str, "name": str, "ts": float, "dur": float, "thread": str, "correlation": str,
    "grid": str, "block": str, "stream": str, "bytes": float,
}  # fmt: skip
_EVENT_COLUMNS = list(_EVENT_TYPES)
_COPY_COLUMNS = ["kind", "time_s", "start_s", "moved_bytes", "index"]
_KERNEL_COLUMNS = ["kernel", "time_s", "start_s", "grid", "block", "stream", "index"]
_BY = ("kind", "layer", "phase", "op")
AMOUNTS = ("launches", "time_s", "moved_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSteps:
    """What a process that was traced has left."""

    kernels: pd.DataFrame
    calls: tuple[Mapping[str, Any], ...]  # operators of a step; none where they have no numbers
    step_time_s: float | None  # of the unprofiled steps before
    busy_s: float  # in which at least one kernel or copy ran
    copies: pd.DataFrame  # by the driver, which are no kernels


def read_traced_steps(job: Job) -> TracedSteps:
    """Read the steps of a job, one after the other; a step without a kernel was not a step."""
    import pandas as pd

    numbers = range(1, job.steps + 1)
    steps = [Events.read(job.path(f"trace{number}.json")) for number in numbers]
    kernels, copies = [step.kernels() for step in steps], [step.copies() for step in steps]
    if not sum(map(len, kernels)):
        raise RidgelineError(
            "the profiler saw no kernel in the step",
            hint="does the model run on the GPU? another profiler in this process or a container "
            "without CUPTI would also hide them",
        )
    calls = (_read_list(job.path(f"ops{number}.json")) for number in numbers)
    times_s = _read_list(job.path("times.json"))
    return TracedSteps(
        kernels=pd.concat(kernels, ignore_index=True),
        copies=pd.concat(copies, ignore_index=True),
        busy_s=sum(_busy_s(pd.concat(both)) for both in zip(kernels, copies, strict=True)),
        calls=tuple(next(filter(None, calls), ())),
        step_time_s=median(times_s[1:]) if len(times_s) > 1 else None,
    )


def _busy_s(events: pd.DataFrame) -> float:
    """The time in which at least one of them ran."""
    ordered = events.sort_values("start_s")
    ends_s = (ordered["start_s"] + ordered["time_s"]).cummax()
    begun_s = ends_s.shift().fillna(float("-inf")).clip(lower=ordered["start_s"])
    return float((ends_s - begun_s).sum())


def _read_list(path: Path) -> list[Any]:
    """A list that the process wrote; empty where it had nothing to write."""
    content: list[Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return content


class Events:
    """The events of a trace that take time, each with the operator that launched it."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        import pandas as pd

        whole = [_tabulate(event) for event in events if event.get("ph") == "X"]
        table = pd.DataFrame(whole, columns=_EVENT_COLUMNS).astype(_EVENT_TYPES)
        launches = _find_launches(table).set_index("correlation")
        correlation = table["correlation"]
        self._table = table.assign(
            launched=correlation.map(launches["ts"]).fillna(table["ts"]),
            index=correlation.map(launches["number"]).fillna(NOWHERE).astype("int64"),
            time_s=1e-6 * table["dur"],
            start_s=1e-6 * table["ts"],
        )

    @classmethod
    def read(cls, path: Path) -> Events:
        """Of an exported trace."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            events: list[Mapping[str, Any]] = content["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RidgelineError(
                f"the trace of the step cannot be read: {error}",
                hint="did the program end by itself? run it once without `ridgeline profile`",
            ) from error
        return cls(events)

    def kernels(self) -> pd.DataFrame:
        """A row per kernel, in the order of their launches."""
        kernels = self._table[self._table["cat"].eq("kernel")]
        ordered = kernels.sort_values(["launched", "ts"], kind="stable")
        return ordered.rename(columns={"name": "kernel"})[_KERNEL_COLUMNS].reset_index(drop=True)

    def copies(self) -> pd.DataFrame:
        """A row per copy or fill by the driver."""
        copies = self._table[self._table["cat"].isin(_COPIES)]
        is_within = copies["cat"].eq(_COPIES[0]) & copies["name"].str.contains(_WITHIN, regex=False)
        moved = copies.assign(moved_bytes=copies["bytes"] * (1.0 + is_within))
        return moved.rename(columns={"name": "kind"})[_COPY_COLUMNS].reset_index(drop=True)


def _tabulate(event: Mapping[str, Any]) -> dict[str, Any]:
    details = event.get("args") or {}
    correlation = details.get("correlation")
    return {
        "cat": event.get("cat"),
        "name": event.get("name", ""),
        "ts": event["ts"],
        "dur": event.get("dur", 0.0),
        "thread": f"{event.get('pid')} {event.get('tid')}",
        "correlation": "" if correlation is None else correlation,
        "grid": _format_size(details.get("grid")),
        "block": _format_size(details.get("block")),
        "stream": details.get("stream", ""),
        "bytes": details.get("bytes") or 0,
    }


def _find_launches(table: pd.DataFrame) -> pd.DataFrame:
    """The calls that launch something, with the numbers of the operators around them.

    Operators of a thread do not overlap.
    """
    import pandas as pd

    is_operator = table["cat"].eq("user_annotation") & table["name"].str.startswith(RANGE)
    operators = table[is_operator]
    operators = operators.assign(
        end=operators["ts"] + operators["dur"],
        number=operators["name"].str.removeprefix(RANGE).astype("int64"),
    )
    is_launch = table["cat"].isin(_LAUNCHES) & table["correlation"].ne("")
    launches = table.loc[is_launch, ["correlation", "ts", "thread"]]
    around = pd.merge_asof(
        launches.drop_duplicates("correlation", keep="last").sort_values("ts"),
        operators.sort_values("ts")[["ts", "end", "thread", "number"]],
        on="ts",
        by="thread",
    )
    return around.assign(number=around["number"].where(around["ts"] <= around["end"]))


def _format_size(value: Any) -> str:
    """As ncu writes a grid: (128, 1, 1)."""
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else ""


def sum_copies(copies: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Those of one step, on average over several; what is alike in an operator is one row."""
    table = copies.assign(launches=1.0).astype(dict.fromkeys(_BY, str))
    return (table.groupby(list(_BY), sort=False)[list(AMOUNTS)].sum() / steps).reset_index()


# ---------------------------------------------------------------- names of kernels

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_MANGLED = re.compile(r"_Z(?P<is_nested>N[rVK]*(?:St)?)?L?(?=\d)")
_SIZE = re.compile(r"[1-9]\d{0,3}")
_LIBRARIES = ("libstdc++.so.6", "libc++abi.dylib")  # that know how compilers spell names


@lru_cache(maxsize=4096)
def short_name(kernel: str) -> str:
    """The function's own name: what all profilers agree on, whatever they do with templates."""
    name = demangle(kernel) if kernel.startswith("_Z") else kernel
    start = _MANGLED.match(name)
    if start is not None:  # too long for a trace, which has cut it off
        return _last_identifier(name[start.end() :], bool(start["is_nested"])) or kernel
    name = _strip_templates(_ANONYMOUS.sub("", name)).partition("(")[0].strip()
    return re.split(r"::|\s", name)[-1] or kernel


def demangle(name: str) -> str:
    """`void f<int>(int)` of `_Z1fIiEvT_`; the name itself where that is not possible."""
    library = _load_demangler()
    if library is None:
        return name
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int()))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        library.free(ctypes.c_void_p(text))


@lru_cache(maxsize=1)
def _load_demangler() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def _strip_templates(name: str) -> str:
    """`a::b::type f` of `a<int>::b<g<1>>::type f<2>`; what is not closed reaches to the end."""
    outside, depth = [], 0
    for position, sign in enumerate(name):
        if sign == "<":
            depth += 1
        elif sign == ">" and depth and name[position - 1] != "-":
            depth -= 1
        elif not depth:
            outside.append(sign)
    return "".join(outside)


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


# ---------------------------------------------------------------- joined with counters

_INDEX = re.compile(rf"{RANGE}(\d+)")
_NOT_COUNTERS = frozenset({"kernel", "launches", "time_s", *TEXTS})
LEAST_KNOWN = 0.98  # of the kernel time, with counters


def check_counters(kernels: pd.DataFrame) -> list[str]:
    """Notes on kernels of the step that could not be counted; nothing known is an error."""
    total_s = float(kernels["time_s"].sum())
    counters = [n for n in kernels if str(n).startswith("flops_") or n == "dram_bytes"]
    known = kernels[counters].notna().all(axis=1) if counters else kernels["time_s"].isna()
    share = float(kernels.loc[known, "time_s"].sum()) / total_s if total_s else 0.0
    if share == 0.0:
        raise RidgelineError(
            "none of the counted kernels is one of the step",
            hint="the step launches other kernels each time: is there an autotuner in it?",
        )
    if share >= LEAST_KNOWN:
        return []
    return [
        f"kernels with {1 - share:.1%} of the kernel time have no counters: the step "
        "launched other kernels when it was counted; sums are too low by about that share"
    ]


def check_phases(kernels: pd.DataFrame, mode: str, *, is_marked: bool) -> None:
    """A training step has a forward pass, a backward pass and an optimizer, each with kernels."""
    if mode != "train" or not is_marked:
        return
    seen = set(kernels["phase"])
    absent = [phase for phase in ("forward", "backward", "optimizer") if phase not in seen]
    if absent:
        raise RidgelineError(
            f"the captured step has no kernel in {' and '.join(absent)}",
            hint="it was not captured as a whole; without trainable weights use --mode infer",
        )


def join_counters(
    trace: pd.DataFrame, captures: Sequence[pd.DataFrame], calls: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """The kernels of a step with all that is known of each: counters beside those of the trace.

    Without calls kernels have no numbers: the whole sequences are one operator.
    """
    table = trace.drop(columns=["start_s"]).reset_index(drop=True)
    keys = _launch_keys(trace, trace["index"] if calls else None)
    for capture in captures:
        numbers = capture["nvtx"].map(operator_number) if calls else None
        counters = capture[[str(name) for name in capture if name not in _NOT_COUNTERS]]
        matched = counters.set_axis(_launch_keys(capture, numbers)).reindex(keys)
        table = _add_counters(table, matched.astype(float).set_axis(table.index))
    table = add_layers(table, calls).assign(launches=1, time_source="profiler")
    return table.drop(columns=["index"])


def _launch_keys(kernels: pd.DataFrame, numbers: pd.Series[int] | None) -> pd.MultiIndex:
    """What a kernel is known by: its operator, its name, and which of these it is."""
    import pandas as pd

    names = kernels["kernel"].map(short_name)
    keys = pd.DataFrame({"number": NOWHERE if numbers is None else numbers, "name": names})
    return pd.MultiIndex.from_frame(keys.assign(place=keys.groupby(["number", "name"]).cumcount()))


def _add_counters(table: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """FLOPs of several groups are parts of one sum; anything else is counted again."""
    columns: dict[str, pd.Series[float]] = {}
    for name in map(str, counters):
        values = counters[name]
        if name not in table:
            columns[name] = values
        else:
            is_part = name.startswith("flops_")
            columns[name] = table[name] + values if is_part else table[name].fillna(values)
    return table.assign(**columns)


def add_layers(table: pd.DataFrame, calls: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Layer, phase and operator of each row, by the number of its operator."""
    import pandas as pd

    names = ["layer", "phase", "op"]
    known = pd.DataFrame(list(calls), columns=["index", *names]).set_index("index").astype(str)
    found = known.reindex(table["index"]).fillna("").set_axis(table.index)
    return table.assign(**{name: found[name] for name in names})


def operator_number(nvtx: str) -> int:
    """The number of the operator in whose range a kernel was launched."""
    match = _INDEX.search(nvtx)
    return int(match[1]) if match else NOWHERE


# ---------------------------------------------------------------- work of known size

TOLERANCE = 0.05
PRODUCT_FLOPS = 2 * SIDE**3


def is_known_work(kernels: pd.DataFrame) -> pd.Series:
    """Which rows of a capture belong to the test."""
    return kernels["nvtx"].str.contains(KNOWN_WORK, regex=False)


def compute_ratios(captures: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Counted over true, for every quantity that some capture counted."""
    ratios: dict[str, float] = {}
    for kernels in captures:
        tested = kernels[is_known_work(kernels)]
        for name, rows in tested.groupby(tested["nvtx"].str.extract(f"{KNOWN_WORK}([^/ ]+)")[0]):
            what, _, detail = str(name).partition(":")
            if what == "copy" and "dram_bytes" in rows:
                ratios["copy"] = float(rows["dram_bytes"].sum(min_count=1)) / (2 * int(detail))
            elif what == "product":
                counted = _product_flops(rows, detail)
                if counted is not None:  # several groups may hold parts of it
                    so_far = ratios.get(f"product {detail}", 0.0)
                    ratios[f"product {detail}"] = so_far + counted / PRODUCT_FLOPS
    return {name: ratio for name, ratio in ratios.items() if ratio == ratio}


def _product_flops(rows: pd.DataFrame, kind: str) -> float | None:
    column = "flops_fp32_vector" if kind == "fp32" else f"flops_{kind}_matrix"
    return float(rows[column].sum(min_count=1)) if column in rows else None


def doubt_ratios(ratios: Mapping[str, float]) -> list[str]:
    """A warning wherever these counters are used; empty if they can be trusted."""
    if not ratios:
        return ["the counters were not tested: no work of known size was seen"]
    wrong = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > TOLERANCE}
    if not wrong:
        return []
    words = ", ".join(f"{name}: {ratio:.3f} of the truth" for name, ratio in wrong.items())
    return [f"these counters are off by more than {TOLERANCE:.0%} on work of known size: {words}"]

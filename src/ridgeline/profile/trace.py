"""The kernels and copies of one step as torch's profiler saw them: order, time, and operator.

Copies and fills by the driver are no kernels, and no counter sees them. A copy of a tensor in the
same order and type is such a one. Bytes are those of the device's memory: a copy within it reads
and writes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.kernels import union_length
from ridgeline.profile.operators import NOWHERE, RANGE
from ridgeline.profile.step_mark import Job

if TYPE_CHECKING:
    import pandas as pd

COPY, FILL = "gpu_memcpy", "gpu_memset"  # categories of events
WITHIN = "DtoD"  # in the name of a copy that stays on the device
TYPES = {"kind": str, "time_s": float, "start_s": float, "moved_bytes": float, "index": int}
BY = ("kind", "layer", "phase", "op")
AMOUNTS = ("launches", "time_s", "moved_bytes")


def is_copy(event: Mapping[str, Any]) -> bool:
    """Whether an event of a trace is one."""
    return event.get("cat") in (COPY, FILL)


def copies_in(events: Iterable[tuple[Mapping[str, Any], int]]) -> pd.DataFrame:
    """A row per event, each of which comes with the number of its operator."""
    import pandas as pd

    rows = [_row(event, index) for event, index in events]
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


def _row(event: Mapping[str, Any], index: int) -> dict[str, Any]:
    name = str(event.get("name", ""))
    sides = 2 if event.get("cat") == COPY and WITHIN in name else 1
    return {
        "kind": name,
        "time_s": 1e-6 * float(event.get("dur", 0.0)),
        "start_s": 1e-6 * float(event["ts"]),
        "moved_bytes": sides * int((event.get("args") or {}).get("bytes") or 0),
        "index": index,
    }


def by_operator(copies: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Those of one step, on average over several; what is alike in an operator is one row."""
    table = copies.assign(launches=1.0).astype(dict.fromkeys(BY, str))
    return (table.groupby(list(BY), sort=False)[list(AMOUNTS)].sum() / steps).reset_index()


def in_all(copies: pd.DataFrame) -> dict[str, float]:
    """`{"launches", "time_s", "moved_bytes"}` of a step."""
    return {name: float(copies[name].sum()) for name in AMOUNTS}


LAUNCHES = ("cuda_runtime", "cuda_driver")
COLUMNS = ("kernel", "time_s", "start_s", "grid", "block", "stream", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSteps:
    """What a process that was traced has left."""

    kernels: pd.DataFrame
    calls: tuple[Mapping[str, Any], ...]  # operators of a step; none where they have no numbers
    step_time_s: float | None  # of the steps before, that nobody looked at
    busy_s: float  # in which at least one kernel or copy ran
    copies: pd.DataFrame  # by the driver, which are no kernels


def traced_steps(job: Job) -> TracedSteps:
    """Read the steps of a job, one after the other."""
    import pandas as pd

    numbers = range(1, job.steps + 1)
    steps = [Events.read(job.path(f"trace{number}.json")) for number in numbers]
    kernels, copies = [step.kernels() for step in steps], [step.copies() for step in steps]
    calls = (_written(job.path(f"ops{number}.json")) for number in numbers)
    times_s = _written(job.path("times.json"))
    return TracedSteps(
        kernels=pd.concat(kernels, ignore_index=True),
        copies=pd.concat(copies, ignore_index=True),
        busy_s=sum(_busy_s(pd.concat(both)) for both in zip(kernels, copies, strict=True)),
        calls=tuple(next(filter(None, calls), ())),
        step_time_s=median(times_s[1:]) if len(times_s) > 1 else None,
    )


def _busy_s(events: pd.DataFrame) -> float:
    starts_s = events["start_s"]
    return union_length(zip(starts_s, starts_s + events["time_s"], strict=True))


def _written(path: Path) -> list[Any]:
    """A list that the process wrote; empty where it had nothing to write."""
    found: list[Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


class Events:
    """What a trace says, each thing that ran with the call that launched it."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        self._whole = [event for event in events if event.get("ph") == "X"]
        self._launches = {
            event["args"]["correlation"]: event
            for event in self._whole
            if event.get("cat") in LAUNCHES and "correlation" in (event.get("args") or {})
        }
        self._operators = _Operators(self._whole)

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
        import pandas as pd

        rows = []
        for event in self._whole:
            if event.get("cat") != "kernel":
                continue
            given = event.get("args") or {}
            launch = self._launch(event)
            order = (event["ts"] if launch is None else launch["ts"], event["ts"])
            rows.append((order, {
                "kernel": str(event.get("name", "")),
                "time_s": 1e-6 * float(event.get("dur", 0.0)),
                "start_s": 1e-6 * float(event["ts"]),
                "grid": _size(given.get("grid")),
                "block": _size(given.get("block")),
                "stream": str(given.get("stream", "")),
                "index": self._operator_of(launch),
            }))  # fmt: skip
        rows.sort(key=lambda row: row[0])
        return pd.DataFrame([row for _, row in rows], columns=list(COLUMNS))

    def copies(self) -> pd.DataFrame:
        """What the driver copied and filled (copies.py)."""
        copies = filter(is_copy, self._whole)
        return copies_in((event, self._operator_of(self._launch(event))) for event in copies)

    def _launch(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._launches.get((event.get("args") or {}).get("correlation"))

    def _operator_of(self, launch: Mapping[str, Any] | None) -> int:
        return NOWHERE if launch is None else self._operators.around(launch)


def _size(value: Any) -> str:
    """As ncu writes a grid: (128, 1, 1)."""
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else ""


class _Operators:
    """The ranges of operators, thread by thread; they do not overlap on a thread."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        found: dict[tuple[Any, Any], list[tuple[float, float, int]]] = {}
        for event in events:
            name = str(event.get("name", ""))
            if event.get("cat") == "user_annotation" and name.startswith(RANGE):
                start, number = float(event["ts"]), name.removeprefix(RANGE)
                span = (start, start + float(event.get("dur", 0.0)), int(number))
                found.setdefault((event.get("pid"), event.get("tid")), []).append(span)
        self._spans = {thread: sorted(spans) for thread, spans in found.items()}
        self._starts = {t: [span[0] for span in spans] for t, spans in self._spans.items()}

    def around(self, launch: Mapping[str, Any]) -> int:
        """The operator in which a launch happened."""
        thread, moment = (launch.get("pid"), launch.get("tid")), float(launch["ts"])
        place = bisect_right(self._starts.get(thread, []), moment) - 1
        if place < 0:
            return NOWHERE
        _, end, number = self._spans[thread][place]
        return number if moment <= end else NOWHERE

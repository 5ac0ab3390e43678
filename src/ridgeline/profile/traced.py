"""The kernels of one step as torch's profiler saw them: their order, time, and operator."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.covered import covered
from ridgeline.profile.operators import NOWHERE, RANGE, may_use_tensor_cores
from ridgeline.profile.step_mark import Job

if TYPE_CHECKING:
    import pandas as pd

LAUNCHES = ("cuda_runtime", "cuda_driver")
COLUMNS = ("kernel", "time_s", "start_s", "grid", "block", "stream", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSteps:
    """What a process that was traced has left."""

    kernels: pd.DataFrame
    calls: tuple[Mapping[str, Any], ...]  # operators of a step; none where they have no numbers
    step_time_s: float | None  # of the steps before, that nobody looked at
    busy_s: float  # in which at least one kernel ran

    @property
    def distinct(self) -> int:
        """Kernels of operators that differ in their work."""
        return self._launched_by(self._first) if self.calls else len(self.kernels)

    @property
    def products(self) -> int:
        """Of these, kernels of operators that may use tensor cores."""
        products = [call for call in self._first if may_use_tensor_cores(str(call["op"]))]
        return self._launched_by(products) if self.calls else len(self.kernels)

    @property
    def _first(self) -> list[Mapping[str, Any]]:
        return [call for call in self.calls if call["index"] == call["like"]]

    def _launched_by(self, calls: Iterable[Mapping[str, Any]]) -> int:
        return int(self.kernels["index"].isin({int(call["index"]) for call in calls}).sum())


def traced_steps(job: Job) -> TracedSteps:
    """Read the steps of a job, one after the other."""
    import pandas as pd

    numbers = range(1, job.steps + 1)
    tables = [traced_kernels(job.path(f"trace{number}.json")) for number in numbers]
    calls = (_written(job.path(f"ops{number}.json")) for number in numbers)
    times_s = _written(job.path("times.json"))
    return TracedSteps(
        kernels=tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True),
        busy_s=sum(map(_busy_s, tables)),
        calls=tuple(next(filter(None, calls), ())),
        step_time_s=median(times_s[1:]) if len(times_s) > 1 else None,
    )


def _busy_s(kernels: pd.DataFrame) -> float:
    starts_s = kernels["start_s"]
    return covered(zip(starts_s, starts_s + kernels["time_s"], strict=True))


def _written(path: Path) -> list[Any]:
    """A list that the process wrote; empty where it had nothing to write."""
    found: list[Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return found


def traced_kernels(path: Path) -> pd.DataFrame:
    """A row per kernel in the order of their launches, from an exported trace."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        events = content["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RidgelineError(
            f"the trace of the step cannot be read: {error}",
            hint="did the program end by itself? run it once without `ridgeline profile`",
        ) from error
    return kernels_in(events)


def kernels_in(events: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The kernels among the events of a trace."""
    import pandas as pd

    whole = [event for event in events if event.get("ph") == "X"]
    launches = {
        event["args"]["correlation"]: event
        for event in whole
        if event.get("cat") in LAUNCHES and "correlation" in (event.get("args") or {})
    }
    operators = _Operators(whole)
    rows = []
    for event in whole:
        if event.get("cat") != "kernel":
            continue
        given = event.get("args") or {}
        launch = launches.get(given.get("correlation"))
        order = (launch["ts"], event["ts"]) if launch is not None else (event["ts"], event["ts"])
        rows.append((order, {
            "kernel": str(event.get("name", "")),
            "time_s": 1e-6 * float(event.get("dur", 0.0)),
            "start_s": 1e-6 * float(event["ts"]),
            "grid": _size(given.get("grid")),
            "block": _size(given.get("block")),
            "stream": str(given.get("stream", "")),
            "index": operators.around(launch) if launch is not None else NOWHERE,
        }))  # fmt: skip
    rows.sort(key=lambda row: row[0])
    return pd.DataFrame([row for _, row in rows], columns=list(COLUMNS))


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

"""One configuration on two sides: its times, phases and layers, and the settings that differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.provenance import speed_variables
from ridgeline.report.run_facts import disturbance
from ridgeline.report.selectors import step_samples
from ridgeline.report.two_samples import Change, center, compare_groups, difference_interval
from ridgeline.store import Run
from ridgeline.units import format_percent

if TYPE_CHECKING:
    import pandas as pd

STEP, SAMPLE = "step", "sample"
CLOCK_DIFFERS = 0.03  # as a share; a clock that moves by less is the same one
CLOCK_EXPLAINS = 0.03  # the ratio of clocks is that of times, within this
WARMER_C = 5.0
BUSIER = 0.05
NOT_SETTINGS = (  # of the request: names, and what does not change a step
    "command", "label", "repeat", "precision", "backend", "layers", "energy", "energy_time_s",
    "layer_energy",
)  # fmt: skip
RESULT_SETTINGS = ("precision", "backend", "device_name", "device_uuid", "threads")
NOT_PROVENANCE = ("time", "command", "environment")  # the first two differ between any two runs
NOT_SET = "not set"  # an environment variable, in a run that would have recorded it
SHOWN_SHA = 10

Runs = Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A phase or a layer on two sides; None on the side that lacks it."""

    name: str
    before_s: float | None
    after_s: float | None
    interval_s: tuple[float, float] | None = None  # of the difference, 95 %

    @property
    def difference_s(self) -> float:
        """The second side's time without the first's."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)

    @property
    def is_on_both(self) -> bool:
        return self.before_s is not None and self.after_s is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "before_s": self.before_s,
            "after_s": self.after_s,
            "difference_s": self.difference_s if self.is_on_both else None,
            "interval_s": self.interval_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting or version that is not the same on both sides."""

    name: str
    before: str  # several, if the runs of the side differ: "2.10.0, 2.11.0"
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """One configuration on two sides. Parts are sorted by what they add to the difference."""

    name: str  # "resnet50, batch 32, train, amp"
    per: str  # times are of a STEP, or of a SAMPLE where the sides' steps have different sizes
    time: Change
    others: Mapping[str, Change]  # of QUANTITIES, those that all runs have
    phases: tuple[Part, ...]
    layers: tuple[Part, ...]  # none if they were not timed on both sides
    conditions: tuple[str, ...]  # that differed while the steps were timed
    warnings: tuple[str, ...]  # of the runs
    run_ids: tuple[tuple[str, ...], tuple[str, ...]]
    disturbed: tuple[str, ...] = ()  # sides on which the machine was busy: "A (…)"

    @property
    def why_not_judged(self) -> str:
        """Empty if it is judged."""
        busy = f"the machine was busy during {' and '.join(self.disturbed)}"
        return busy if self.disturbed else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "configuration": self.name,
            "verdict": self.time.verdict,
            "per": self.per,
            "time_s": change_dict(self.time),
            **{name: change_dict(change) for name, change in self.others.items()},
            "phases": [part.to_dict() for part in self.phases],
            "layers": [part.to_dict() for part in self.layers],
            "conditions": list(self.conditions),
            "warnings": list(self.warnings),
            "why_not_judged": self.why_not_judged or None,
            "runs": {"before": list(self.run_ids[0]), "after": list(self.run_ids[1])},
        }


def change_dict(change: Change) -> dict[str, Any]:
    """Shares: 0.05 is five per cent more on the second side."""
    test = change.test
    return {
        "before": change.before,
        "after": change.after,
        "change": change.share,
        "interval": [end - 1 for end in change.interval] if change.interval else None,
        "is_shown": change.is_shown,
        "test": {"name": "Mann-Whitney U", "u": test.u, "p": test.p, "method": test.method,
                 "of": test.of, "counts": list(test.counts)},
        "runs": list(change.runs),
    }  # fmt: skip


def compare_runs(
    name: str, before: Runs, after: Runs, *, layers: Mapping[str, pd.DataFrame] | None = None
) -> ComparedRuns:
    """Compare runs of one configuration; `layers` has tables by run id, where there are any."""
    sides, tables = (before, after), layers or {}
    runs = [*before, *after]
    per = STEP if len({samples_per_step(run) for run in runs}) == 1 else SAMPLE
    disturbed = tuple(text for side, of in zip("AB", sides, strict=True)
                      for text in _name_disturbance(side, of))  # fmt: skip

    def split(read: Callable[[Run], dict[str, list[float]]]) -> list[dict[str, list[list[float]]]]:
        return [_gather(read, of, per) for of in sides]

    times = split(lambda run: {STEP: step_samples(run)})
    time = compare_groups(times[0][STEP], times[1][STEP], is_judged=not disturbed)
    timed = split(lambda run: layer_samples(tables[run.run_id]) if run.run_id in tables else {})
    return ComparedRuns(
        name=name,
        per=per,
        time=time,
        others=_compare_quantities(before, after, is_judged=not disturbed),
        phases=_compare_parts(*split(phase_samples)),
        layers=_compare_parts(*timed) if all(timed) else (),
        conditions=find_conditions(before, after, time.ratio),
        warnings=tuple(dict.fromkeys(w for run in runs for w in run.found.get("warnings") or ())),
        run_ids=(tuple(r.run_id for r in before), tuple(r.run_id for r in after)),
        disturbed=disturbed,
    )


def _name_disturbance(side: str, runs: Runs) -> tuple[str, ...]:
    """`A (other programs had the processor)`, if the machine was busy in half of its runs or more.

    In fewer, the median of the runs' medians is that of a quiet one.
    """
    reasons = [reason for run in runs if (reason := disturbance(run))]
    if 2 * len(reasons) < len(runs):
        return ()
    return (f"{side} ({'; '.join(dict.fromkeys(reasons))})",)


def samples_per_step(run: Run) -> int:
    return int(run.found.get("samples_per_step") or run.asked["batch_size"])


# ---------------------------------------------------------------- quantities other than time


def _read_throughput(run: Run) -> list[float]:
    """Of the median step, as everywhere: the mean follows a single slow step."""
    return [samples_per_step(run) / run.found["step_time_s"]["median"]]


def _read_energy(run: Run) -> list[float]:
    """Per sample, of every window; of the run as a whole if its windows are not known."""
    energy = run.found.get("energy") or {}
    windows = [window["energy_j_per_step"] for window in energy.get("windows") or ()]
    if not windows:
        return [energy["energy_j_per_sample"]]
    return [window / samples_per_step(run) for window in windows]


AT_ANY_LOAD = ("peak_memory_bytes",)  # a busy machine does not change it
QUANTITIES: dict[str, tuple[Callable[[Run], list[float]], str]] = {  # and what its samples are
    "samples_per_s": (_read_throughput, "runs"),
    "energy_j_per_sample": (_read_energy, "windows"),
    "peak_memory_bytes": (lambda run: [run.found["peak_memory_bytes"]], "runs"),
}


def _compare_quantities(before: Runs, after: Runs, *, is_judged: bool) -> dict[str, Change]:
    changes = {}
    for name, (read, of) in QUANTITIES.items():
        groups = [[_read_positive(read, run) for run in runs] for runs in (before, after)]
        if all(groups[0]) and all(groups[1]):
            judge = is_judged or name in AT_ANY_LOAD
            changes[name] = compare_groups(groups[0], groups[1], of=of, is_judged=judge)
    return changes


def _read_positive(read: Callable[[Run], list[float]], run: Run) -> list[float]:
    """None at all where the run lacks them, or has a zero that no ratio can be made of."""
    try:
        values = [float(value) for value in read(run)]
    except (KeyError, TypeError):
        return []
    return values if all(value > 0 for value in values) else []


# ---------------------------------------------------------------- phases and layers


def _gather(
    read: Callable[[Run], dict[str, list[float]]], runs: Runs, per: str
) -> dict[str, list[list[float]]]:
    """The samples of each part, run by run, on the scale of `per`."""
    parts: dict[str, list[list[float]]] = {}
    for run in runs:
        scale = 1.0 if per == STEP else 1 / samples_per_step(run)
        for name, samples in read(run).items():
            parts.setdefault(name, []).append([scale * sample for sample in samples])
    return parts


def _compare_parts(
    before: dict[str, list[list[float]]], after: dict[str, list[list[float]]]
) -> tuple[Part, ...]:
    """Parts of both sides first, the largest difference first."""
    parts = []
    for name in dict.fromkeys([*before, *after]):
        left, right = before.get(name), after.get(name)
        parts.append(Part(
            name=name,
            before_s=center(left) if left else None,
            after_s=center(right) if right else None,
            interval_s=difference_interval(left, right) if left and right else None,
        ))  # fmt: skip
    return tuple(sorted(parts, key=lambda part: (not part.is_on_both, -abs(part.difference_s))))


def phase_samples(run: Run) -> dict[str, list[float]]:
    """Time of each phase in each step."""
    split: dict[str, Any] = run.found.get("split_s") or {}
    return {name: part.get("samples") or [part["median"]] for name, part in split.items()}


def layer_samples(table: pd.DataFrame) -> dict[str, list[float]]:
    """Time of each layer in each timed step; its one known time where it has no samples.

    Needs columns layer and time_s, and takes forward_samples_s and backward_samples_s.
    """
    layers = {}
    for row in table.to_dict("records"):
        stages = [row.get(f"{stage}_samples_s") for stage in ("forward", "backward")]
        timed = [list(stage) for stage in stages if stage is not None and len(stage)]
        sums = [sum(step) for step in zip(*timed, strict=False)]
        layers[str(row["layer"])] = sums or [row["time_s"]]
    return layers


# ---------------------------------------------------------------- settings


def find_settings(before: Runs, after: Runs) -> tuple[Setting, ...]:
    """Settings, device, versions, commits and environment variables that differ between sides."""
    variables = sorted({name for run in (*before, *after) for name in _read_environment(run) or ()})
    left, right = _read_values(before, variables), _read_values(after, variables)
    return tuple(
        Setting(name=name, before=_join(left.get(name)), after=_join(right.get(name)))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    )


def _join(values: set[str] | None) -> str:
    return ", ".join(sorted(values)) if values else "not known"


def _read_values(runs: Runs, variables: Sequence[str]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for run in runs:
        recorded = _read_environment(run)
        known = {} if recorded is None else {v: recorded.get(v, NOT_SET) for v in variables}
        for name, value in {**_read_settings(run), **known}.items():
            values.setdefault(name, set()).add(setting_text(value))
    return values


def _read_environment(run: Run) -> dict[str, str] | None:
    """The variables that were recorded; None of a run by a version that recorded none."""
    recorded = run.provenance.get("environment")
    return speed_variables(recorded) if isinstance(recorded, Mapping) else None


def _read_settings(run: Run) -> dict[str, Any]:
    origin = {name: value for name, value in run.provenance.items() if name not in NOT_PROVENANCE}
    for name in ("commit", "ridgeline_commit"):
        origin[name] = _commit_text(origin.get(name))
    return {
        **{name: value for name, value in run.asked.items() if name not in NOT_SETTINGS},
        **{name: run.found.get(name) for name in RESULT_SETTINGS},
        **{_shorten(name): value for name, value in _flatten(origin)},
    }


def _flatten(content: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(content, list | tuple):
        content = dict(enumerate(content))
    if not isinstance(content, Mapping):
        yield prefix, content
        return
    for name, item in content.items():
        yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))


def _shorten(name: str) -> str:
    """`torch` of `libraries.torch`, `device 0 driver` of `host.devices.0.driver`."""
    words = name.replace("host.devices.", "device ").split(".")
    if words[0] == "backends":  # that torch was built with: `cuda`, `cudnn`
        return f"torch's {' '.join(words[1:])}"
    return " ".join(words[1:] if words[0] == "libraries" else words)


def _commit_text(commit: Any) -> str | None:
    if not isinstance(commit, Mapping):
        return None
    changed = " with changes" if commit.get("is_dirty") else ""
    return f"{str(commit.get('sha'))[:SHOWN_SHA]}{changed}"


def setting_text(value: Any) -> str:
    """A setting as people write it: `none`, `yes`, `224x224`, `a=1,b=2`."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "x".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={json.dumps(value[key])}" for key in sorted(value))
    return str(value)


# ---------------------------------------------------------------- conditions


def find_conditions(before: Runs, after: Runs, ratio: float) -> tuple[str, ...]:
    """Clocks, limits, temperature and idle time that differ; `ratio` is that of the times."""
    lines = []
    clocks = _read_medians(before, after, "clock_hz")
    if clocks and all(clocks) and abs(clocks[1] / clocks[0] - 1) > CLOCK_DIFFERS:
        explains = abs(ratio * clocks[1] / clocks[0] - 1) < CLOCK_EXPLAINS
        lines.append(f"clock {clocks[0] / 1e6:.0f} → {clocks[1] / 1e6:.0f} MHz"
                     + (" explains it" if explains else ""))  # fmt: skip
    left, right = ({reason for run in runs for reason in _during(run).get("throttle_reasons") or ()}
                   for runs in (before, after))  # fmt: skip
    for when, new in (("before", left - right), ("after", right - left)):
        if new:
            lines.append(f"held down by {', '.join(sorted(new))} only {when}")
    warm = _read_medians(before, after, "temperature_c")
    if warm and abs(warm[1] - warm[0]) > WARMER_C:
        lines.append(f"temperature {warm[0]:.0f} → {warm[1]:.0f} °C")
    busy = _read_medians(before, after, "busy_fraction")
    if busy and abs(busy[1] - busy[0]) > BUSIER:
        shares = " → ".join(map(format_percent, busy))
        lines.append(f"the device was busy {shares} of the time")
    return tuple(lines)


def _during(run: Run) -> dict[str, Any]:
    return (run.found.get("conditions") or {}).get("during") or {}


def _read_medians(before: Runs, after: Runs, name: str) -> tuple[float, float] | None:
    """Of both sides, if both know it."""
    left, right = (
        [value for run in runs if (value := {**run.found, **_during(run)}.get(name)) is not None]
        for runs in (before, after)
    )
    return (median(left), median(right)) if left and right else None
